"""The rows of a store as a small text file, a line for each cohort, to be kept with the text that cites them.

Every measured number is there in full; what methods kept to look at (generated images) is not. Each line ends with its
checksum, and the first line has the number of runs, so that a changed or lost line is noticed.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from threefold.errors import ThreefoldError
from threefold.memory import memory_limit
from threefold.reading import parse_json, read_lines
from threefold.results.output import replacing
from threefold.results.record import Record, checksum, run_key
from threefold.results.schema import check_experiment, check_run
from threefold.results.store import Store

FORMAT = "threefold rows 2"
MARK = b'{"format":"threefold rows '
SUFFIXES = (".jsonl", ".jsonl.gz")
SHARED = ("timings", "environment", "created")
OWN = ("status", "diverged_at", "initial", "matrix")
LONGEST = 8 << 20  # bytes of curves in a line that has several runs
SHARE_OF_MEMORY = 20  # parsed, a file takes several times the size of its text
SUM = re.compile(rb'(.*),"sum":"([0-9a-f]{16})"\}\s*', re.DOTALL)


def is_rows(path: str | PathLike[str]) -> bool:
    """Is a file of this name one of rows?"""
    return str(path).endswith(SUFFIXES)


def write_rows(store: Store, path: str | PathLike[str]) -> int:
    """Write all runs and requests of the store; returns how many runs. The same store gives the same bytes."""
    content, runs = rows_text(store)
    packed = str(path).endswith(".gz")
    with replacing(Path(path), _is_ours, store.path) as stream:
        stream.write(gzip.compress(content, 9, mtime=0) if packed else content)
    return runs


def _is_ours(file: BinaryIO) -> bool:
    """Is this a file of rows, packed or not, of any version?"""
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    with suppress(OSError, EOFError, zlib.error):
        return (gzip.GzipFile(fileobj=file) if packed else file).read(len(MARK)) == MARK
    return False


def rows_text(store: Store) -> tuple[bytes, int]:
    """The lines of all runs and requests of the store, and how many runs."""
    cohorts: dict[str, dict[str, Any]] = {}
    runs = 0
    for record in store.all():
        data, runs = record.to_json(), runs + 1
        seeds = {name: data["spec"].pop(name) for name in ("seed", "order") if name in data["spec"]}
        shared = {"spec": data["spec"], **{name: data[name] for name in SHARED}}
        cohort = cohorts.setdefault(json.dumps(shared, sort_keys=True), shared | {"runs": []})
        cohort["runs"].append({**seeds, **{name: data[name] for name in (*OWN, "curves") if name in data}})
    head = {"format": FORMAT, "experiments": store.experiments(), "runs": runs}
    lines = [head, *(line for cohort in cohorts.values() for line in _lines_of(cohort))]
    return b"".join(map(_line, lines)), runs


def _lines_of(cohort: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of a cohort: several if it has many curves, to limit the length of a line."""
    some: list[Mapping[str, Any]] = []
    length = 0
    for run in cohort["runs"]:
        more = sum(len(curve["bytes"]) for curve in run.get("curves", {}).values())
        if some and length + more > LONGEST:
            yield {**cohort, "runs": some}
            some, length = [], 0
        some, length = [*some, run], length + more
    yield {**cohort, "runs": some}


def _line(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    return text[:-1] + f',"sum":"{checksum(text)}"}}\n'.encode()


class Rows:
    """A file of rows, read as a store is."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._experiments: dict[str, dict[str, Any]] = {}
        self._records: list[Record] = []
        runs = None
        for number, line in enumerate(_lines(self.path), start=1):
            with _named(self.path, number):
                if number == 1:
                    self._experiments, runs = _head(line)
                else:
                    self._records += _records(_object(line))
        if runs is None:
            raise ThreefoldError(f"rows '{self.path}' are empty; {_GIVE}.")
        if runs != len(self._records):
            raise ThreefoldError(
                f"rows '{self.path}' hold {len(self._records)} runs, but the first line names {runs}: a line was lost"
                f" or added; {_GIVE}."
            )

    def experiments(self) -> dict[str, dict[str, Any]]:
        return self._experiments

    def all(self) -> Iterator[Record]:
        return iter(self._records)


_GIVE = "give a file as `threefold export rows` wrote it"


def _lines(path: Path) -> Iterator[bytes]:
    try:
        yield from read_lines(path, memory_limit() // SHARE_OF_MEMORY)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise ThreefoldError(f"rows '{path}' cannot be read ({why}); {_GIVE}.") from error


@contextmanager
def _named(path: Path, number: int) -> Iterator[None]:
    """Name the line in which something is wrong, and what."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, ThreefoldError) as error:
        why = f"lacks the field {error}" if isinstance(error, KeyError) else f"is wrong ({str(error).rstrip('.')})"
        if isinstance(error, json.JSONDecodeError):
            why = f"is not JSON from column {error.colno} on, as if it were cut off or of another kind"
        raise ThreefoldError(f"line {number} of rows '{path}' {why}; {_GIVE}.") from error


def _head(line: bytes) -> tuple[dict[str, dict[str, Any]], int]:
    """The requests, and how many runs follow."""
    head = parse_json(line)
    known = head.get("format") if isinstance(head, dict) else None
    if known != FORMAT:
        raise ValueError(f'its format is {json.dumps(known)[:40]}, not "{FORMAT}"')
    _check_sum(line)
    experiments, runs = head["experiments"], head["runs"]
    if not isinstance(experiments, dict):
        raise ValueError("its experiments are no table")
    for name, asked in experiments.items():
        try:
            check_experiment(name, asked)
        except ValueError as error:
            raise ValueError(f"experiment '{name[:60]}': {error}") from None
    return experiments, int(runs)


def _object(line: bytes) -> dict[str, Any]:
    """A line's content, if its checksum fits."""
    value = parse_json(line)
    if not isinstance(value, dict):
        raise ValueError(f"it holds {json.dumps(value)[:20]}, not an object")
    _check_sum(line)
    return value


def _check_sum(line: bytes) -> None:
    parts = SUM.fullmatch(line)
    if not parts or checksum(parts[1] + b"}") != parts[2].decode():
        raise ValueError("its sum does not fit, so something in it was changed")


def _records(cohort: Mapping[str, Any]) -> Iterator[Record]:
    for run in cohort["runs"]:
        spec = cohort["spec"] | {name: run[name] for name in ("seed", "order") if name in run}
        data = {name: cohort[name] for name in SHARED} | {name: run[name] for name in OWN}
        data |= {"curves": run["curves"]} if "curves" in run else {}
        data |= {"key": run_key(spec), "spec": spec, "kept": {}}
        check_run(data)
        yield Record.from_json(data)
