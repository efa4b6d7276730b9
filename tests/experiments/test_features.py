"""Frozen features: data passed once through a function or a pretrained network before training."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import threefold
from threefold.data import Dataset, encoding
from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Settings
from threefold.experiments.command import reproducing, run_command
from threefold.methods import Method
from threefold.networks import CNN
from threefold.networks.weights import load_weights
from threefold.results import run_key
from threefold.scenarios import find
from threefold.streams import Split

ENCODER = """
import torch

weights = torch.arange(192.0 * 16).view(192, 16).sin()


def encode(x):
    return torch.relu(x.flatten(1) @ weights)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_encoder.py").write_text(ENCODER)
    yield tmp_path
    sys.modules.pop("my_encoder", None)


def pictures(name="pictures", shape=(3, 8, 8)):
    draw = np.random.default_rng(0)
    images, labels = draw.random((80, *shape)).astype(np.float32), np.arange(80) % 4
    return Dataset.from_arrays(images, labels, images[::-1].copy(), labels[::-1].copy(), name=name)


DATA = pictures()
QUICK = {"scenario": "class", "iters": 2, "batch": 4, "hidden": 8, "device": "cpu", "seeds": 1}
NETWORK = "cnn:channels=4-6,norm=batch"


def save(data=DATA):
    np.savez("pictures.npz", **{n: getattr(data, n) for n in ("train_x", "train_y", "test_x", "test_y")})


def pretrained(file="conv.pt", data=DATA, seeds="1-3", network=NETWORK, **also):
    how = {"iters": 3, "batch": 16, "device": "cpu"}
    threefold.pretrain(data, output=file, network=network, seeds=seeds, **how | also)


def test_every_sample_passes_through_once_and_the_rest_stays(monkeypatch):
    monkeypatch.setattr(encoding, "AT_ONCE", 32)
    seen = []

    def encode(x):
        seen.append(len(x))
        return x.flatten(1)[:, :5] * 2

    found = DATA.encoded(encode)
    assert seen == [32, 32, 32, 16] * 2, "the first ones twice, to see that they come to the same"
    assert torch.equal(found.train_x, DATA.train_x.flatten(1)[:, :5] * 2)
    assert torch.equal(found.test_x, DATA.test_x.flatten(1)[:, :5] * 2)
    assert torch.equal(found.train_y, DATA.train_y)
    assert (found.name, found.shape, found.classes) == ("pictures", (5,), 4)


def test_images_of_one_channel_have_it():
    assert pictures(shape=(8, 8)).encoded(lambda x: x.mean((2, 3))).shape == (1,)


def test_the_fingerprint_stands_on_the_data_and_on_the_code():
    def times(factor):
        return lambda x: x.flatten(1) * factor

    other = pictures(shape=(3, 8, 4))
    found = [DATA.encoded(times(2)), DATA.encoded(times(3)), other.encoded(times(2)), DATA]
    assert len({each.fingerprint for each in found}) == 4
    assert DATA.encoded(times(2)).fingerprint == found[0].fingerprint
    assert found[0].validation(0.5).features == found[0].normalized().features == found[0].features != ""


def test_a_function_of_a_file_is_the_same_everywhere(cli):
    save()
    Path("pictures.toml").write_text(
        'stream = "split"\ndata = "pictures.npz"\nfeatures = "my_encoder.py:encode"\ntasks = 2\n'
        'scenarios = ["class"]\nseeds = 1\ntraining = { iters = 2, hidden = 8, batch = 4 }\n'
        'methods = [{ method = "none" }]\n'
    )
    words = [word for name, value in QUICK.items() for word in (f"--{name}", value)]
    encoded = DATA.encoded(threefold.encoder("my_encoder.py:encode"))
    plain, found = (threefold.run(Split(each, 2), **QUICK).records[0].spec for each in (DATA, encoded))
    assert found["stream"] == plain["stream"] | {"data": encoded.fingerprint, "features": encoded.features}
    given = ["--data", "pictures.npz", "--tasks", 2, "--features", "my_encoder.py:encode", *words]
    assert cli("run", "split", *given).status == 0
    assert cli("experiment", "pictures.toml", "--device", "cpu").status == 0
    assert cli("merge", "other.db", "threefold.db").status == 0
    assert cli("report", "--store", "other.db", "-o", "report.html").status == 0
    for name in ("threefold.db", "other.db"):
        with threefold.Store(name, readonly=True) as store:
            assert sorted(run_key(record.spec) for record in store.all()) == sorted([run_key(plain), run_key(found)])


def test_when_the_code_changes_so_does_the_key():
    before = threefold.encoder("my_encoder.py:encode").sum
    Path("my_encoder.py").write_text(ENCODER.replace("sin", "cos"))
    del sys.modules["my_encoder"]
    assert threefold.encoder("my_encoder.py:encode").sum != before, "of a tensor beside the function, too"


