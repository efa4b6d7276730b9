"""Adam on a stack against PyTorch's own optimiser on one replica at a time, in float64."""

import pytest
import torch

from threefold.engine.optimizer import Adam

RATES = {"one rate": [1e-3] * 4, "two in a row": [1e-3, 1e-3, 5e-2, 1e-2], "in turns": [1e-3, 1e-1, 1e-3, 1e-1]}
SHAPES = [(5, 3), (5,), (2, 4, 2)]


def draws(seed, *lead):
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(*lead, 4, *shape, generator=source) for shape in SHAPES]


def apart(params, lr, grads):
    """Each replica with an optimiser of its own."""
    rows = []
    for replica, rate in enumerate(lr):
        own = [torch.nn.Parameter(p[replica].double()) for p in params]
        optimizer = torch.optim.Adam(own, lr=rate, foreach=False)
        for step in range(grads[0].shape[0]):
            for parameter, grad in zip(own, grads, strict=True):
                parameter.grad = grad[step, replica].double()
            optimizer.step()
        rows.append([p.detach() for p in own])
    return [torch.stack(tensors) for tensors in zip(*rows, strict=True)]


@pytest.mark.parametrize("lr", RATES.values(), ids=RATES)
def test_a_stack_is_its_replicas_each_with_its_own_optimiser(lr):
    params, grads = draws(1), draws(2, 12)
    expected = apart(params, lr, grads)
    optimizer = Adam(params, lr)
    for step in range(12):
        optimizer.step([g[step] for g in grads])
    for got, wanted, start in zip(params, expected, draws(1), strict=True):
        assert (got.double() - wanted).abs().max() < 2e-6  # parameters of size 1 in float32
        assert (wanted - start.double()).abs().flatten(1).amax(1).min() > 2e-3


@pytest.mark.parametrize("lr", RATES.values(), ids=RATES)
def test_a_restored_optimiser_goes_on_as_if_nothing_had_happened(lr):
    grads = draws(2, 12)

    def steps(optimizer, which):
        for step in which:
            optimizer.step([g[step] for g in grads])

    undisturbed = draws(1)
    steps(Adam(undisturbed, lr), range(12))
    halfway = draws(1)
    first = Adam(halfway, lr)
    steps(first, range(5))
    state = {name: [t.clone() for t in tensors] for name, tensors in first.state().items()}
    second = Adam(halfway, lr)
    second.restore(state)
    steps(second, range(5, 12))
    for got, wanted in zip(halfway, undisturbed, strict=True):
        assert torch.equal(got, wanted)
