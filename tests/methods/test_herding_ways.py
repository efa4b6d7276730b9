"""However herding is computed, in groups, one by one or by the kernel, it is the paper's."""

import os
from importlib import import_module

import pytest
import torch
from test_herding import distances

from threefold.methods import herding


@pytest.mark.parametrize("count", [1, 3, 8])
def test_herding_in_groups_or_one_by_one_is_herding(count, monkeypatch):
    found, real = torch.rand(5, 9, 4, generator=torch.Generator().manual_seed(0)), torch.ones(5, 9, dtype=torch.bool)
    real[1, 7:] = False
    real[3, 8:] = False
    count = min(count, 7)
    chosen, sizes, by_products = {}, [], herding._by_products

    def watched(products, *others):
        sizes.append(products.numel())
        return by_products(products, *others)

    monkeypatch.setattr(herding, "_by_products", watched)
    for few, products in ((0, 10**9), (100, 10**9), (100, 2 * 81), (100, 81), (100, 80)):
        monkeypatch.setattr(herding, "FEW", {"cpu": few})
        monkeypatch.setattr(herding, "PRODUCTS", products)
        sizes.clear()
        chosen[few, products] = herding._herd(found, real, count)
        assert max(sizes, default=0) <= products  # never more at once
        assert bool(sizes) == (few > 0 and products >= 81)
    first, *others = chosen.values()
    assert all(torch.equal(first, other) for other in others)


@pytest.fixture
def kernel():
    """Without a GPU, Triton's interpreter runs the kernel."""
    pytest.importorskip("triton")  # there is none for some platforms
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setitem(os.environ, "TRITON_INTERPRET", "1")
        yield import_module("threefold.methods.herding_kernel")


def given_to_the_kernel(found, real):
    """What `herd` hands on, in float64: products, and the cost of being the first choice."""
    found = found.double() * real.unsqueeze(-1)
    towards = (found @ (found.sum(1) / real.sum(1, keepdim=True)).unsqueeze(-1)).squeeze(-1)
    cost = torch.where(real, (found**2).sum(-1) - 2 * towards, torch.inf)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [each.to(device) for each in (found @ found.mT, cost, towards)]


@pytest.mark.parametrize("samples", [1, 2, 9, 64, 65])
def test_the_kernels_choices_are_the_papers(samples, kernel):
    found = torch.rand(3, samples, 5, generator=torch.Generator().manual_seed(samples))
    real = torch.ones(3, samples, dtype=torch.bool)
    real[1, samples - samples // 3 :] = False
    chosen = kernel.choose(*given_to_the_kernel(found, real), samples).tolist()
    for row, values, size in zip(chosen, found.double().numpy(), real.sum(1).tolist(), strict=True):
        assert sorted(row[:size]) == list(range(size))
        for n, pick in enumerate(row[:size]):
            left = distances(values[:size], row[:n])
            assert left[pick] <= min(left.values()) + 1e-12


def test_the_kernel_chooses_samples_even_among_what_is_not_a_number(kernel):
    """A network may have diverged; its choices mean nothing, but are places in the data all the same."""
    products, cost, towards = given_to_the_kernel(torch.rand(2, 5, 3), torch.ones(2, 5, dtype=torch.bool))
    for each in (products, cost, towards):
        each[0] = torch.nan
    chosen = kernel.choose(products, cost, towards, 5)
    assert set(chosen[0].tolist()) <= set(range(5))
    assert sorted(chosen[1].tolist()) == list(range(5))


def test_without_a_compiler_herding_goes_on_one_by_one(monkeypatch):
    def broken():
        raise RuntimeError("no C compiler found")

    monkeypatch.setattr(herding, "_kernel", broken)
    with pytest.warns(UserWarning, match="takes longer .no C compiler found."):
        assert herding._at_once(torch.rand(1, 3, 3), torch.rand(1, 3), torch.rand(1, 3), 2) is None
