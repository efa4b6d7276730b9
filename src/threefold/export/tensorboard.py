"""Runs for TensorBoard: curves over the number of tasks trained, and a table of hyperparameters."""

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary

from threefold.export.columns import curve_columns, described
from threefold.results import Record, shown_images, unpack

LONGEST = 120  # characters of a folder's name
DURING = {"accuracy": "accuracy during training", "training_accuracy": "training accuracy"}


def folder_name(run: Record) -> str:
    """Stream, scenario, method, then seed and the beginning of the key, which distinguishes similar runs."""
    about = described(run)
    words = [about["stream"], about["scenario"], about["method"], f"seed-{about['seed']}-{run.key[:8]}"]
    return "/".join(re.sub(r"[^A-Za-z0-9+=-]+", "-", str(word)).strip("-")[:LONGEST] or "none" for word in words)


def write(run: Record, folder: Path) -> None:
    """Write one event file. PyTorch's writer would use a thread, whose errors cannot be caught."""
    when = datetime.fromisoformat(run.created).timestamp()
    folder.mkdir(parents=True)
    with (folder / f"events.out.tfevents.{int(when)}.threefold").open("xb") as file:
        records = RecordWriter(file)
        records.write(Event(wall_time=when, file_version="brain.Event:2").SerializeToString())
        for step, content in _summaries(run):
            records.write(Event(wall_time=when, step=step, summary=content).SerializeToString())


def _summaries(run: Record) -> Iterator[tuple[int, Any]]:
    """All summaries of a run, each with the number of tasks trained."""
    for after, row in enumerate((run.initial, *run.matrix)):
        for task, accuracy in enumerate(row, start=1):
            if not math.isnan(accuracy):
                yield after, _made(summary.scalar, f"accuracy/task {task}", accuracy)
    yield from _during_training(run)
    metrics = {f"metric/{name}": value for name, value in run.metrics.items() if not math.isnan(value)}
    for name, value in metrics.items():
        yield len(run.matrix), _made(summary.scalar, name, value)
    for content in _made(summary.hparams, _plain(run), metrics):
        yield 0, content
    spec = json.dumps(run.spec, ensure_ascii=False, indent=2)
    yield 0, _made(summary.text, "spec", "\n".join(f"    {line}" for line in spec.splitlines()))
    yield 0, _made(summary.text, "accuracy matrix", _table(run))
    for name in ("dreams", "exemplars"):
        if name in run.kept:
            yield from _pictures(run, name)


def _during_training(run: Record) -> Iterator[tuple[int, Any]]:
    """Measurements during training, over the steps so far."""
    found = curve_columns(run)
    for point, step in enumerate(found.get("steps_so_far", np.empty(0)).tolist()):
        for name, tag in DURING.items():
            for task, accuracy in enumerate(found[name][point] if name in found else (), start=1):
                if not math.isnan(accuracy):
                    yield step, _made(summary.scalar, f"{tag}/task {task}", accuracy)
        if "loss" in found and not math.isnan(loss := found["loss"][point]):
            yield step, _made(summary.scalar, "training loss", loss)


def _made(kind: Callable[..., Any], *content: Any, **options: Any) -> Any:
    """A summary made by PyTorch's untyped functions."""
    return kind(*content, **options)


def _plain(run: Record) -> dict[str, Any]:
    """The spec as numbers and text, for TensorBoard's table of hyperparameters."""
    about = described(run)
    for part, values in json.loads(about.pop("hyperparameters")).items():
        about |= {f"{part}.{name}": value for name, value in values.items()}
    unwanted = ("key", "spec", "created", "diverged_at")
    kept = {name: value for name, value in about.items() if name not in unwanted and value is not None}
    return {name: value if isinstance(value, bool | int | float | str) else str(value) for name, value in kept.items()}


def _table(run: Record) -> str:
    """Markdown: after each task (down) on each task (across)."""
    tasks = range(1, len(run.matrix) + 1)
    lines = [
        "| after task | " + " | ".join(f"on task {task}" for task in tasks) + " |",
        "|" + "---|" * (len(tasks) + 1),
    ]
    for after, row in enumerate((run.initial, *run.matrix)):
        lines.append(f"| {after} | " + " | ".join("" if math.isnan(v) else repr(v) for v in row) + " |")
    return "\n".join(lines)


def _pictures(run: Record, name: str) -> Iterator[tuple[int, Any]]:
    """Images that the method kept after each task."""
    images = shown_images(unpack(run.kept[name]))
    for task, some in enumerate(() if images is None else images, start=1):
        strip = np.concatenate(list(some), axis=1)
        yield task, _made(summary.image, name, strip, dataformats="HWC"[: strip.ndim])
