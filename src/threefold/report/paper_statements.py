"""The paper's statements about stored data in Class-IL (appendix C), tested on our results.

Each statement is about several comparisons, all of which must be confirmed, each by a paired t test at 5% over the
seeds that both sides have. Requiring all is stricter than requiring one, so no correction for their number is needed.
A statement does not hold if one comparison is significant in the other direction; otherwise it is undecided.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

from threefold.experiments import Section
from threefold.methods import METHODS
from threefold.report.budgets import USES, of_each_class
from threefold.report.formatting import DASH, difference, plus_minus, short
from threefold.report.panels import Chart, Panel
from threefold.results import Paired, Summary, paired
from threefold.scenarios import SCENARIOS

CLASSES = {"split-mnist": 10, "permuted-mnist": 100}
"""One stored sample of each class: ten digits, and in permuted MNIST ten for each of ten tasks."""
MOST = 50_000
FAR_MORE = 10
"""“Substantially more”: ten times as many as one sample of each class, at least."""
SIGNIFICANT = 0.05
VARIANTS = (*USES.values(), METHODS["icarl"].title)
REGULARISING = ("ewc", "online-ewc", "si")
GENERATIVE = ("dgr", "dgr-distill")
PAIRS = ("Common seeds", "Difference over these [95%]")


class Truth(StrEnum):
    HOLDS = "holds"
    FAILS = "does not hold"
    OPEN = "cannot be told"


@dataclass(frozen=True)
class Statement:
    """One of the paper's statements, whether it holds, and the numbers behind that."""

    title: str
    quote: str
    rule: str  # what was compared
    truth: Truth
    because: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default=())
    left: int = 2  # columns of text

    @property
    def sentence(self) -> str:
        return f"“{self.quote}” {self.truth.value.capitalize()}: {self.because}"


def statements(section: Section, chart: Chart) -> list[Statement]:
    """The three statements; none if this is not the paper's experiment in full length."""
    panels = {
        panel.stream: panel
        for panel in chart.panels
        if panel.column == SCENARIOS["class"].title and panel.stream in CLASSES
    }
    cells = [result.cell for result in section.results]
    if section.kind != "budgets" or not panels or any(cell.cuts() or of_each_class(cell) for cell in cells):
        return []
    return [_one_of_each_class(panels), _matching_takes_more(panels), _never_on_permuted(panels)]


@dataclass(frozen=True)
class BudgetTest:
    """A budget of stored samples compared with a method that stores none."""

    stream: str
    variant: str
    budget: int
    stored: Summary | None
    rival: str
    other: Summary | None

    @property
    def difference(self) -> Paired:
        """Stored data − rival over the seeds that both have; NaN if one of them is missing or diverged."""
        if self.stored is None or self.other is None:
            return Paired(math.nan, math.nan, math.nan, math.nan, math.nan, 0)
        return paired(self.stored, self.other)

    def above(self) -> bool:
        return self.difference.value > 0 and self.difference.p < SIGNIFICANT

    def below(self) -> bool:
        return self.difference.value < 0 and self.difference.p < SIGNIFICANT

    @property
    def name(self) -> str:
        return f"{self.stream}, {_use(self.variant)}, {self.budget} stored, against {METHODS[self.rival].title}"


def _tests(panels: dict[str, Panel], stream: str, budgets: Sequence[int], rivals: Sequence[str]) -> list[BudgetTest]:
    """Every variant with every budget against every rival, including those that were not run."""
    panel = panels.get(stream)
    lines = {line.label: dict(zip(line.x, line.values, strict=True)) for line in panel.lines} if panel else {}
    levels = {level.method: level.value for level in panel.levels} if panel else {}
    return [
        BudgetTest(stream, variant, budget, lines.get(variant, {}).get(budget), rival, levels.get(rival))
        for variant, budget, rival in product(VARIANTS, budgets, rivals)
    ]


def _judged(
    tests: Sequence[BudgetTest],
    won: Callable[[BudgetTest], bool],
    lost: Callable[[BudgetTest], bool],
    holds: str,
) -> tuple[Truth, str]:
    """Whether a statement holds, with the reason: it fails if any test is lost, and holds only if all are won."""
    if against := [test for test in tests if lost(test)]:
        return Truth.FAILS, f"not so for {_listed(against)}."
    if tests and all(won(test) for test in tests):
        return Truth.HOLDS, holds
    unknown = Counter(test.stream for test in tests if math.isnan(test.difference.p))
    if unknown:
        asked = Counter(test.stream for test in tests)
        lacking = (f"{number} of {asked[stream]} on {stream}" for stream, number in unknown.items())
        return Truth.OPEN, f"of the comparisons that it takes, {' and '.join(lacking)} cannot be made yet."
    unclear = [test for test in tests if not (test.above() or test.below())]
    return Truth.OPEN, f"the difference is not significant for {_listed(unclear)}."


