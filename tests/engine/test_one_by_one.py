"""Modules that vmap cannot map are trained one by one, with the same result."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import threefold
from threefold import Dataset, Split, ThreefoldError
from threefold.engine import SGD, Replicas, Training, train
from threefold.methods import EWC, Method, Setting
from threefold.networks import find_network
from threefold.scenarios import Outputs, find

draw, LABELS = torch.Generator().manual_seed(0), torch.arange(48) % 4
IMAGES = torch.rand(48, 3, 4, 4, generator=draw)
STREAM = Split(Dataset.from_arrays(IMAGES, LABELS, IMAGES, LABELS), 2)


class Plain(nn.Module):
    """Linear layers and a normalisation, whose Fisher information is taken sample by sample."""

    def __init__(self, setting):
        super().__init__()
        self.hidden, self.norm = nn.Linear(48, 6), nn.LayerNorm(6)
        self.output = nn.Linear(6, setting.units)

    def forward(self, x):
        return self.output(self.norm(self.hidden(x.flatten(1))).relu())


class Asks(Plain):
    """The same, after a look at a value."""

    def forward(self, x):
        return super().forward(x if x.sum() > -1 else -x)


class Recurrent(nn.Module):
    def __init__(self, setting):
        super().__init__()
        self.recurrent, self.output = nn.LSTM(12, 5, batch_first=True), nn.Linear(5, setting.units)

    def forward(self, x):
        return self.output(self.recurrent(x.flatten(2).mT.flatten(1).view(-1, 4, 12))[0][:, -1])


class Folded(Plain):
    """Rows of an image as samples of a layer."""

    def __init__(self, setting):
        super().__init__(setting)
        self.hidden, self.output = nn.Linear(4, 6), nn.Linear(72, setting.units)

    def forward(self, x):
        return self.output(self.norm(self.hidden(x.flatten(0, 2))).relu().view(len(x), -1))


class InTraining(Plain):
    """In a test the logits are turned round."""

    def forward(self, x):
        return super().forward(x) * (1 if self.training else -1)


class Counts(Plain):
    """Counts what it has seen, also when it is tested."""

    def __init__(self, setting):
        super().__init__(setting)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += len(x)
        return super().forward(x)


class Kept(EWC):
    """Keeps the Fisher information and the weights."""

    name = "kept"

    def keep(self, stack, memory):
        return {**memory["precision"], **{f"weights {name}": p for name, p in stack.params["classifier"].items()}}


def setting(network, scenario="class"):
    return Setting(Outputs(find(scenario), 2, 2), (3, 4, 4), 8, find_network(network))


def trained(network, seeds):
    replicas = Replicas(find("class"), [Method(Kept(strength=10))] * len(seeds), seeds, [SGD(lr=0.1)] * len(seeds))
    return train(STREAM, [replicas], Training(6, 8, find_network(network)))[0].kept[-1]


def test_what_asks_for_values_is_trained_one_by_one_and_cannot_be_captured():
    plain, asks, recurrent = (setting(network).structure for network in (Plain, Asks, Recurrent))
    assert (plain.mapped, plain.samples_mapped, plain.capturable) == (True, True, True)
    assert (asks.mapped, asks.samples_mapped, asks.capturable) == (False, False, False)
    assert (recurrent.mapped, recurrent.samples_mapped, recurrent.capturable) == (False, False, True)
    assert setting("cnn:channels=4").structure.samples_mapped


def test_a_value_that_changes_nothing_changes_nothing():
    plain, asks = trained(Plain, [1, 2]), trained(Asks, [1, 2])
    assert plain.keys() == asks.keys()
    for name in plain:
        assert torch.allclose(plain[name], asks[name], atol=1e-6), name
    assert plain["norm.weight"].max() > 1e-6


def test_a_replica_of_a_recurrent_network_is_the_same_alone():
    together, alone = trained(Recurrent, [1, 2, 3]), trained(Recurrent, [2])
    for name in alone:
        assert torch.equal(together[name][1], alone[name][0]), name


def test_a_module_is_tested_in_eval_mode_whatever_it_is_made_of():
    both = [
        threefold.run(STREAM, network=network, scenario="task", seeds=1, iters=60, batch=8, store=None, device="cpu")
        for network in (Plain, InTraining)
    ]
    assert both[0].accuracy.mean + both[1].accuracy.mean == 100, "of two classes"
    assert both[0].accuracy.mean > 60


@pytest.mark.parametrize(
    ("network", "given", "sentence"),
    [
        (
            Counts,
            {"scenario": "class"},
            "network Counts must leave its buffer seen as it is in eval mode; change it in training alone.",
        ),
        (
            Recurrent,
            {"scenario": "task", "method": "xdg:share=0.5"},
            "XdG gates linear and convolutional layers before the last one, and network Recurrent has none.",
        ),
        (
            Folded,
            {"scenario": "task", "method": "xdg:share=0.5"},
            "XdG gates the units of each sample, so network Folded must give hidden a row for each, samples first.",
        ),
    ],
)
def test_what_would_give_wrong_results_is_refused(network, given, sentence):
    with pytest.raises(ThreefoldError) as refused:
        threefold.run(STREAM, network=network, seeds=1, iters=1, batch=8, store=None, device="cpu", **given)
    assert str(refused.value) == sentence


def test_a_structure_is_found_without_pytorchs_compiler():
    """Importing it takes seconds, which a command that trains nothing should not take."""
    code = (
        "import sys; from threefold.methods import Setting; from threefold.networks import find_network;"
        "from threefold.scenarios import Outputs, find;"
        "s = Setting(Outputs(find('class'), 2, 2), (3, 8, 8), 8, find_network('cnn:norm=batch'));"
        "assert s.structure.convolutional; assert 'torch._dynamo' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
