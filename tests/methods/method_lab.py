"""Cohorts of tiny networks driven by hand, and the same networks written out one at a time.

The second half uses nothing of threefold: networks, active units and losses are spelled out there.
"""

from dataclasses import replace

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, tree_unflatten

from threefold.data import Dataset
from threefold.engine.draws import Draws
from threefold.engine.lockstep import Lockstep
from threefold.engine.material import Material
from threefold.engine.optimizer import pulled
from threefold.methods import Method, parse
from threefold.methods.part import Batch, Setting
from threefold.protocols import Permuted, Split
from threefold.scenarios import Outputs, find

CPU = torch.device("cpu")
SEEDS = [3, 1, 2]
CLOSE = 1e-10  # float64 against float64, in sums of at most some thousand numbers of size 1
SCENARIOS = ["task", "domain", "class"]


def tiny_data(classes=6, base=24, more=5, seed=0, dtype=torch.float64):
    """Noisy 4×4 pictures of a pattern for each class; every class has another number of samples."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((classes, 4, 4))

    def part(base, more):
        y = rng.permutation(np.repeat(np.arange(classes), base + more * np.arange(classes)))
        return np.clip(patterns[y] + rng.normal(0, 0.25, (len(y), 4, 4)), 0, 1), y

    data = Dataset.from_arrays(*part(base, more), *part(5, 2), name="tiny")
    return replace(data, train_x=data.train_x.to(dtype), test_x=data.test_x.to(dtype))


PROTOCOLS = {
    "split": Split(tiny_data(), 3),
    "few": Split(tiny_data(base=6, more=3), 3),  # for loops over every sample
    "permuted": Permuted(tiny_data(classes=4, base=18), 3),
}


def scenario_of(name):
    """A scenario by its name; "hidden": Task-IL with the task used in the hidden layers only (Table B.1)."""
    return find("task").using_task_in("hidden") if name == "hidden" else find(name)


def outputs_of(protocol, scenario):
    protocol = PROTOCOLS.get(protocol, protocol)
    return Outputs(scenario_of(scenario), protocol.tasks, protocol.classes_per_task)


def setting_of(scenario, protocol="split", hidden=8, batch=12, inputs=16, **also):
    return Setting(outputs_of(protocol, scenario), inputs, hidden, batch, **also)


def method_of(method):
    return parse(method) if isinstance(method, str) else method if isinstance(method, Method) else Method(method)


def supported(method, scenario, protocol="split"):
    return method_of(method).refuse(setting_of(scenario, protocol)) is None


def penalty_of(learner, name):
    return next(p for p in learner.parts if p.name == name).penalty(learner.params, learner.memory[name])


class Lab:
    """A cohort whose tasks and steps are taken by hand. `method` is one for all replicas, or a list of one for each."""

    @torch.no_grad()
    def __init__(self, protocol, scenario, method, seeds=SEEDS, *, hidden=8, batch=12, lr=1e-2):
        self.protocol, self.scenario, self.seeds = PROTOCOLS.get(protocol, protocol), scenario, list(seeds)
        outputs = outputs_of(self.protocol, scenario)
        material = Material(self.protocol, outputs, self.seeds, batch, CPU)
        setting = Setting(outputs, material.train_x.shape[1], hidden, batch)
        methods = [method_of(m) for m in method] if isinstance(method, list) else [method_of(method)] * len(self.seeds)
        self.stack = Lockstep(methods, self.seeds, setting, material, [lr] * len(self.seeds), CPU)
        self.classes = outputs.classes_per_task
        self.sequences = [self.protocol.sequence(seed) for seed in self.seeds]

    @property
    def task(self):
        return self.stack.task

    @property
    def params(self):
        return self.stack.params

    def memory(self, part):
        return self.stack.memory[part]

    def draws(self, steps):
        """What each of these steps of the current task works on."""
        draws = Draws(self.stack, steps)
        for step in range(steps):
            draws.prepare(step)
            yield draws.at(step)

    @torch.no_grad()
    def train(self, steps=4):
        for batch, drawn in self.draws(steps):
            self.stack.step(batch, drawn)

    @torch.no_grad()
    def finish(self):
        self.stack.consolidate()

    @torch.no_grad()
    def reach(self, task):
        """Learn all tasks before this one, and stand at its beginning."""
        while self.task < task:
            self.train()
            self.finish()
            self.stack.reach(self.task + 1)
        return self

    @torch.no_grad()
    def gradients(self, batch, drawn):
        """The loss of a step and the gradient that reaches the optimiser, for every replica; nothing is changed."""
        stack = self.stack
        caught, optimizer = [], stack.optimizer
        step = optimizer.step

        def catch(grads, beside, **_):
            caught.extend(pulled(p, g, b.pulls) for p, g, b in zip(optimizer.params, grads, beside, strict=True))

        optimizer.step = catch
        try:
            stack.step(batch, drawn)
        finally:
            optimizer.step = step
        loss = stack.loss.clone()
        for name in (
            stack.parts[place].name for place in stack._leashed()
        ):  # penalties whose gradient the optimiser adds
            loss += stack.map(lambda learner, name=name: penalty_of(learner, name))
        return loss, tree_unflatten(caught, tree_structure(self.params))

    @torch.no_grad()
    def recall(self, batch, drawn, place=0):
        """What a part replays at a step."""
        return self.stack.map(lambda learner, b, d: learner.parts[place].recall(learner, b, d), batch, drawn)

    def gates(self, replica, task):
        """The gates of one network's task, or None."""
        if "xdg" not in self.stack.memory:
            return None
        return [table[replica, int(task)] for table in self.stack.memory["xdg"]["gates"]]

    def inputs(self, replica, index, task):
        """A training sample as the network of this replica sees it in this task."""
        image, pixels = self.protocol.data.train_x[index], self.sequences[replica][task].pixels
        return image.flatten() if pixels is None else torch.nn.functional.pad(image, (2, 2, 2, 2)).flatten()[pixels]

    def label(self, replica, index, task):
        """The label of a training sample within its task."""
        return self.sequences[replica][task].classes.index(int(self.protocol.data.train_y[index]))


