"""Where networks are trained one after the other on a CPU, their gradients are what torch.func gives."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad_and_value

from threefold.engine.step import _plainly

X = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def convolutions(norm):
    return nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).double()


@pytest.mark.parametrize("norm", [nn.Identity(), nn.GroupNorm(2, 4), nn.BatchNorm2d(4)], ids=["none", "group", "batch"])
def test_it_is_the_gradient_value_and_buffers_of_torch_func(norm):
    net = convolutions(norm)
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    params = {"classifier": {n: p.detach() for n, p in net.named_parameters()}, "unused": {"a": torch.ones(3)}}

    def loss(params):
        fresh = {name: buffer.clone() for name, buffer in buffers.items()}
        logits = functional_call(net, {**params["classifier"], **fresh}, (X,))
        return (logits**2).mean(), fresh

    with torch.no_grad():  # as in training
        grads, (value, moved) = _plainly(loss, params)
        wanted, (its_value, its_moved) = grad_and_value(loss, has_aux=True)(params)
    assert torch.equal(value, its_value)
    assert not value.requires_grad
    assert moved.keys() == its_moved.keys()
    assert all(torch.equal(moved[name], its_moved[name]) for name in moved)
    assert {net: list(its) for net, its in grads.items()} == {net: list(its) for net, its in wanted.items()}
    for network, its in wanted.items():
        for name, grad in its.items():
            assert torch.allclose(grads[network][name], grad, rtol=1e-12, atol=1e-14), name
    assert not grads["unused"]["a"].any()
    assert grads["classifier"]["0.weight"].any()
    assert not any(p.requires_grad for p in params["classifier"].values())


def test_a_loss_that_depends_on_nothing_moves_nothing():
    with torch.no_grad():
        grads, (value, _) = _plainly(lambda params: (torch.tensor(2.0), {}), {"classifier": {"a": torch.ones(2)}})
    assert (grads["classifier"]["a"].tolist(), value.item()) == ([0, 0], 2)
