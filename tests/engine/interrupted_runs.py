"""A run that is interrupted and continued, and the same run without interruption."""

import pytest
import torch
from tiny_cohorts import Killed, cohort, killed_in, same_bits, same_measured, watched

from threefold.methods import Part

SEEDS = [3, 1, 2]
RUN = {"lr": [1e-2, 3e-3, 1e-2], "iters": 12}
CPU = torch.device("cpu")


def same(one, other):
    assert same_measured(one.measured, other.measured)
    assert same_bits(one.states[-1], other.states[-1])


def interrupted(path, task=2, seeds=SEEDS, **also):
    with pytest.raises(Killed):
        cohort("split", "class", seeds, checkpoint=path, report=killed_in(task), **(RUN | also))


def resumed(path, **also):
    return watched("split", "class", SEEDS, checkpoint=path, **(RUN | also))


class Importance(Part):
    """For this test: a sum that every step writes, an anchor that is consolidated, a penalty made of both."""

    name = "importance"

    def start(self, setting, seed, params):
        return {
            "sum": {name: torch.zeros_like(p) for name, p in params.items()},
            "anchor": {name: p.clone() for name, p in params.items()},
        }

    def after_step(self, learner, step):
        memory = learner.memory[self.name]
        moved = {n: step.gradient[n] * (p - step.before[n]) for n, p in learner.params.items()}
        return {"sum": {n: memory["sum"][n] - moved[n] for n in moved}}

    def penalty(self, learner):
        memory = learner.memory[self.name]
        return sum((memory["sum"][n].abs() * (p - memory["anchor"][n]) ** 2).sum() for n, p in learner.params.items())

    def consolidate(self, stack, memory, task):
        return memory | {"anchor": stack.params["classifier"]}
