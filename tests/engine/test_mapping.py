"""A function of one network for all replicas: vmap, one by one, and a plain loop give the same result."""

from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad

from threefold.engine.mapping import OneByOne, mapped

REPLICAS = 3
CPU = torch.device("cpu")
WAYS = {"mapped": mapped, "one by one": OneByOne(REPLICAS, CPU)}


class Given(NamedTuple):
    params: dict[str, torch.Tensor]
    x: torch.Tensor
    scale: torch.Tensor  # the same for all
    more: tuple[dict[str, torch.Tensor], ...]


AXES = Given(0, 0, None, 0)
NET = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def given():
    source = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.rand(*shape, generator=source, dtype=torch.float64)

    params = {name: drawn(REPLICAS, *p.shape) for name, p in NET.named_parameters()}
    return Given(params, drawn(REPLICAS, 6, 4), drawn(2), ({"a": drawn(REPLICAS, 2)}, {"b": drawn(REPLICAS)}))


def gradient(given, factor, name):
    """The gradient of a network, with arguments of all kinds; results of several shapes, in a tree."""

    def loss(params):
        logits = functional_call(NET, params, (given.x,)) * given.scale * given.more[0]["a"]
        return (logits.sum() * given.more[1]["b"] * factor) ** 2

    return {name: grad(loss)(given.params), "rest": (loss(given.params), given.x.argmax(-1))}


def by_loop(given, factor):
    rows = []
    for r in range(REPLICAS):
        leaves = {name: p[r].clone().requires_grad_() for name, p in given.params.items()}
        h = torch.tanh(given.x[r] @ leaves["0.weight"].T + leaves["0.bias"])
        logits = (h @ leaves["2.weight"].T + leaves["2.bias"]) * given.scale * given.more[0]["a"][r]
        loss = (logits.sum() * given.more[1]["b"][r] * factor[r]) ** 2
        rows.append((dict(zip(leaves, torch.autograd.grad(loss, leaves.values()), strict=True)), loss.detach()))
    grads = {name: torch.stack([row[name] for row, _ in rows]) for name in rows[0][0]}
    return grads, torch.stack([loss for _, loss in rows])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_it_is_the_plain_loop(way):
    factor = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found = way(gradient, (AXES, 0, None), given(), factor, "grads")
    grads, losses = by_loop(given(), factor)
    assert found.keys() == {"grads", "rest"}
    assert found["grads"].keys() == grads.keys()
    for name, wanted in grads.items():
        assert found["grads"][name].shape == wanted.shape
        assert torch.allclose(found["grads"][name], wanted, rtol=1e-12, atol=0)
    assert torch.allclose(found["rest"][0], losses, rtol=1e-12, atol=0)
    assert torch.equal(found["rest"][1], given().x.argmax(-1))
    assert len(losses.unique()) == REPLICAS


def test_one_by_one_gives_each_network_its_slice_as_it_is():
    """A function may look at values then, which a mapped one may not."""
    seen = []

    def function(x, tree, whole):
        seen.append((x.item(), tree["a"].tolist(), whole))
        return x if x > 1 else -x

    x, tree, whole = torch.tensor([1.0, 2.0, 3.0]), {"a": torch.arange(6).view(3, 2)}, object()
    assert OneByOne(REPLICAS, CPU)(function, (0, 0, None), x, tree, whole).tolist() == [-1, 2, 3]
    assert seen == [(1.0, [0, 1], whole), (2.0, [2, 3], whole), (3.0, [4, 5], whole)]


def test_one_by_one_keeps_the_kind_of_a_named_tuple():
    kinds = []

    def function(given):
        kinds.append(type(given))
        return given.x.sum()

    OneByOne(REPLICAS, CPU)(function, (AXES,), given())
    assert kinds == [Given] * REPLICAS
