"""An experiment's file and the user's options become cells to train, remembered in the store for reports."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from threefold import protocols, scenarios
from threefold.data import Report, load
from threefold.errors import ThreefoldError, unknown
from threefold.experiments.cell import Cell, Settings, written
from threefold.experiments.limits import check_runs
from threefold.experiments.result import Result
from threefold.experiments.section import Kind, Section
from threefold.experiments.seeds import parse_seeds
from threefold.experiments.spec import Experiment, MethodSpec, PartSpec, QuickSpec
from threefold.methods import METHODS
from threefold.protocols import Defaults
from threefold.results import Store, run_key, together


@dataclass(frozen=True)
class Options:
    """What the user may change about an experiment."""

    seeds: str | None = None
    iters: int | None = None
    quick: bool = False
    only: Sequence[str] = ()  # names of methods and scenarios
    device: str = "auto"
    precision: str = "auto"
    cluster: str | None = None
    cuda: bool | None = None  # has the cluster GPUs? None: there is none
    yes: bool = False  # are more runs meant than anybody would ask for by mistake?


@dataclass(frozen=True)
class Asked:
    """What is to be trained, and what was refused."""

    name: str
    title: str
    seeds: tuple[int, ...]  # of every cell that has none of its own
    cells: Sequence[Cell]
    refused: Sequence[tuple[Cell, str]]
    validation: Sequence[Cell] = ()  # the same cells on training data held out of the first tasks
    kind: Kind = "table"
    selected: str = "as given"
    notes: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    own_seeds: Mapping[Cell, tuple[int, ...]] = field(default_factory=dict)  # where a part or a method names others

    def seeds_of(self, cell: Cell) -> tuple[int, ...]:
        return self.own_seeds.get(cell, self.seeds)

    def by_seeds(self) -> dict[tuple[int, ...], list[Cell]]:
        """All that is to be trained, by the seeds that it is trained with."""
        found: dict[tuple[int, ...], list[Cell]] = {}
        for cell in (*self.cells, *self.validation):
            found.setdefault(self.seeds_of(cell), []).append(cell)
        return found

    def remember(self, store: Store) -> None:
        """Tell the store what was asked for: reports and counts need no more than that."""
        if (asked := self._plain()) != store.experiments().get(self.name):
            store.remember(self.name, asked)

    def add(self, store: Store) -> None:
        """Like `remember`, but what was asked for before under this name stays."""
        asked = self._plain()
        store.reconsider(self.name, lambda before: asked | together(before, asked) if before else asked)

    def _plain(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "kind": self.kind,
            "selected": self.selected,
            "cells": [
                cell.described() | {"seeds": list(self.seeds_of(cell)), "validation": held_out}
                for cells, held_out in ((self.cells, False), (self.validation, True))
                for cell in cells
            ],
            "refused": [cell.described() | {"reason": reason} for cell, reason in self.refused],
            "notes": dict(self.notes),
            "command": self.command,
        }


def ask(experiment: Experiment, options: Options, source: str, report: Report | None = None) -> Asked:
    """Every cell of the experiment, with the options applied. `source` is how the command line names it."""
    quick = experiment.quick if options.quick else None
    chosen = _seeds(experiment.seeds, quick) if options.seeds is None else parse_seeds(options.seeds)
    wanted = _only(experiment, options.only)
    check_runs(*_count(experiment, options, wanted), confirmed=options.yes)
    cells, validation, refused, notes = [], [], [], {}
    own_seeds: dict[Cell, tuple[int, ...]] = {}
    held = experiment.validation
    for part in experiment.parts:
        kind, named = protocols.find(part.protocol)
        settings = _settings(experiment, options, kind.defaults)
        data = load(part.data or named or "mnist", report=report)
        protocol = kind(data, part.tasks, quick.tasks if quick else None)
        first = kind(data.validation(held.share), part.tasks, held.tasks) if held else None
        for spec, scenario in _pairs(part):
            if not wanted(spec, scenario):
                continue
            own = spec.seeds or part.seeds
            for method in _thinned(spec, quick.points if quick else None).variants():
                cell = Cell.of(protocol, scenarios.find(scenario), method, settings, spec.task_id_in)
                reason = cell.refusal()
                if reason:
                    refused.append((cell, reason))
                    continue
                cells.append(cell)
                trained = [cell]
                if first:
                    validation.append(replace(cell, protocol=first))
                    trained.append(validation[-1])
                if own and options.seeds is None:
                    own_seeds |= dict.fromkeys(trained, _seeds(own, quick))
                if spec.note:
                    notes[written(method)] = spec.note
    if not cells:
        pair = f"it has none of '{','.join(options.only)}' together; {_held(experiment)}."
        raise ThreefoldError(f"{experiment.name} leaves nothing to train: {refused[0][1] if refused else pair}")
    suffix = "".join(
        f" {word}" for word in ("quick" if quick else "", f"iters={options.iters}" if options.iters else "") if word
    )
    return Asked(
        f"{experiment.name}{suffix}",
        (experiment.title or experiment.name) + (f" ({suffix.strip()})" if suffix else ""),
        chosen,
        cells,
        refused,
        validation,
        experiment.kind,
        experiment.selected,
        notes,
        _command(source, options),
        own_seeds,
    )


def _count(experiment: Experiment, options: Options, wanted: Any) -> tuple[int, int]:
    """How many cells and how many runs it is, without making any: a file of a few lines may be 10⁹ of them."""
    quick = experiment.quick if options.quick else None
    cells = runs = 0
    for part in experiment.parts:
        for spec, scenario in _pairs(part):
            if wanted(spec, scenario):
                points = _thinned(spec, quick.points if quick else None).points * (2 if experiment.validation else 1)
                given = spec.seeds or part.seeds or experiment.seeds
                seeds = _seeds(given, quick) if options.seeds is None else parse_seeds(options.seeds)
                cells, runs = cells + points, runs + points * len(seeds)
    return cells, runs


def _seeds(given: str, quick: QuickSpec | None) -> tuple[int, ...]:
    """The seeds that were given; of a rehearsal its own, unless they are more."""
    seeds = parse_seeds(given)
    return min(parse_seeds(quick.seeds), seeds, key=len) if quick else seeds


def _settings(experiment: Experiment, options: Options, usual: Defaults) -> Settings:
    """How to train on a protocol. A rehearsal is never longer than the experiment itself."""
    given = experiment.training.model_dump()
    if options.quick:
        for name in ("iters", "hidden"):
            if quick := getattr(experiment.quick, name):
                given[name] = min(quick, given[name] or getattr(usual, name))
    if options.iters is not None:
        given["iters"] = options.iters
    settings = Settings.checked(**given, device=options.device, precision=options.precision)
    return settings.elsewhere(options.cuda)


def _pairs(part: PartSpec) -> Iterator[tuple[MethodSpec, str]]:
    for spec in part.methods:
        for scenario in spec.scenarios or part.scenarios:
            yield spec, scenario


def _thinned(spec: MethodSpec, points: int | None) -> MethodSpec:
    """Of every list `points` values, the first and the last among them."""
    if points is None:
        return spec
    values = {}
    for name, value in spec.values.items():
        if isinstance(value, list) and len(value) > points:
            places = [round(place * (len(value) - 1) / (points - 1)) for place in range(points)]
            value = [value[place] for place in places]
        values[name] = value
    return spec.model_copy(update={"values": values})


def _only(experiment: Experiment, names: Sequence[str]) -> Any:
    """Does a pair of method and scenario match the names? One of each kind that is named must."""
    known = {spec.method for part in experiment.parts for spec in part.methods}
    for name in names:
        if name in known or name in scenarios.SCENARIOS:
            continue
        if all(part in METHODS for part in name.split("+")):
            raise ThreefoldError(f"only is '{name}', which {experiment.name} does not hold; {_held(experiment)}.")
        raise unknown("only", name, known | set(scenarios.SCENARIOS))
    methods = {name for name in names if name in known}
    places = {name for name in names if name in scenarios.SCENARIOS}
    return lambda spec, scenario: (not methods or spec.method in methods) and (not places or scenario in places)


def _held(experiment: Experiment) -> str:
    """What may be named."""
    pairs = [(spec.method, scenario) for part in experiment.parts for spec, scenario in _pairs(part)]
    methods, places = (", ".join(dict.fromkeys(names)) for names in zip(*pairs, strict=True))
    return f"right would be of its methods ({methods}) and of its scenarios ({places})"


def _command(source: str, options: Options) -> str:
    words = ["threefold", *source.split(" ", 1)]
    for option, value in (("--seeds", options.seeds), ("--iters", options.iters), ("--only", ",".join(options.only))):
        words += [option, str(value)] if value else []
    words += ["--quick"] if options.quick else []
    words += ["--yes"] if options.yes else []
    words += ["--device", options.device] if options.device != "auto" else []
    words += ["--precision", options.precision] if options.precision != "auto" else []
    words += ["--cluster", options.cluster] if options.cluster else []
    return shlex.join(words)


def sections(store: Store) -> list[Section]:
    """What the experiments asked for in a store came to so far."""
    return [_section(store, name, asked) for name, asked in store.experiments().items()]


def _section(store: Store, name: str, asked: Mapping[str, Any]) -> Section:
    results: dict[bool, list[Result]] = {True: [], False: []}
    cells: dict[bool, list[Cell]] = {True: [], False: []}
    left, lacking = 0, {}
    for described in asked["cells"]:
        cell = Cell.of_description(described)
        records = [store.get(run_key(described["spec"] | {"seed": seed})) for seed in described["seeds"]]
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
        **plain,
    )
