"""Requests: cells to train, with their seeds.

The command line, Python and TOML files (`experiment_request.py`) all make requests; all are trained and stored alike.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from threefold import scenarios, streams
from threefold.data import Dataset, Encoder, Report, load
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell
from threefold.experiments.command import reproducing
from threefold.experiments.description import written
from threefold.experiments.limits import check_runs
from threefold.experiments.section import Kind
from threefold.experiments.seeds import parse_seeds, seeds_in_orders
from threefold.experiments.settings import Settings, listed, ways
from threefold.methods import Method, Part, parse
from threefold.networks import encoder
from threefold.reading import parse_json
from threefold.results import KeptNetworks, Ordered, Seed, Store, by_key, joint_command, run_key, together, united
from threefold.results.schema import NAME, check_count, check_experiment
from threefold.streams import Boundaries, Stream
from threefold.text import no_longer


class Asked(NamedTuple):
    """A requested cell with its seeds."""

    cell: Cell
    seeds: tuple[Seed, ...]
    validation: bool = False  # is it trained on data held out of the first tasks?
    full: Mapping[str, int] | None = None  # the lengths that the experiment's file gives it
    seeds_of_file: str | None = None  # the seeds that it gives it, whatever the command

    def described(self) -> dict[str, Any]:
        plain = self.cell.described() | {"seeds": list(self.seeds), "validation": self.validation}
        plain |= {"full": dict(self.full)} if self.full else {}
        return plain | ({"seeds_of_file": self.seeds_of_file} if self.seeds_of_file else {})


@dataclass(frozen=True)
class Request:
    """The cells to train, and those that were refused."""

    name: str
    title: str
    asked: Sequence[Asked]
    refused: Sequence[tuple[Cell, str]] = ()
    kind: Kind = "table"
    selected: str = "as given"
    notes: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[Mapping[str, Any]] = ()
    command: str = ""
    from_file: bool = True  # otherwise it adds to earlier requests of its name
    whole: "Request | None" = None  # the whole file, if only some of it is to be trained

    def check(self, store: Path | None) -> None:
        """Check that no task is smaller than a batch without repeated samples, and that what is stored can be read.

        Before a store is created, transforms of a user's streams are tried on all samples."""
        if store:
            (self.whole or self)._check_readable()
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
            if store and not os.path.exists(store):  # unlike Path's, it takes any name
                stream.try_transforms(seeds)

    def _check_readable(self) -> None:
        """Check one cell of each shape, as others differ in numbers only, which were checked when they were given."""
        try:
            check_count(sum(len(asked.seeds) for asked in self.asked))
            asked = {(asked.cell.shape, asked.seeds): asked for asked in self.asked}
            refused = {(cell.shape, reason): (cell, reason) for cell, reason in self.refused}
            some = replace(self, asked=[*asked.values()], refused=[*refused.values()])
            check_experiment(self.name, parse_json(json.dumps(some._plain())))
        except (TypeError, ValueError) as error:
            raise ThreefoldError(f"{self.name[:100]} cannot be stored ({error}).") from error

    def left(self, store: Store, *, keep: bool = False) -> int:
        """How many of its runs are still to be trained; `keep`: those without kept networks too."""
        runs = [(asked.cell, seed) for asked in self.asked for seed in asked.seeds]
        tasks = {run_key(cell.run_spec(seed)): cell.stream.tasks for cell, seed in runs}
        done, networks = store.has(tasks), KeptNetworks(store.path)
        return len(tasks) - sum(networks.complete(key, tasks[key]) if keep else True for key in done)

    def remember(self, store: Store) -> None:
        """Store the request, from which reports and counts are made.

        An experiment follows its file: cells removed from it are forgotten. Other requests are added to earlier ones.
        Cells whose runs are never stored are left out.
        """
        plain = (self.whole or self)._plain()
        if not plain["cells"]:
            return
        store.remember(self.name, plain, _following if self.from_file else together)

    def _plain(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "kind": self.kind,
            "selected": self.selected,
            "cells": [asked.described() for asked in self.asked if not asked.cell.not_covered],
            "refused": [cell.described() | {"reason": reason} for cell, reason in self.refused],
            "notes": dict(self.notes),
            "rules": list(self.rules),
            "command": self.command,
        }


