"""What is asked for: an experiment and the user's options become cells with their seeds.

The command line, Python and TOML files all make requests, and all requests are trained and remembered alike.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from threefold import scenarios, streams
from threefold.data import Dataset, Encoder, Report, load
from threefold.errors import ThreefoldError, unknown
from threefold.experiments.cell import Cell
from threefold.experiments.command import reproducing
from threefold.experiments.description import written
from threefold.experiments.limits import check_runs
from threefold.experiments.section import Kind
from threefold.experiments.seeds import parse_seeds, seeds_in_orders
from threefold.experiments.settings import Settings
from threefold.experiments.spec import Experiment, MethodSpec, PartSpec, QuickSpec
from threefold.methods import METHODS, Method, Part, parse
from threefold.networks import encoder
from threefold.reading import parse_json
from threefold.results import Ordered, Seed, Store, run_key, together, united
from threefold.results.schema import NAME, check_experiment
from threefold.streams import Boundaries, Defaults, Stream, Timed
from threefold.text import no_longer


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


class Asked(NamedTuple):
    """A cell that is asked for, and with which seeds."""

    cell: Cell
    seeds: tuple[Seed, ...]
    validation: bool = False  # is it trained on data held out of the first tasks?
    full: Mapping[str, int] | None = None  # how long the experiment's file has it

    def described(self) -> dict[str, Any]:
        plain = self.cell.described() | {"seeds": list(self.seeds), "validation": self.validation}
        return plain | ({"full": dict(self.full)} if self.full else {})


@dataclass(frozen=True)
class Request:
    """What is to be trained, and what was refused."""

    name: str
    title: str
    asked: Sequence[Asked]
    refused: Sequence[tuple[Cell, str]] = ()
    kind: Kind = "table"
    selected: str = "as given"
    notes: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    from_file: bool = True  # else it adds to what was asked for before under its name
    whole: "Request | None" = None  # all of the file, where only some of it is to be trained

    def check(self, *, stored: bool) -> None:
        """A batch has no sample twice, so no task may be smaller; and what is stored must be such as can be read."""
        if stored:
            self._check_readable()
        for stream in dict.fromkeys(asked.cell.stream for asked in self.asked):
            mine = [asked for asked in self.asked if asked.cell.stream is stream]
            seeds = {seed.order if isinstance(seed, Ordered) else seed for asked in mine for seed in asked.seeds}
            smallest = min(stream.smallest_task(seed) for seed in seeds)
            batch = max(asked.cell.training.batch for asked in mine)
            if batch > smallest:
                raise ThreefoldError(
                    f"batch must be at most {smallest}, got {batch}: the smallest task has {smallest} training samples,"
                    " and no sample is twice in a batch."
                )

    def _check_readable(self) -> None:
        try:
            check_experiment(self.name, parse_json(json.dumps((self.whole or self)._plain())))
        except (TypeError, ValueError) as error:
            raise ThreefoldError(f"{self.name[:100]} cannot be stored ({error}).") from error

    def left(self, store: Store) -> int:
        """How many of its runs are still to be trained."""
        keys = {run_key(asked.cell.run_spec(seed)) for asked in self.asked for seed in asked.seeds}
        return len(keys - store.has(keys))

    def remember(self, store: Store) -> None:
        """Tell the store what was asked for: reports and counts need no more than that.

        An experiment follows its file: what was taken out is forgotten. Other requests are added to earlier ones. What
        is never stored is nothing to report on.
        """
        plain = (self.whole or self)._plain()
        if not plain["cells"]:
            return
        unite = _following if self.from_file else together
        store.reconsider(self.name, lambda before: plain | unite(before, plain) if before else plain)

    def _plain(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "kind": self.kind,
            "selected": self.selected,
            "cells": [asked.described() for asked in self.asked if not asked.cell.not_covered],
            "refused": [cell.described() | {"reason": reason} for cell, reason in self.refused],
            "notes": dict(self.notes),
            "command": self.command,
        }


def _following(before: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for now, a cell that was asked for before with the seeds of both commands.

    The device and the precision are not the file's but the command's: what was trained with others stays beside it.
    """
    now = {run_key(cell["spec"]) for cell in asked["cells"]}
    in_file = {_anywhere(cell["spec"]) for cell in asked["cells"]}
    kept = {run_key(cell["spec"]): cell for cell in before["cells"] if _anywhere(cell["spec"]) in in_file}
    cells = []
    for cell in asked["cells"]:
        known = kept.get(run_key(cell["spec"]), cell)
        cells.append(cell | {"seeds": united(cell["seeds"], known["seeds"])})
    cells += [cell for key, cell in kept.items() if key not in now]
    return {"cells": cells, "command": together({**before, "cells": list(kept.values())}, asked)["command"]}


def _anywhere(spec: Mapping[str, Any]) -> str:
    """The key of a cell wherever it is trained."""
    training = {name: value for name, value in spec["training"].items() if name not in ("device", "precision")}
    return run_key({**spec, "training": training})


