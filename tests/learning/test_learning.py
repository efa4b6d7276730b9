"""A change of results is noticed: a few cheap cells are trained again and compared with stored rows.

The stored rows, and the processor that they were made with, are from

    export OMP_NUM_THREADS=1
    threefold experiment tests/learning/reduced.toml --device cpu --store reduced.db
    threefold export rows tests/learning/reduced.jsonl --store reduced.db
    python tests/learning/processor.py > tests/learning/reduced.processor

On that processor, and with that torch, not one bit may differ; others round differently.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
from processor import processor
from small_cells import cells_of, runs, seeds_of, train_cells

from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.spec import load_experiment
from threefold.results import Rows

HERE = Path(__file__).parent
METHODS = ["none", "offline", "xdg", "ewc", "online-ewc", "si", "lwf", "dgr-distill", "icarl", "er"]
MEAN, EACH = 1.0, 6.0  # points, elsewhere: networks that forget amplify what is rounded
WHAT_TO_DO = (
    "trained numbers changed: if that is not meant, undo it; if it is, raise threefold.version.NUMERICS, make the rows"
    " anew by the commands at the top of this file, and say so in the message of the commit"
)


@pytest.fixture(scope="module")
def asked_for():
    experiment = load_experiment(HERE / "reduced.toml")
    return experiment_request(experiment, Options(device="cpu"), "experiment reduced.toml")


@pytest.fixture(scope="module")
def rows():
    return list(Rows(HERE / "reduced.jsonl").all())


@pytest.fixture(scope="module")
def stored(rows):
    """What the rows hold, by method: seed → accuracies on all tasks, before training and after each task."""
    found = defaultdict(dict)
    for record in rows:
        found[record.spec["method"]["name"]][record.spec["seed"]] = np.array([record.initial, *record.matrix])
    return found


@pytest.fixture(scope="module")
def same_machine(rows):
    (made_with,) = {row.environment["torch"] for row in rows}
    made_on = (HERE / "reduced.processor").read_text(encoding="utf-8").strip()
    return (made_on, made_with) == (processor(), torch.__version__)


def test_the_rows_are_those_of_these_runs_and_numerics(asked_for, rows):
    assert [cell.method.name for cell in cells_of(asked_for)] == METHODS
    (seeds,) = seeds_of(asked_for)
    assert {row.key for row in rows} == {run.key for run in runs(cells_of(asked_for), seeds)}, WHAT_TO_DO
    assert {row.environment["threads"] for row in rows} == {1}


@pytest.mark.parametrize("name", METHODS)
def test_a_cell_learns_as_it_did(name, asked_for, stored, same_machine):
    (cell,) = [cell for cell in cells_of(asked_for) if cell.method.name == name]
    (result,) = train_cells([cell], *seeds_of(asked_for))
    ours = np.array([[record.initial, *record.matrix] for record in result.records])
    theirs = np.array([stored[name][record.spec["seed"]] for record in result.records])
    if same_machine:
        assert np.array_equal(ours, theirs), WHAT_TO_DO
    else:
        assert np.abs(ours - theirs).max() < EACH, WHAT_TO_DO
        assert np.abs((ours - theirs)[:, 1:].mean((0, 2))).max() < MEAN, WHAT_TO_DO
