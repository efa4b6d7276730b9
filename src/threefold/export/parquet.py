"""Runs as a Parquet file, a row each."""

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
from pyarrow import parquet

from threefold.export.columns import columns, curve_columns, measured
from threefold.results import Record

MARK = {b"threefold": b"runs"}


def write_parquet(runs: Sequence[Record], stream: BinaryIO) -> None:
    """Write each run's description and metrics, and as nested lists `initial` (on each task), `matrix` (after each
    task, on each task) and the measurements during training (at each point, on each task)."""
    about = {name: _column(values) for name, values in columns(runs).items()}
    numbers = {
        name: pa.array([run.metrics.get(name) for run in runs], pa.float64(), from_pandas=True)
        for name in measured(runs)
    }
    curves = {
        "initial": pa.array([list(run.initial) for run in runs], pa.list_(pa.float64())),
        "matrix": pa.array([[list(row) for row in run.matrix] for run in runs], pa.list_(pa.list_(pa.float64()))),
    }
    during = [curve_columns(run) for run in runs]
    for name in dict.fromkeys(name for each in during for name in each):
        curves[f"curve_{name}"] = pa.array([each[name].tolist() if name in each else None for each in during])
    parquet.write_table(pa.table(about | numbers | curves).replace_schema_metadata(MARK), stream)


def is_ours(file: BinaryIO) -> bool:
    """Was this file written by threefold?"""
    try:
        about = parquet.read_metadata(file).metadata or {}
    except (pa.ArrowException, OSError):
        return False
    return MARK.items() <= about.items()


def _column(values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # mixed types, or a seed beyond 64 bits
        return pa.array([None if value is None else str(value) for value in values])
