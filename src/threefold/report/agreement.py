"""How well the published numbers are reproduced by standard errors alone, without the verdicts' half point.

For each published number z = (ours − published) / √(SEM² + SEM²), the statistic of Welch's test. If both sides came
from one distribution, z would be about normal: 95% within 2, 99.7% within 3, all on the diagonal of a quantile plot.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.special import ndtri

from threefold.experiments import Section
from threefold.experiments.spec import PAPER
from threefold.report.formatting import count, number, plus_minus, signed, theirs
from threefold.report.panels import Chart, Line, Panel
from threefold.report.tables import ResultTable, TableCell, result_tables
from threefold.results import Outcome, Published, Summary, Verdict

WITHIN = (2, 3)
FORMULA = (
    "z = (ours − published) / √(SEM² + SEM²), the statistic of Welch's test. If nothing but chance were between ours"
    " and theirs, 95% of all z would lie within 2 and 99.7% within 3."
)


def judged_once(tables: Iterable[ResultTable]) -> dict[Published, TableCell]:
    """A cell for each published number. If several experiments have it, the first of the paper's is used, as others may
    deliberately interpret a method differently."""
    found: dict[Published, TableCell] = {}
    for table in sorted(tables, key=lambda table: table.section.name not in PAPER):
        for cell in table.cells:
            if cell.verdict and cell.paper:
                found.setdefault(cell.paper, cell)
    return found


@dataclass(frozen=True, eq=False)
class Deviation:
    """A published number and the distance of ours from it, in combined standard errors."""

    published: Published
    cell: TableCell
    z: float

    @property
    def name(self) -> str:
        return f"{self.cell.row}, {self.cell.column}, {self.published.stream}"


@dataclass(frozen=True, eq=False)
class Agreement:
    """All numbers that could be judged, in ascending order of z."""

    found: Sequence[Deviation]

    @classmethod
    def of(cls, sections: Sequence[Section]) -> "Agreement":
        tables = [table for section in sections if section.kind == "table" for table in result_tables(section)]
        found = [
            Deviation(published, cell, cell.verdict.z)
            for published, cell in judged_once(tables).items()
            if cell.verdict and _has_z(cell.verdict)
        ]
        return cls(sorted(found, key=lambda each: each.z))

    def within(self, errors: float) -> int:
        return sum(abs(each.z) <= errors for each in self.found)

    @property
    def sentence(self) -> str:
        """The summary; empty if there is nothing to judge."""
        if not self.found:
            return ""
        many = len(self.found)
        counted = " and ".join(f"{self.within(k)} within {k}" for k in WITHIN)
        return (
            f"By standard errors alone, without the half point: of {count(many, 'published number')} {counted} combined"
            f" standard errors. {FORMULA}"
        )

    @property
    def beyond(self) -> list[list[str]]:
        """Cells with |z| above three: the cell, both numbers, the difference in points and in standard errors."""
        far = [each for each in self.found if abs(each.z) > WITHIN[-1]]
        return [
            [each.name, plus_minus(each.cell.accuracy), theirs(each.published), signed(_points(each)), signed(each.z)]
            for each in sorted(far, key=lambda each: -abs(each.z))
        ]

    @property
    def plotted(self) -> bool:
        """Are there enough for a quantile plot?"""
        return len(self.found) > 1

    @cached_property
    def chart(self) -> Chart:
        """The quantile plot: each z over the expected value of the same rank in a normal sample of that size."""
        many = len(self.found)
        expected = [float(ndtri((place + 0.5) / many)) for place in range(many)]
        measured = [_point(each.z) for each in self.found]
        lines = [
            Line("normal distribution", expected, [_point(each) for each in expected], 1),
            Line("published numbers", expected, measured, 0, names=[each.name for each in self.found]),
        ]
        panel = Panel("z", "all published numbers", "expected of a normal distribution", False, lines, measured="z")
        outside = many - self.within(WITHIN[-1])
        caption = (
            f"How far each of {count(many, 'published number')} is from ours, in combined standard errors, over the"
            f" quantiles of the normal distribution. {number(outside, 0)} lie beyond three."
        )
        return Chart(
            "agreement", "z of the published numbers", caption, "The line: what chance alone would give.", [panel]
        )


def _has_z(verdict: Verdict) -> bool:
    """Are both standard errors known?"""
    return verdict.outcome is not Outcome.TOO_FEW and math.isfinite(verdict.z) and not verdict.sem_assumed


def _points(each: Deviation) -> float:
    return each.cell.accuracy.mean - each.published.mean


def _point(value: float) -> Summary:
    return Summary(value, math.nan, 1, ())
