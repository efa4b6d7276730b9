"""The worker's side of a cohort: it is trained in a thread, and events are streamed back to the driver."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Full, Queue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import ray
import torch

from threefold import engine
from threefold.cluster.serialization import Ref, unpack
from threefold.engine import Checkpoint, Progress
from threefold.experiments import Cohort
from threefold.experiments.executor import out_of_memory
from threefold.experiments.records import records_of
from threefold.results import Record
from threefold.version import VERSION

REPORT = 1.0  # seconds between two reports of progress
AHEAD = 2  # events that may be queued for the driver, as checkpoints are large


@dataclass(frozen=True)
class Finished:
    records: list[Record]


@dataclass(frozen=True)
class TooLarge:
    """The cohort does not fit into memory."""


@dataclass(frozen=True)
class WorkerError:
    reason: str


@dataclass(frozen=True)
class Kept:
    """A finished task: the content of its checkpoint, including all measurements so far."""

    content: bytes


Event = Progress | Kept | Finished | TooLarge | WorkerError
Send = Callable[[Event], None]


def versions() -> dict[str, str]:
    """The versions that must be the same on all machines; torch's accelerator build may differ."""
    return {"threefold": VERSION, "torch": torch.__version__.partition("+")[0]}


class Streamed(Checkpoint):
    """A checkpoint that is sent to the driver instead of being stored here."""

    def __init__(self, name: str, last: bytes | None, send: Send) -> None:
        super().__init__(Path(f"{name}.pt"))
        self.last, self.send = last, send

    def save(self, state: dict[str, Any]) -> None:
        with TemporaryDirectory() as folder:
            file = Checkpoint(folder / self.path)
            file.save(state)
            self.send(Kept(file.path.read_bytes()))

    def load(
        self, device: torch.device, fits: Callable[[dict[str, Any]], bool] = lambda state: True
    ) -> dict[str, Any] | None:
        if self.last is None:
            return None
        with TemporaryDirectory() as folder:
            file = Checkpoint(folder / self.path)
            file.path.write_bytes(self.last)
            self.last = None
            return file.load(device, fits)


def train(packed: bytes, refs: dict[str, Ref], checkpoint: bytes | None, threads: int) -> Iterator[Event]:
    """Train a cohort, from its checkpoint if given; the last event is the outcome."""
    try:
        cohort = unpack(packed, refs)
    except Exception as error:
        yield WorkerError(_in_words(error))
        return
    events: Queue[Event] = Queue(AHEAD)
    Thread(target=_train, args=(cohort, checkpoint, threads, events), daemon=True).start()
    while True:
        event = events.get()
        yield event
        if isinstance(event, Finished | TooLarge | WorkerError):
            return


def _train(cohort: Cohort, checkpoint: bytes | None, threads: int, events: "Queue[Event]") -> None:
    torch.set_num_threads(threads)
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= REPORT:
            last = time.monotonic()
            try:
                events.put_nowait(progress)
            except Full:  # training does not wait for the driver to read progress
                return

    try:
        kept = Streamed(cohort.name, checkpoint, events.put)
        found = engine.train(cohort.cell.stream, cohort.replicas, cohort.cell.training, kept, report)
        records = records_of(cohort, found)
    except Exception as error:
        if out_of_memory(error):
            events.put(TooLarge())
        else:
            events.put(WorkerError(_in_words(error)))
    else:
        events.put(Finished(records))


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def remote() -> Any:
    """`train` as a Ray task. It is pickled by value, so that workers with another threefold, or none, can report it."""

    def cohort(wanted: dict[str, str], *given: Any) -> Iterator[Any]:
        from importlib import metadata

        import ray

        found = {}
        for package in wanted:
            try:
                found[package] = metadata.version(package).partition("+")[0]
            except metadata.PackageNotFoundError:
                found[package] = "none"
        if found != wanted:
            yield {"node": ray.get_runtime_context().get_node_id(), "versions": found}
            return
        from threefold.cluster.worker import train

        yield from train(*given)

    return ray.remote(max_retries=0, num_returns="streaming")(cohort)
