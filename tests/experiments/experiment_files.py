"""Experiments as files, on small data."""

from pathlib import Path

import numpy as np
import pytest
from small_cells import cells_of

from threefold.experiments import Request
from threefold.experiments.description import written
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.spec import load_experiment

TOP = """
stream = "split"
data = "small.npz"
tasks = 2
seeds = 3
[training]
iters = 6
hidden = 8
batch = 16
"""
METHODS = (
    TOP
    + """
[[methods]]
method = "none"
[[methods]]
method = "ewc"
with = { strength = [1, 10, 100, 1000, 10000] }
note = "A note."
[[methods]]
method = "lwf"
with = { reduction = ["sum", "mean"], temperature = [1, 2, 3] }
[[methods]]
method = "xdg"
[[methods]]
method = "ewc+xdg"
scenarios = ["task"]
task_id_in = "hidden"
with = { strength = [1, 2], share = 0.5 }
"""
)


NONE = "stream = 'split-mnist'\nmethods = [{ method = 'none' }]"


def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of a test's own, with a file of data."""
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).random((80, 4, 4)).astype(np.float32), np.arange(80) % 4
    np.savez("small.npz", train_x=x, train_y=y, test_x=x, test_y=y)


def write(text: str, name: str = "mine.toml") -> str:
    Path(name).write_text(text)
    return name


def requested(text: str = METHODS, name: str = "mine.toml", **options: object) -> Request:
    write(text, name)
    return experiment_request(load_experiment(name), Options(device="cpu", **options), f"experiment {name}")  # type: ignore[arg-type]


def names(found: Request) -> list[str]:
    return [f"{cell.scenario.name} {written(cell.method)}" for cell in cells_of(found)]
