"""Parts with penalties and leashes, trained for a few steps."""

import torch
from method_lab import CLOSE, Lab
from torch.utils._pytree import tree_leaves

from threefold.methods import Leash, Part, hyper
from threefold.methods.part import quadratic

STEPS = 4


def same(mine, other):
    return all(
        torch.allclose(a, b, rtol=CLOSE, atol=CLOSE) for a, b in zip(tree_leaves(mine), tree_leaves(other), strict=True)
    )


def trained(method, scenario="class", seeds=(3, 1), tasks=2):
    """Weights after so many tasks."""
    lab = Lab("split", scenario, method, seeds)
    lab.reach(tasks - 1)
    lab.train(STEPS)
    return {name: p.clone() for name, p in lab.params["classifier"].items()}


class Rope(Part):
    """Holds every weight to where the last task left it: as a penalty."""

    name = "rope"
    strength: float = hyper("how tightly", 3.0, ge=0)

    def consolidate(self, stack, memory, task):
        return {n: p.clone() for n, p in stack.params["classifier"].items()}

    def precision(self, memory):
        """By a network's own weights, so that a mix-up of networks would show."""
        return {n: p.abs() / p.abs().sum() for n, p in memory.items()}

    def penalty(self, params, memory):
        return 0.5 * self.strength * quadratic(params, memory, self.precision(memory))


class Leashed(Rope):
    """The same as a leash."""

    def leash(self, memory):
        return Leash(self.strength, memory, self.precision(memory))
