"""An experiment's results so far: the input of every report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from threefold.experiments.cell import Cell
from threefold.experiments.result import Result
from threefold.results import Record, Store, in_spec, run_key

Kind = Literal["table", "budgets", "grids"]
LENGTHS = {
    "iters": "iterations per task",
    "epochs": "epochs per task",
    "tasks": "tasks",
    "hidden": "units per layer",
    "seeds": "seeds",
    "methods": "methods",
    "scenarios": "scenarios",
}


@dataclass(frozen=True, eq=False)
class Section:
    """One experiment's results.

    A "table" compares methods in scenarios; "budgets" (figure C.1) draws accuracy over the number of stored samples;
    "grids" (figures D.1 and D.2) draws accuracy over a hyperparameter.
    """

    name: str  # for example table4
    title: str
    kind: Kind
    results: Sequence[Result]  # cells with at least one finished run, in the order of the experiment
    refused: Sequence[tuple[Cell, str]] = ()  # combinations that are not possible, with the reason: shown as dashes
    cells: Sequence[Cell] = ()  # all that were requested, with results or without
    left: int = 0  # runs that are still to be trained
    lacking: Mapping[Cell, int] = field(default_factory=dict)  # how many each cell lacks, held-out data aside
    selected: str = "oracle"  # how the hyperparameters were chosen
    validation: Sequence[Result] = ()  # the same grid on a share of the first tasks' training data held out
    notes: Mapping[str, str] = field(default_factory=dict)  # a method, as `written`: a remark on it
    rules: Sequence[Mapping[str, Any]] = ()  # options that all its methods follow, with one remark each
    command: str = ""  # the command that makes these results
    shortened: Sequence[str] = ()  # what is smaller or shorter than in the file, in words
    matched: bool = False  # is accuracy also drawn over the operations that it took?

    @property
    def records(self) -> list[Record]:
        """All its runs, including those on held-out data."""
        return [record for result in (*self.results, *self.validation) for record in result.records]


def sections(store: Store) -> list[Section]:
    """The sections of all experiments that were requested in a store."""
    return [_section(store, name, asked) for name, asked in store.experiments().items()]


def _section(store: Store, name: str, asked: Mapping[str, Any]) -> Section:
    results: dict[bool, list[Result]] = {True: [], False: []}
    cells: dict[bool, list[Cell]] = {True: [], False: []}
    left, lacking, shortened = 0, {}, []
    for described in asked["cells"]:
        cell = Cell.of_description(described)
        shortened += _shortened(described, asked["cells"])
        records = [store.get(run_key(described["spec"] | in_spec(seed))) for seed in described["seeds"]]
        there = [record for record in records if record]
        left += len(records) - len(there)
        held_out = described.get("validation", False)
        cells[held_out].append(cell)
        if len(there) < len(records) and not held_out:
            lacking[cell] = len(records) - len(there)
        if there:
            results[held_out].append(Result(cell, there))
    refused = [(Cell.of_description(pair), pair["reason"]) for pair in asked["refused"]]
    plain = {key: asked[key] for key in ("title", "kind", "selected", "notes", "command")}
    return Section(
        name=name,
        results=results[False],
        validation=results[True],
        refused=refused,
        cells=cells[False],
        left=left,
        lacking=lacking,
        shortened=list(dict.fromkeys(shortened)),
        rules=asked.get("rules", []),
        **plain,
    )


def _shortened(described: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of a cell is smaller or shorter than in its experiment's file, in words."""
    spec, full = described["spec"], described.get("full")
    if not isinstance(full, Mapping):
        return []
    tasks = spec["stream"].get("first") or spec["stream"]["tasks"]
    width = spec["network"]["hyperparameters"].get("width")
    ours = {**spec["training"], "tasks": tasks, "hidden": width, "seeds": len(described["seeds"])}
    if "methods" in full:
        ours |= {f"{what}s": len({cell["spec"][what]["name"] for cell in every}) for what in ("method", "scenario")}
    return [
        f"{ours[name]} of {full[name]} {words}"
        for name, words in LENGTHS.items()
        if isinstance(full.get(name), int) and isinstance(ours.get(name), int) and ours[name] < full[name]
    ]
