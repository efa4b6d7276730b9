"""Turns the engine's measurements into records of runs."""

import platform
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from threefold.engine import Measured
from threefold.engine.threads import in_threads
from threefold.experiments.cohort import Cohort, Run
from threefold.results import Record, pack, run_key
from threefold.revision import revision
from threefold.version import VERSION


def records_of(cohort: Cohort, found: Sequence[Measured]) -> list[Record]:
    """The records of a trained cohort, in the order of its stacks.

    In threads, as zlib works without the GIL: the stored samples of 1,000 runs take it eleven seconds of one core."""

    def one(place: tuple[Run, Measured, int]) -> Record:
        return _record(*place, len(cohort.runs))

    trained = zip(cohort.stacks, found, strict=True)
    return in_threads(one, [(run, measured, at) for runs, measured in trained for at, run in enumerate(runs)])


def _record(run: Run, measured: Measured, replica: int, cohort: int) -> Record:
    matrix, initial = measured.matrix[replica].clone(), measured.initial[replica].tolist()
    diverged_at = measured.diverged_at[replica]
    if diverged_at is not None:
        matrix[diverged_at:] = torch.nan
    spec, training = run.cell.run_spec(run.seed), run.cell.training
    names = measured.kept[0] if measured.kept else {}
    kept = {name: torch.stack([task[name][replica] for task in measured.kept]) for name in names}
    return Record(
        key=run_key(spec),
        spec=spec,
        status="finished" if diverged_at is None else "diverged",
        diverged_at=diverged_at,
        initial=initial,
        matrix=matrix.tolist(),
        timings={f"cohort_{what}": seconds for what, seconds in measured.seconds.items()},
        environment=environment(training.device) | {"precision": training.precision, "cohort": cohort},
        kept={name: pack(_numpy(tensor)) for name, tensor in kept.items()},
        curves=_curves(measured, replica),
    )


def _curves(measured: Measured, replica: int) -> dict[str, Any]:
    """Measurements during training, NaN from divergence on, at the steps that this run took, however many others of its
    stack took."""
    if not measured.points:
        return {}
    values = {name: tensor[:, replica].numpy() for name, tensor in measured.curves.items()}
    points = np.array(measured.points, dtype=np.int64)
    points[:, 1] = values.pop("step")
    there = ~np.isnan(values["accuracy"]).any(axis=1)
    return {"points": pack(points[there])} | {name: pack(value[there]) for name, value in values.items()}


def _numpy(tensor: Tensor) -> NDArray[Any]:
    """The tensor as an array; bfloat16, which NumPy lacks, becomes float32 without loss."""
    array: NDArray[Any] = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy(force=True)
    return array


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
        "git": revision(),
    }
