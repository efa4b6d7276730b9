"""Turns an experiment's file and the command's options into a request: every cell with its seeds."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from threefold import scenarios, streams
from threefold.data import Report, load
from threefold.errors import ThreefoldError, unknown
from threefold.experiments.cell import Cell
from threefold.experiments.description import written
from threefold.experiments.limits import check_runs
from threefold.experiments.request import Asked, Request, prepared
from threefold.experiments.seeds import parse_seeds, seeds_in_orders
from threefold.experiments.settings import Settings
from threefold.experiments.spec import Experiment, MethodSpec, PartSpec, QuickSpec, TrainingSpec
from threefold.methods import METHODS
from threefold.networks import encoder
from threefold.results import Seed, run_key
from threefold.streams import Defaults, Stream, Timed


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
    cuda: bool | None = None  # does the cluster have GPUs? None: there is no cluster
    yes: bool = False  # are very many runs intended (`limits.MANY_RUNS`)?


class _Planned(NamedTuple):
    """A cell of an experiment, and how it is planned."""

    cell: Cell
    asked: Mapping[tuple[str, bool], Asked]  # the cell itself, and on held-out data, by key
    reason: str | None  # why it cannot be trained
    note: str
    wanted: bool  # selected by --only


def experiment_request(experiment: Experiment, options: Options, source: str, report: Report | None = None) -> Request:
    """Every cell of the experiment, with the options applied. `source` is its name on the command line."""
    check_runs(*_count(experiment, options), confirmed=options.yes)
    planned = list(_planned(experiment, options, report))
    every = [each.cell for each in planned]
    places = [(cell.method, cell.scenario.name, "hidden" if cell.task_id_in == "hidden" else None) for cell in every]
    words = ["quick"] * options.quick + ([f"iters={options.iters}"] if options.iters else [])
    whole = Request(
        name=" ".join([experiment.name, *words]),
        title=(experiment.title or experiment.name) + (f" ({' '.join(words)})" if words else ""),
        kind=experiment.kind,
        selected=experiment.selected,
        notes={written(each.cell.method): each.note for each in planned if each.note and not each.reason},
        rules=[rule.plain() for rule in experiment.rules if any(rule.concerns(*place) for place in places)],
        command=_command(source, replace(options, only=())),
        **_cells(planned),
    )
    if not options.only:
        some = whole
    else:
        chosen = _cells([each for each in planned if each.wanted])
        some = replace(whole, command=_command(source, options), whole=whole, **chosen)
    if not some.asked:
        pair = f"it has none of '{','.join(options.only)}' together; {_held(experiment)}."
        why = some.refused[0][1] if some.refused else pair
        raise ThreefoldError(f"{experiment.name} leaves nothing to train: {why}")
    return some


def _cells(planned: Sequence[_Planned]) -> dict[str, Any]:
    """The cells that can be trained, those on held-out data last, and those that cannot."""
    every: dict[tuple[str, bool], Asked] = {}
    refused = {run_key(each.cell.spec()): (each.cell, each.reason) for each in planned if each.reason}
    for key, asked in (pair for each in planned if not each.reason for pair in each.asked.items()):
        known = every.get(key, asked)  # two parts may have the same cell with different seeds
        of_file = ", ".join(filter(None, dict.fromkeys([known.seeds_of_file, asked.seeds_of_file])))
        seeds = tuple(dict.fromkeys([*known.seeds, *asked.seeds]))
        every[key] = known._replace(seeds=seeds, seeds_of_file=of_file)
    return {
        "asked": sorted(every.values(), key=lambda asked: asked.validation),
        "refused": list(refused.values()),
    }


def _planned(experiment: Experiment, options: Options, report: Report | None) -> Iterator[_Planned]:
    quick, held = experiment.quick if options.quick else None, experiment.validation
    wanted, kept, seeds_of = _only(experiment, options.only), _kept(experiment, options), _seeds_of(options, quick)
    for part in experiment.parts:
        named, training = streams.find(part.stream), _training(experiment, part, quick)
        settings = _settings(experiment, training, options, named.kind.defaults)
        for how in settings:
            how.check_scenarios([scenarios.find(scenario) for _, scenario in _pairs(part)])
        encode = encoder(part.features, settings[0].resolved_device()) if part.features else None
        data = load(part.data or named.data or "mnist", report=report)
        if held and issubclass(named.kind, Timed):
            raise ThreefoldError(
                "validation holds out the last samples of each class, but timed goes by the order of samples; use"
                " another stream, or no validation."
            )
        ready = prepared(data, part.normalize, encode)
        held_out = prepared(data.validation(held.share), part.normalize, encode) if held else None
        sources = []
        for tasks, boundaries in part.streams:
            stream, first = named.of(ready, tasks), named.of(held_out, tasks) if held_out else None
            stream.boundaries = streams.find_boundaries((quick and quick.boundaries) or boundaries)
            stream.only = quick.tasks if quick else None
            if first and held:
                first.boundaries, first.only = stream.boundaries, held.tasks
            sources.append((stream, first))
        places = [
            (stream, first, how.filled(stream.defaults), way)
            for (how, way), (stream, first) in product(zip(settings, training.ways(), strict=True), sources)
        ]
        for spec, scenario in _pairs(part):
            if not kept(spec, scenario):
                continue
            given = spec.seeds or part.seeds or experiment.seeds
            seeds, every = seeds_of(given, part.orders), _every(part, kept)
            of_file = " ".join(filter(None, [given, part.orders, quick.seeds if quick else None]))
            full = [_full(way, stream, given) | every for stream, _, _, way in places]
            for method in _thinned(spec, quick.points if quick else None).variants():
                read = experiment.ruled(method, scenario, spec.task_id_in)
                for (stream, first, how, _), in_file in zip(places, full, strict=True):
                    cell = Cell.of(stream, scenarios.find(scenario), read, how, spec.task_id_in, experiment.paper)
                    asked = [Asked(cell, seeds, full=in_file, seeds_of_file=of_file)]
                    if first:
                        asked.append(Asked(replace(cell, stream=first), seeds, True, seeds_of_file=of_file))
                    by_key = {(run_key(each.cell.spec()), each.validation): each for each in asked}
                    yield _Planned(cell, by_key, cell.refusal(), spec.note, wanted(spec, scenario))


def _full(way: Mapping[str, Any], stream: Stream, seeds: str) -> dict[str, int]:
    """The length, number of tasks, width and number of seeds that the file gives a cell, whatever the options."""
    usual = stream.defaults
    length = {"epochs": way["epochs"]} if way["epochs"] else {"iters": way["iters"] or usual.iters}
    width = {"hidden": way["hidden"] or usual.hidden} if _may_be_narrowed(way) else {}
    return {**length, "tasks": stream.cut, **width, "seeds": len(parse_seeds(seeds))}


def _may_be_narrowed(way: Mapping[str, Any]) -> bool:
    """May a rehearsal use a narrower network? Not if the file gives the width."""
    return way["network"] in (None, "mlp")


def _count(experiment: Experiment, options: Options) -> tuple[int, int]:
    """The number of cells and of runs, counted without building them, as a short file may have 10⁹ of them."""
    quick, wanted = experiment.quick if options.quick else None, _only(experiment, options.only)
    kept, seeds_of, cells, runs = _kept(experiment, options), _seeds_of(options, quick), 0, 0
    for part in experiment.parts:
        ways = _training(experiment, part, quick).points * len(part.streams)
        for spec, scenario in _pairs(part):
            if not kept(spec, scenario):
                continue
            points = _thinned(spec, quick.points if quick else None).points * ways
            points *= 2 if experiment.validation else 1
            seeds = seeds_of(spec.seeds or part.seeds or experiment.seeds, part.orders)
            cells += points
            runs += points * len(seeds) if wanted(spec, scenario) else 0
    return cells, runs


def _seeds_of(options: Options, quick: QuickSpec | None) -> Callable[[str, str | None], tuple[Seed, ...]]:
    """The seeds of a method: those of the file, each in the given orders, or those of the command.

    A rehearsal has its own seeds, unless those are more, and no more orders than seeds.
    """

    @cache  # thousands of methods may have the same thousands of seeds
    def found(given: str, orders: str | None) -> tuple[Seed, ...]:
        seeds = parse_seeds(given if options.seeds is None else options.seeds)
        if quick is None:
            return seeds_in_orders(seeds, orders)
        few = parse_seeds(quick.seeds)
        if options.seeds is None:
            seeds = min(few, seeds, key=len)
        return seeds_in_orders(seeds, orders and parse_seeds(orders, "orders")[: len(few)])

    return found


def _settings(experiment: Experiment, training: TrainingSpec, options: Options, usual: Defaults) -> list[Settings]:
    """The settings to train with on a stream. A rehearsal is never longer than the experiment itself."""
    found = []
    for given in training.ways():
        if options.quick:
            if given["epochs"]:
                given["epochs"] = 1
            else:
                given["iters"] = min(experiment.quick.iters, given["iters"] or usual.iters)
            if experiment.quick.hidden and _may_be_narrowed(given):
                given["hidden"] = min(experiment.quick.hidden, given["hidden"] or usual.hidden)
        if options.iters is not None:
            given |= {"iters": options.iters, "epochs": None}
        settings = Settings.checked(**given, device=options.device, precision=options.precision)
        found.append(settings.elsewhere(options.cuda))
    return found


def _pairs(part: PartSpec) -> Iterator[tuple[MethodSpec, str]]:
    for spec in part.methods:
        for scenario in spec.scenarios or part.scenarios:
            yield spec, scenario


def _thinned(spec: MethodSpec, points: int | None) -> MethodSpec:
    """The grid with `points` values of each list, the first and the last included."""
    if points is None:
        return spec
    values = {name: _few(value, points) if isinstance(value, list) else value for name, value in spec.values.items()}
    return spec.model_copy(update={"values": values})


def _training(experiment: Experiment, part: PartSpec, quick: QuickSpec | None) -> TrainingSpec:
    """How a part is trained: a rehearsal keeps few values of lists of numbers, but all networks, optimisers and
    schedules."""
    training = experiment.training
    if part.network:
        training = training.model_copy(update={"network": part.network, "hidden": None})
    if quick is None:
        return training
    grids = {name: value for name, value in training if isinstance(value, list) and not isinstance(value[0], str)}
    return training.model_copy(update={name: _few(value, quick.points) for name, value in grids.items()})


def _few(values: list[Any], points: int) -> list[Any]:
    if len(values) <= points:
        return values
    return [values[round(place * (len(values) - 1) / (points - 1))] for place in range(points)]


def _only(experiment: Experiment, names: Sequence[str]) -> Callable[[MethodSpec, str], bool]:
    """Does a method in a scenario match the names? It must match one name of each kind given."""
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


def _kept(experiment: Experiment, options: Options) -> Callable[[MethodSpec, str], bool]:
    """Is a method in a scenario part of a rehearsal? Always if selected by name."""
    return _only(experiment, experiment.quick.only if options.quick and not options.only else ())


def _every(part: PartSpec, kept: Callable[[MethodSpec, str], bool]) -> dict[str, int]:
    """The numbers of methods and scenarios in the experiment's file, if not all of them are kept."""
    pairs = list(_pairs(part))
    if all(kept(*pair) for pair in pairs):
        return {}
    return {"methods": len({spec.method for spec, _ in pairs}), "scenarios": len({scenario for _, scenario in pairs})}


def _held(experiment: Experiment) -> str:
    """The names that can be selected."""
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
