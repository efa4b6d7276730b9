"""Results gathered on several machines, in one store."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any

from threefold.errors import ThreefoldError
from threefold.results.record import Record, run_key
from threefold.results.rows import Rows, is_rows
from threefold.results.store import Store

MEASURED = ("status", "diverged_at", "initial", "matrix", "metrics")


@dataclass(frozen=True)
class Merged:
    added: int
    present: int  # the same result was there already


def merge(destination: str | PathLike[str], sources: Sequence[str | PathLike[str]]) -> Merged:
    """Add every run of the sources (stores, or files of rows) to the destination, all of them or none.

    Merging again changes nothing. Two rows with the same key but different results are refused, both shown: one of
    them is wrong, or was computed by other code. Where and when a run was computed is no part of its result.
    """
    found: dict[str, tuple[Record, str]] = {}
    asked: list[tuple[str, dict[str, Any]]] = []
    present = 0
    for source in sources:
        with nullcontext(Rows(source)) if is_rows(source) else Store(source, readonly=True) as other:
            asked += other.experiments().items()
            for record in other.all():
                known = found.setdefault(record.key, (record, str(source)))
                if known[0] is not record:
                    _compare(*known, record, str(source))
                    present += 1
    with Store(destination) as store:  # not before all sources were read: a mistake in one of them writes nothing
        for key in store.has(found):
            if mine := store.get(key):
                _compare(mine, str(destination), *found.pop(key))
                present += 1
        store.add(record for record, _ in found.values())
        for name, what in asked:
            _remember(store, name, what)
    return Merged(len(found), present)


def together(before: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What two commands of the same name asked for: each cell once, with the seeds of both, and the remarks of both."""
    both: dict[str, Any] = {"notes": before["notes"] | asked["notes"]}
    for what in ("cells", "refused"):
        known = {run_key(old["spec"]): dict(old) for old in before[what]}
        for new in asked[what]:
            old = known.setdefault(run_key(new["spec"]), dict(new))
            if "seeds" in new:
                old["seeds"] = sorted({*old["seeds"], *new["seeds"]})
        both[what] = list(known.values())
    return both | {"command": _command(before, asked, _runs(both))}


def _command(before: Mapping[str, Any], asked: Mapping[str, Any], runs: set[tuple[str, int]]) -> str:
    """What trains all that both asked for: one of their commands if it does, else one after the other."""
    for one in (asked, before):
        if _runs(one) == runs:
            return str(one.get("command", ""))
    return " && ".join(dict.fromkeys(f"{before['command']} && {asked['command']}".split(" && ")))


def _runs(asked: Mapping[str, Any]) -> set[tuple[str, int]]:
    return {(run_key(cell["spec"]), seed) for cell in asked["cells"] for seed in cell["seeds"]}


def _remember(store: Store, name: str, asked: dict[str, Any]) -> None:
    """Other seeds or methods of the same experiment may have been trained on each machine."""
    mine = store.experiments().get(name)
    if mine is None:
        store.remember(name, asked)
        return
    whole = mine | together(mine, asked)
    if whole != mine:
        store.remember(name, whole)


def _compare(first: Record, where: str, second: Record, elsewhere: str) -> None:
    one, other = first.to_json(), second.to_json()
    if any(one[name] != other[name] for name in MEASURED):
        shown = [f"'{place}' has {_shown(record)}" for place, record in ((where, first), (elsewhere, second))]
        raise ThreefoldError(
            f"run {first.key[:12]} ({first.spec['method']['name']}, {first.spec['scenario']['name']}, seed"
            f" {first.spec['seed']}) has two results: {' and '.join(shown)}; nothing was merged; right would be to"
            " delete the wrong row."
        )


def _shown(record: Record) -> str:
    made = record.environment
    accuracy = record.metrics.get("average_accuracy", float("nan"))
    return (
        f"{record.status} {accuracy:.4f}% ({record.created}, threefold {made.get('threefold')}, {made.get('device')})"
    )
