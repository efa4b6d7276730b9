"""An experiment's file and the user's options become cells to train, remembered in the store for reports."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
    full: Mapping[Cell, Mapping[str, int]] = field(default_factory=dict)  # how long the experiment's file has them
    whole: "Asked | None" = None  # all of the file, where only some of it is to be trained

    def seeds_of(self, cell: Cell) -> tuple[int, ...]:
        return self.own_seeds.get(cell, self.seeds)

    def by_seeds(self) -> dict[tuple[int, ...], list[Cell]]:
        """All that is to be trained, by the seeds that it is trained with."""
        found: dict[tuple[int, ...], list[Cell]] = {}
        for cell in (*self.cells, *self.validation):
            found.setdefault(self.seeds_of(cell), []).append(cell)
        return found

    def left(self, store: Store) -> int:
        """How many of its runs are still to be trained."""
        pairs = ((cell, seed) for several, cells in self.by_seeds().items() for cell in cells for seed in several)
        keys = {run_key(cell.run_spec(seed)) for cell, seed in pairs}
        return len(keys - store.has(keys))

    def add(self, store: Store) -> None:
        """Tell the store what was asked for, beside what was asked for before under this name: reports and counts need
        no more than that."""
        asked = self._plain()
        store.reconsider(self.name, lambda before: asked | together(before, asked) if before else asked)

    def follow(self, store: Store) -> None:
        """Tell the store what the experiment's file asks for now, all of it; what was taken out is forgotten."""
        asked = (self.whole or self)._plain()
        store.reconsider(self.name, lambda before: _following(before, asked) if before else asked)

    def _plain(self) -> dict[str, Any]:
        every = ((cell, held_out) for held_out in (False, True) for cell in (self.cells, self.validation)[held_out])
        return {
            "title": self.title,
            "kind": self.kind,
            "selected": self.selected,
            "cells": [
                cell.described()
                | {"seeds": list(self.seeds_of(cell)), "validation": held_out}
                | ({"full": dict(self.full[cell])} if cell in self.full else {})
                for cell, held_out in every
            ],
            "refused": [cell.described() | {"reason": reason} for cell, reason in self.refused],
            "notes": dict(self.notes),
            "command": self.command,
        }


