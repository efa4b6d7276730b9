"""Selects runs of a store: by experiment, method, scenario and age."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from threefold.errors import ThreefoldError, unknown
from threefold.experiments.result import Result
from threefold.experiments.section import Section
from threefold.results import Record, Store, in_spec, run_key
from threefold.scenarios import SCENARIOS


@dataclass(frozen=True)
class Selection:
    """A selection: of each kind of name given, one must match. Without names: everything."""

    experiments: Sequence[str] = ()
    only: Sequence[str] = ()  # methods and scenarios
    days: float | None = None  # stored at least that long ago

    def __post_init__(self) -> None:
        if self.days is not None and not 0 <= self.days < 10**6:
            raise ThreefoldError(f"older-than must be a number of days from 0 on, got {self.days:g}.")

    def sections(self, found: Sequence[Section]) -> list[Section]:
        """The selected experiments, with their selected cells."""
        check_known("experiment", self.experiments, (section.name for section in found))
        cells = [cell for section in found for cell in section.cells]
        check_known("only", self.only, {*(cell.method.name for cell in cells), *SCENARIOS})
        chosen = [section for section in found if not self.experiments or section.name in self.experiments]
        return [self._part_of(section) for section in chosen] if self.only else chosen

    def records(self, store: Store) -> list[Record]:
        """The selected runs of a store."""
        asked = store.experiments()
        check_known("experiment", self.experiments, asked)
        keys = {key for name in self.experiments for key in keys_of(asked[name])}
        every = [record for record in store.all() if not self.experiments or record.key in keys]
        check_known("only", self.only, {*(record.spec["method"]["name"] for record in every), *SCENARIOS})
        return [record for record in every if self._fits(record)]

    def _fits(self, record: Record) -> bool:
        return self._named(record.spec["method"]["name"], record.spec["scenario"]["name"]) and (
            self.days is None or _age(record) > timedelta(days=self.days)
        )

    def _named(self, method: str, scenario: str) -> bool:
        scenarios = {name for name in self.only if name in SCENARIOS}
        methods = {*self.only} - scenarios
        return (not methods or method in methods) and (not scenarios or scenario in scenarios)

    def _part_of(self, section: Section) -> Section:
        def some(results: Sequence[Result]) -> list[Result]:
            return [each for each in results if self._named(each.cell.method.name, each.cell.scenario.name)]

        cells = [cell for cell in section.cells if self._named(cell.method.name, cell.scenario.name)]
        return replace(
            section,
            results=some(section.results),
            validation=some(section.validation),
            cells=cells,
            left=sum(section.lacking.get(cell, 0) for cell in cells),
            lacking={cell: number for cell, number in section.lacking.items() if cell in cells},
            refused=[(c, why) for c, why in section.refused if self._named(c.method.name, c.scenario.name)],
        )


EVERYTHING = Selection()


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error for a name that is not known."""
    there = set(known)
    for name in names:
        if name not in there:
            raise unknown(what, name, there)


def keys_of(asked: Mapping[str, Any]) -> set[str]:
    """The keys of all runs of a request."""
    return {run_key(cell["spec"] | in_spec(seed)) for cell in asked["cells"] for seed in cell["seeds"]}


def _age(record: Record) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(record.created)


def to_forget(store: Store, selection: Selection) -> tuple[set[str], set[str]]:
    """The keys of the runs to forget, and the experiments to forget with them.

    Whole experiments are forgotten with their runs, except runs that another experiment has too.
    """
    keys = {record.key for record in selection.records(store)}
    if selection.only or selection.days is not None:
        return keys, set()
    others = [asked for name, asked in store.experiments().items() if name not in selection.experiments]
    return keys.difference(*map(keys_of, others)), set(selection.experiments)
