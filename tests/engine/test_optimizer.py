"""Adam on a stack against PyTorch's own optimiser on one replica at a time, in float64."""

import pytest
import torch

from threefold.engine import optimizer as optimizer_module
from threefold.engine.optimizer import Adam, Beside, Pull, advance, corrections, pulled

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


def leashed(seed, path=True):
    """A leash of its own for every tensor, with a strength for each replica, and a path."""
    source = torch.Generator().manual_seed(seed)
    strength = torch.rand(4, generator=source)
    beside = []
    for p in draws(seed):
        pull = Pull(strength.view(-1, *[1] * (p.dim() - 1)), torch.randn_like(p), torch.rand_like(p))
        beside.append(Beside([pull], [torch.zeros_like(p)] if path else []))
    return strength, beside


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
@pytest.mark.parametrize("lr", RATES.values(), ids=RATES)
def test_a_leash_is_a_quadratic_penalty_and_a_path_sums_up_what_the_steps_did(lr, at_once, monkeypatch):
    """Against autograd of the written-out penalty, PyTorch's optimiser and a loop, in float64."""
    monkeypatch.setattr(optimizer_module, "_fused", lambda: (corrections, advance))  # nothing to compile with here
    params, grads = draws(1), draws(2, 12)
    strength, beside = leashed(3)
    expected, paths = [], []
    for replica, rate in enumerate(lr):
        own = [torch.nn.Parameter(p[replica].double()) for p in params]
        summed = [torch.zeros_like(p) for p in own]
        reference = torch.optim.Adam(own, lr=rate, foreach=False)
        for step in range(12):
            reference.zero_grad()
            loss = 0
            for p, g, b in zip(own, grads, beside, strict=True):
                away = p - b.pulls[0].anchor[replica].double()
                penalty = 0.5 * strength[replica].double() * (b.pulls[0].precision[replica].double() * away**2).sum()
                loss = loss + (p * g[step, replica].double()).sum() + penalty
            loss.backward()
            before = [p.detach().clone() for p in own]
            reference.step()
            for total, p, old in zip(summed, own, before, strict=True):
                total -= (p.detach() - old) * p.grad
        expected.append([p.detach() for p in own])
        paths.append(summed)
    optimizer = Adam(params, lr)
    optimizer.compiles = at_once
    for step in range(12):
        optimizer.step([g[step] for g in grads], beside)
    for place, (got, also) in enumerate(zip(params, beside, strict=True)):
        wanted = torch.stack([row[place] for row in expected])
        assert (got.double() - wanted).abs().max() < 2e-6
        summed = torch.stack([row[place] for row in paths])
        assert (also.paths[0].double() - summed).abs().max() < 1e-5
        assert summed.abs().flatten(1).amax(1).min() > 1e-3


def test_without_a_compiler_the_optimiser_goes_on_in_its_slower_form(monkeypatch):
    def broken(*_):
        raise RuntimeError("no C compiler found")

    monkeypatch.setattr(optimizer_module, "_fused", lambda: (broken, broken))
    params, grads = draws(1), draws(2, 3)
    optimizer = Adam(params, RATES["one rate"])
    optimizer.compiles = True
    with pytest.warns(UserWarning, match="slower one is used .no C compiler found."):
        optimizer.step([g[0] for g in grads])
    other = draws(1)
    Adam(other, RATES["one rate"]).step([g[0] for g in grads])
    assert all(torch.equal(mine, wanted) for mine, wanted in zip(params, other, strict=True))


def test_the_whole_gradient_is_given_to_those_who_ask(monkeypatch):
    monkeypatch.setattr(optimizer_module, "_fused", lambda: (corrections, advance))
    params, grads = draws(1), draws(2)
    _, beside = leashed(3, path=False)
    expected = [pulled(p.double(), g.double(), b.pulls) for p, g, b in zip(params, grads, beside, strict=True)]
    optimizer = Adam(params, RATES["one rate"])
    optimizer.compiles = True
    for got, wanted in zip(optimizer.step(grads, beside, whole=True), expected, strict=True):
        assert (got.double() - wanted).abs().max() < 1e-5


def test_a_step_is_never_taken_twice(monkeypatch):
    """A kernel that fails when some weights have moved is an error; moving them all again would be worse."""
    calls = []

    def second_fails(*args):
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("no kernel for this kind")
        advance(*args)

    monkeypatch.setattr(optimizer_module, "_fused", lambda: (corrections, second_fails))
    optimizer = Adam(draws(1), RATES["one rate"])
    optimizer.compiles = True
    with pytest.raises(RuntimeError, match="no kernel"):
        optimizer.step(draws(2))
