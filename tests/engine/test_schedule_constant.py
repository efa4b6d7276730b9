"""A constant learning rate is the same whether it was asked for or not, to the last bit."""

import torch

from threefold.data import Dataset
from threefold.engine import Adam, Replicas, Training, find_schedule, train
from threefold.engine.schedule import CONSTANT
from threefold.methods import Method, Part
from threefold.networks import find_network
from threefold.scenarios import find
from threefold.streams import Split


class Weights(Part):
    """Keeps the classifiers as they are after each task."""

    name = "weights"

    def keep(self, stack, memory):
        return stack.snapshot()


def trained(schedule):
    draw, labels = torch.Generator().manual_seed(0), torch.arange(80) % 4
    images = torch.rand(80, 3, 8, 8, generator=draw)
    stream = Split(Dataset.from_arrays(images, labels, images, labels), 2)
    asked = Replicas(find("class"), [Method(Weights())] * 2, [1, 2], [Adam(lr=0.01)] * 2)
    training = Training(20, 16, find_network("mlp:width=16"), schedule=schedule)
    return train(stream, [asked], training)[0].kept[-1]


def test_a_constant_rate_by_name_is_the_default():
    named = find_schedule("constant")
    assert named is not CONSTANT
    one, other = trained(CONSTANT), trained(named)
    assert all(torch.equal(one[name], other[name]) for name in one)
