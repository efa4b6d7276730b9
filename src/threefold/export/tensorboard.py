"""Runs as TensorBoard sees them: curves over the number of tasks trained, and a table of hyperparameters."""

import json
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from threefold.export.flat import described
from threefold.results import Record, square_images, unpack

LONGEST = 120  # characters of a folder's name


def folder_name(run: Record) -> str:
    """Protocol, scenario, method, then seed and the beginning of the key, which tells apart what looks alike."""
    about = described(run)
    words = [about["protocol"], about["scenario"], about["method"], f"seed-{about['seed']}-{run.key[:8]}"]
    return "/".join(re.sub(r"[^A-Za-z0-9+=-]+", "-", str(word)).strip("-")[:LONGEST] or "none" for word in words)


def write(run: Record, folder: Path) -> None:
    when = datetime.fromisoformat(run.created).timestamp()
    with SummaryWriter(str(folder)) as writer:
        for after, row in enumerate((run.initial, *run.matrix)):
            for task, accuracy in enumerate(row, start=1):
                if not math.isnan(accuracy):
                    writer.add_scalar(f"accuracy/task {task}", accuracy, after, walltime=when)
        metrics = {f"metric/{name}": value for name, value in run.metrics.items() if not math.isnan(value)}
        for name, value in metrics.items():
            writer.add_scalar(name, value, len(run.matrix), walltime=when)
        for summary in hparams(_plain(run), metrics):  # type: ignore[no-untyped-call]
            writer.file_writer.add_summary(summary, walltime=when)
        spec = json.dumps(run.spec, ensure_ascii=False, indent=2)
        writer.add_text("spec", "\n".join(f"    {line}" for line in spec.splitlines()), 0, walltime=when)
        writer.add_text("accuracy matrix", _table(run), 0, walltime=when)
        if "dreams" in run.keepsakes:
            _dreams(writer, run, when)


def _plain(run: Record) -> dict[str, Any]:
    """The spec in numbers and words, as TensorBoard's table of hyperparameters takes them."""
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


def _dreams(writer: SummaryWriter, run: Record, when: float) -> None:
    """What the generator dreamt after each task."""
    images = square_images(unpack(run.keepsakes["dreams"]))
    for task, some in enumerate(() if images is None else images, start=1):
        strip = np.concatenate(list(some), axis=1)
        writer.add_image("dreams", strip, task, walltime=when, dataformats="HW")
