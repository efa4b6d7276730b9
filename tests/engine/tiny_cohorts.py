"""Small data and short cohorts, and what can be seen of a cohort from outside while it trains."""

from dataclasses import dataclass, field
from importlib import import_module

import numpy as np
import pytest
import torch

from threefold.data import Dataset
from threefold.engine import Checkpoint, Outcome, Training, train
from threefold.engine.material import Material
from threefold.methods import Method, Offline, Part, hyper
from threefold.protocols import Permuted, Split
from threefold.scenarios import find

engine = import_module("threefold.engine.train")  # the package's attribute of that name is the function

METHODS = {"none": Method(), "offline": Method(Offline())}


def tiny_data(classes=6, side=4, seed=0):
    """Noisy pictures of a pattern for each class, in no order; every class has another number of samples."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((classes, side, side))

    def part(base, more):
        y = rng.permutation(np.repeat(np.arange(classes), base + more * np.arange(classes)))
        x = np.clip(patterns[y] + rng.normal(0, 0.25, (len(y), side, side)), 0, 1)
        return x.astype(np.float32), y

    return Dataset.from_arrays(*part(24, 5), *part(5, 2), name="tiny")


DATA = tiny_data()
PROTOCOLS = {"split": Split(DATA, 3), "permuted": Permuted(tiny_data(classes=4), 3)}


class Burden(Part):
    """A penalty, so from the second task on; strong enough it is infinite."""

    name = "burden"
    strength: float = hyper("weight", 0.0)

    def penalty(self, params, memory):
        return self.strength * sum((p**2).sum() for p in params.values()) * 1e30


@dataclass
class Seen:
    """A cohort and what was seen of it."""

    outcome: Outcome | None = None
    orders: list = field(default_factory=list)  # for each replica, the classes of each task
    weights: list = field(default_factory=list)  # before training and after every task, replicas first
    batches: list = field(default_factory=list)  # for each step its indices and tasks, replicas × samples

    def of_task(self, task):
        """The steps of one task: indices and tasks, replicas × steps × samples."""
        steps = len(self.batches) // (len(self.weights) - 1)
        indices, tasks = zip(*self.batches[task * steps : (task + 1) * steps], strict=True)
        return torch.stack(indices, 1), torch.stack(tasks, 1)


def cohort(protocol, scenario, seeds, *, method="none", lr=1e-2, iters=8, batch=16, hidden=8, checkpoint=None, **also):
    """Train these seeds; `lr` is one number or one for each."""
    return train(
        PROTOCOLS.get(protocol, protocol),
        find(scenario) if isinstance(scenario, str) else scenario,
        [METHODS.get(method, method)] * len(seeds),
        seeds,
        lr if isinstance(lr, list) else [lr] * len(seeds),
        Training(iters=iters, batch=batch, hidden=hidden),
        Checkpoint(checkpoint) if checkpoint else None,
        **also,
    )


def watched(*args, **kwargs):
    """`cohort`, with everything that reaches its steps and all its weights written down."""
    seen = Seen()
    gather, measure = Material.train, engine.accuracies

    def train_batch(self, indices, task):
        seen.batches.append((indices.clone(), task.expand_as(indices).clone()))
        return gather(self, indices, task)

    def accuracies(stack, tasks_seen):
        seen.orders = [[task.classes for task in tasks] for tasks in stack.material.sequences]
        seen.weights.append({name: p.clone() for name, p in stack.params["classifier"].items()})
        return measure(stack, tasks_seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Material, "train", train_batch)
        patch.setattr(engine, "accuracies", accuracies)
        seen.outcome = cohort(*args, **kwargs)
    return seen


def furthest(one, other):
    """The largest difference between two sets of weights."""
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)
