"""Runs as a Parquet file, a row each."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from threefold.export.flat import described, measured
from threefold.results import Record


def write_parquet(runs: Sequence[Record], file: Path) -> None:
    """What each run is, its metrics, and as nested lists `initial` (on each task) and `matrix` (after each task, on
    each task)."""
    metrics = measured(runs)
    about = [described(run) for run in runs]
    columns = {
        name: _column([each.get(name) for each in about]) for name in dict.fromkeys(n for each in about for n in each)
    }
    numbers = {
        name: pa.array([run.metrics.get(name) for run in runs], pa.float64(), from_pandas=True) for name in metrics
    }
    curves = {
        "initial": pa.array([list(run.initial) for run in runs], pa.list_(pa.float64())),
        "matrix": pa.array([[list(row) for row in run.matrix] for run in runs], pa.list_(pa.list_(pa.float64()))),
    }
    parquet.write_table(pa.table(columns | numbers | curves), file)


def _column(values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # kinds that do not mix, or a seed beyond 64 bits
        return pa.array([None if value is None else str(value) for value in values])
