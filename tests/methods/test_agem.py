"""A-GEM's projection against numpy, and the gradients it is made of (Chaudhry et al. 2019, equation 11)."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_lab import (
    SCENARIOS,
    Lab,
    competing,
    cross_entropy,
    furthest,
    gradient,
    logits,
    of,
    outputs_of,
    setting_of,
    stored_in,
)

from threefold.methods import AGEM
from threefold.methods.part import Batch, Learner, Now
from threefold.nets import MLP, initial_params


def flat(tree):
    return np.concatenate([leaf.detach().numpy().ravel() for leaf in tree.values()])


def projected(g, r):
    """g − (g·r / r·r) r where g·r < 0, else g."""
    along = float(np.dot(g, r))
    return g if along >= 0 else g - along / float(np.dot(r, r)) * r


def adjusted(grads, learner, stored):
    """A-GEM's work, by whatever name it draws stored samples."""
    part, nothing = AGEM(budget=10), {"stored": torch.zeros(6, 1).long(), "count": torch.ones(6).long()}
    (name,) = part.draws(setting_of("class"), 0, 1, nothing, 1)
    return part.adjust(grads, learner, {name: stored})


class Small:
    """One network in its second task, with a stored batch of the first."""

    def __init__(self):
        net = MLP(4, 3, 6)
        self.params = initial_params(net, torch.Generator().manual_seed(0))
        outputs = outputs_of("split", "class")
        now = Now.at(1, outputs.table(2), outputs.table(1))
        part = AGEM(budget=10)
        self.learner = Learner({"classifier": net}, outputs, [part], {"classifier": self.params}, {"a-gem": {}}, now)
        source = torch.Generator().manual_seed(1)
        self.stored = Batch(torch.rand(5, 4, generator=source), torch.tensor([0, 1, 1, 0, 1]), torch.zeros(5).long())
        units = [[0, 1, 2, 3]] * 5
        _, self.reference = gradient(
            lambda p: cross_entropy(logits(p, self.stored.x), units, self.stored.y), self.params
        )

    def adjusted(self, grads):
        return adjusted(grads, self.learner, self.stored)

    def grads(self, along, seed):
        """A random gradient plus so much of the reference."""
        source = torch.Generator().manual_seed(seed)
        return {n: torch.randn(r.shape, generator=source) * 0.1 + along * r for n, r in self.reference.items()}


@cache
def small():
    """Made inside a test, where the default is float64."""
    return Small()


@settings(max_examples=60, deadline=None)
@given(st.floats(-50, 50), st.integers(0, 10_000))
def test_the_projection_is_the_formula(along, seed):
    lab = small()
    grads = lab.grads(along, seed)
    got, g, r = flat(lab.adjusted(grads)), flat(grads), flat(lab.reference)
    assert np.allclose(got, projected(g, r), rtol=0, atol=1e-12)
    assert got @ r >= -1e-12 * np.linalg.norm(g) * np.linalg.norm(r)
    if g @ r >= 0:
        assert np.array_equal(got, g)
    else:
        assert np.linalg.norm(got) <= np.linalg.norm(g)


def test_both_cases_occur():
    lab = small()
    signs = {bool(flat(lab.grads(along, 0)) @ flat(lab.reference) >= 0) for along in (-5.0, 5.0)}
    assert signs == {True, False}


def test_a_gradient_straight_against_the_reference_becomes_nothing():
    lab = small()
    opposed = {name: -3 * r for name, r in lab.reference.items()}
    assert np.abs(flat(lab.adjusted(opposed))).max() < 1e-14


def test_a_reference_of_nothing_changes_nothing():
    """Stored data that are fitted perfectly have no gradient: nothing to divide by."""
    lab = Small()
    sure = {name: torch.zeros_like(p) for name, p in lab.params.items()}
    sure["output.shift.bias"] = torch.tensor([2000.0, 0, 0, 0, 0, 0])
    learner = Learner(
        lab.learner.nets, lab.learner.outputs, lab.learner.parts, {"classifier": sure}, {"a-gem": {}}, lab.learner.now
    )
    grads = lab.grads(0.0, 3)
    stored = lab.stored._replace(y=torch.zeros(5).long())
    got = adjusted(grads, learner, stored)
    assert furthest(got, grads) == 0


def plain_loss(lab, replica, batch):
    """Cross entropy of one network, each sample with the units and gates of its own task."""
    tasks = batch.task[replica].tolist()
    units = [competing(lab.scenario, task, lab.task + 1, lab.classes) for task in tasks]

    def loss(params):
        rows = zip(batch.x[replica], tasks, strict=True)
        scores = torch.stack([logits(params, x, lab.gates(replica, task)) for x, task in rows])
        return cross_entropy(scores, units, batch.y[replica])

    return loss


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_steps_follow_the_projected_gradient(scenario):
    """In training: g on the current batch, r on a stored one with its own tasks' units and gates."""
    method = "a-gem:budget=30" + ("+xdg:share=0.3" if scenario == "hidden" else "")
    lab = Lab("split", scenario, method, lr=5e-2).reach(2)
    against = 0
    for batch, drawn in list(lab.draws(5)):
        _, grads = lab.gradients(batch, drawn)
        stored = stored_in(drawn)
        for replica in range(3):
            params = of(lab.params["classifier"], replica)
            (_, g), (_, r) = (gradient(plain_loss(lab, replica, b), params) for b in (batch, stored))
            expected = projected(flat(g), flat(r))
            assert np.allclose(flat(of(grads["classifier"], replica)), expected, rtol=0, atol=1e-12)
            against += flat(g) @ flat(r) < 0
        with torch.no_grad():
            lab.stack.step(batch, drawn)
    assert against > 0 or scenario in ("task", "hidden")


def test_the_first_task_is_plain_training():
    ours, plain = Lab("split", "class", "a-gem:budget=30"), Lab("split", "class", "none")
    for lab in (ours, plain):
        lab.train()
    assert furthest(ours.params, plain.params) == 0