def _listed(tests: Sequence[BudgetTest]) -> str:
    names = [test.name for test in tests]
    return "; ".join(names[:4]) + (f"; and {len(names) - 4} more" if len(names) > 4 else "")


def _use(variant: str) -> str:
    return variant.removeprefix("stored data ")


def _one_of_each_class(panels: dict[str, Panel]) -> Statement:
    tests = [c for name, one in CLASSES.items() for c in _tests(panels, name, [one], REGULARISING)]
    rows = []
    for stream, variant in product(CLASSES, VARIANTS):
        mine = [c for c in tests if (c.stream, c.variant) == (stream, variant) and c.stored and c.other]
        if mine:
            closest = max(mine, key=lambda c: c.other.mean if c.other else math.nan)
            rows.append([stream, _use(variant), short(closest.budget), *_numbers(closest)])
    holds = f"all {len(tests)} differences are above zero at 5%."
    return Statement(
        "One sample per class",
        "For both task protocols even storing one example per class was enough for any of the exact replay methods to"
        " outperform all regularization-based methods.",
        "Each way of using stored data, with one sample per class, against EWC, Online EWC and SI; the table has the"
        " best of these three.",
        *_judged(tests, BudgetTest.above, BudgetTest.below, holds),
        ["Stream", "Stored data used", "Budget", "Accuracy", "Regularisation", "Its accuracy", *PAIRS],
        rows,
    )


def _numbers(test: BudgetTest) -> list[str]:
    return [
        plus_minus(test.stored) if test.stored else DASH,
        METHODS[test.rival].title,
        plus_minus(test.other) if test.other else DASH,
        str(test.difference.seeds),
        difference(test.difference),
    ]


def _matching_takes_more(panels: dict[str, Panel]) -> Statement:
    tests: list[BudgetTest] = []
    rows = []
    for stream, one in CLASSES.items():
        panel = panels.get(stream)
        tried = {int(x) for line in panel.lines for x in line.x} if panel else set()
        steps = sorted(tried | {one, 2 * one, 5 * one})  # those of the paper that decide are asked for in any case
        every = _tests(panels, stream, steps, GENERATIVE)
        tests += [c for c in every if c.budget < FAR_MORE * one]
        for variant in VARIANTS if panel else ():
            mine = [c for c in every if c.variant == variant]
            rows.append([stream, _use(variant), *(_match([c for c in mine if c.rival == r], one) for r in GENERATIVE)])
    holds = f"with fewer than {FAR_MORE} samples per class all {len(tests)} differences are below zero at 5%."
    return Statement(
        "Matching generative replay",
        "However, to match the performance of generative replay, it was required to store substantially more data.",
        f"“Substantially more” is read as {FAR_MORE} samples per class at least. Stored data match as soon as they are"
        " not significantly below; the table has the smallest budget with which they do.",
        *_judged(tests, BudgetTest.below, _matches, holds),
        ["Stream", "Stored data used", *(f"Matches {METHODS[name].title} with" for name in GENERATIVE)],
        rows,
    )


def _matches(test: BudgetTest) -> bool:
    return not math.isnan(test.difference.p) and not test.below()


def _match(tests: Sequence[BudgetTest], one: int) -> str:
    """The smallest budget that matches, as a number of samples and for each class."""
    known = [c for c in tests if not math.isnan(c.difference.p)]
    if not known:
        return DASH
    first = next((c for c in known if _matches(c)), None)
    if first is None:
        return f"more than {known[-1].budget}"
    return f"{first.budget} ({short(first.budget / one)} per class)"


def _never_on_permuted(panels: dict[str, Panel]) -> Statement:
    tests = _tests(panels, "permuted-mnist", [MOST], ["dgr-distill"])
    rows = [[_use(c.variant), short(c.budget), *_numbers(c)] for c in tests if c.stored]
    holds = f"all {len(tests)} differences are below zero at 5%."
    return Statement(
        "50,000 samples of permuted MNIST",
        "In particular, for permuted MNIST, even with 50,000 stored examples exact replay variants were consistently"
        " outperformed by DGR+distill.",
        "Each way of using stored data, with 50,000 samples, against DGR+distill.",
        *_judged(tests, BudgetTest.below, BudgetTest.above, holds),
        ["Stored data used", "Budget", "Accuracy", "Method", "Its accuracy", *PAIRS],
        rows,
        left=1,
    )
