"""Runs as NumPy arrays, the first axis a run each."""

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from threefold.export.flat import described, measured
from threefold.results import Record


def write_npz(runs: Sequence[Record], stream: BinaryIO) -> None:
    """`initial` (runs × tasks), `matrix` (runs × after task × on task), `metric_…`, and what each run is, as text.

    A run with fewer tasks than the longest is NaN beyond its own (`tasks`); no array needs pickle.
    """
    most = max(len(run.initial) for run in runs)
    initial = np.full((len(runs), most), np.nan)
    matrix = np.full((len(runs), most, most), np.nan)
    for place, run in enumerate(runs):
        tasks = len(run.initial)
        initial[place, :tasks] = run.initial
        matrix[place, :tasks, :tasks] = run.matrix
    about = [described(run) for run in runs]
    columns = {
        name: _array([each.get(name) for each in about]) for name in dict.fromkeys(n for each in about for n in each)
    }
    arrays: dict[str, Any] = {"initial": initial, "matrix": matrix} | columns
    for name in measured(runs):
        arrays[f"metric_{name}"] = np.array([run.metrics.get(name, np.nan) for run in runs], float)
    np.savez_compressed(stream, **arrays)


def _array(values: Sequence[Any]) -> Any:
    """Numbers where all are numbers, else text, empty for None."""
    if all(isinstance(value, int | float) for value in values):
        made = np.array(values)
        if made.dtype != object:  # a seed may be larger than any integer of NumPy's
            return made
    return np.array(["" if value is None else str(value) for value in values])
