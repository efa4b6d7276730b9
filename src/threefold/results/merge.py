"""Merges results from several machines into one store."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from threefold.errors import ThreefoldError
from threefold.results.kept_networks import KeptNetworks
from threefold.results.packed import unpack
from threefold.results.record import Record, checksum, run_key
from threefold.results.rows import Rows, is_rows
from threefold.results.schema import check_run
from threefold.results.seed import Seed, read_seed, seed_of, united
from threefold.results.store import Store


@dataclass(frozen=True)
class Merged:
    added: int
    present: int  # the same result was there already
    networks: int = 0  # that runs of the sources kept


def merge(destination: str | PathLike[str], sources: Sequence[str | PathLike[str]]) -> Merged:
    """Add every run of the sources (stores, or files of rows) to the destination, all or none.

    Merging again changes nothing. Two rows with the same key but different results are refused, and both are shown:
    one is wrong, or was computed by other code. Where and when a run was computed is not part of its result. Networks
    that runs kept are copied to the destination last, where it has none.
    """
    found: dict[str, tuple[Record, str]] = {}
    keys: dict[str, list[str]] = {}  # by source
    asked: list[tuple[str, dict[str, Any]]] = []
    present = 0
    for source in sources:
        with nullcontext(Rows(source)) if is_rows(source) else _Elsewhere(source, readonly=True) as other:
            asked += other.experiments().items()
            for record in other.all():
                keys.setdefault(str(source), []).append(record.key)
                known = found.setdefault(record.key, (record, str(source)))
                if known[0] is not record:
                    _compare(*known, record, str(source), f"'{known[1]}' or without '{source}'")
                    present += 1
    with Store(destination) as store, store.writing():  # sources come first
        for key in store.has(found):
            if mine := store.get(key):
                record, source = found.pop(key)
                _compare(mine, str(destination), record, source, f"'{source}'")
                present += 1
        store.add(record for record, _ in found.values())
        for name, what in asked:
            store.remember(name, what, together)
    kept = KeptNetworks(Path(destination))
    networks = sum(kept.take_in(KeptNetworks(Path(source)), each) for source, each in keys.items())
    return Merged(len(found), present, networks)


class _Elsewhere(Store):
    """A store from elsewhere: everything in it is validated."""

    def all(self) -> Iterator[Record]:
        for record in super().all():
            try:
                check_run(record.to_json())
            except ValueError as error:
                raise ThreefoldError(
                    f"store '{self.path}' holds a run that cannot be merged (key '{record.key}': {error}); merge"
                    " without that store."
                ) from None
            yield record

    def experiments(self) -> dict[str, dict[str, Any]]:
        for name, why in self.unreadable().items():
            raise ThreefoldError(
                f"store '{self.path}' holds an experiment that cannot be merged ('{name}': {why}); merge without that"
                " store."
            )
        return super().experiments()


def together(before: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier request with what a new one of its name adds: each cell once, with the seeds and remarks of both."""
    rules = before.get("rules", [])
    old, new = by_key(before["cells"]), by_key(asked["cells"])
    cells = dict(old)
    for key, cell in new.items():
        known = old.get(key, cell)
        cells[key] = {**known, "seeds": united(known["seeds"], cell["seeds"])}
    return {
        **before,
        "notes": before["notes"] | asked["notes"],
        "rules": rules + [rule for rule in asked.get("rules", []) if rule not in rules],
        "cells": list(cells.values()),
        "refused": list((by_key(before["refused"]) | by_key(asked["refused"]) | by_key(before["refused"])).values()),
        "command": joint_command(cells, (asked["command"], new), (before["command"], old)),
    }


Cells = Mapping[str, Mapping[str, Any]]  # of a request, by key


def by_key(cells: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {run_key(cell["spec"]): cell for cell in cells}


def joint_command(cells: Cells, asked: tuple[str, Cells], before: tuple[str, Cells]) -> str:
    """The command for the cells of two requests: one of their commands if it covers all, else both in sequence.

    It is empty if some of it was requested in Python in a way that no command can repeat.
    """
    for command, its in (asked, before):
        if _runs(its) == _runs(cells):
            return command
    if not (before[0] and asked[0]):
        return ""
    return " && ".join(dict.fromkeys(f"{before[0]} && {asked[0]}".split(" && ")))


def _runs(cells: Cells) -> set[tuple[str, Seed]]:
    return {(key, read_seed(seed)) for key, cell in cells.items() for seed in cell["seeds"]}


def _compare(first: Record, where: str, second: Record, elsewhere: str, spare: str) -> None:
    """Refuse different results of one run. `spare` names the sources that could be left out."""
    one, other = _measured(first), _measured(second)
    for name in one | other:
        if one.get(name) != other.get(name):
            values = _apart(one.get(name), other.get(name))
            origins = ((where, first), (elsewhere, second))
            shown = [
                f"{value} in '{file}' ({_origin(run)})" for value, (file, run) in zip(values, origins, strict=True)
            ]
            raise ThreefoldError(
                f"run {first.key[:12]} ({first.spec['method']['name']}, {first.spec['scenario']['name']}, seed"
                f" {seed_of(first.spec)}) has two results: its {name} is {' and '.join(shown)}; nothing was merged;"
                f" merge without {spare}."
            )


def _measured(record: Record) -> dict[str, Any]:
    """All values of a result, by descriptive names."""
    data = record.to_json()
    values: dict[str, Any] = {"status": data["status"], "diverged_at": data["diverged_at"]}
    for after, row in enumerate((data["initial"], *data["matrix"])):
        when = f"after task {after}" if after else "before any training"
        values |= {f"accuracy on task {task} {when}": value for task, value in enumerate(row, start=1)}
    return values | {f"{name} during training": _sum(packed) for name, packed in record.curves.items()}


def _sum(packed: Mapping[str, Any]) -> str:
    """A checksum of an array's values, as two machines may compress the same numbers differently."""
    array = unpack(packed)
    return f"of sum {checksum(f'{array.dtype.str} {array.shape}'.encode() + array.tobytes())}"


def _apart(*values: Any) -> list[str]:
    """Both values, with all digits only if four do not distinguish them."""
    short = [f"{value:.4f}" if isinstance(value, float) else str(value) for value in values]
    return short if len(set(short)) == len(short) else [repr(value) for value in values]


def _origin(record: Record) -> str:
    made = record.environment
    return f"{record.created}, threefold {made.get('threefold')}, {made.get('device')}"
