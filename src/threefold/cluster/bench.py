"""What the driver can serve: thousands of cohorts that are trained in no time, by workers of a Ray of its own.

python -m threefold.cluster.bench 10000
"""

import logging
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import ray
import torch
import typer

from threefold.cluster.driver import Cluster
from threefold.cluster.serialization import Ref, unpack
from threefold.cluster.worker import Event, Finished, Kept
from threefold.data import Dataset
from threefold.engine import Progress
from threefold.experiments import Asked, Cell, Request, Settings, Watcher, train_requests
from threefold.experiments.records import environment
from threefold.methods import Method
from threefold.results import Record, measure, run_key
from threefold.scenarios import SCENARIOS
from threefold.streams import Split

TASKS = 5


def stand_in(packed: bytes, refs: dict[str, Ref], checkpoint: bytes | None, threads: int) -> Iterator[Event]:
    """Everything that `task.train` sends, but nothing is trained."""
    cohort = unpack(packed, refs)
    size = cohort.cell.hidden or 1  # of a checkpoint
    for number in range(1, TASKS):
        yield Progress(number, TASKS, number - 1, TASKS, 50.0)
        if size > 1:
            yield Kept(bytes(size))
    initial, matrix = [50.0] * TASKS, [[50.0] * TASKS] * TASKS
    records = []
    for run in cohort.runs:
        spec = run.cell.run_spec(run.seed)
        made = environment("cpu") | {"precision": "fp32", "cohort": len(cohort.runs)}
        records.append(
            Record(
                run_key(spec), spec, "finished", initial, matrix, measure(initial, matrix), {"cohort_train": 0.0}, made
            )
        )
    yield Finished(records)


class Clock(Watcher):
    """When the first cohort was begun: planning is timed apart."""

    began: float | None = None

    def cohort(self, cohort: object) -> None:
        self.began = self.began or time.perf_counter()


def bench(
    cohorts: Annotated[int, typer.Argument(help="How many.")] = 10_000,
    seeds: Annotated[int, typer.Option(help="Runs in each.")] = 20,
    size: Annotated[int, typer.Option(help="Bytes of a checkpoint, of which each sends four; 1: none.")] = 1,
    workers: Annotated[int, typer.Option(help="That send them.")] = 2,
) -> None:
    """Rows per second and memory of the driver."""
    images, labels = torch.rand(100, 28, 28), torch.arange(100) % 10
    split = Split(Dataset.from_arrays(images, labels, images, labels, name="stand-in"), TASKS)
    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    before, clock, start = _memory(), Clock(), time.perf_counter()
    cells = [
        Cell.of(split, SCENARIOS["class"], Method(), Settings.checked(iters=each, hidden=size, batch=1, device="cpu"))
        for each in range(1, cohorts + 1)
    ]
    with TemporaryDirectory() as folder:
        request = Request("bench", "bench", [Asked(cell, tuple(range(1, seeds + 1))) for cell in cells])
        cluster = Cluster("cpu", 1, "threefold.cluster.bench:stand_in")
        (results,) = train_requests([request], Path(folder) / "bench.db", clock, executor=cluster)
        end, rows = time.perf_counter(), sum(len(result.records) for result in results)
        megabytes = (Path(folder) / "bench.db").stat().st_size >> 20
    assert clock.began is not None
    seconds = end - clock.began
    typer.echo(f"planned {cohorts} cohorts in {clock.began - start:.1f} s")
    typer.echo(f"{rows} rows in {seconds:.1f} s: {rows / seconds:.0f} rows, {cohorts / seconds:.0f} cohorts a second")
    if size > 1:
        typer.echo(f"{4 * cohorts / seconds:.0f} checkpoints, {4 * cohorts * size / seconds / 1e6:.0f} MB a second")
    typer.echo(f"memory of the driver: {before} MB before, {_memory()} MB at most; the store has {megabytes} MB")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


if __name__ == "__main__":
    typer.run(bench)
