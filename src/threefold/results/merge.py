"""Results gathered on several machines, in one store."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from threefold.errors import ThreefoldError
from threefold.results.record import Record
from threefold.results.store import Store

MEASURED = ("status", "diverged_at", "initial", "matrix", "metrics")


@dataclass(frozen=True)
class Merged:
    added: int
    present: int  # the same result was there already


def merge(destination: str | PathLike[str], sources: Sequence[str | PathLike[str]]) -> Merged:
    """Add every run of the sources to the destination, all of them or none. Merging again changes nothing.

    Two rows with the same key but different results are refused, both shown: one of them is wrong, or was computed
    by other code. Where and when a run was computed is no part of its result.
    """
    found: dict[str, tuple[Record, str]] = {}
    asked: dict[str, dict[str, Any]] = {}
    with Store(destination) as store:
        present = 0
        for source in sources:
            with Store(source, readonly=True) as other:
                asked |= other.experiments()
                for record in other.all():
                    mine = store.get(record.key)
                    known = (mine, str(destination)) if mine else found.get(record.key)
                    if known is None:
                        found[record.key] = (record, str(source))
                        continue
                    _compare(*known, record, str(source))
                    present += 1
        for name, what in asked.items():
            if name not in store.experiments():
                store.remember(name, what)
        store.add(record for record, _ in found.values())
    return Merged(len(found), present)


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
