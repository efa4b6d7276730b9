"""Choosing hyperparameters by held-out data: only training data of the first tasks is used."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_cells import cells_of

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.experiments import sections, train_requests
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.spec import Experiment
from threefold.report.charts import charts
from threefold.results import Store
from threefold.streams import Permuted, Split


@pytest.fixture
def data() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 30)
    x = rng.random((180, 4, 4)).astype(np.float32) * 0.3
    for n, label in enumerate(y):
        x[n].flat[label] += 0.7
    order = rng.permutation(180)
    return Dataset.from_arrays(x[order], y[order], x, y, name="six")


def test_validation_holds_out_training_data_of_every_class(data: Dataset) -> None:
    held = data.validation(0.2)
    assert torch.bincount(held.train_y).tolist() == [24] * 6
    assert torch.bincount(held.test_y).tolist() == [6] * 6
    rows = {tuple(x.flatten().tolist()) for x in data.train_x}
    kept, out = ({tuple(x.flatten().tolist()) for x in part} for part in (held.train_x, held.test_x))
    assert kept | out == rows
    assert not kept & out
    assert held.fingerprint != data.fingerprint
    assert held.fingerprint != data.validation(0.3).fingerprint
    assert held.name == "six validation"


def with_classes_of(*sizes: int) -> Dataset:
    """Data of which each class has so many training samples."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    x = np.random.default_rng(0).random((len(labels), 3), dtype=np.float32)
    return Dataset.from_arrays(x, labels, x, labels, name="few")


def test_a_class_of_one_sample_is_refused() -> None:
    """Held out, it would be trained on without a sample; kept, nothing of it would be validated."""
    with pytest.raises(ThreefoldError) as told:
        with_classes_of(9, 1, 9).validation(0.1)
    assert str(told.value) == (
        "validation share must leave training samples of every class, got 0.1, which takes the only sample of class 1"
        " of few; use data with at least 2 samples of each class."
    )


def test_a_share_that_leaves_nothing_is_refused_and_what_is_advised_works() -> None:
    data = with_classes_of(9, 4, 9)
    with pytest.raises(ThreefoldError, match=r"takes all 4 samples of class 1 of few; use 0.25 or less\.$"):
        data.validation(0.95)
    data.validation(0.25)
    for share in (0.0, 1.0, -0.5, math.nan, math.inf):
        with pytest.raises(ThreefoldError, match="validation share must be more than 0 and less than 1, got"):
            data.validation(share)


@given(st.lists(st.integers(2, 40), min_size=2, max_size=5), st.floats(0.001, 0.999))
def test_every_class_has_samples_on_both_sides_or_it_is_refused(sizes: list[int], share: float) -> None:
    try:
        held = with_classes_of(*sizes).validation(share)
    except ThreefoldError:
        assert any(round(share * size) >= size for size in sizes)
        return
    kept, out = torch.bincount(held.train_y).tolist(), torch.bincount(held.test_y).tolist()
    assert len(kept) == len(out) == len(sizes)
    assert all(k >= 1 and o >= 1 and k + o == size for k, o, size in zip(kept, out, sizes, strict=True))


@pytest.mark.parametrize("kind", [Split, Permuted])
def test_the_first_tasks_are_those_of_the_whole_sequence(data: Dataset, kind: type[Split] | type[Permuted]) -> None:
    whole, first = kind(data, 3), kind(data, 3)
    first.only = 2
    assert (first.tasks, first.classes_per_task) == (2, whole.classes_per_task)
    for mine, its in zip(first.learned(5), whole.learned(5)[:2], strict=True):
        assert mine.classes == its.classes
        assert torch.equal(mine.train, its.train)
        assert mine.pixels is its.pixels or torch.equal(mine.pixels, its.pixels)  # type: ignore[arg-type]


GRID = {
    "name": "grid",
    "kind": "grids",
    "stream": "split",
    "tasks": 3,
    "seeds": "2",
    "training": {"iters": 6, "hidden": 8, "batch": 16},
    "validation": {"share": 0.2, "tasks": 2},
    "methods": [{"method": "ewc", "scenarios": ["task"], "with": {"strength": [0.1, 1e9]}}],
}


def test_a_grid_is_also_trained_on_the_first_tasks_alone(data: Dataset, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("threefold.experiments.experiment_request.load", lambda *_, **__: data)
    request = experiment_request(Experiment.model_validate(GRID), Options(device="cpu"), "experiment grid.toml")
    assert [cell.stream.tasks for cell in cells_of(request)] == [3, 3]
    assert [cell.stream.tasks for cell in cells_of(request, validation=True)] == [2, 2]
    store = tmp_path / "grid.db"
    train_requests([request], store)
    with Store(store, readonly=True) as opened:
        (section,) = sections(opened)
    assert section.left == 0
    assert len(section.results) == len(section.validation) == 2
    assert section.validation[0].matrix.shape == (2, 2, 2)
    ((_, chart),) = charts([section])
    (row,) = chart.selected
    best = max(section.validation, key=lambda result: result.accuracy.mean).cell.method.parts[0]
    there = next(r for r in section.results if r.cell.method.parts[0] == best)
    assert row.honest
    assert row.honest.accuracy == there.accuracy
    assert row.honest.text.startswith("λ = ")
    assert row.first
    assert row.first.text == "no choice: all alike", "nothing is penalised before the second task"
