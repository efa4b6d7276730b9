"""Cohorts that were begun and not ended: each has a checkpoint, a lock and a list of its runs beside the store.

How runs are cut into cohorts depends on the memory that was free. The lists tell every process, whatever memory it
sees, which runs are in training, and let a cohort go on as it was cut.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from threefold.engine import Checkpoint
from threefold.errors import ThreefoldError
from threefold.experiments.claim import Claim, held
from threefold.experiments.cohort import Cohort, Run, name_of
from threefold.results import Store

RUNS = ".runs"
SOON = 0.005  # seconds between two tries at the door
PATIENCE = 1.0  # seconds: whoever is at the door for longer may be stopped, and who waits must be free to stop too


class Begun:
    """The folder beside a store."""

    def __init__(self, store: Path) -> None:
        self.folder = Path(f"{store}.checkpoints")

    def checkpoint(self, cohort: Cohort) -> Checkpoint:
        return Checkpoint(self._file(cohort.name, ".pt"))

    def names(self) -> set[str]:
        """Of all of them, those without a list too: earlier versions wrote none."""
        return {path.stem for path in self.folder.glob("*") if path.suffix in (".pt", ".lock")}

    def cohorts(self, runs: Mapping[str, Run]) -> list[Cohort]:
        """Those of these runs alone, as they were cut: first what is in training, then the largest."""
        found = []
        for name, keys in self._lists().items():
            live = self._live(name)
            if runs.keys() >= set(keys) and (live or self._file(name, ".pt").exists()):
                cohort = Cohort(tuple(runs[key] for key in keys))
                if len({(run.cell.protocol, run.cell.training) for run in cohort.runs}) == 1:
                    found.append((not live, -len(keys), name, cohort))
        return [cohort for *_, cohort in sorted(found, key=lambda each: each[:3])]

    def in_training(self) -> set[str]:
        """The keys of all runs that live processes are at."""
        return {key for name, keys in self._lists().items() if self._live(name) for key in keys}

    def claim(self, cohort: Cohort, closing: ExitStack) -> Claim | None:
        """Claim a cohort until `closing` is closed; None if another process is at one of its runs."""
        with self._alone() as alone:
            if not alone or not self.in_training().isdisjoint(cohort.keys):
                return None
            self._write_list(cohort)
            claim = closing.enter_context(Claim(self._file(cohort.name, ".lock")))
            if not claim.take():
                return None
            closing.callback(self._forget, cohort.name)  # while the claim lasts
            return claim

    def discard(self, name: str) -> None:
        """All runs of a cohort are stored: its files may go, unless a live process has it."""
        with Claim(self._file(name, ".lock")) as claim:
            if claim.take():
                Checkpoint(self._file(name, ".pt")).discard()
                self._forget(name)

    def tidy(self, store: Store) -> None:
        """What is in the store needs nothing beside it."""
        for name, keys in self._lists().items():
            if store.has(keys) == set(keys):
                self.discard(name)
        if self._door.exists():  # a process was killed while it claimed
            with Claim(self._door) as door:
                door.take()

    @property
    def _door(self) -> Path:
        return self.folder / "claiming"

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """One process claims at a time: cohorts of different names may have runs in common. False: not now."""
        end = time.monotonic() + PATIENCE
        with Claim(self._door) as door:
            while not (mine := door.take()) and time.monotonic() < end:
                time.sleep(SOON)
            yield mine

    def _file(self, name: str, ending: str) -> Path:
        return self.folder / f"{name}{ending}"

    def _live(self, name: str) -> bool:
        return held(self._file(name, ".lock"))

    def _lists(self) -> dict[str, list[str]]:
        """The keys of each cohort's runs, by its name. What is damaged or not ours does not hash to its name."""
        found = {}
        for path in sorted(self.folder.glob(f"*{RUNS}")):
            keys = _read(path)
            if keys and name_of(keys) == path.stem:
                found[path.stem] = keys
        return found

    def _write_list(self, cohort: Cohort) -> None:
        """Whole or not at all: others read it meanwhile, and a checkpoint without it may be lost."""
        path = self._file(cohort.name, RUNS)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(cohort.keys), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ThreefoldError(
                f"list of runs '{path}' cannot be written ({error}); right would be a store in a folder with space."
            ) from error

    def _forget(self, name: str) -> None:
        """Without a checkpoint there is nothing to go on from."""
        if not self._file(name, ".pt").exists():
            self._file(name, RUNS).unlink(missing_ok=True)


def _read(path: Path) -> list[str] | None:
    """The list in a file, if it is one."""
    with suppress(OSError, ValueError, RecursionError):
        keys = json.loads(path.read_bytes())
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys
    return None