def _following(before: Mapping[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """What is asked for now, a cell that was asked for before with the seeds of both commands.

    The device and the precision are not the file's but the command's: what was trained with others stays beside it.
    """
    now = {run_key(cell["spec"]) for cell in asked["cells"]}
    in_file = {_anywhere(cell["spec"]) for cell in asked["cells"]}
    kept = {run_key(cell["spec"]): cell for cell in before["cells"] if _anywhere(cell["spec"]) in in_file}
    cells = []
    for cell in asked["cells"]:
        known = kept.get(run_key(cell["spec"]), cell)
        cells.append(cell | {"seeds": sorted({*cell["seeds"], *known["seeds"]})})
    cells += [cell for key, cell in kept.items() if key not in now]
    command = together({**before, "cells": list(kept.values())}, asked)["command"]
    return asked | {"cells": cells, "command": command}


def _anywhere(spec: Mapping[str, Any]) -> str:
    """The key of a cell wherever it is trained."""
    training = {name: value for name, value in spec["training"].items() if name not in ("device", "precision")}
    return run_key({**spec, "training": training})


class _Planned(NamedTuple):
    """A cell of an experiment's file, and what is said of it there."""

    cell: Cell
    held_out: Cell | None  # the same on training data held out of the first tasks
    reason: str | None  # why it cannot be trained
    seeds: str | None  # of its own
    note: str
    wanted: bool  # now, by --only


def ask(experiment: Experiment, options: Options, source: str, report: Report | None = None) -> Asked:
    """Every cell of the experiment, with the options applied. `source` is how the command line names it."""
    quick = experiment.quick if options.quick else None
    check_runs(*_count(experiment, options), confirmed=options.yes)
    planned = list(_planned(experiment, options, report))
    trained = [each for each in planned if not each.reason]
    suffix = "".join(
        f" {word}" for word in ("quick" if quick else "", f"iters={options.iters}" if options.iters else "") if word
    )
    whole = Asked(
        name=f"{experiment.name}{suffix}",
        title=(experiment.title or experiment.name) + (f" ({suffix.strip()})" if suffix else ""),
        seeds=_seeds(experiment.seeds, quick) if options.seeds is None else parse_seeds(options.seeds),
        kind=experiment.kind,
        selected=experiment.selected,
        notes={written(each.cell.method): each.note for each in trained if each.note},
        command=_command(source, replace(options, only=())),
        own_seeds={
            cell: _seeds(each.seeds, quick)
            for each in trained
            for cell in (each.cell, each.held_out)
            if cell and each.seeds and options.seeds is None
        },
        full={each.cell: _full(experiment, each) for each in trained},
        **_cells(planned),
    )
    if not options.only:
        some = whole
    else:
        chosen = _cells([each for each in planned if each.wanted])
        some = replace(whole, command=_command(source, options), whole=whole, **chosen)
    if not some.cells:
        pair = f"it has none of '{','.join(options.only)}' together; {_held(experiment)}."
        why = some.refused[0][1] if some.refused else pair
        raise ThreefoldError(f"{experiment.name} leaves nothing to train: {why}")
    return some


def _planned(experiment: Experiment, options: Options, report: Report | None) -> Iterator[_Planned]:
    quick, held = experiment.quick if options.quick else None, experiment.validation
    wanted = _only(experiment, options.only)
    for part in experiment.parts:
        kind, named = protocols.find(part.protocol)
        settings = _settings(experiment, options, kind.defaults)
        data = load(part.data or named or "mnist", report=report)
        protocol = kind(data, part.tasks, quick.tasks if quick else None)
        first = kind(data.validation(held.share), part.tasks, held.tasks) if held else None
        for spec, scenario in _pairs(part):
            for method in _thinned(spec, quick.points if quick else None).variants():
                cell = Cell.of(protocol, scenarios.find(scenario), method, settings, spec.task_id_in)
                held_out = replace(cell, protocol=first) if first else None
                seeds = spec.seeds or part.seeds
                yield _Planned(cell, held_out, cell.refusal(), seeds, spec.note, wanted(spec, scenario))


def _cells(planned: Sequence[_Planned]) -> dict[str, Any]:
    return {
        "cells": [each.cell for each in planned if not each.reason],
        "validation": [each.held_out for each in planned if each.held_out and not each.reason],
        "refused": [(each.cell, each.reason) for each in planned if each.reason],
    }


def _full(experiment: Experiment, planned: _Planned) -> dict[str, int]:
    """How long the experiment's file has a cell, whatever the options make of it."""
    usual, training = planned.cell.protocol.defaults, experiment.training
    return {
        "iters": training.iters or usual.iters,
        "tasks": planned.cell.protocol.cut,
        "hidden": training.hidden or usual.hidden,
        "seeds": len(parse_seeds(planned.seeds or experiment.seeds)),
    }


def _count(experiment: Experiment, options: Options) -> tuple[int, int]:
    """How many cells the file has, and how many runs are wanted of them; a file of a few lines may have 10⁹ of them."""
    quick, wanted = experiment.quick if options.quick else None, _only(experiment, options.only)
    cells = runs = 0
    for part in experiment.parts:
        for spec, scenario in _pairs(part):
            points = _thinned(spec, quick.points if quick else None).points * (2 if experiment.validation else 1)
            given = spec.seeds or part.seeds or experiment.seeds
            seeds = _seeds(given, quick) if options.seeds is None else parse_seeds(options.seeds)
            cells += points
            runs += points * len(seeds) if wanted(spec, scenario) else 0
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
    return f"use its methods ({methods}) and its scenarios ({places})"


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
    left, lacking, shortened = 0, {}, []
    for described in asked["cells"]:
        cell = Cell.of_description(described)
        shortened += _shortened(described)
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
        shortened=list(dict.fromkeys(shortened)),
        **plain,
    )


LENGTHS = {"iters": "iterations per task", "tasks": "tasks", "hidden": "units per layer", "seeds": "seeds"}


def _shortened(described: Mapping[str, Any]) -> list[str]:
    """What of a cell is less than its experiment's file asks for, in words."""
    spec, full = described["spec"], described.get("full")
    if not isinstance(full, Mapping):
        return []
    tasks = spec["protocol"].get("first") or spec["protocol"]["tasks"]
    ours = {**spec["training"], "tasks": tasks, "seeds": len(described["seeds"])}
    return [
        f"{ours[name]} of {full[name]} {words}"
        for name, words in LENGTHS.items()
        if isinstance(full.get(name), int) and ours[name] < full[name]
    ]
