"""A run that is interrupted and goes on, and one that is not disturbed."""

import pytest
import torch
from tiny_cohorts import cohort, furthest, watched

from threefold.methods import Part

SEEDS = [3, 1, 2]
RUN = {"lr": [1e-2, 3e-3, 1e-2], "iters": 12}
CPU = torch.device("cpu")


class Interrupted(Exception):
    pass


def until(task, step=None):
    """A report that stops the run in this task."""

    def report(progress):
        if progress.task == task and (step is None or progress.step == step):
            raise Interrupted

    return report


def same(one, other):
    assert torch.equal(one.outcome.initial, other.outcome.initial)
    assert torch.equal(one.outcome.matrix, other.outcome.matrix)
    assert one.outcome.diverged_at == other.outcome.diverged_at
    assert furthest(one.weights[-1], other.weights[-1]) == 0


def interrupted(path, task=2, **also):
    with pytest.raises(Interrupted):
        cohort("split", "class", SEEDS, checkpoint=path, report=until(task), **(RUN | also))


def resumed(path, **also):
    return watched("split", "class", SEEDS, checkpoint=path, **(RUN | also))


class Leash(Part):
    """For this test: a path that is observed, an anchor that is consolidated, a penalty made of both."""

    name = "leash"

    def begin(self, setting, seed, params):
        return {
            "path": {name: torch.zeros_like(p) for name, p in params.items()},
            "anchor": {name: p.clone() for name, p in params.items()},
        }

    def observe(self, memory, before, after, grads):
        for name, path in memory["path"].items():
            path.sub_(grads[name] * (after[name] - before[name]))

    def penalty(self, params, memory):
        return sum((memory["path"][n].abs() * (p - memory["anchor"][n]) ** 2).sum() for n, p in params.items())

    def consolidate(self, stack, memory, task):
        return memory | {"anchor": {name: p.clone() for name, p in stack.params["classifier"].items()}}
