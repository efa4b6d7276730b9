"""Normalised data: the training data's mean taken away, and divided by their deviation."""

import math
import pickle
import statistics
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import threefold
from threefold import scenarios
from threefold.data import Dataset, FileState, dataset
from threefold.errors import ThreefoldError
from threefold.experiments import Cell
from threefold.experiments.command import run_command
from threefold.experiments.experiment_request import Options, experiment_request
from threefold.experiments.settings import Settings
from threefold.experiments.spec import Experiment
from threefold.methods import Method
from threefold.results import run_key
from threefold.streams import Split


def made(*shape, samples=12, scale=1.0, offset=0.0, seed=0):
    draw = np.random.default_rng(seed)
    train, test = (offset + scale * draw.random((samples, *shape)).astype(np.float32) for _ in range(2))
    return Dataset.from_arrays(train, np.arange(samples) % 3, test, np.arange(samples) % 3, name="drawn")


def by_hand(values, own):
    """Of single numbers, in float64."""
    mean, deviation = statistics.fmean(own), statistics.pstdev(own)
    return [(value - mean) / deviation for value in values]


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 2, 2, 2)])
def test_without_channels_there_is_one_mean_for_everything(shape, monkeypatch):
    monkeypatch.setattr(dataset, "_AT_ONCE", 5)
    data = made(*shape, scale=3, offset=7)
    found = data.normalized()
    own = data.train_x.flatten().tolist()
    for before, after in ((data.train_x, found.train_x), (data.test_x, found.test_x)):
        assert after.shape == before.shape
        assert after.flatten().tolist() == pytest.approx(by_hand(before.flatten().tolist(), own), abs=1e-6)


def test_every_channel_of_an_image_has_its_own(monkeypatch):
    monkeypatch.setattr(dataset, "_AT_ONCE", 5)
    data = made(3, 4, 2)
    data.train_x[:, 1] *= 100
    data.test_x[:, 2] += 9
    found = data.normalized()
    for channel in range(3):
        own = data.train_x[:, channel].flatten().tolist()
        for before, after in ((data.train_x, found.train_x), (data.test_x, found.test_x)):
            expected = by_hand(before[:, channel].flatten().tolist(), own)
            assert after[:, channel].flatten().tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(st.floats(1e-3, 1e6), st.floats(-1e3, 1e3), st.integers(0, 99))
def test_whatever_the_scale_the_training_data_have_mean_0_and_deviation_1(scale, offset, seed):
    x = made(3, 2, 2, scale=scale, offset=offset * scale, seed=seed).normalized().train_x.double()
    assert x.mean((0, 2, 3)).abs().max() < 1e-5
    assert (x.var((0, 2, 3), unbiased=False).sqrt() - 1).abs().max() < 1e-5


def test_what_it_is_called_and_known_by():
    data = made(3, 4, 4)
    found = data.normalized()
    assert (found.name, found.classes, found.shape) == ("drawn", 3, (3, 4, 4))
    assert (data.is_normalized, found.is_normalized) == (False, True)
    assert found.train_y.equal(data.train_y)
    assert found.test_y.equal(data.test_y)
    assert (data.in_unit_interval, found.in_unit_interval) == (True, False)
    assert found.fingerprint != data.fingerprint
    assert found.fingerprint == made(3, 4, 4).normalized().fingerprint
    assert found.fingerprint != made(3, 4, 4, seed=1).normalized().fingerprint
    assert found.normalized() is found
    assert found.validation(0.3).is_normalized
    assert not data.validation(0.3).is_normalized


def test_the_test_data_change_nothing():
    data = made(3, 4, 4)
    other = Dataset.from_arrays(data.train_x, data.train_y, 100 * data.test_x, data.test_y)
    assert other.normalized().train_x.equal(data.normalized().train_x)


def test_what_is_the_same_everywhere_is_only_moved():
    """A dark channel has no deviation to divide by."""
    data = made(3, 4, 4)
    data.train_x[:, 1] = 0.25
    data.test_x[:, 1] = 0.75
    found = data.normalized()
    assert found.train_x[:, 1].unique().tolist() == [0]
    assert found.test_x[:, 1].unique().tolist() == [0.5]
    assert math.isclose(found.train_x[:, 0].square().mean(), 1, rel_tol=1e-5)