def _following(before: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The new request, in which cells that were requested before have the seeds of both commands, as long as the file
    gives them the same seeds.

    Device and precision belong to the command, not to the file: cells trained with other ones are kept as well.
    """
    old, new = by_key(before["cells"]), by_key(asked["cells"])
    in_file = {_anywhere(cell["spec"]): cell for cell in new.values()}
    pairs = [(key, cell, in_file.get(_anywhere(cell["spec"]))) for key, cell in old.items()]
    old = {key: cell for key, cell, same in pairs if same and _same_seeds(cell, same)}
    cells: dict[str, Mapping[str, Any]]
    cells = {key: {**cell, "seeds": united(cell["seeds"], old.get(key, cell)["seeds"])} for key, cell in new.items()}
    cells |= {key: cell for key, cell in old.items() if key not in new}
    command = joint_command(cells, (asked["command"], new), (before["command"], old))
    return {**asked, "cells": list(cells.values()), "command": command}


def _same_seeds(before: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Does the file give a cell the same seeds as before? Earlier versions did not record them."""
    return before.get("seeds_of_file") in (None, asked.get("seeds_of_file"))


def _anywhere(spec: Mapping[str, Any]) -> str:
    """The key of a cell without device and precision."""
    training = {name: value for name, value in spec["training"].items() if name not in ("device", "precision")}
    return run_key({**spec, "training": training})


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
    tasks: int | list[int] | None = None,
    boundaries: Boundaries | str | list[str] | None = None,
    task_id_in: str | None = None,
    settings: Mapping[str, Any],
    command: str | None = None,
    yes: bool = False,
    report: Report | None = None,
) -> Request:
    """The request of `threefold run` and `threefold.run`: methods in scenarios on one stream.

    Settings, `tasks` and `boundaries` may be lists: each of their combinations is trained.
    """
    # everything that needs no data is checked before any are fetched
    wanted = scenarios.find_all(scenario)
    methods = {written(each): each for each in map(_method, method)}
    chosen, several = seeds_in_orders(parse_seeds(seeds), orders), [listed(tasks), listed(boundaries)]
    for each in wanted:
        each.using_task_in(task_id_in)
    number = len(methods) * len(wanted) * prod(len(listed(value)) for value in (*several, *settings.values()))
    check_runs(number, number * len(chosen), confirmed=yes)
    checked = [Settings.checked(**way) for way in ways(settings)]
    for how in checked:
        how.resolved_device()
        how.check_scenarios(wanted)
    encode = encoder(features, checked[0].resolved_device()) if features else None
    ends = [None if each is None else streams.find_boundaries(each) for each in several[1]]
    made = _streams(stream, data, normalize, encode, several[0], ends, report)
    cells = [
        Cell.of(source, where, given, how, task_id_in)
        for given, source, how, where in product(methods.values(), made, checked, wanted)
    ]
    if len(made) * len(checked) > 1:  # two ways may be the same, such as `active` in Task-IL
        cells = list({run_key(cell.spec()): cell for cell in cells}.values())
    answers = [(cell, cell.refusal()) for cell in cells]
    refused = [(cell, reason) for cell, reason in answers if reason]
    asked = [Asked(cell, chosen) for cell, reason in answers if not reason]
    if not asked:
        raise ThreefoldError(refused[0][1])
    lengths = dict.fromkeys(each.cell.training.length for each in asked)
    title = f"{made[0].label}, {' and '.join(lengths)}"
    if command is None:  # requested in Python
        command = reproducing([each.cell for each in asked], chosen) or ""
    return Request(no_longer(f"run {title}", NAME), title, asked, refused, command=command, from_file=False)


def _method(given: Method | Part | str) -> Method:
    match given:
        case str():
            return parse(given)
        case Part():
            return Method(given)
        case Method() if type(given) is Method:  # keys could not cover what a subclass changes
            return given
    raise ThreefoldError(f"method must be a name such as 'ewc', a part such as EWC() or a Method, got {given!r}.")


def _streams(
    given: Stream | str,
    data: str | None,
    normalize: bool,
    encode: Encoder | None,
    tasks: Sequence[int | None],
    boundaries: Sequence[Boundaries | None],
    report: Report | None,
) -> list[Stream]:
    """The stream with each number of tasks and each of these boundaries."""
    if isinstance(given, str):
        named = streams.find(given)
        if data and named.data:
            raise ThreefoldError(
                f"data is '{data}', but stream '{given}' names its data; use {named.kind.name} with data '{data}'."
            )
        chosen = load((named.data or "mnist") if data is None else data, report=report)
        ready, found = prepared(chosen, normalize, encode), []
        for cut, ends in product(tasks, boundaries):
            made = named.of(ready, cut)
            made.check_own()
            made.boundaries = ends or made.boundaries
            found.append(made)
        return found
    if not isinstance(given, Stream):
        raise ThreefoldError(
            f"stream must be a name such as 'split-mnist', or OwnStream(function, data) or Split(data), got {given!r}."
        )
    if tasks[0] is not None:
        raise ThreefoldError(f"tasks is {tasks[0]}, but the stream has its own number of tasks; give one of them.")
    given.check_own()
    if boundaries[0] is None or boundaries[0] == given.boundaries:
        return [given]
    made = copy(given)
    made.boundaries = boundaries[0]
    return [made]


def prepared(data: Dataset, normalize: bool, encode: Encoder | None) -> Dataset:
    """The data to train on: normalised first, then encoded as features."""
    data = data.normalized() if normalize else data
    return data.encoded(encode) if encode else data
