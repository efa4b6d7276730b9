"""A change that alters learning is noticed: a few cheap cells are trained again and compared with what is stored.

The stored rows were made by

    threefold experiment tests/learning/reduced.toml --device cpu --store reduced.db
    threefold export rows tests/learning/reduced.jsonl --store reduced.db

They may be made anew by a change that is meant to alter learning; say so in its message.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from threefold.experiments.ask import Options, ask

from threefold.experiments import run_cells
from threefold.experiments.cell import written
from threefold.experiments.spec import load_experiment
from threefold.results import Rows

HERE = Path(__file__).parent
MEAN, EACH = 1.0, 6.0  # points: other processors round differently, and networks that forget amplify that


@pytest.fixture(scope="module")
def asked():
    return ask(load_experiment(HERE / "reduced.toml"), Options(device="cpu"), "experiment reduced.toml")


@pytest.fixture(scope="module")
def stored():
    """What the rows hold, by method: seed → accuracies on all tasks, before training and after each task."""
    found = defaultdict(dict)
    for record in Rows(HERE / "reduced.jsonl").all():
        found[record.spec["method"]["name"]][record.spec["seed"]] = np.array([record.initial, *record.matrix])
    return found


METHODS = ["none", "offline", "xdg", "ewc", "online-ewc", "si", "lwf", "dgr-distill", "icarl", "er"]


def test_all_are_stored(asked, stored):
    assert [cell.method.name for cell in asked.cells] == METHODS
    assert set(stored) == set(METHODS)
    keys = {record.key for record in Rows(HERE / "reduced.jsonl").all()}
    assert len(keys) == len(asked.cells) * len(asked.seeds)


@pytest.mark.parametrize("name", METHODS)
def test_a_cell_learns_as_it_did(name, asked, stored):
    (cell,) = [cell for cell in asked.cells if cell.method.name == name]
    (result,) = run_cells([cell], asked.seeds, None)
    ours = np.array([[record.initial, *record.matrix] for record in result.records])
    theirs = np.array([stored[name][record.spec["seed"]] for record in result.records])
    away = np.abs(ours - theirs)
    assert away.max() < EACH, written(cell.method)
    assert np.abs((ours - theirs)[:, 1:].mean((0, 2))).max() < MEAN, written(cell.method)
