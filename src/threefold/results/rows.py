"""The rows of a store as a small text file: one line for each cohort, to be kept beside the text that cites them.

Every measured number is there in full; what the methods kept to look at (the generators' images) is not.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from threefold.errors import ThreefoldError
from threefold.results.metrics import measure
from threefold.results.output import check_output
from threefold.results.record import Record, run_key
from threefold.results.store import Store

FORMAT = "threefold rows 1"
SUFFIXES = (".jsonl", ".jsonl.gz")
SHARED = ("timings", "environment", "created")
OWN = ("status", "diverged_at", "initial", "matrix")


def is_rows(path: str | PathLike[str]) -> bool:
    """Is a file of this name one of rows?"""
    return str(path).endswith(SUFFIXES)


def write_rows(store: Store, path: str | PathLike[str]) -> int:
    """Write all runs of the store and what was asked for; how many runs. The same store gives the same bytes."""
    content, runs = rows_text(store)
    named, path = path, Path(path).resolve()  # a link stays one
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        check_output(Path(named), SUFFIXES, store.path)
        temporary.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)
        temporary.replace(path)
    except OSError as error:
        raise ThreefoldError(
            f"rows '{named}' cannot be written ({error}); right would be a folder with space."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return runs


def rows_text(store: Store) -> tuple[bytes, int]:
    """The lines of all runs of the store and of what was asked for, and how many runs."""
    cohorts: dict[str, dict[str, Any]] = {}
    runs = 0
    for record in store.all():
        data, runs = record.to_json(), runs + 1
        seed = data["spec"].pop("seed")
        shared = {"spec": data["spec"], **{name: data[name] for name in SHARED}}
        cohort = cohorts.setdefault(json.dumps(shared, sort_keys=True), shared | {"runs": []})
        cohort["runs"].append({"seed": seed, **{name: data[name] for name in OWN}})
    head = {"format": FORMAT, "experiments": store.experiments()}
    lines = [json.dumps(line, allow_nan=False, separators=(",", ":")) for line in (head, *cohorts.values())]
    return "".join(f"{line}\n" for line in lines).encode(), runs


class Rows:
    """A file of rows, read as a store is."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        lines = _lines(self.path)
        with _named(self.path, 1):
            head = _object(lines[0])
            known = head["format"]
            self._experiments: dict[str, dict[str, Any]] = head["experiments"]
            if not isinstance(self._experiments, dict):
                raise ValueError("its experiments are no table")
        if known != FORMAT:
            raise ThreefoldError(f"rows '{self.path}' have the format '{known}'; right would be '{FORMAT}'.")
        self._records: list[Record] = []
        for number, line in enumerate(lines[1:], start=2):
            with _named(self.path, number):
                self._records += _records(_object(line))

    def experiments(self) -> dict[str, dict[str, Any]]:
        return self._experiments

    def all(self) -> Iterator[Record]:
        return iter(self._records)


def _lines(path: Path) -> list[bytes]:
    right = "right would be a file that `threefold export rows` wrote"
    try:
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ThreefoldError(f"rows '{path}' cannot be read ({why}); {right}.") from error
    if not lines:
        raise ThreefoldError(f"rows '{path}' are empty; {right}.")
    return lines


@contextmanager
def _named(path: Path, number: int) -> Iterator[None]:
    """Say in which line something is wrong, and what."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, ThreefoldError) as error:
        why = f"lacks the field {error}" if isinstance(error, KeyError) else f"is wrong ({str(error).rstrip('.')})"
        if isinstance(error, json.JSONDecodeError):
            why = f"is not JSON from column {error.colno} on, as if it were cut off or of another kind"
        raise ThreefoldError(
            f"line {number} of rows '{path}' {why}; right would be a file that `threefold export rows` wrote."
        ) from error


def _object(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {json.dumps(value)[:20]}, not an object")
    return value


def _records(cohort: Mapping[str, Any]) -> Iterator[Record]:
    for run in cohort["runs"]:
        spec = cohort["spec"] | {"seed": run["seed"]}
        data = {name: cohort[name] for name in SHARED} | {name: run[name] for name in OWN}
        data |= {"key": run_key(spec), "spec": spec, "metrics": {}, "keepsakes": {}}
        record = Record.from_json(data)
        metrics = measure(list(record.initial), [list(row) for row in record.matrix])
        yield Record(**vars(record) | {"metrics": metrics})
