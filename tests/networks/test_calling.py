"""Calling a module with other parameters: same result as PyTorch's functional_call, module unchanged afterwards."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from threefold.networks import ResNet18, called

X = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Shares(nn.Module):
    """Two layers with one mask between them, under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(192, 5), nn.Linear(5, 2)
        mask = torch.ones(5)
        self.first.register_buffer("mask", mask)
        self.second.register_buffer("mask", mask)

    def forward(self, x):
        return self.second(self.first(x.flatten(1)) * self.first.mask * self.second.mask)


def held(net):
    return dict(net.named_parameters()) | dict(net.named_buffers())


def drawn(net):
    source = torch.Generator().manual_seed(1)
    return {
        n: torch.rand(v.shape, generator=source) + 0.5 if v.is_floating_point() else v.clone()
        for n, v in held(net).items()
    }


@pytest.mark.parametrize("build", [lambda: ResNet18(3, 2, 4), Shares, lambda: nn.Sequential(nn.Flatten(), Shares())])
def test_it_is_functional_call(build):
    net = build()
    values, same = drawn(net), drawn(net)
    before = {name: (tensor, tensor.clone()) for name, tensor in held(net).items()}
    assert torch.equal(called(net, values, X), functional_call(net, same, (X,)))
    assert all(torch.equal(values[name], same[name]) for name in values), "batch norm's statistics have moved alike"
    assert all(held(net)[name] is was and torch.equal(was, value) for name, (was, value) in before.items())


def test_what_is_not_given_is_the_modules_own():
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    bias = torch.tensor([1.0, 2.0])
    assert torch.equal(called(net, {"1.bias": bias}, X), X.flatten(1) @ net[1].weight.T + bias)


def test_after_an_error_a_module_has_its_own_again():
    net = ResNet18(3, 2, 4)
    own = held(net)
    with pytest.raises(RuntimeError):
        called(net, drawn(net), X[:, :2])
    assert all(held(net)[name] is tensor for name, tensor in own.items())
