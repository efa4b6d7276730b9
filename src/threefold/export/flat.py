"""Runs as rows of plain columns."""

import csv
import json
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import Any, BinaryIO, TextIO

from threefold.report.tables_csv import plain
from threefold.results import Record


def described(run: Record) -> dict[str, Any]:
    """What a run is, in columns: what one selects and groups by; and all of it as JSON."""
    spec = run.spec
    part = {name: _named(spec.get(name)) for name in ("stream", "scenario", "method", "training")}
    return {
        "key": run.key,
        "stream": part["stream"].get("name"),
        "tasks": len(run.initial),
        "scenario": part["scenario"].get("name"),
        "task_id_in": part["scenario"].get("task_id_in"),
        "method": part["method"].get("name"),
        "hyperparameters": json.dumps(part["method"].get("hyperparameters", {}), ensure_ascii=False),
        "seed": spec.get("seed"),
        **part["training"],
        "status": run.status,
        "diverged_at": run.diverged_at,
        "created": run.created,
        "spec": json.dumps(spec, ensure_ascii=False),
    }


def _named(part: Any) -> dict[str, Any]:
    return dict(part) if isinstance(part, Mapping) else {"name": part} if part is not None else {}


def measured(runs: Sequence[Record]) -> list[str]:
    """The names of the metrics that any run has."""
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


def write_csv(runs: Sequence[Record], stream: BinaryIO) -> None:
    text = TextIOWrapper(stream, encoding="utf-8", newline="")
    stream_csv(runs, text)
    text.detach()  # flushed, and the stream stays open


def stream_csv(runs: Sequence[Record], stream: TextIO) -> None:
    """A row for each accuracy: after how many tasks (0: before any training), on which task (from 1)."""
    metrics = measured(runs)
    about = [described(run) for run in runs]
    columns = [*dict.fromkeys(name for each in about for name in each), *metrics, "after_tasks", "task", "accuracy"]
    writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
    writer.writerow({name: plain(name) for name in columns})
    for run, each in zip(runs, about, strict=True):
        same = {name: plain(value) for name, value in (each | dict(run.metrics)).items()}
        for after, row in enumerate((run.initial, *run.matrix)):
            for task, accuracy in enumerate(row, start=1):
                writer.writerow(same | {"after_tasks": after, "task": task, "accuracy": plain(accuracy)})
