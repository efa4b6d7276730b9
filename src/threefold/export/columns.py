"""Runs as plain columns: a CSV file's rows, NumPy's arrays."""

import csv
import json
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from threefold.errors import ThreefoldError
from threefold.report.tables_csv import plain
from threefold.results import Record
from threefold.values import written_as

ABOUT = ("key", "stream", "scenario", "task_id_in", "method", "hyperparameters", "seed", "order")
WHERE = ("in_task", "step", "steps_so_far", "tasks_so_far")


def described(run: Record) -> dict[str, Any]:
    """A run's description in columns to select and group by, and its whole spec as JSON."""
    spec = run.spec
    training = {
        name: _written(value) if isinstance(value, Mapping) else value for name, value in spec["training"].items()
    }
    return {
        "key": run.key,
        "stream": written_as(None, spec["stream"]["name"], spec["stream"].get("options", {})),
        "tasks": len(run.initial),
        "scenario": spec["scenario"]["name"],
        "task_id_in": spec["scenario"]["task_id_in"],
        "method": spec["method"]["name"],
        "hyperparameters": json.dumps(spec["method"]["hyperparameters"], ensure_ascii=False),
        "seed": spec["seed"],
        **({"order": spec["order"]} if "order" in spec else {}),
        **({"boundaries": _written(spec["stream"]["boundaries"])} if "boundaries" in spec["stream"] else {}),
        "network": _written(spec["network"]),
        "optimizer": _written(spec["optimizer"]),
        **training,
        "status": run.status,
        "diverged_at": run.diverged_at,
        "created": run.created,
        "spec": json.dumps(spec, ensure_ascii=False),
    }


def _written(part: Mapping[str, Any]) -> str:
    """A network, an optimiser, a schedule or the tests during training, in one column, including default values."""
    if "name" not in part:
        return written_as(None, "", part).removeprefix(":")
    return written_as(None, part["name"], part["hyperparameters"])


def columns(runs: Sequence[Record]) -> dict[str, list[Any]]:
    """The runs' descriptions, with every column that any of them has; None where a run lacks it."""
    about = [described(run) for run in runs]
    return {name: [each.get(name) for each in about] for name in dict.fromkeys(n for each in about for n in each)}


def measured(runs: Sequence[Record]) -> list[str]:
    """The names of the metrics that any run has."""
    return list(dict.fromkeys(name for run in runs for name in run.metrics))


def curve_columns(run: Record) -> dict[str, NDArray[Any]]:
    """Measurements during training: a row for each point, with its position and a column of accuracies per task."""
    curve = run.curve
    if curve is None:
        return {}
    where = {"in_task": curve.task + 1, "step": curve.step, "steps_so_far": curve.total, "tasks_so_far": curve.seen}
    found = {"accuracy": curve.accuracy, "training_accuracy": curve.training_accuracy, "loss": curve.loss}
    return where | {name: values for name, values in found.items() if values is not None}


def write_curves(runs: Sequence[Record], stream: BinaryIO) -> None:
    """A row for each accuracy during training: on one task at one point. Full descriptions are in other files."""
    if not any(run.curve for run in runs):
        raise ThreefoldError("no run was tested during training; give runs that were trained with --evaluate-every.")
    text = TextIOWrapper(stream, encoding="utf-8", newline="")
    header = [*ABOUT, *WHERE, "task", "accuracy", "training_accuracy", "loss"]
    writer = csv.DictWriter(text, header, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for run in runs:
        same = {name: plain(value) for name, value in described(run).items()}
        found = {name: values.tolist() for name, values in curve_columns(run).items()}
        for point in range(len(found.get("step", ()))):
            at = same | {name: plain(found[name][point]) for name in (*WHERE, "loss") if name in found}
            for task in range(len(run.initial)):
                both = ("accuracy", "training_accuracy")
                values = {name: plain(found[name][point][task]) for name in both if name in found}
                writer.writerow(at | {"task": task + 1} | values)
    text.detach()


def write_csv(runs: Sequence[Record], stream: BinaryIO) -> None:
    """A row for each accuracy: after how many tasks (0: before any training), on which task (from 1).

    Every row has the columns to select and group by. How the run was trained, its metrics and its spec are only on its
    first row, as on every row they would be most of the file.
    """
    text = TextIOWrapper(stream, encoding="utf-8", newline="")
    header = [*columns(runs), *measured(runs), "after_tasks", "task", "accuracy"]
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writerow({name: plain(name) for name in header})
    for run in runs:
        once = {name: plain(value) for name, value in (described(run) | dict(run.metrics)).items()}
        same = {name: once[name] for name in (*ABOUT, "tasks", "boundaries") if name in once}
        for after, row in enumerate((run.initial, *run.matrix)):
            for task, accuracy in enumerate(row, start=1):
                writer.writerow(same | once | {"after_tasks": after, "task": task, "accuracy": plain(accuracy)})
                once = {}
    text.detach()  # flushes and leaves the stream open


def write_npz(runs: Sequence[Record], stream: BinaryIO) -> None:
    """`initial` (runs × tasks), `matrix` (runs × after task × on task), `metric_…`, and the runs' descriptions as text.

    A run with fewer tasks than the longest has NaN beyond its own (`tasks`). If runs were tested during training,
    `curve_…` has the results (runs × points, × tasks), with −1 and NaN beyond a run's own points. No array needs
    pickle.
    """
    most = max(len(run.initial) for run in runs)
    initial = np.full((len(runs), most), np.nan)
    matrix = np.full((len(runs), most, most), np.nan)
    for place, run in enumerate(runs):
        tasks = len(run.initial)
        initial[place, :tasks] = run.initial
        matrix[place, :tasks, :tasks] = run.matrix
    arrays: dict[str, Any] = {"initial": initial, "matrix": matrix}
    arrays |= {name: _array(values) for name, values in columns(runs).items()}
    arrays |= _padded_curves([curve_columns(run) for run in runs], most)
    for name in measured(runs):
        arrays[f"metric_{name}"] = np.array([run.metrics.get(name, np.nan) for run in runs], float)
    np.savez_compressed(stream, **arrays)


def _padded_curves(curves: Sequence[Mapping[str, NDArray[Any]]], tasks: int) -> dict[str, NDArray[Any]]:
    """The curves of all runs, padded to the longest and to this many tasks."""
    points = max((len(curve["step"]) for curve in curves if curve), default=0)
    arrays: dict[str, NDArray[Any]] = {}
    for place, curve in enumerate(curves):
        for name, values in curve.items():
            shape = (len(curves), points, tasks)[: values.ndim + 1]
            empty = np.full(shape, -1 if name in WHERE else np.nan)
            array = arrays.setdefault(f"curve_{name}", empty.astype(values.dtype))
            array[place][tuple(map(slice, values.shape))] = values
    return arrays


def _array(values: Sequence[Any]) -> Any:
    """An array of numbers if all are numbers, else of text, empty for None."""
    if all(isinstance(value, int | float) for value in values):
        made = np.array(values)
        if made.dtype != object:  # a seed may be larger than any integer of NumPy's
            return made
    return np.array(["" if value is None else str(value) for value in values])
