"""What figures show, before anything is drawn: panels of curves over a budget or a hyperparameter, or of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import isnan, sqrt
from typing import Literal

from threefold.report.formatting import count
from threefold.results import Ordered, Summary

By = Literal["paper", "best", "honest"]
"""Who selected a value: the paper, the best of ours on the test sets, or the rule that does not peek."""

WHO: dict[By, str] = {"paper": "paper's choice", "best": "best of ours", "honest": "chosen without peeking"}

ACCURACY = "average accuracy (%)"


@dataclass(frozen=True)
class Line:
    """A curve. Its colour is a place in the palette (`hue`), or on a scale from 0 to 1 (`shade`)."""

    label: str
    x: Sequence[float]
    values: Sequence[Summary]
    hue: int = 0
    shade: float | None = None
    names: Sequence[str] = ()  # of the points, where these are of different things: no curve joins them then

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
    """A point of a line that was selected."""

    x: float
    value: Summary | None  # None: it was never trained
    line: int
    by: By


@dataclass(frozen=True)
class Panel:
    """One coordinate system; a figure has them in rows and columns."""

    row: str
    column: str
    x_label: str
    log: bool
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    marks: Sequence[Mark] = ()
    stream: str = ""
    left_out: Sequence[str] = ()  # levels that have no mean, as a seed diverged
    names: Sequence[str] = ()  # of the x, where these are no numbers: each run is drawn then, and no curve
    measured: str = ACCURACY

    @property
    def title(self) -> str:
        return f"{self.row}, {self.column}"

    def banded(self, place: int) -> bool:
        """Has this line a band? Of many shades only the one with the best point: they would hide each other."""
        return self.lines[place].shade is None or any(m.line == place and m.by == "best" for m in self.marks)

    @property
    def lost(self) -> list[float]:
        """Where a run diverged, so that there is no mean."""
        return sorted({x for line in self.lines for x, v in zip(line.x, line.values, strict=True) if isnan(v.mean)})


@dataclass(frozen=True)
class Choice:
    """A value of the hyperparameters, as it is written, and the accuracy that it leads to."""

    text: str
    accuracy: Summary | None = None  # None: it was not trained
    elsewhere: bool = False  # trained for a table, not for this grid


@dataclass(frozen=True)
class Selected:
    """Which values were chosen in a scenario; None if none were."""

    method: str
    scenario: str
    paper: Choice | None
    best: Choice | None
    honest: Choice | None = None  # on training data held out of the first tasks: all that a learner could have seen
    first: Choice | None = None  # the same of the very first task
    seen: int = 0  # tasks that were learned before `honest` was chosen


@dataclass(frozen=True)
class Chart:
    """Panels that belong together: one figure."""

    name: str
    title: str
    caption: str
    key: str  # what bands and marks mean
    panels: Sequence[Panel]
    selected: Sequence[Selected] = field(default=())
    listed: Sequence[float] = ()  # the x that tables list; empty: all

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(panel.row for panel in self.panels))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(panel.column for panel in self.panels))

    @property
    def lines(self) -> dict[str, Line]:
        """The curves by their labels, of which several panels may have one: what a legend explains."""
        return {line.label: line for panel in self.panels for line in panel.lines}

    @property
    def selected_by(self) -> set[By]:
        return {mark.by for panel in self.panels for mark in panel.marks}

    @property
    def fingerprint(self) -> str:
        """A sum of all that is shown, to the fourth digit: a picture carries it and so tells what it was drawn from."""
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
    """All that a panel must have room for: means, bands, marks, and triangles, which stand above what they mark."""
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
    """Places beside each other, within half a unit to either side, for points that would lie on each other."""
    return [(0.618 * place) % 1 - 0.5 for place in range(len(values))]


def seeds_of(values: Sequence[Summary]) -> str:
    """How many seeds means were taken over, in words."""
    said = list(dict.fromkeys(runs_of(value) for value in values))
    if len(said) == 1:
        return said[0]
    numbers = [value.n for value in values] or [0]
    what = "seeds" if all(text.endswith(("seed", "seeds")) for text in said) else "runs"
    return f"{min(numbers)} to {max(numbers)} {what}"


def runs_of(value: Summary) -> str:
    """20 seeds; 1 seed in 100 orders; or how many runs, where some seeds were trained in more orders than others."""
    ordered = [seed for seed in value.seeds if isinstance(seed, Ordered)]
    if not ordered:
        return count(value.n, "seed")
    seeds, orders = len({seed.seed for seed in ordered}), len({seed.order for seed in ordered})
    if value.n == len(ordered) == seeds * orders:
        return f"{count(seeds, 'seed')} in {count(orders, 'order')}"
    return count(value.n, "run")
