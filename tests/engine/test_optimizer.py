"""Adam on a stack against PyTorch's own optimiser on one replica at a time, in float64."""

import os

import pytest
import torch

from threefold.engine import optimizer as optimizer_module
from threefold.engine.optimizer import Adam, AdamW, Pull, StackedAdam, WeightTerms, pulled

pytest.importorskip("triton")  # there is none for some platforms
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

RATES = {"one rate": [1e-3] * 4, "two in a row": [1e-3, 1e-3, 5e-2, 1e-2], "in turns": [1e-3, 1e-1, 1e-3, 1e-1]}
SHAPES = [(5, 3), (5,), (2, 4, 2), (3, 700)]  # the last is more than one program's share


@pytest.fixture(scope="module", autouse=True)
def interpreted():
    """Without a GPU, Triton's interpreter runs the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            patch.setitem(os.environ, "TRITON_INTERPRET", "1")
        import threefold.engine.adam_kernel  # noqa: F401

        yield


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(1)


def draws(seed, *lead):
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(*lead, 4, *shape, generator=source).to(DEVICE) for shape in SHAPES]


def stacked(params, lr):
    return StackedAdam(params, [Adam(lr=rate) for rate in lr])


@pytest.mark.parametrize("lr", RATES.values(), ids=RATES)
def test_a_restored_optimiser_goes_on_as_if_nothing_had_happened(lr):
    grads = draws(2, 12)

    def steps(optimizer, which):
        for step in which:
            optimizer.step([g[step] for g in grads])

    undisturbed = draws(1)
    steps(stacked(undisturbed, lr), range(12))
    halfway = draws(1)
    first = stacked(halfway, lr)
    steps(first, range(5))
    state = {name: [t.clone() for t in tensors] for name, tensors in first.state().items()}
    second = stacked(halfway, lr)
    second.restore(state)
    steps(second, range(5, 12))
    for got, wanted in zip(halfway, undisturbed, strict=True):
        assert torch.equal(got, wanted)


def penalties(seed, path=True):
    """A penalty of its own for every tensor, with a strength for each replica, and a path."""
    source = torch.Generator().manual_seed(seed)
    strength = torch.rand(4, generator=source).to(DEVICE)
    terms = []
    for p in draws(seed):
        pull = Pull(strength.view(-1, *[1] * (p.dim() - 1)), torch.randn_like(p), torch.rand_like(p))
        terms.append(WeightTerms([pull], [torch.zeros_like(p)] if path else []))
    return terms


def penalty(pull, p, replica):
    """½ · strength · Σ precision (θ − anchor)², of one replica."""
    strength, anchor, precision = (each[replica].double() for each in pull)
    return 0.5 * (strength * precision * (p - anchor) ** 2).sum()


def apart(params, lr, grads, terms):
    """Each replica with an optimiser of its own; and for each parameter the sum of −Δθ · ∂L/∂θ."""
    rows = []
    for replica, rate in enumerate(lr):
        own = [torch.nn.Parameter(p[replica].double()) for p in params]
        summed = [torch.zeros_like(p) for p in own]
        optimizer = torch.optim.Adam(own, lr=rate, foreach=False)
        for step in range(grads[0].shape[0]):
            loss = sum((p * g[step, replica].double()).sum() for p, g in zip(own, grads, strict=True))
            for p, also in zip(own, terms, strict=True):
                loss = loss + sum(penalty(pull, p, replica) for pull in also.pulls)
            optimizer.zero_grad()
            loss.backward()
            before = [p.detach().clone() for p in own]
            optimizer.step()
            for total, p, old in zip(summed, own, before, strict=True):
                total -= (p.detach() - old) * p.grad
        rows.append([*(p.detach() for p in own), *summed])
    stacked = [torch.stack(tensors) for tensors in zip(*rows, strict=True)]
    return stacked[: len(params)], stacked[len(params) :]


@pytest.mark.parametrize("at_once", [False, True], ids=["in turn", "at once"])
@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("lr", RATES.values(), ids=RATES)
def test_a_stack_is_its_replicas_each_with_its_own_optimiser(lr, held, at_once):
    """Against autograd of the written-out penalty, PyTorch's optimiser and a loop, in float64."""
    params, grads = draws(1), draws(2, 12)
    terms = penalties(3) if held else [WeightTerms()] * len(params)
    expected, paths = apart(params, lr, grads, terms)
    optimizer = stacked(params, lr)
    optimizer.at_once = at_once
    for step in range(12):
        optimizer.step([g[step] for g in grads], terms if held else None)
    for got, wanted, start in zip(params, expected, draws(1), strict=True):
        assert (got.double() - wanted).abs().max() < 2e-6  # parameters of size 1 in float32
        assert (wanted - start.double()).abs().flatten(1).amax(1).min() > 2e-3
    for also, summed in zip(terms, paths, strict=True):
        for path in also.paths:
            assert (path.double() - summed).abs().max() < 1e-5
            assert summed.abs().flatten(1).amax(1).min() > 1e-3
    assert optimizer.at_once == at_once  # the kernel was not given up


