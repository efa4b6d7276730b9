"""Turns an experiment's file and the command's options into a request: every cell with its seeds."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
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
from threefold.experiments.spec import Experiment, MethodSpec, PartSpec, QuickSpec
from threefold.methods import METHODS
from threefold.networks import encoder
from threefold.results import Seed, run_key
from threefold.streams import Defaults, Timed


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

    asked: Sequence[Asked]  # the cell itself, and on held-out data
    reason: str | None  # why it cannot be trained
    note: str
    wanted: bool  # selected by --only


def experiment_request(experiment: Experiment, options: Options, source: str, report: Report | None = None) -> Request:
    """Every cell of the experiment, with the options applied. `source` is its name on the command line."""
    check_runs(*_count(experiment, options), confirmed=options.yes)
    planned = list(_planned(experiment, options, report))
    every = [each.asked[0].cell for each in planned]
    places = [(cell.method, cell.scenario.name, "hidden" if cell.task_id_in == "hidden" else None) for cell in every]
    words = ["quick"] * options.quick + ([f"iters={options.iters}"] if options.iters else [])
    whole = Request(
        name=" ".join([experiment.name, *words]),
        title=(experiment.title or experiment.name) + (f" ({' '.join(words)})" if words else ""),
        kind=experiment.kind,
        selected=experiment.selected,
        notes={written(each.asked[0].cell.method): each.note for each in planned if each.note and not each.reason},
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
    for asked in (asked for each in planned if not each.reason for asked in each.asked):
        key = run_key(asked.cell.spec()), asked.validation
        known = every.get(key, asked)  # two parts may have the same cell with different seeds
        every[key] = known._replace(seeds=tuple(dict.fromkeys([*known.seeds, *asked.seeds])))
    return {
        "asked": sorted(every.values(), key=lambda asked: asked.validation),
        "refused": [(each.asked[0].cell, each.reason) for each in planned if each.reason],
    }


def _planned(experiment: Experiment, options: Options, report: Report | None) -> Iterator[_Planned]:
    quick, held = experiment.quick if options.quick else None, experiment.validation
    wanted, kept = _only(experiment, options.only), _kept(experiment, options)
    for part in experiment.parts:
        named = streams.find(part.stream)
        settings = _settings(experiment, part, options, named.kind.defaults)
        settings[0].check_scenarios([scenarios.find(scenario) for _, scenario in _pairs(part)])
        encode = encoder(part.features, settings[0].resolved_device()) if part.features else None
        data = load(part.data or named.data or "mnist", report=report)
        stream = named.of(prepared(data, part.normalize, encode), part.tasks)
        stream.boundaries = streams.find_boundaries((quick and quick.boundaries) or part.boundaries)
        stream.only = quick.tasks if quick else None
        first = None
        if held and issubclass(named.kind, Timed):
            raise ThreefoldError(
                "validation holds out the last samples of each class, but timed goes by the order of samples; use"
                " another stream, or no validation."
            )
        if held:
            first = named.of(prepared(data.validation(held.share), part.normalize, encode), part.tasks)
            first.boundaries, first.only = stream.boundaries, held.tasks
        for spec, scenario in _pairs(part):
            if not kept(spec, scenario):
                continue
            given = spec.seeds or part.seeds or experiment.seeds
            plain = _seeds(given, quick) if options.seeds is None else parse_seeds(options.seeds)
            seeds = _in_orders(plain, part.orders, quick)
            for method in _thinned(spec, quick.points if quick else None).variants():
                read = experiment.ruled(method, scenario, spec.task_id_in)
                for how, way in zip(settings, experiment.training.ways(part.network), strict=True):
                    cell = Cell.of(stream, scenarios.find(scenario), read, how, spec.task_id_in)
                    cell = replace(cell, paper=experiment.paper)
                    asked = [Asked(cell, seeds, full=_full(way, cell, given) | _every(part, kept))]
                    if first:
                        asked.append(Asked(replace(cell, stream=first), seeds, validation=True))
                    yield _Planned(asked, cell.refusal(), spec.note, wanted(spec, scenario))


def _full(way: Mapping[str, Any], cell: Cell, seeds: str) -> dict[str, int]:
    """The length, number of tasks, width and number of seeds that the file gives a cell, whatever the options."""
    usual = cell.stream.defaults
    length = {"epochs": way["epochs"]} if way["epochs"] else {"iters": way["iters"] or usual.iters}
    width = {"hidden": way["hidden"] or usual.hidden} if _may_be_narrowed(way) else {}
    return {**length, "tasks": cell.stream.cut, **width, "seeds": len(parse_seeds(seeds))}


def _may_be_narrowed(way: Mapping[str, Any]) -> bool:
    """May a rehearsal use a narrower network? Not if the file gives the width."""
    return way["network"] in (None, "mlp")


def _count(experiment: Experiment, options: Options) -> tuple[int, int]:
    """The number of cells and of runs, counted without building them, as a short file may have 10⁹ of them."""
    quick, wanted = experiment.quick if options.quick else None, _only(experiment, options.only)
    kept, cells, runs = _kept(experiment, options), 0, 0

    @cache  # thousands of methods may have the same thousands of seeds
    def wanted_seeds(given: str, orders: str | None) -> tuple[Seed, ...]:
        plain = _seeds(given, quick) if options.seeds is None else parse_seeds(options.seeds)
        return _in_orders(plain, orders, quick)

    for part in experiment.parts:
        for spec, scenario in _pairs(part):
            if not kept(spec, scenario):
                continue
            points = _thinned(spec, quick.points if quick else None).points * experiment.training.points
            points *= 2 if experiment.validation else 1
            seeds = wanted_seeds(spec.seeds or part.seeds or experiment.seeds, part.orders)
            cells += points
            runs += points * len(seeds) if wanted(spec, scenario) else 0
    return cells, runs


def _in_orders(seeds: Sequence[int], orders: str | None, quick: QuickSpec | None) -> tuple[Seed, ...]:
    """Each seed in these orders; a rehearsal has no more orders than seeds."""
    if orders is None or quick is None:
        return seeds_in_orders(seeds, orders)
    return seeds_in_orders(seeds, parse_seeds(orders, "orders")[: len(parse_seeds(quick.seeds))])


def _seeds(given: str, quick: QuickSpec | None) -> tuple[int, ...]:
    """The given seeds; in a rehearsal its own, unless those are more."""
    seeds = parse_seeds(given)
    return min(parse_seeds(quick.seeds), seeds, key=len) if quick else seeds


def _settings(experiment: Experiment, part: PartSpec, options: Options, usual: Defaults) -> list[Settings]:
    """The settings to train with on a stream. A rehearsal is never longer than the experiment itself."""
    found = []
    for given in experiment.training.ways(part.network):
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
    values = {}
    for name, value in spec.values.items():
        if isinstance(value, list) and len(value) > points:
            places = [round(place * (len(value) - 1) / (points - 1)) for place in range(points)]
            value = [value[place] for place in places]
        values[name] = value
    return spec.model_copy(update={"values": values})


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