@pytest.mark.parametrize("method", ["none", "er:budget=8", "ewc:strength=1", "icarl:budget=8", "a-gem:budget=8", "lwf"])
def test_every_method_learns_from_features(method):
    data = DATA.encoded(lambda x: x.flatten(1)[:, :16] - 0.5)
    result = threefold.run(Split(data, 2), method=method, store=None, **QUICK)
    assert result.matrix.shape == (1, 2, 2)


def test_networks_of_images_learn_from_maps_of_features():
    data = DATA.encoded(lambda x: torch.nn.functional.avg_pool2d(x, 2))
    result = threefold.run(Split(data, 2), network="cnn:channels=4", store=None, **QUICK | {"hidden": None})
    assert result.matrix.shape == (1, 2, 2)


def by_hand(seed, x):
    """The input of the output layer, in eval mode."""
    net = CNN((3, 8, 8), (4, 6), 4, "batch")
    net.load_state_dict(load_weights("conv.pt").of_seed(seed))
    net.eval().output = torch.nn.Identity()
    with torch.no_grad():
        return net(x)


@pytest.mark.parametrize(("text", "seed"), [("conv.pt", 1), ("conv.pt:1", 1), ("conv.pt:3", 3)])
def test_a_pretrained_network_gives_its_features(text, seed):
    pretrained()
    found = DATA.encoded(threefold.encoder(text))
    assert found.shape == (6 * 4 * 4,)
    torch.testing.assert_close(found.train_x, by_hand(seed, DATA.train_x))
    torch.testing.assert_close(found.test_x, by_hand(seed, DATA.test_x))


def test_a_pretrained_network_is_known_by_what_it_is(cli):
    pretrained(data=DATA.normalized())
    save()
    first, third = (threefold.encoder(text).sum for text in ("conv.pt", "conv.pt:3"))
    assert first == threefold.encoder("conv.pt:1").sum != third
    Path("conv.pt").rename("other.pt")
    assert threefold.encoder("other.pt").sum == first, "its path does not count"
    pretrained("other.pt", network=f"{NETWORK},init=other.pt", data=DATA.normalized(), seeds=1)
    assert threefold.encoder("other.pt").sum != first
    words = [word for name, value in QUICK.items() for word in (f"--{name}", value)]
    given = ["--data", "pictures.npz", "--tasks", 2, "--normalize", "--features", "other.pt", *words]
    assert cli("run", "split", *given).status == 0
    with threefold.Store("threefold.db", readonly=True) as store:
        (record,) = store.all()
    data = DATA.normalized().encoded(threefold.encoder("other.pt"))
    assert record.spec["stream"]["data"] == data.fingerprint
    assert record.spec["stream"]["normalized"] is True


def test_it_is_never_judged_by_the_papers_numbers_and_its_command_names_the_features():
    images, labels = np.zeros((2560, 8, 8), np.uint8), np.arange(2560) % 10
    plain = Dataset.from_arrays(images, labels, images, labels, name="mnist")
    Path("flat.py").write_text("def encode(x):\n    return x.flatten(1)\n")
    for encode, command in (("flat.py:encode", True), (lambda x: x.flatten(1), False)):
        data = plain.encoded(threefold.encoder(encode))
        cell = Cell.of(Split(data), find("class"), Method(), Settings(device="cpu"))
        again = Cell.of_description(cell.described())
        for each in (cell, again):
            assert not each.comparable
            assert each.published() is None
        assert again.spec() == cell.spec()
        assert ("--features flat.py:encode" in run_command([cell], [1])) == command
        assert (reproducing([cell], [1]) is not None) == command
        assert reproducing([again], [1]) is None
    sys.modules.pop("flat")


def test_on_another_machine_they_are_the_same(monkeypatch):
    from threefold.cluster import serialization

    data = pictures("mnist").encoded(lambda x: x.flatten(1)[:, :3])
    monkeypatch.setattr(serialization, "_datasets", {})
    monkeypatch.setattr(serialization.ray, "put", pickle.dumps)
    monkeypatch.setattr(serialization.ray, "get", pickle.loads)
    _, datasets = serialization.ObjectStore()._pack_stream(Split(data, 2))
    ((known, ref),) = datasets.items()
    there = serialization._dataset(known, ref)
    assert (there.fingerprint, there.features) == (data.fingerprint, data.features)
    assert torch.equal(there.train_x, data.train_x)


# what is refused


def refused(function, data=DATA):
    with pytest.raises(ThreefoldError) as raised:
        data.encoded(function)
    return str(raised.value)


def drawn(x):
    return torch.rand(len(x), 3)


def broken(x):
    raise ValueError("of no\nuse")


