"""Runs cells: what is in the store is taken from there, the rest is trained in cohorts and stored."""

import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from threefold import protocols, scenarios
from threefold.data import load
from threefold.engine import Checkpoint, Outcome, Progress, train
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell, Settings
from threefold.experiments.result import Result
from threefold.experiments.seeds import parse_seeds
from threefold.methods import Method, Part, parse
from threefold.results import Record, Store, measure, pack, run_key
from threefold.version import VERSION


class Watcher:
    """Is told how far things are; this one does not care."""

    def cohort(self, cell: Cell, seeds: Sequence[int]) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def done(self, result: Result) -> None: ...
    def warn(self, text: str) -> None: ...


def run(
    protocol: "protocols.Protocol | str",
    *,
    scenario: str,
    method: "Method | Part | str" = "none",
    seeds: str | int | Iterable[int] = 20,
    store: str | Path | None = "threefold.db",
    task_id_in: str | None = None,
    tasks: int | None = None,
    **settings: Any,
) -> Result:
    """Train one method in one scenario, one network for each seed, all in lockstep.

    `protocol` is a name such as "split-mnist" or a protocol over data of your own. Settings (`iters`, `lr`, `batch`,
    `hidden`, `device`, `precision`) that are not given are the paper's. Runs that are in `store` are not trained again;
    `store=None` keeps nothing.
    """
    # everything that needs no data is checked before any is fetched
    if isinstance(method, str):
        method = parse(method)
    elif isinstance(method, Part):
        method = Method(method)
    elif not isinstance(method, Method):
        raise ThreefoldError(f"method is {method!r}; right would be 'offline', Offline() or Method(Offline()).")
    wanted, checked, chosen = scenarios.find(str(scenario)), Settings.checked(**settings), parse_seeds(seeds)
    if isinstance(protocol, str):
        kind, data = protocols.find(protocol)
        protocol = kind(load(data or "mnist"), tasks)
    elif not isinstance(protocol, protocols.Protocol):
        raise ThreefoldError(f"protocol is {protocol!r}; right would be 'split-mnist' or Split(data).")
    elif tasks is not None:
        raise ThreefoldError(f"tasks is {tasks}, but the protocol has its own; right would be to give one of them.")
    cell = Cell.of(protocol, wanted, method, checked, task_id_in)
    reason = cell.refusal()
    if reason:
        raise ThreefoldError(reason)
    return run_cells([cell], chosen, store)[0]


def run_cells(
    cells: Sequence[Cell], seeds: Sequence[int], store: str | Path | None, watcher: Watcher | None = None
) -> list[Result]:
    """Every cell with every seed. A finished cohort's runs are stored together, in one transaction."""
    watcher = watcher or Watcher()
    _check_batches(cells, seeds)  # before the store is there
    with ExitStack() as closing:
        opened = closing.enter_context(Store(store)) if store is not None else None
        results = []
        for cell in cells:
            records = _run_cell(cell, seeds, opened, watcher)
            results.append(Result(cell, records))
            watcher.done(results[-1])
    return results


def _check_batches(cells: Sequence[Cell], seeds: Sequence[int]) -> None:
    """A batch has no sample twice, so no task may be smaller."""
    for protocol in dict.fromkeys(cell.protocol for cell in cells):
        smallest = min(len(task.train) for seed in seeds for task in protocol.sequence(seed))
        batch = max(cell.training.batch for cell in cells if cell.protocol is protocol)
        if batch > smallest:
            raise ThreefoldError(
                f"batch is {batch}, but the smallest task has {smallest} training samples; right would be {smallest}"
                " at most."
            )


def _run_cell(cell: Cell, seeds: Sequence[int], store: Store | None, watcher: Watcher) -> list[Record]:
    keys = [run_key(cell.run_spec(seed)) for seed in seeds]
    if store is None:
        return execute(cell, seeds, None, watcher)
    present = store.has(keys)
    missing = [seed for seed, key in zip(seeds, keys, strict=True) if key not in present]
    # with nothing missing, a checkpoint may still be there: the process was killed right after storing
    checkpoint = _checkpoint(store.path, [key for key in keys if key not in present] or keys)
    if missing:
        store.add(execute(cell, missing, checkpoint, watcher))
    checkpoint.discard()
    # what another process stored in the meantime stays: every process reports the same rows
    return [record for key in keys if (record := store.get(key))]


def execute(cell: Cell, seeds: Sequence[int], checkpoint: Checkpoint | None, watcher: Watcher) -> list[Record]:
    """Train one cohort: the cell's networks for these seeds. Goes on from the last finished task."""
    watcher.cohort(cell, seeds)
    replicas = len(seeds)
    with _enough_memory(cell, replicas):
        outcome = train(
            cell.protocol,
            cell.scenario,
            [cell.method] * replicas,
            seeds,
            [cell.lr] * replicas,
            cell.training,
            checkpoint,
            watcher.progress,
        )
    if checkpoint and checkpoint.set_aside:
        watcher.warn(
            f"checkpoint {checkpoint.path} was damaged; it was set aside as {checkpoint.set_aside.name}, and the cohort"
            " began anew."
        )
    return [_record(cell, seed, outcome, replica, replicas) for replica, seed in enumerate(seeds)]


@contextmanager
def _enough_memory(cell: Cell, replicas: int) -> Iterator[None]:
    """Turn an allocation that failed into a sentence; any other error stays what it is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", str(error)):
            raise
        raise ThreefoldError(
            f"{cell.name} does not fit into memory ({replicas} networks, hidden {cell.training.hidden}, batch"
            f" {cell.training.batch}); right would be fewer seeds at once, or smaller numbers."
        ) from error


def _checkpoint(store: Path, keys: Sequence[str]) -> Checkpoint:
    """A cohort is known by its runs, so the same command finds its checkpoint again."""
    return Checkpoint(Path(f"{store}.checkpoints") / f"{sha256(' '.join(keys).encode()).hexdigest()[:32]}.pt")


def _record(cell: Cell, seed: int, outcome: Outcome, replica: int, cohort: int) -> Record:
    matrix, initial = outcome.matrix[replica].clone(), outcome.initial[replica].tolist()
    diverged_at = outcome.diverged_at[replica]
    if diverged_at is not None:
        matrix[diverged_at:] = torch.nan
    spec = cell.run_spec(seed)
    names = outcome.keepsakes[0] if outcome.keepsakes else {}
    kept = {name: torch.stack([task[name][replica] for task in outcome.keepsakes]).numpy() for name in names}
    return Record(
        key=run_key(spec),
        spec=spec,
        status="finished" if diverged_at is None else "diverged",
        diverged_at=diverged_at,
        initial=initial,
        matrix=matrix.tolist(),
        metrics=measure(initial, matrix.tolist()),
        timings={f"cohort_{what}": seconds for what, seconds in outcome.seconds.items()},
        environment=environment(cell.training.device) | {"precision": cell.training.precision, "cohort": cohort},
        keepsakes={name: pack(array) for name, array in kept.items()},
    )


@cache
def environment(device: str) -> dict[str, Any]:
    """Where and with what a run was computed."""
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else (platform.processor() or platform.machine()),
        "threefold": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "git": _revision(),
    }


def _revision() -> str | None:
    """The git revision of threefold's own source, where it is a checkout."""
    here = Path(__file__).parent
    try:
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        answer = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None
