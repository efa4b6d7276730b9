"""Frozen features of which each seed has its own: `conv.pt:each`. A run is as with the features of its seed alone."""

import numpy as np
import pytest
import torch

import threefold
from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Settings
from threefold.methods import Method, parse
from threefold.networks import CNN
from threefold.networks.weights import load_weights
from threefold.scenarios import find
from threefold.streams import Split

NETWORK = "cnn:channels=4-6,norm=batch,hidden=12-10,last=linear"
QUICK = {"scenario": "class", "iters": 4, "batch": 8, "hidden": 16, "device": "cpu"}


def pictures() -> Dataset:
    draw = np.random.default_rng(0)
    images, labels = draw.random((160, 3, 8, 8)).astype(np.float32), np.arange(160) % 4
    return Dataset.from_arrays(images, labels, images[::-1].copy(), labels[::-1].copy(), name="pictures")


DATA = pictures()


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = str(tmp_path_factory.mktemp("conv") / "conv.pt")
    threefold.pretrain(DATA, output=file, network=NETWORK, seeds=[1, 2, 5], iters=3, batch=16, device="cpu")
    return file


def test_each_seed_learns_from_the_features_of_its_network(conv: str) -> None:
    data = DATA.encoded(threefold.encoder(f"{conv}:each"))
    assert (len(data.train_x), len(data.train_y), data.shape, data.seeds) == (480, 160, (96,), (1, 2, 5))
    for method in ("none", "er:budget=8,use=both", "ewc:strength=10", "icarl:budget=12", "bi-r"):
        together = threefold.run(Split(data, 2), method=method, seeds=[5, 1, 2, 3], store=None, **QUICK)
        for place, (seed, own) in enumerate([(5, 5), (1, 1), (2, 2), (3, 5)]):  # seed 3 has the third network
            alone = DATA.encoded(threefold.encoder(f"{conv}:{own}"))
            found = threefold.run(Split(alone, 2), method=method, seeds=[seed], store=None, **QUICK)
            assert np.array_equal(found.matrix[0], together.matrix[place]), (method, seed)
            assert np.array_equal(found.initial[0], together.initial[place])


def test_they_are_another_run_than_those_of_one_network(conv: str) -> None:
    keys = set()
    for name in (f"{conv}:each", f"{conv}:1", conv):
        data = DATA.encoded(threefold.encoder(name))
        settings = Settings.checked(iters=2, batch=4, hidden=8, device="cpu")
        keys.add(str(Cell.of(Split(data, 2), find("class"), Method(), settings).spec()["stream"]))
    assert len(keys) == 2  # the file alone is its first network


def test_what_cannot_be_held_out_any_more_is_refused(conv: str) -> None:
    data = DATA.encoded(threefold.encoder(f"{conv}:each"))
    with pytest.raises(ThreefoldError, match="features of each seed's own; hold out first, then encode"):
        data.validation(0.1)


def test_features_are_what_the_convolutions_give(conv: str) -> None:
    """By hand: convolution, batch norm and ReLU, and a last convolution without either."""
    state = load_weights(conv).of_seed(2)
    x = DATA.train_x[:9]
    x = torch.nn.functional.conv2d(x, state["convolutions.0.weight"], padding=1)
    mean, var = state["norms.0.running_mean"], state["norms.0.running_var"]
    x = (x - mean.view(1, -1, 1, 1)) / torch.sqrt(var.view(1, -1, 1, 1) + 1e-5)
    x = x * state["norms.0.weight"].view(1, -1, 1, 1) + state["norms.0.bias"].view(1, -1, 1, 1)
    x = torch.clamp(x, min=0)
    x = torch.nn.functional.conv2d(x, state["convolutions.1.weight"], state["convolutions.1.bias"], 2, padding=1)
    # by a stride of 2 4 × 4 places, 6 channels
    found = DATA.encoded(threefold.encoder(f"{conv}:2"))
    assert found.shape == (96,)
    assert torch.allclose(found.train_x[:9], x.flatten(1), atol=1e-5)


def test_layers_after_the_convolutions() -> None:
    net = CNN((3, 8, 8), (4, 6), 5, "batch", (12, 10), "linear")
    assert [tuple(p.shape) for name, p in net.named_parameters() if "weighted" in name or "output.weight" in name] == [
        (12, 96),
        (10, 12),
        (5, 10),
    ]
    assert "norms.1.weight" not in net.state_dict()


def test_a_network_without_them_keeps_its_key() -> None:
    settings = Settings.checked(iters=2, batch=4, network="cnn:channels=4-6", device="cpu")
    data = Split(DATA, 2)
    spec = Cell.of(data, find("class"), parse("none"), settings).spec()
    assert spec["network"] == {"name": "cnn", "hyperparameters": {"channels": [4, 6], "norm": "none"}}
    other = Settings.checked(iters=2, batch=4, network=NETWORK, device="cpu")
    found = Cell.of(data, find("class"), parse("none"), other)
    assert found.spec()["network"]["hyperparameters"] == {
        **{"channels": [4, 6], "norm": "batch", "hidden": [12, 10], "last": "linear"}
    }
    again = Cell.of_description(found.described())
    assert again.training.network == found.training.network
    assert found.training.network.written() == NETWORK