BAD = {
    "one number each": (lambda x: x.sum((1, 2, 3)), "have the shape (80,) for 80 inputs; give a row for each."),
    "too few": (lambda x: x[1:], "have the shape (79, 3, 8, 8) for 80 inputs; give a row for each."),
    "whole numbers": (lambda x: x.flatten(1).long(), "are a tensor of torch.int64; give a floating-point tensor"),
    "nothing": (lambda x: None, "are a NoneType; give a floating-point tensor, a row for each input."),
    "not finite": (lambda x: x.flatten(1) / 0, "have numbers that are not finite; give finite ones."),
    "random": (drawn, "drawn give other numbers for the same inputs the second time; put modules into eval mode."),
    "broken": (broken, "broken fail for inputs of shape (80, 3, 8, 8) (ValueError: of no use); fix it."),
}


@pytest.mark.parametrize("what", BAD)
def test_what_gives_no_features_is_a_sentence(what):
    function, told = BAD[what]
    found = refused(function)
    assert found.startswith("features ")
    assert told in found
    assert "\n" not in found


def test_features_of_features_and_what_no_key_covers():
    assert refused(lambda x: x, DATA.encoded(lambda x: x)).endswith("already; encode them once.")
    file = open("my_encoder.py")  # noqa: SIM115
    assert "which no key can cover" in refused(lambda x: (x, file)[0])
    file.close()
    assert refused(5).startswith("features must be a function")


def test_another_shape_is_refused_and_so_is_data_that_are_not_normalised_alike():
    pretrained(data=DATA.normalized())
    encode = threefold.encoder("conv.pt")
    assert refused(encode) == (
        "features conv.pt were learned from data that are normalized, and pictures are not normalized; normalize them"
        " first."
    )
    pretrained("plain.pt")
    assert refused(threefold.encoder("plain.pt"), DATA.normalized()) == (
        "features plain.pt were learned from data that are not normalized, and pictures are normalized; do not"
        " normalize them."
    )
    assert refused(encode, pictures(shape=(3, 8, 4)).normalized()) == (
        "features conv.pt are of a network for the shape 3-8-8, and the data have the shape 3-8-4."
    )


class Own(torch.nn.Module):
    def __init__(self, setting):
        super().__init__()
        self.output = torch.nn.Linear(192, setting.units)

    def forward(self, x):
        return self.output(x.flatten(1))


def no_network(change):
    """A file whose word about its network is not true."""
    pretrained("bad.pt")
    told = torch.load("bad.pt", weights_only=True)
    torch.save(told | {"network": change(told["network"])}, "bad.pt")


def other_norm(network):
    return network | {"hyperparameters": network["hyperparameters"] | {"norm": "many"}}


CANNOT = "features file 'bad.pt' has no network that can be built; use what `threefold pretrain` wrote"
FILES = {
    "weights alone": ("bad.pt", lambda: torch.save(Own(Units()).state_dict(), "bad.pt"), "alone"),
    "my own": ("bad.pt", lambda: pretrained("bad.pt", network=Own), "has a network of your own, which only your code"),
    "a seed": ("bad.pt:4", lambda: pretrained("bad.pt"), "but bad.pt has no seed 4; it has 1, 2, 3."),
    "no seed": ("bad.pt:one", lambda: None, "but 'one' is no seed; use bad.pt or bad.pt:1."),
    "another norm": ("bad.pt", lambda: no_network(other_norm), "hyperparameter norm of cnn is 'many'"),
    "an mlp": ("bad.pt", lambda: no_network(lambda net: net | {"name": "mlp", "hyperparameters": {}}), CANNOT),
    "a list": ("bad.pt", lambda: no_network(lambda net: [net]), CANNOT),
    "a wide one": ("bad.pt", lambda: no_network(lambda net: net | {"shape": [3, 99, 99]}), CANNOT),
    "nothing there": ("bad.pt", lambda: None, "weights file 'bad.pt' cannot be read (No such file or directory)"),
    "no function": ("my_encoder.py:decode", lambda: None, "must name a class or function"),
    "no file": ("your.py:encode", lambda: None, "features 'your.py:encode' names a file that is not there"),
    "a word": ("encode", lambda: None, "features are 'encode'; use FILE.py:FUNCTION, FILE.pt or FILE.pt:SEED."),
}


class Units:
    units = 4


@pytest.mark.parametrize("what", FILES)
def test_what_cannot_be_is_a_sentence_before_any_data_are_fetched(what, cli):
    text, make, told = FILES[what]
    make()
    ended = cli("run", "split-mnist", "--features", text, "--device", "cpu")
    assert ended.status == 2
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("threefold.db").exists()


def test_what_does_not_go_together_is_refused(cli):
    save()
    how = ["--data", "pictures.npz", "--tasks", 2, "--device", "cpu", "--features", "my_encoder.py:encode"]
    ended = cli("run", "split", *how, "--augment")
    assert (ended.status, ended.err) == (
        2,
        "threefold: augment is set, but the data are features of my_encoder.py:encode, which are computed once; give"
        " one.\n",
    )
    assert not Path("threefold.db").exists()
