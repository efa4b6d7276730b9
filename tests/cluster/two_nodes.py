"""Two Ray nodes on this machine, cells to train on them, and a method that fails on demand."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tiny_lab

from threefold import Dataset, Method, Part, Split
from threefold.engine import Progress
from threefold.experiments import Cell, Cohort, Settings, Watcher
from threefold.methods import parse
from threefold.results import Store
from threefold.scenarios import SCENARIOS

TROUBLE = "THREEFOLD_TEST_TROUBLE"  # names a file that says which
PATIENCE = 60.0
SPEC = """
stream = "split"
data = "small.npz"
tasks = 3
seeds = 2
scenarios = ["class"]
methods = [{ method = "none" }, { method = "ewc", with = { strength = 100 } }]

[training]
iters = 200
hidden = 8
batch = 16
"""


class Fragile(Part):
    """Does nothing, but for the trouble that the file names."""

    name = "fragile"

    def consolidate(self, stack: Any, memory: Any, task: int) -> Any:
        file = Path(os.environ[TROUBLE])
        trouble = file.read_text() if file.exists() else ""
        if trouble == "error" and task == 1:
            raise ValueError("the second task\nis too much")
        if trouble == "death":
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if trouble.startswith("memory") and len(set(stack.seeds)) > int(trouble.removeprefix("memory ")):
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return memory


FACTOR = 1.0
LOCK = threading.Lock()


class Scaled(Part):
    """Depends on a number of this module, of which a worker may have another version."""

    name = "scaled"

    def penalty(self, learner: Any) -> Any:
        return FACTOR * sum((p**2).sum() for p in learner.params.values())


class Locked(Part):
    """Depends on what no key can cover."""

    name = "locked"

    def consolidate(self, stack: Any, memory: Any, task: int) -> Any:
        with LOCK:
            return memory


class Nodes:
    """A Ray cluster of two nodes with a CPU each; one that was killed is replaced."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        soon = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
        }  # a dead node is known in 3 s, not 15
        self.cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=80 << 20, _system_config=soon)
        self.second = self.add()
        self.dead = False

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def complete(self) -> None:
        if self.dead:
            self.cluster.remove_node(self.second, allow_graceful=False)
            self.second, self.dead = self.add(), False

    def wait_until_idle(self) -> None:
        """What an earlier test left running is cancelled, but it takes a moment to go."""
        import ray

        deadline = time.monotonic() + PATIENCE
        while ray.available_resources().get("CPU", 0) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def add(self, environment: Mapping[str, str] | None = None) -> Any:
        node = self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20, env_vars=dict(environment or {}))
        self.cluster.wait_for_nodes()
        return node

    def kill_the_second(self) -> None:
        """The whole machine is gone at once: its raylet and all workers."""
        (raylet,) = self.second.all_processes["raylet"]
        workers = Path(f"/proc/{raylet.process.pid}/task/{raylet.process.pid}/children").read_text().split()
        for process in (raylet.process.pid, *map(int, workers)):
            os.kill(process, signal.SIGKILL)
        self.dead = True

    def stop(self) -> None:
        self.cluster.shutdown()


class Heard(Watcher):
    """Remembers what it was told."""

    def __init__(self, on_progress: Callable[[], None] = lambda: None) -> None:
        self.on_progress = on_progress
        self.cohorts: list[int] = []
        self.words: list[tuple[str, int] | str] = []  # cohorts with the task they were at, and warnings

    def cohort(self, cohort: Cohort) -> None:
        self.cohorts.append(len(cohort.runs))

    def progress(self, progress: Progress, cohort: Cohort) -> None:
        self.words.append((cohort.name, progress.task))
        self.on_progress()

    def warn(self, text: str) -> None:
        self.words.append(text)

    @property
    def warnings(self) -> list[str]:
        return [word for word in self.words if isinstance(word, str)]


def arrays() -> dict[str, Any]:
    return tiny_lab.arrays(classes=6, train=240, test=120)


def split(tasks: int = 3) -> Split:
    return Split(Dataset.from_arrays(**arrays(), name="small"), tasks)


def cell(stream: Split, method: str | Part, iters: int) -> Cell:
    settings = Settings.checked(iters=iters, hidden=8, batch=16, device="cpu")
    wanted = parse(method) if isinstance(method, str) else Method(method)
    return Cell.of(stream, SCENARIOS["class"], wanted, settings)


def checkpoints(store: Path) -> list[Path]:
    return list(Path(f"{store}.checkpoints").glob("*.pt"))


def stored(path: Path) -> list[dict[str, Any]]:
    with Store(path, readonly=True) as store:
        rows = [record.to_json() for record in store.all()]
    kept = ("key", "spec", "status", "initial", "matrix", "kept")
    return sorted(({name: row[name] for name in kept} for row in rows), key=lambda row: str(row["key"]))
