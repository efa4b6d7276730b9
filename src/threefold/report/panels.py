"""The content of figures, independent of drawing: panels of curves over a budget or a hyperparameter, or of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import isnan, sqrt
from typing import Literal

from threefold.report.formatting import count
from threefold.results import Ordered, Summary

By = Literal["paper", "best", "honest"]
"""How a value was selected: by the paper, as our best on the test sets, or by the rule that uses no test data."""

WHO: dict[By, str] = {"paper": "paper's choice", "best": "best of ours", "honest": "chosen without peeking"}

ACCURACY = "average accuracy (%)"


@dataclass(frozen=True)
class Line:
    """A curve. Its colour is an index into the palette (`hue`), or a position on a scale from 0 to 1 (`shade`)."""

    label: str
    x: Sequence[float]
    values: Sequence[Summary]
    hue: int = 0
    shade: float | None = None
    names: Sequence[str] = ()  # of the points, if they are of different things, which no curve joins

    @classmethod
    def through(cls, label: str, points: dict[float, Summary], hue: int, shade: float | None = None) -> "Line":
        xs = sorted(points)
        return cls(label, xs, [points[x] for x in xs], hue, shade)


@dataclass(frozen=True)
class Level:
    """A method that does not depend on x: a horizontal line."""

    label: str
    strategy: str
    value: Summary
    method: str = ""


@dataclass(frozen=True)
class Mark:
    """A selected point of a line."""

    x: float
    value: Summary | None  # None: it was never trained
    line: int
    by: By


@dataclass(frozen=True)
class Panel:
    """One set of axes; a figure has panels in rows and columns."""

    row: str
    column: str
    x_label: str
    log: bool
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    marks: Sequence[Mark] = ()
    stream: str = ""
    left_out: Sequence[str] = ()  # levels without a mean, as a seed diverged
    names: Sequence[str] = ()  # of the x values, if they are not numbers: runs are drawn instead of curves
    measured: str = ACCURACY

    @property
    def title(self) -> str:
        return f"{self.row}, {self.column}"

    def banded(self, place: int) -> bool:
        """Does this line have a band? Of many shades only the best one does, as bands would hide each other."""
        return self.lines[place].shade is None or any(m.line == place and m.by == "best" for m in self.marks)

    @property
    def lost(self) -> list[float]:
        """The x values without a mean, as a run diverged."""
        return sorted({x for line in self.lines for x, v in zip(line.x, line.values, strict=True) if isnan(v.mean)})


@dataclass(frozen=True)
class Choice:
    """Selected hyperparameters as text, with their accuracy."""

    text: str
    accuracy: Summary | None = None  # None: it was not trained
    elsewhere: bool = False  # trained for a table, not for this grid


@dataclass(frozen=True)
class Selected:
    """The values selected in a scenario; None if there are none."""

    method: str
    scenario: str
    paper: Choice | None
    best: Choice | None
    honest: Choice | None = None  # on training data held out of the first tasks, all that a learner could use
    first: Choice | None = None  # the same, of the first task only
    seen: int = 0  # tasks that were learned before `honest` was chosen


@dataclass(frozen=True)
class Chart:
    """The panels of one figure."""

    name: str
    title: str
    caption: str
    key: str  # the meanings of bands and marks
    panels: Sequence[Panel]
    selected: Sequence[Selected] = field(default=())
    listed: Sequence[float] = ()  # the x values in tables; empty: all

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(panel.row for panel in self.panels))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(panel.column for panel in self.panels))

    @property
    def lines(self) -> dict[str, Line]:
        """The curves by label, as a legend needs them; several panels may have the same one."""
        return {line.label: line for panel in self.panels for line in panel.lines}

    @property
    def selected_by(self) -> set[By]:
        return {mark.by for panel in self.panels for mark in panel.marks}

    @property
    def fingerprint(self) -> str:
        """A checksum of everything shown, to four digits, stored in the file to identify what it was drawn from."""
        shown: list[object] = [self.title, self.caption, self.key]
        for panel in self.panels:
            shown.append((panel.title, panel.x_label))
            shown += [
                (line.label, x, _rounded(v)) for line in panel.lines for x, v in zip(line.x, line.values, strict=True)
            ]
            shown += [(level.label, _rounded(level.value)) for level in panel.levels]
            shown += [(mark.by, mark.x, mark.line, _rounded(mark.value)) for mark in panel.marks]
        return sha256(repr(shown).encode()).hexdigest()[:32]


def _rounded(value: Summary | None) -> str:
    return f"{value.mean:.4f} {value.sem:.4f}" if value else ""


def deviation(value: Summary) -> float:
    """The standard deviation over runs."""
    return value.sem * sqrt(value.n)


def reach(panel: Panel) -> list[float]:
    """The values that a panel must include: means, bands, marks, and triangles above their values."""
    if panel.names:
        every = [value for line in panel.lines for value in line.values]
        ends = [value.mean + way * deviation(value) for value in every for way in (-1, 1)]
        return [at for at in [*ends, *(each for value in every for each in value.per_seed)] if not isnan(at)]
    found = [value for place, line in enumerate(panel.lines) if panel.banded(place) for value in line.values]
    found += [level.value for level in panel.levels]
    edges = [value.mean + way * value.sem for value in found for way in (-1, 1) if not isnan(value.sem)]
    means = [value.mean for line in panel.lines for value in line.values] + [value.mean for value in found]
    marked = [(mark.by, mark.value.mean) for mark in panel.marks if mark.value and not isnan(mark.value.mean)]
    all_of = [at for at in means + edges + [mean for _, mean in marked] if not isnan(at)]
    tip = 0.08 * (max(all_of) - min(all_of)) if all_of else 0.0
    return all_of + [mean + tip for by, mean in marked if by == "honest"]


def scattered(values: Sequence[float]) -> list[float]:
    """Horizontal offsets within half a unit to either side, for points that would overlap."""
    return [(0.618 * place) % 1 - 0.5 for place in range(len(values))]


def seeds_of(values: Sequence[Summary]) -> str:
    """The number of seeds behind these means, in words."""
    said = list(dict.fromkeys(runs_of(value) for value in values))
    if len(said) == 1:
        return said[0]
    numbers = [value.n for value in values] or [0]
    what = "seeds" if all(text.endswith(("seed", "seeds")) for text in said) else "runs"
    return f"{min(numbers)} to {max(numbers)} {what}"


def runs_of(value: Summary) -> str:
    """20 seeds; 1 seed in 100 orders; or the number of runs, if seeds have different numbers of orders."""
    ordered = [seed for seed in value.seeds if isinstance(seed, Ordered)]
    if not ordered:
        return count(value.n, "seed")
    seeds, orders = len({seed.seed for seed in ordered}), len({seed.order for seed in ordered})
    if value.n == len(ordered) == seeds * orders:
        return f"{count(seeds, 'seed')} in {count(orders, 'order')}"
    return count(value.n, "run")