class _Planned(NamedTuple):
    """A cell of an experiment, and what is said of it there."""

    asked: Sequence[Asked]  # itself, and the same on held-out data
    reason: str | None  # why it cannot be trained
    note: str
    wanted: bool  # now, by --only


def run_request(
    stream: Stream | str,
    scenario: Sequence[str],
    method: Sequence[Method | Part | str],
    seeds: str | int | Iterable[int],
    *,
    orders: str | int | Iterable[int] | None = None,
    data: str | None = None,
    normalize: bool = False,
    features: str | None = None,
    tasks: int | None = None,
    boundaries: Boundaries | str | None = None,
    task_id_in: str | None = None,
    settings: Mapping[str, Any],
    command: str | None = None,
    yes: bool = False,
    report: Report | None = None,
) -> Request:
    """Methods in scenarios on one stream, as `threefold run` and `threefold.run` ask for them."""
    # everything that needs no data is checked before any is fetched
    wanted = scenarios.find_all(scenario)
    methods = {written(each): each for each in map(_method, method)}
    chosen, checked = seeds_in_orders(parse_seeds(seeds), orders), Settings.checked(**settings)
    checked.resolved_device()
    checked.check_scenarios(wanted)
    for each in wanted:
        each.using_task_in(task_id_in)
    check_runs(len(methods) * len(wanted), len(methods) * len(wanted) * len(chosen), confirmed=yes)
    encode = encoder(features, checked.resolved_device()) if features else None
    ends = None if boundaries is None else streams.find_boundaries(boundaries)
    made = _stream(stream, data, normalize, encode, tasks, ends, report)
    cells = [Cell.of(made, each, given, checked, task_id_in) for given in methods.values() for each in wanted]
    answers = [(cell, cell.refusal()) for cell in cells]
    refused = [(cell, reason) for cell, reason in answers if reason]
    asked = [Asked(cell, chosen) for cell, reason in answers if not reason]
    if not asked:
        raise ThreefoldError(refused[0][1])
    title = f"{made.label}, {asked[0].cell.training.length}"
    if command is None:  # asked for in Python
        command = reproducing([each.cell for each in asked], chosen) or ""
    return Request(no_longer(f"run {title}", NAME), title, asked, refused, command=command, from_file=False)


def _method(given: Method | Part | str) -> Method:
    match given:
        case str():
            return parse(given)
        case Part():
            return Method(given)
        case Method() if type(given) is Method:  # what a subclass does no key would tell
            return given
    raise ThreefoldError(f"method must be a name such as 'ewc', a part such as EWC() or a Method, got {given!r}.")


def _stream(
    given: Stream | str,
    data: str | None,
    normalize: bool,
    encode: Encoder | None,
    tasks: int | None,
    boundaries: Boundaries | None,
    report: Report | None,
) -> Stream:
    if isinstance(given, str):
        named = streams.find(given)
        if data and named.data:
            raise ThreefoldError(
                f"data is '{data}', but stream '{given}' names its data; use {named.kind.name} with data '{data}'."
            )
        chosen = load((named.data or "mnist") if data is None else data, report=report)
        made = named.of(_as_asked(chosen, normalize, encode), tasks)
        made.check_own()
        made.boundaries = boundaries or made.boundaries
        return made
    if not isinstance(given, Stream):
        raise ThreefoldError(
            f"stream must be a name such as 'split-mnist', or OwnStream(function, data) or Split(data), got {given!r}."
        )
    if tasks is not None:
        raise ThreefoldError(f"tasks is {tasks}, but the stream has its own number of tasks; give one of them.")
    given.check_own()
    if boundaries is None or boundaries == given.boundaries:
        return given
    made = copy(given)
    made.boundaries = boundaries
    return made


def _as_asked(data: Dataset, normalize: bool, encode: Encoder | None) -> Dataset:
    """What is learned from: normalised first, then sent through what gives features."""
    data = data.normalized() if normalize else data
    return data.encoded(encode) if encode else data


