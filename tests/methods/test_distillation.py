"""The distillation loss against equation 3 written out, class by class (section A.1.2)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_network import competing
from tiny_stack import SCENARIOS

from threefold.methods.losses import distillation as of_each_sample

CLASSES, TASKS = 2, 3
UNITS = {"task": 6, "domain": 2, "class": 6}


def distillation(*args):
    return of_each_sample(*args).mean()


def sums(scores, soft, units, temperature):
    """−T² Σ_c ỹ_c log p^T(c) for one sample, over the active units only."""
    total = sum(math.exp(scores[u] / temperature) for u in units)
    chances = {u: math.exp(scores[u] / temperature) / total for u in units}
    return -(temperature**2) * sum(soft[u] * math.log(chances[u]) for u in units)


def sums_in_logs(scores, soft, units, temperature):
    """The same where exponentials would overflow: log p^T(c) = s_c/T − log Σ exp(s/T), the largest s taken out."""
    top = max(scores[u] for u in units) / temperature
    whole = top + math.log(sum(math.exp(scores[u] / temperature - top) for u in units))
    return -(temperature**2) * sum(soft[u] * (scores[u] / temperature - whole) for u in units)


def case(scenario, seen=3, samples=7, seed=0):
    """Logits, soft targets over the units of earlier tasks (zero for all others), and each sample's active units."""
    source = torch.Generator().manual_seed(seed)
    units = UNITS[scenario]
    scores = torch.randn(samples, units, generator=source) * 3
    soft, active = torch.zeros(samples, units), torch.zeros(samples, units, dtype=torch.bool)
    for i in range(samples):
        task = i % (seen - 1)
        taught = competing(scenario, task, seen - 1, CLASSES)
        soft[i, taught] = torch.softmax(torch.randn(len(taught), generator=source), 0)
        active[i, competing(scenario, task, seen, CLASSES)] = True
    return scores, soft, active


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.5])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_is_the_equation(scenario, reduction, temperature):
    scores, soft, active = case(scenario)
    expected = []
    for row, targets, mask in zip(scores.tolist(), soft.tolist(), active.tolist(), strict=True):
        units = [u for u in range(UNITS[scenario]) if mask[u]]
        expected.append(sums(row, targets, units, temperature) / (len(units) if reduction == "mean" else 1))
    got = distillation(scores, soft, active, temperature, reduction)
    assert float(got) == pytest.approx(sum(expected) / len(expected), rel=1e-12)


def test_in_class_il_new_classes_have_no_probability_but_count_in_the_mean():
    scores, soft, active = case("class")
    assert (soft[:, 4:] == 0).all()
    assert active.all()
    ratio = distillation(scores, soft, active, 2.0, "sum") / distillation(scores, soft, active, 2.0, "mean")
    assert float(ratio) == pytest.approx(6)


def numeric(scores, soft, active, temperature, reduction, step=1e-6):
    """The gradient by differences."""
    grad = torch.zeros_like(scores)
    for place in range(scores.numel()):
        pair = []
        for sign in (1, -1):
            moved = scores.clone()
            moved.view(-1)[place] += sign * step
            pair.append(distillation(moved, soft, active, temperature, reduction))
        grad.view(-1)[place] = (pair[0] - pair[1]) / (2 * step)
    return grad


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_its_gradient_is_t_times_the_difference_of_the_probabilities(scenario, reduction):
    scores, soft, active = case(scenario)
    scores.requires_grad_()
    (grad,) = torch.autograd.grad(distillation(scores, soft, active, 2.0, reduction), scores)
    assert grad.isfinite().all()
    assert (grad[~active] == 0).all()
    matched = torch.softmax(torch.where(active, scores / 2, -torch.inf), -1)
    share = active.sum(-1, keepdim=True) if reduction == "mean" else 1
    assert torch.allclose(grad, 2.0 * (matched - soft) / share / len(scores), atol=1e-12)
    assert torch.allclose(grad, numeric(scores.detach(), soft, active, 2.0, reduction), atol=1e-7)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4), min_size=6, max_size=6),
    st.sampled_from(["task", "class"]),
    st.sampled_from(["sum", "mean"]),
    st.floats(0.1, 100),
)
def test_it_is_never_nan_whatever_the_logits_of_inactive_units(values, scenario, reduction, temperature):
    _, soft, active = case(scenario, seen=2, samples=1)
    scores = torch.tensor([values]).requires_grad_()
    loss = distillation(scores, soft, active, temperature, reduction)
    (grad,) = torch.autograd.grad(loss, scores)
    each = sums_in_logs(values, soft[0].tolist(), [u for u in range(6) if active[0, u]], temperature)
    expected = each / (float(active.sum()) if reduction == "mean" else 1)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert grad.isfinite().all()
    other = torch.where(active, scores.detach(), scores.detach() + 17)
    assert float(distillation(other, soft, active, temperature, reduction)) == float(loss.detach())


def test_it_is_least_where_the_probabilities_match():
    scores, _, active = case("class")
    soft = torch.softmax(scores / 2, -1)
    least = distillation(scores, soft, active, 2.0, "sum")
    entropy = -4 * (soft * soft.log()).sum(-1).mean()
    assert float(least) == pytest.approx(float(entropy))
    for seed in range(5):
        other = scores + torch.randn(scores.shape, generator=torch.Generator().manual_seed(seed))
        assert distillation(other, soft, active, 2.0, "sum") > least