def stored_in(drawn):
    """The one batch of stored samples among a step's draws."""
    (stored,) = (value for value in drawn.values() if isinstance(value, Batch))
    return stored


def copied(tree):
    return tree_map(lambda leaf: leaf.clone(), tree)


def of(tree, replica):
    """One network's share of what is stacked."""
    return tree_map(lambda leaf: leaf[replica], tree)


def furthest(one, other):
    """The largest difference between two trees of tensors."""
    assert tree_structure(one) == tree_structure(other)
    pairs = list(zip(tree_leaves(one), tree_leaves(other), strict=True))
    assert all(a.shape == b.shape and a.isfinite().all() and b.isfinite().all() for a, b in pairs)
    return max(float((a - b).abs().max()) for a, b in pairs)


def near(one, other, tolerance=CLOSE):
    """Do two trees of tensors agree, compared with the size of their largest number?"""
    size = max(float(leaf.abs().max()) for leaf in tree_leaves(other))
    return furthest(one, other) <= tolerance * max(size, 1e-6)


# one network, written out


def features(params, x, gates=None, gate_on="activation"):
    for depth in range(2):
        weighted = x @ params[f"features.layers.{depth}.weighted.weight"].T
        if gates is not None and gate_on == "input":
            weighted = weighted * gates[depth]
        x = torch.clamp(weighted + params[f"features.layers.{depth}.shift.bias"], min=0)
        if gates is not None and gate_on == "activation":
            x = x * gates[depth]
    return x


def logits(params, x, gates=None, gate_on="activation"):
    hidden = features(params, x, gates, gate_on)
    return hidden @ params["output.weighted.weight"].T + params["output.shift.bias"]


def competing(scenario, task, seen, classes):
    """The units among which a sample of `task` is told apart when `seen` tasks have been seen (section A.1.1)."""
    if scenario == "task":
        return list(range(task * classes, (task + 1) * classes))
    if scenario in ("domain", "hidden"):
        return list(range(classes))
    return list(range(seen * classes))


def target(scenario, task, label, classes):
    return label if scenario in ("domain", "hidden") else task * classes + label


def log_chance(scores, units, temperature=1.0):
    """log p(unit) for each of these units, a softmax over them alone; a dictionary by unit."""
    raised = torch.stack([scores[unit] for unit in units]) / temperature
    return dict(zip(units, raised - torch.logsumexp(raised, 0), strict=True))


def cross_entropy(scores, units, right):
    """Equation 1, averaged over samples: rows of scores, for each the units that compete and the right one."""
    losses = [-log_chance(row, own)[int(unit)] for row, own, unit in zip(scores, units, right, strict=True)]
    return torch.stack(losses).mean()


def gradient(loss, params):
    """The gradient of `loss(params)`, a tree like params."""
    leaves = [leaf.detach().requires_grad_() for leaf in tree_leaves(params)]
    value = loss(tree_unflatten(leaves, tree_structure(params)))
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    grads = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]
    return value.detach(), tree_unflatten(grads, tree_structure(params))