def test_what_becomes_too_large_is_refused():
    data = made(3, scale=1e-30)
    data.test_x[4] = 1e20
    with pytest.raises(ThreefoldError) as raised:
        data.normalized()
    assert str(raised.value) == (
        "data drawn cannot be normalized: test_x has values too far from those of train_x to be divided by their"
        " deviation."
    )


@pytest.mark.parametrize("state", ["good", "missing"])
def test_on_another_machine_they_are_the_same(monkeypatch, state):
    """Whether it has the data in its own folder or is sent them."""
    from threefold.cluster import serialization

    data = made(3, 4, 4)
    monkeypatch.setattr(serialization, "_datasets", {})
    monkeypatch.setattr(serialization.ray, "put", pickle.dumps)
    monkeypatch.setattr(serialization.ray, "get", pickle.loads)
    monkeypatch.setattr(serialization, "names", lambda: ("drawn",))
    monkeypatch.setattr(serialization, "check", lambda name: [FileState(Path(name), state)])
    monkeypatch.setattr(serialization, "load", lambda name: data)
    for mine in (data, data.normalized()):
        _, datasets = serialization.ObjectStore()._pack_stream(Split(mine, 3))
        ((known, ref),) = datasets.items()
        there = serialization._dataset(known, ref)
        assert (there.fingerprint, there.is_normalized) == (mine.fingerprint, mine.is_normalized)
        assert there.train_x.equal(mine.train_x)
        assert there.test_y.equal(mine.test_y)


EXPERIMENT = """
stream = "split"
data = "drawn.npz"
normalize = true
tasks = 3
scenarios = ["class"]
seeds = 1
training = { iters = 2, hidden = 8, batch = 4 }
methods = [{ method = "none" }]
"""


def test_the_option_is_the_same_on_the_command_line_in_files_and_in_python(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = made(3, 4, 4)
    np.savez("drawn.npz", train_x=data.train_x, train_y=data.train_y, test_x=data.test_x, test_y=data.test_y)
    Path("drawn.toml").write_text(EXPERIMENT)
    quick = {"scenario": "class", "seeds": 1, "iters": 2, "hidden": 8, "batch": 4, "device": "cpu"}
    words = [word for name, value in quick.items() for word in (f"--{name}", value)]
    plain, found = (threefold.run(Split(each, 3), **quick).records[0].spec for each in (data, data.normalized()))
    assert found["stream"] == plain["stream"] | {"data": data.normalized().fingerprint, "normalized": True}
    assert "normalized" not in plain["stream"]
    assert cli("run", "split", "--data", "drawn.npz", "--normalize", "--tasks", 3, *words).status == 0
    assert cli("experiment", "drawn.toml", "--device", "cpu").status == 0
    with threefold.Store("threefold.db", readonly=True) as store:
        assert sorted(run_key(record.spec) for record in store.all()) == sorted([run_key(plain), run_key(found)])


def test_held_out_data_are_normalised_without_themselves():
    """Nothing that the choice is tested on may be known before."""
    data = made(2, 2, samples=30)
    spec = Experiment.model_validate(tomllib.loads(EXPERIMENT) | {"name": "held", "validation": {"share": 0.4}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("threefold.experiments.experiment_request.load", lambda name, report: data)
        asked = experiment_request(spec, Options(device="cpu"), "held.toml").asked
    found = {each.validation: each.cell.stream.data.fingerprint for each in asked}
    assert found == {False: data.normalized().fingerprint, True: data.validation(0.4).normalized().fingerprint}


def test_what_is_normalised_is_not_what_the_paper_trained_on(mnist_like):
    for data in (mnist_like, mnist_like.normalized()):
        cell = Cell.of(Split(data), scenarios.find("class"), Method(), Settings(device="cpu"))
        again = Cell.of_description(cell.described())
        assert cell.comparable == again.comparable == (not data.is_normalized)
        for each in (cell, again):
            assert (each.published() is None) == data.is_normalized
            assert ("--normalize" in run_command([each], [1]).split()) == data.is_normalized


@pytest.fixture
def mnist_like():
    x, y = np.zeros((2560, 4, 4), np.uint8), np.arange(2560) % 10
    return Dataset.from_arrays(x, y, x, y, name="mnist")
