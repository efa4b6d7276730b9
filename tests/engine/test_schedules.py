"""Schedules: what they are is tested with the optimisers; here what a constant one changes, and what a GPU allows."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

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


class FromTheHost(TorchDispatchMode):
    """Notes whether numbers of the host become a tensor: a captured step cannot copy them to the device."""

    seen = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen |= func.name().startswith(("aten::lift", "aten::_to_copy"))
        return func(*args, **(kwargs or {}))


def test_numbers_of_the_host_are_noticed():
    with FromTheHost() as noted:
        torch.tensor([0.5])
    assert noted.seen


@pytest.mark.parametrize("text", ["cosine", "step:at=0.25-0.5,factor=0.3"])
def test_a_rate_can_be_captured(text):
    with FromTheHost() as noted:
        rates = find_schedule(text).multiplier(torch.linspace(0, 1, 5))
    assert not noted.seen
    assert rates.shape == (5,)
