"""A-GEM's projection against numpy, and the gradients it is made of (Chaudhry et al. 2019, equation 11)."""

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_network import competing, cross_entropy, gradient, logits
from tiny_cohorts import furthest, of
from tiny_stack import SCENARIOS, TinyStack, outputs_of, stored_in

from threefold.methods import AGEM, Setting
from threefold.methods.learner import Batch, InTraining, Learner, Now
from threefold.networks import MLP, MLPNetwork, initial_params


def flat(tree):
    return np.concatenate([leaf.detach().numpy().ravel() for leaf in tree.values()])


def projected(g, r):
    """g − (g·r / r·r) r where g·r < 0, else g."""
    along = float(np.dot(g, r))
    return g if along >= 0 else g - along / float(np.dot(r, r)) * r


class Small:
    """One network in its second task, with a stored batch of the first."""

    def __init__(self):
        self.net = MLP(4, 3, 6)
        self.params = initial_params(self.net, torch.Generator().manual_seed(0))
        source = torch.Generator().manual_seed(1)
        x, y, zeros = torch.rand(5, 4, generator=source), torch.tensor([0, 1, 1, 0, 1]), torch.zeros(5).long()
        self.stored = Batch(x, y, zeros, zeros)
        units = [[0, 1, 2, 3]] * 5
        _, self.reference = gradient(lambda p: cross_entropy(logits(p, x), units, y), self.params)

    def adjusted(self, grads, params=None, y=None):
        outputs, part = outputs_of("split", "class"), AGEM(budget=10)
        now = Now.at(1, outputs.table(2), outputs.table(1))
        stored = self.stored if y is None else self.stored._replace(y=y)
        params = {"classifier": params or self.params}
        learner = Learner(
            *({"classifier": self.net}, Setting(outputs, (4,), 5, MLPNetwork(width=3)), [part], params, {"a-gem": {}}),
            *(now, {}, InTraining({"a-gem stored": stored}, lambda indices, task: self.stored, torch.tensor(0))),
        )
        return part.adjust(learner, grads)

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
    tiny = small()
    grads = tiny.grads(along, seed)
    got, g, r = flat(tiny.adjusted(grads)), flat(grads), flat(tiny.reference)
    assert np.allclose(got, projected(g, r), rtol=0, atol=1e-12)
    assert got @ r >= -1e-12 * np.linalg.norm(g) * np.linalg.norm(r)
    if g @ r >= 0:
        assert np.array_equal(got, g)
    else:
        assert np.linalg.norm(got) <= np.linalg.norm(g)


def test_both_cases_occur():
    tiny = small()
    signs = {bool(flat(tiny.grads(along, 0)) @ flat(tiny.reference) >= 0) for along in (-5.0, 5.0)}
    assert signs == {True, False}


def test_a_gradient_straight_against_the_reference_becomes_nothing():
    tiny = small()
    opposed = {name: -3 * r for name, r in tiny.reference.items()}
    assert np.abs(flat(tiny.adjusted(opposed))).max() < 1e-14


def test_a_reference_of_nothing_changes_nothing():
    """Stored data that are fitted perfectly have no gradient: nothing to divide by."""
    tiny = Small()
    sure = {name: torch.zeros_like(p) for name, p in tiny.params.items()}
    sure["output.shift.bias"] = torch.tensor([2000.0, 0, 0, 0, 0, 0])
    grads = tiny.grads(0.0, 3)
    assert furthest(tiny.adjusted(grads, sure, torch.zeros(5).long()), grads) == 0


def plain_loss(tiny, replica, batch):
    """Cross entropy of one network, each sample with the units and gates of its own task."""
    tasks = batch.task[replica].tolist()
    units = [competing(tiny.scenario, task, tiny.task + 1, tiny.classes) for task in tasks]

    def loss(params):
        rows = zip(batch.x[replica], tasks, strict=True)
        scores = torch.stack([logits(params, x, tiny.gates(replica, task)) for x, task in rows])
        return cross_entropy(scores, units, batch.y[replica])

    return loss


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_steps_follow_the_projected_gradient(scenario):
    """In training: g on the current batch, r on a stored one with its own tasks' units and gates."""
    method = "a-gem:budget=30" + ("+xdg:share=0.3" if scenario == "hidden" else "")
    tiny = TinyStack("split", scenario, method, lr=5e-2).reach(2)
    against = 0
    for batch, drawn in list(tiny.draws(5)):
        _, grads = tiny.gradients(batch, drawn)
        stored = stored_in(drawn)
        for replica in range(3):
            params = of(tiny.params["classifier"], replica)
            (_, g), (_, r) = (gradient(plain_loss(tiny, replica, b), params) for b in (batch, stored))
            expected = projected(flat(g), flat(r))
            assert np.allclose(flat(of(grads["classifier"], replica)), expected, rtol=0, atol=1e-12)
            against += flat(g) @ flat(r) < 0
        with torch.no_grad():
            tiny.step.take(batch, drawn)
    assert against > 0 or scenario in ("task", "hidden")


def test_the_first_task_is_plain_training():
    ours, plain = TinyStack("split", "class", "a-gem:budget=30"), TinyStack("split", "class", "none")
    for tiny in (ours, plain):
        tiny.train()
    assert furthest(ours.params, plain.params) == 0
