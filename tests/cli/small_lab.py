"""A small experiment with its store, trained once for the tests of a file."""

from pathlib import Path

import pytest
from experiment_lab import furnish

SPEC = """
title = "Small"
stream = "split"
data = "tiny.npz"
tasks = 3
seeds = 2
[training]
iters = 6
hidden = 8
batch = 16
[[methods]]
method = "none"
[[methods]]
method = "ewc"
with = { strength = [1, 100] }
"""
EXPERIMENT = ["experiment", "tiny.toml", "--device", "cpu", "--store"]
RUNS = 2 * 9


def trained(folder: Path) -> Path:
    """The experiment, its data and its store, a.db, in a folder."""
    from threefold.experiments import train_requests
    from threefold.experiments.experiment_request import Options, experiment_request
    from threefold.experiments.spec import load_experiment

    furnish(folder, SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        asked = experiment_request(load_experiment("tiny.toml"), Options(device="cpu"), "experiment tiny.toml")
        train_requests([asked], "a.db")
    return folder
