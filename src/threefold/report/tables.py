"""Tables of results: each cell compared with the published one, and the methods with each other."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from threefold.engine import Adam
from threefold.experiments import Cell, Result, Section
from threefold.experiments.cell import ACTIVE_ALL
from threefold.experiments.description import same_value, written
from threefold.methods import paper
from threefold.report.budgets import stored
from threefold.report.formatting import count, own_parts, paper_was, short, strategy, theirs, title, untuned
from threefold.report.labels import places
from threefold.report.low_accuracy import Explanation, explain, together
from threefold.report.rules import footnote, other_readings, said
from threefold.results import Comparison, Ordered, Outcome, Published, Summary, Verdict, compare_all
from threefold.results.statistics import FEWEST_SEEDS
from threefold.scenarios import SCENARIOS

FEWEST = {5: "five"}[FEWEST_SEEDS]
SYMBOLS = {Outcome.AGREES: "✓", Outcome.DIFFERS: "✗", Outcome.TOO_FEW: "?"}


@dataclass(frozen=True, eq=False)
class TableCell:
    """One measured cell."""

    result: Result
    row: str  # the method's name in the table
    column: str  # the scenario's name in the table
    made_by: str = ""  # the command of the whole experiment

    @property
    def cell(self) -> Cell:
        return self.result.cell

    @property
    def accuracy(self) -> Summary:
        return self.result.accuracy

    @property
    def strategy(self) -> str:
        return strategy(own_parts(self.cell))

    @property
    def learned(self) -> bool:
        """Is there a seed that did not diverge, so that there is something to draw?"""
        return len(self.result.diverged) < len(self.result.records)

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""
        return self.accuracy.sem * math.sqrt(self.accuracy.n)

    @property
    def lowest(self) -> float:
        return float(np.min(self.accuracy.per_seed))  # NaN if a seed diverged

    @property
    def highest(self) -> float:
        return float(np.max(self.accuracy.per_seed))

    @cached_property
    def paper(self) -> Published | None:
        """What the paper reports for such a cell, even if trained differently."""
        return self.cell.published()

    @property
    def theirs(self) -> str:
        """The paper's number, marked if its runs were trained differently; empty if there is none."""
        mark = paper_was(self.cell)
        return f"{theirs(self.paper)}{f' ({mark})' if mark else ''}" if self.paper else ""

    @cached_property
    def verdict(self) -> Verdict | None:
        return self.result.verdict

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.verdict.outcome] if self.verdict else ""

    @property
    def judgement(self) -> str:
        """The verdict in words, or why there is none."""
        if self.verdict:
            return str(self.verdict.words)
        if self.paper is None:
            return "nothing published"
        return "other length: not judged" if paper_was(self.cell) == "full length" else "other settings: not judged"

    @property
    def code(self) -> str:
        """The judgement as one word."""
        if self.verdict:
            return {Outcome.AGREES: "agrees", Outcome.DIFFERS: "differs"}.get(self.verdict.outcome, "unsure")
        return "alone" if self.paper is None else "unjudged"

    @cached_property
    def explanation(self) -> Explanation | None:
        return explain(self.result)

    @cached_property
    def curves(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Accuracy before training and after each task (down) on each task (across): mean and SEM over the seeds that
        did not diverge."""
        values = np.concatenate([self.result.initial[:, None], self.result.matrix], axis=1)
        kept = values[~np.isnan(values).any(axis=(1, 2))]
        sem = kept.std(axis=0, ddof=1) / math.sqrt(len(kept)) if len(kept) > 1 else np.zeros(kept.shape[1:])
        return kept.mean(axis=0), sem

    @property
    def ends(self) -> bool:
        """Do its tasks end? If not, the rows of the accuracy matrix are measured after equal intervals of training."""
        return self.cell.stream.boundaries.clock is None

    @property
    def after(self) -> str:
        """What the rows of the accuracy matrix count."""
        return "tasks trained" if self.ends else "stretches of training"

    @property
    def survivors(self) -> str:
        """A note on `curves`; empty if no seed diverged."""
        seeds, lost = len(self.result.records), len(self.result.diverged)
        return f"mean of {seeds - lost} of {count(seeds, 'seed')}; {lost} diverged" if lost else ""

    @property
    def diverged(self) -> str:
        """Which seeds diverged, and what to change, in words; empty if none did."""
        seeds = self.result.diverged
        if not seeds:
            return ""
        named = ", ".join(map(str, seeds[:10])) + (", …" if len(seeds) > 10 else "")
        share = f"{len(seeds)} of {count(len(self.result.seeds), 'seed')}"
        return f"{share} diverged ({named}), so there is no mean; {self._remedy}"

    @property
    def _remedy(self) -> str:
        """What to change: penalties move a weight by strength × learning rate, which diverges if that is too large."""
        cell, reason = self.cell, ""
        strengths = {name: own["strength"] for name, own in cell.method.hyperparameters().items() if "strength" in own}
        given = {part.name for part in cell.method.parts if "strength" in part.model_fields_set}
        for part in strengths.keys() - given:
            chosen = paper.chosen(cell.stream.name, cell.scenario.name, part).get("strength")
            if chosen == strengths[part] and not same_value(cell.optimizer, Adam(lr=cell.lr)):
                reason = f"its strength {short(chosen)} is the paper's, chosen for Adam: "
        return f"{reason}give a smaller {'strength or ' if strengths else ''}learning rate"


@dataclass(frozen=True)
class EmptyCell:
    """A cell without a number: a dash with its reason, or (without a reason) a cell without any finished run."""

    row: str
    column: str
    strategy: str
    reason: str


@dataclass(frozen=True)
class Column:
    """How the methods of one column compare with each other: paired tests, Holm's correction over the column."""

    title: str
    comparisons: Sequence[Comparison]

    @property
    def tested(self) -> list[Comparison]:
        return [c for c in self.comparisons if not math.isnan(c.p_holm)]

    @property
    def sentence(self) -> str:
        """Which pairs differ: the shorter of the two lists."""
        return f"{self.title}: {self._pairs()}."

    def _pairs(self) -> str:
        if not self.comparisons:
            return "one method only, nothing to compare"
        if not self.tested:
            return f"nothing is decided, {_why_not(self.comparisons)}"
        differ = [c for c in self.tested if c.significant]
        alike = [c for c in self.tested if not c.significant]
        pairs = count(len(self.tested), "pair")
        some = f"{len(differ)} of {pairs} differ significantly"
        if pairs == "1 pair":
            first, second = self.tested[0].first, self.tested[0].second
            text = f"{first} and {second} {'differ' if differ else 'do not differ'} significantly"
        elif not alike:
            text = f"all {pairs} of methods differ significantly"
        elif not differ:
            text = f"none of {pairs} of methods differs significantly"
        elif len(alike) <= len(differ):
            text = f"{some}; all but {_listed(alike)}"
        else:
            text = f"{some}: {_listed(differ)}"
        untested = [c for c in self.comparisons if math.isnan(c.p_holm)]
        return text + (f" ({count(len(untested), 'pair')} not tested: {_why_not(untested)})" if untested else "")

    def unlike(self, row: str) -> list[str]:
        """The methods from which this one differs significantly."""
        pairs = [(c.first, c.second) for c in self.tested if c.significant and row in (c.first, c.second)]
        return [second if first == row else first for first, second in pairs]


def _why_not(untested: Sequence[Comparison]) -> str:
    """Why pairs could not be tested."""
    few = [c.difference.seeds < FEWEST_SEEDS for c in untested]
    reasons = [f"fewer than {FEWEST} seeds in common"] * any(few) + ["a seed diverged"] * (not all(few))
    return " or ".join(reasons)


def _listed(pairs: Sequence[Comparison]) -> str:
    """EWC – SI, LwF (EWC with each of the others); DGR – iCaRL."""
    by_first: dict[str, list[str]] = {}
    for pair in pairs:
        by_first.setdefault(pair.first, []).append(pair.second)
    return "; ".join(f"{first} – {', '.join(seconds)}" for first, seconds in by_first.items())


@dataclass(frozen=True, eq=False)
class ResultTable:
    """The cells of one experiment on one stream, arranged as methods × scenarios."""

    section: Section
    stream: str
    cells: Sequence[TableCell]
    empty: Sequence[EmptyCell]
    order: Sequence[str]  # of the rows; methods that are refused everywhere are not included and come last

    @property
    def _places(self) -> "list[TableCell | EmptyCell]":
        return [*self.cells, *self.empty]

    @property
    def heading(self) -> str:
        """The stream, and what all cells have that differs from the paper; rows show what differs between them."""
        each = [found.cell.unlike_the_paper for found in self.cells]
        common = [text for text in (each[0] if each else []) if text != ACTIVE_ALL and all(text in e for e in each)]
        competing = [cell for found in self.cells if (cell := found.cell).scenario.infers_task]
        active = {cell.scenario.active for cell in competing if not cell.method.over_seen}
        words = ["all units active in Class-IL"] if active == {"all"} else []
        return ", ".join([self.stream, *common, *words])

    @property
    def refused(self) -> list[EmptyCell]:
        return [cell for cell in self.empty if cell.reason]

    @cached_property
    def columns(self) -> list[str]:
        """The columns, in the paper's order even while an experiment is incomplete."""
        order = {scenario.title: place for place, scenario in enumerate(SCENARIOS.values())}
        found = dict.fromkeys(place.column for place in self._places)
        return sorted(found, key=lambda column: order.get(column.partition(",")[0], len(order)))

    @cached_property
    def rows(self) -> list[tuple[str, str]]:
        """Each method with its strategy: strategies in the order of the experiment, methods within them."""
        strategies: dict[str, dict[str, None]] = {}
        order = {row: place for place, row in enumerate(self.order)}
        for each in sorted(self._places, key=lambda place: order.get(place.row, len(order))):
            strategies.setdefault(each.strategy, {})[each.row] = None
        return [(name, row) for name, rows in strategies.items() for row in rows]

    def begun(self) -> "ResultTable":
        """The table without methods that have no finished run."""
        begun, later = {e.row for e in self.cells}, {cell.row for cell in self.empty if not cell.reason}
        return replace(self, empty=[cell for cell in self.empty if cell.row in begun or cell.row not in later])

    @cached_property
    def at(self) -> dict[tuple[str, str], TableCell]:
        return {(e.row, e.column): e for e in self.cells}

    @cached_property
    def why_not(self) -> dict[tuple[str, str], EmptyCell]:
        return {(r.row, r.column): r for r in self.refused}

    @cached_property
    def significance(self) -> list[Column]:
        by_column = {column: {e.row: e.accuracy for e in self.cells if e.column == column} for column in self.columns}
        return [Column(column, compare_all(measured)) for column, measured in by_column.items() if measured]

    @property
    def explanations(self) -> list[str]:
        """Why numbers are low, which seeds are missing, and where methods are interpreted differently."""
        low = [(e.row, e.column, e.explanation) for e in self.cells if e.explanation]
        lost = [f"{e.row}, {e.column}: {e.diverged}." for e in self.cells if e.diverged]
        return together(low) + lost + other_readings([(e.row, e.column, e.cell) for e in self.cells if e.verdict])


def result_tables(section: Section) -> list[ResultTable]:
    """A section's cells, by stream."""
    asked = section.cells or [r.cell for r in section.results]
    every = [*asked, *(cell for cell, _ in section.refused)]
    return [_result_table(section, name, every) for name in dict.fromkeys(cell.stream.label for cell in every)]


def _result_table(section: Section, stream: str, every: Sequence[Cell]) -> ResultTable:
    place = places([cell for cell in every if cell.stream.label == stream], said(section))
    measured = {
        place[r.cell]: TableCell(r, *place[r.cell], section.command) for r in section.results if r.cell in place
    }
    reasons = {place[cell]: reason for cell, reason in section.refused if cell in place}
    empty = {
        at: EmptyCell(*at, strategy(own_parts(cell)), reasons.get(at, ""))
        for cell, at in place.items()
        if at not in measured
    }
    order = list(
        dict.fromkeys(
            row for row, column in place.values() if not reasons.get((row, column)) or (row, column) in measured
        )
    )
    cells = sorted(measured.values(), key=lambda found: order.index(found.row))  # a method's scenarios together
    return ResultTable(section, stream, cells, list(empty.values()), order)


def remarks(section: Section) -> list[str]:
    """The experiment's remarks on its methods, by their names in its tables, once for all values of a grid; and its
    rules, if no table has them as a footnote."""
    cells = [result.cell for result in section.results]
    own = {written(cell.method): own_parts(cell) for cell in cells}
    rows = {written(cell.method): cell.method for cell in cells} | {name: m for name, m in own.items() if m.parts}
    shared: dict[str, list[str]] = {}
    for method, remark in section.notes.items():
        shared.setdefault(remark, []).append(method)
    texts = []
    for remark, methods in shared.items():
        known = [rows[method] for method in methods if method in rows]
        names = dict.fromkeys(title(method) for method in known)
        brief = dict.fromkeys(untuned(method) for method in known)
        texts.append(f"{' and '.join(names if len(names) == 1 else brief) or methods[0]}: {remark}")
    return texts + ([footnote(section)] if section.rules and section.kind != "table" else [])


def incomplete(section: Section) -> str:
    """A sentence on how many runs are missing, and of what; empty if none is."""
    if not section.left:
        return ""
    by_stream: dict[str, Counter[str]] = {}
    for cell, number in section.lacking.items():
        by_stream.setdefault(cell.stream.label, Counter())[_in_brief(section, cell)] += number
    texts = [
        f"{stream}: {', '.join(f'{name} {number}' for name, number in several.items())}"
        for stream, several in by_stream.items()
    ]
    held_out = section.left - sum(section.lacking.values())
    if held_out and (texts or section.validation):
        texts.append(f"on data held out of the first tasks: {held_out}")
    of_what = f" ({'; '.join(texts)})" if texts else ""
    return f"{count(section.left, 'run')} still to be trained{of_what}."


def _in_brief(section: Section, cell: Cell) -> str:
    """The method's name without numbers; in an experiment over budgets, the use of its stored data."""
    budget, label = stored(cell) if section.kind == "budgets" else (None, "")
    return untuned(own_parts(cell)) if budget is None else label


def selection(section: Section) -> str:
    """How the hyperparameters were chosen, and whether runs are dependent."""
    shared = any(isinstance(seed, Ordered) for result in section.results for seed in result.seeds)
    return (f"{ORACLE if section.selected == 'oracle' else f'selected: {section.selected}.'} {SHARED * shared}").strip()


ORACLE = (
    "selected: oracle. Hyperparameters were chosen on the test sets of all tasks, as in the paper (Appendix D),"
    " which no learner that meets its tasks one after the other could do."
)

SHARED = (
    "Runs share seeds or orders of the tasks: standard errors and tests in the tables hold for these seeds and orders,"
    " not for others."
)


RULE = (
    "A cell agrees if it lies within three combined standard errors of the published mean, or within half a point;"
    f" otherwise it differs. With fewer than {FEWEST} seeds there are too few to tell."
    " “Difference” has the 95% interval of Welch's test, “Allowed” is the largest difference that would still agree."
    " Runs that were not trained as in the paper are not judged."
)

PAIRED = (
    "Paired t test at 5% over the seeds that both methods have, Holm's correction over the pairs of a column;"
    f" fewer than {FEWEST} seeds in common decide nothing."
)
