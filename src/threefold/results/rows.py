"""The rows of a store as a small text file: one line for each cohort, to be kept beside the text that cites them.

Every measured number is there in full; what the methods kept to look at (the generators' images) is not.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
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
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        check_output(path, SUFFIXES, store.path)
        temporary.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)
        temporary.replace(path)
    except OSError as error:
        raise ThreefoldError(
            f"rows '{path}' cannot be written ({error}); right would be a folder with space."
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
        try:
            content = self.path.read_bytes()
            lines = (gzip.decompress(content) if self.path.suffix == ".gz" else content).decode().splitlines()
            head, *cohorts = [json.loads(line) for line in lines]
            self._experiments: dict[str, dict[str, Any]] = head["experiments"]
            known = head["format"] == FORMAT
            self._records = [record for cohort in cohorts for record in _records(cohort)] if known else []
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            raise ThreefoldError(
                f"rows '{self.path}' cannot be read ({error}); right would be a file that threefold wrote."
            ) from error
        if not known:
            raise ThreefoldError(f"rows '{self.path}' have the format '{head['format']}'; right would be '{FORMAT}'.")

    def experiments(self) -> dict[str, dict[str, Any]]:
        return self._experiments

    def all(self) -> Iterator[Record]:
        return iter(self._records)


def _records(cohort: Mapping[str, Any]) -> Iterator[Record]:
    for run in cohort["runs"]:
        spec = cohort["spec"] | {"seed": run["seed"]}
        data = {name: cohort[name] for name in SHARED} | {name: run[name] for name in OWN}
        data |= {"key": run_key(spec), "spec": spec, "metrics": {}, "keepsakes": {}}
        record = Record.from_json(data)
        metrics = measure(list(record.initial), [list(row) for row in record.matrix])
        yield Record(**vars(record) | {"metrics": metrics})
