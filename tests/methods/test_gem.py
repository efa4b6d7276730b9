"""GEM against scipy's solution of its quadratic programme, and a gradient for each task (Lopez-Paz & Ranzato 2017)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_network import competing, cross_entropy, gradient, logits
from scipy.optimize import nnls
from tiny_cohorts import furthest, of
from tiny_stack import SCENARIOS, TinyStack, setting_of

from threefold.methods import GEM, parse
from threefold.methods.gem import nearest


def projected(references, g, margin):
    """g + Gᵀv, with v ≥ margin so that it is as short as can be: least squares with bounds (its equation 11)."""
    if (references @ g >= 0).all():
        return g
    least = g + margin * references.sum(0)
    v, _ = nnls(references.T, -least, maxiter=100 * len(references))
    return least + v @ references


def solved(references, g, margin):
    gram, along = torch.tensor(references @ references.T), torch.tensor(references @ g)
    v = nearest(gram, along, torch.tensor(float(margin))).numpy()
    assert (v >= margin).all()
    return g + v @ references


def drawn(kind, tasks, seed):
    """Gradients of earlier tasks and of this one: at random, nearly alike, in a space of three, all against it."""
    rng = np.random.default_rng(seed)
    references, g = rng.normal(size=(tasks, 60)), rng.normal(size=60)
    if kind == "alike":
        references = 0.1 * references + rng.normal(size=60)
    elif kind == "flat":
        references = rng.normal(size=(tasks, 3)) @ rng.normal(size=(3, 60)) + 1e-3 * references
    elif kind == "against":
        references = references + rng.normal(size=60)
        g = g - 2 * references.mean(0)
    return references * 10.0 ** rng.uniform(-3, 3, (tasks, 1)), g


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["random", "alike", "flat", "against"]),
    st.integers(1, 24),
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.5]),
)
def test_the_projection_is_scipys(kind, tasks, seed, margin):
    references, g = drawn(kind, tasks, seed)
    if (references @ g >= 0).all():
        return
    found, expected = solved(references, g, margin), projected(references, g, margin)
    size = max(np.linalg.norm(expected), np.linalg.norm(g))
    assert np.linalg.norm(found - expected) < 1e-5 * size
    assert (references @ found >= -1e-5 * np.linalg.norm(references, axis=1) * size).all()
    if not margin:
        assert np.linalg.norm(found) <= np.linalg.norm(g) * (1 + 1e-9)


def test_with_one_task_it_is_a_gems_formula():
    references, g = drawn("against", 1, 3)
    r = references[0]
    assert g @ r < 0
    assert np.allclose(solved(references, g, 0), g - (g @ r) / (r @ r) * r, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_gradients_and_none_at_all_are_no_trouble(dtype):
    """Stored data that are fitted perfectly have no gradient; those of two tasks may have the same."""
    r = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=dtype)
    references, g = torch.stack([r, torch.zeros_like(r), r]), -3 * r
    v = nearest(references @ references.T, references @ g, torch.tensor(0.0)).to(dtype)
    assert v.isfinite().all()
    assert (g + v @ references).abs().max() < 1e-4


def plain_loss(tiny, replica, indices, tasks):
    units = [competing(tiny.scenario, task, tiny.task + 1, tiny.classes) for task in tasks]
    x = torch.stack([tiny.inputs(replica, index, task) for index, task in zip(indices, tasks, strict=True)])
    labels = [tiny.label(replica, index, task) for index, task in zip(indices, tasks, strict=True)]
    first = [task * tiny.classes if tiny.scenario in ("task", "class") else 0 for task in tasks]
    right = [label + unit for label, unit in zip(labels, first, strict=True)]

    def loss(params):
        rows = [logits(params, row, tiny.gates(replica, task)) for row, task in zip(x, tasks, strict=True)]
        return cross_entropy(torch.stack(rows), units, right)

    return loss


def flat(tree):
    return np.concatenate([leaf.detach().numpy().ravel() for leaf in tree.values()])


@pytest.mark.parametrize("budget", [30, 300])
@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_steps_follow_the_projected_gradient(scenario, budget):
    """In training: a gradient for each earlier task, on all that is stored of it, however much that is.

    The budget of 300 is more than there is: then all is stored, and classes differ in their number.
    """
    also = "+xdg:share=0.3" if scenario == "hidden" else ""
    methods = [f"gem:budget={budget},margin={margin}{also}" for margin in (0, 0.5, 2)]
    tiny = TinyStack("few", scenario, methods, lr=5e-2).reach(2)
    changed = 0
    for batch, drawn in list(tiny.draws(4)):
        _, grads = tiny.gradients(batch, drawn)
        for replica, margin in enumerate((0, 0.5, 2)):
            params, held = of(tiny.params["classifier"], replica), tiny.held(replica)
            own = [held[task * tiny.classes : (task + 1) * tiny.classes] for task in range(2)]
            stored = [[index for row in rows for index in row] for rows in own]
            losses = [plain_loss(tiny, replica, own, [task] * len(own)) for task, own in enumerate(stored)]
            each = [gradient(loss, params)[1] for loss in losses]
            indices = batch.indices[replica].tolist()
            _, g = gradient(plain_loss(tiny, replica, indices, [2] * len(indices)), params)
            g, references = flat(g), np.stack([flat(one) for one in each])
            expected = projected(references, g, margin)
            found = flat(of(grads["classifier"], replica))
            assert np.linalg.norm(found - expected) < 1e-7 * np.linalg.norm(expected)
            changed += not np.array_equal(expected, g)
        with torch.no_grad():
            tiny.step.take(batch, drawn)
    assert changed > 0 or scenario in ("task", "hidden")


def test_the_first_task_is_plain_training():
    ours, plain = TinyStack("split", "class", "gem:budget=30"), TinyStack("split", "class", "none")
    for tiny in (ours, plain):
        tiny.train()
    assert furthest(ours.params, plain.params) == 0


def test_it_needs_the_end_of_a_task():
    assert "in this stream none does" in parse("gem").refuse(setting_of("class", tasks_end=False))
    assert "budget of gem must be at least 6" in parse("gem:budget=5").refuse(setting_of("class"))
    assert (GEM().margin, GEM().selection) == (0.5, "random")