def test_gradients_and_penalties_may_lie_in_memory_as_they_like():
    params, grads = draws(1), draws(2)
    turned = [g.mT.contiguous().mT if g.dim() > 2 else g for g in grads]
    assert not all(g.is_contiguous() for g in turned)
    strength = torch.rand(1, device=DEVICE).expand(4)
    wide = [
        WeightTerms(
            [Pull(strength.view(-1, *[1] * (p.dim() - 1)), torch.zeros((), device=DEVICE).expand_as(p), p.abs())]
        )
        for p in draws(1)
    ]
    other = draws(1)
    for chosen, at_once in ((params, True), (other, False)):
        optimizer = stacked(chosen, RATES["in turns"])
        optimizer.at_once = at_once
        optimizer.step(turned, wide)
    for got, wanted in zip(params, other, strict=True):
        assert (got - wanted).abs().max() < 1e-6


def test_so_may_paths():
    grads, summed = draws(2), []
    for at_once in (True, False):
        wide = [torch.zeros(*p.shape, 2, device=DEVICE) for p in grads]
        optimizer = stacked(draws(1), RATES["in turns"])
        optimizer.at_once = at_once
        optimizer.step(grads, [WeightTerms(paths=[path[..., 1]]) for path in wide])
        assert all(path[..., 0].abs().max() == 0 < path[..., 1].abs().min() for path in wide)
        summed.append(wide)
    for got, wanted in zip(*summed, strict=True):
        assert (got - wanted).abs().max() < 1e-6


def test_two_penalties_on_one_weight_both_pull():
    params, grads = draws(1), draws(2)
    both = [
        WeightTerms([*a.pulls, *b.pulls])
        for a, b in zip(penalties(3, path=False), penalties(4, path=False), strict=True)
    ]
    expected, _ = apart(params, RATES["in turns"], [g.unsqueeze(0) for g in grads], both)
    optimizer = stacked(params, RATES["in turns"])
    optimizer.at_once = True
    optimizer.step(grads, both)
    for got, wanted in zip(params, expected, strict=True):
        assert (got - wanted).abs().max() < 1e-6


def test_without_triton_the_optimiser_goes_on_in_its_slower_form(monkeypatch):
    def broken():
        raise RuntimeError("no C compiler found")

    monkeypatch.setattr(optimizer_module, "_kernel", broken)
    params, grads = draws(1), draws(2, 3)
    optimizer = stacked(params, RATES["one rate"])
    optimizer.at_once = True
    with pytest.warns(UserWarning, match="slower one is used .no C compiler found."):
        optimizer.step([g[0] for g in grads])
    other = draws(1)
    plain = stacked(other, RATES["one rate"])
    plain.at_once = False
    plain.step([g[0] for g in grads])
    assert all(torch.equal(mine, wanted) for mine, wanted in zip(params, other, strict=True))


def test_the_whole_gradient_is_given_to_those_who_ask():
    params, grads = draws(1), draws(2)
    terms = penalties(3, path=False)
    expected = [pulled(p.double(), g.double(), b.pulls) for p, g, b in zip(params, grads, terms, strict=True)]
    optimizer = stacked(params, RATES["one rate"])
    optimizer.at_once = True
    for got, wanted in zip(optimizer.step(grads, terms, whole=True), expected, strict=True):
        assert (got.double() - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("held", [(0, 2, 3), (1,), (0, 1, 3)])
@pytest.mark.parametrize("summed", [(), (1, 2), (0, 1, 2, 3)])
def test_neighbours_that_are_pulled_or_summed_otherwise_move_by_themselves(held, summed):
    """The kernel moves two tensors at a launch, if they are alike: which they need not be."""
    found = {}
    full = penalties(3)
    for at_once in (False, True):
        params, grads = draws(1), draws(2, 3)
        terms = [
            WeightTerms(
                also.pulls if place in held else [], [torch.zeros_like(p) for p in also.paths if place in summed]
            )
            for place, also in enumerate(full)
        ]
        optimizer = stacked(params, RATES["in turns"])
        optimizer.at_once = at_once
        for step in range(3):
            optimizer.step([g[step] for g in grads], terms)
        found[at_once] = [*params, *(path for also in terms for path in also.paths)]
        assert optimizer.at_once == at_once
    for got, wanted in zip(found[True], found[False], strict=True):
        assert (got - wanted).abs().max() < 2e-6


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_weights_shrink_beside_the_kernel_as_they_do_without(held):
    """AdamW's decay. A penalty is one on the weights before it, and a path counts it too."""
    found, full = {}, penalties(3)
    each = [AdamW(lr=rate, weight_decay=decay) for rate, decay in zip(RATES["in turns"], (0, 0.5, 2, 0.1), strict=True)]
    for at_once in (False, True):
        params, grads = draws(1), draws(2, 3)
        terms = [also._replace(paths=[torch.zeros_like(p) for p in also.paths]) for also in full] if held else None
        optimizer = StackedAdam(params, each)
        optimizer.at_once = at_once
        for step in range(3):
            optimizer.step([g[step] for g in grads], terms)
        found[at_once] = [*params, *(also.paths[0] for also in terms or [])]
        assert optimizer.at_once == at_once
    for got, wanted in zip(found[True], found[False], strict=True):
        assert (got - wanted).abs().max() < 2e-6