def experiment_request(experiment: Experiment, options: Options, source: str, report: Report | None = None) -> Request:
    """Every cell of the experiment, with the options applied. `source` is how the command line names it."""
    check_runs(*_count(experiment, options), confirmed=options.yes)
    planned = list(_planned(experiment, options, report))
    words = ["quick"] * options.quick + ([f"iters={options.iters}"] if options.iters else [])
    whole = Request(
        name=" ".join([experiment.name, *words]),
        title=(experiment.title or experiment.name) + (f" ({' '.join(words)})" if words else ""),
        kind=experiment.kind,
        selected=experiment.selected,
        notes={written(each.asked[0].cell.method): each.note for each in planned if each.note and not each.reason},
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
    """What can be trained, held-out data last, and what cannot."""
    every: dict[tuple[str, bool], Asked] = {}
    for asked in (asked for each in planned if not each.reason for asked in each.asked):
        key = run_key(asked.cell.spec()), asked.validation
        known = every.get(key, asked)  # two parts may have one cell with different seeds
        every[key] = known._replace(seeds=tuple(dict.fromkeys([*known.seeds, *asked.seeds])))
    return {
        "asked": sorted(every.values(), key=lambda asked: asked.validation),
        "refused": [(each.asked[0].cell, each.reason) for each in planned if each.reason],
    }


def _planned(experiment: Experiment, options: Options, report: Report | None) -> Iterator[_Planned]:
    quick, held = experiment.quick if options.quick else None, experiment.validation
    wanted = _only(experiment, options.only)
    for part in experiment.parts:
        named = streams.find(part.stream)
        settings = _settings(experiment, options, named.kind.defaults)
        settings[0].check_scenarios([scenarios.find(scenario) for _, scenario in _pairs(part)])
        encode = encoder(part.features, settings[0].resolved_device()) if part.features else None
        data = load(part.data or named.data or "mnist", report=report)
        stream = named.of(_as_asked(data, part.normalize, encode), part.tasks)
        stream.boundaries = streams.find_boundaries((quick and quick.boundaries) or part.boundaries)
        stream.only = quick.tasks if quick else None
        first = None
        if held and issubclass(named.kind, Timed):
            raise ThreefoldError(
                "validation holds out the last samples of each class, but timed goes by the order of samples; use"
                " another stream, or no validation."
            )
        if held:
            first = named.of(_as_asked(data.validation(held.share), part.normalize, encode), part.tasks)
            first.boundaries, first.only = stream.boundaries, held.tasks
        for spec, scenario in _pairs(part):
            given = spec.seeds or part.seeds or experiment.seeds
            plain = _seeds(given, quick) if options.seeds is None else parse_seeds(options.seeds)
            seeds = _in_orders(plain, part.orders, quick)
            for method in _thinned(spec, quick.points if quick else None).variants():
                for how, way in zip(settings, experiment.training.ways(), strict=True):
                    cell = Cell.of(stream, scenarios.find(scenario), method, how, spec.task_id_in)
                    cell = replace(cell, paper=experiment.paper)
                    asked = [Asked(cell, seeds, full=_full(way, cell, given))]
                    if first:
                        asked.append(Asked(replace(cell, stream=first), seeds, validation=True))
                    yield _Planned(asked, cell.refusal(), spec.note, wanted(spec, scenario))


def _full(way: Mapping[str, Any], cell: Cell, seeds: str) -> dict[str, int]:
    """How long the experiment's file has a cell, whatever the options make of it."""
    usual = cell.stream.defaults
    length = {"epochs": way["epochs"]} if way["epochs"] else {"iters": way["iters"] or usual.iters}
    width = {"hidden": way["hidden"] or usual.hidden} if _may_be_narrowed(way) else {}
    return {**length, "tasks": cell.stream.cut, **width, "seeds": len(parse_seeds(seeds))}


def _may_be_narrowed(way: Mapping[str, Any]) -> bool:
    """In a rehearsal: not a network whose width the file gives."""
    return way["network"] in (None, "mlp")


def _count(experiment: Experiment, options: Options) -> tuple[int, int]:
    """How many cells the file has, and how many runs are wanted of them; a file of a few lines may have 10⁹ of them."""
    quick, wanted = experiment.quick if options.quick else None, _only(experiment, options.only)
    cells = runs = 0

    @cache  # thousands of methods may have the same thousands of seeds
    def wanted_seeds(given: str, orders: str | None) -> tuple[Seed, ...]:
        plain = _seeds(given, quick) if options.seeds is None else parse_seeds(options.seeds)
        return _in_orders(plain, orders, quick)

    for part in experiment.parts:
        for spec, scenario in _pairs(part):
            points = _thinned(spec, quick.points if quick else None).points * experiment.training.points
            points *= 2 if experiment.validation else 1
            seeds = wanted_seeds(spec.seeds or part.seeds or experiment.seeds, part.orders)
            cells += points
            runs += points * len(seeds) if wanted(spec, scenario) else 0
    return cells, runs


def _in_orders(seeds: Sequence[int], orders: str | None, quick: QuickSpec | None) -> tuple[Seed, ...]:
    """Each seed in these orders; in a rehearsal no more of them than it has seeds."""
    if orders is None or quick is None:
        return seeds_in_orders(seeds, orders)
    return seeds_in_orders(seeds, parse_seeds(orders, "orders")[: len(parse_seeds(quick.seeds))])


def _seeds(given: str, quick: QuickSpec | None) -> tuple[int, ...]:
    """The seeds that were given; of a rehearsal its own, unless they are more."""
    seeds = parse_seeds(given)
    return min(parse_seeds(quick.seeds), seeds, key=len) if quick else seeds


def _settings(experiment: Experiment, options: Options, usual: Defaults) -> list[Settings]:
    """In which ways to train on a stream. A rehearsal is never longer than the experiment itself."""
    found = []
    for given in experiment.training.ways():
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


def _only(experiment: Experiment, names: Sequence[str]) -> Callable[[MethodSpec, str], bool]:
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
