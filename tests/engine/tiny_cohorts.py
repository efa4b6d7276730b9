"""Small data and short cohorts for tests, and recorders of what a cohort reports while it trains."""

from dataclasses import dataclass, field, replace
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_structure

from threefold.data import Dataset
from threefold.engine import (
    Adam,
    Checkpoint,
    Measured,
    Optimizer,
    Replicas,
    Training,
    find_optimizer,
    find_schedule,
    train,
)
from threefold.engine.sampling import Sampler
from threefold.engine.sharing import Stacks
from threefold.engine.step import TrainingStep
from threefold.methods import Method, Part, hyper, parse
from threefold.networks import MLPNetwork, find_network
from threefold.scenarios import Scenario, find
from threefold.streams import Permuted, Split

engine = import_module("threefold.engine.train")  # the package's attribute of that name is the function
SCENARIOS = ["task", "domain", "class"]


def tiny_images(classes=6, base=12, more=2, test=4, dtype=torch.float32):
    """Noisy 3×8×8 images of a pattern for each class; classes differ in the number of samples."""
    source = torch.Generator().manual_seed(1)
    patterns = torch.rand(classes, 3, 8, 8, generator=source)

    def part(sizes):
        y = torch.repeat_interleave(torch.arange(classes), torch.tensor(sizes))
        y = y[torch.randperm(len(y), generator=source)]
        return (patterns[y] + 0.2 * torch.randn(len(y), 3, 8, 8, generator=source)).clamp(0, 1), y

    sizes = [base + more * (number % 6) for number in range(classes)]
    data = Dataset.from_arrays(*part(sizes), *part([test] * classes), name="tiny images")
    return replace(data, train_x=data.train_x.to(dtype), test_x=data.test_x.to(dtype))


def tiny_data(classes=6, base=24, more=5, dtype=torch.float32):
    """Noisy 4×4 pictures of a pattern for each class, in no order; classes differ in the number of samples."""
    rng = np.random.default_rng(0)
    patterns = rng.random((classes, 4, 4))

    def part(base, more):
        y = rng.permutation(np.repeat(np.arange(classes), base + more * (np.arange(classes) % 6)))
        return np.clip(patterns[y] + rng.normal(0, 0.25, (len(y), 4, 4)), 0, 1), y

    data = Dataset.from_arrays(*part(base, more), *part(5, 2), name="tiny")
    return replace(data, train_x=data.train_x.to(dtype), test_x=data.test_x.to(dtype))


STREAMS = {"split": Split(tiny_data(), 3), "permuted": Permuted(tiny_data(classes=4), 3)}
# for comparisons in every bit: 16 classes in every task, so that with 16 hidden units all widths are multiples of 16
EVEN = {"split": Split(tiny_data(48, 6, 2), 3), "permuted": Permuted(tiny_data(16, 6, 2), 3)}


class Burden(Part):
    """A penalty from the second task on; strong enough it is infinite."""

    name = "burden"
    strength: float = hyper("weight", 0.0)

    def penalty(self, learner):
        later = torch.where(learner.now.seen > 1, 1e30, 0.0)
        return self.strength * later * sum((p**2).sum() for p in learner.params.values())


class Killed(Exception):
    pass


def killed_in(task, step=None):
    """A report that stops training in this task."""

    def report(progress):
        if progress.task == task and (step is None or progress.step == step):
            raise Killed

    return report


def scenario_of(name):
    """A scenario by its name; "hidden": Task-IL with the task used in the hidden layers only (Table B.1); "all":
    Class-IL with the units of all classes active from the start."""
    if isinstance(name, Scenario):
        return name
    if name == "all":
        return find("class").with_active("all")
    return find("task").using_task_in("hidden") if name == "hidden" else find(name)


def method_of(method):
    return parse(method) if isinstance(method, str) else method if isinstance(method, Method) else Method(method)


def optimizer_of(given):
    """An optimiser by its name; a number is Adam's learning rate."""
    return find_optimizer(given) if isinstance(given, str | Optimizer) else Adam(lr=given)


def replicas(scenario, methods, seeds, lr=1e-2):
    """One stack; `methods` is one for all or a list of one for each, `lr` (or optimisers) alike."""
    each = methods if isinstance(methods, list) else [methods] * len(seeds)
    optimizers = lr if isinstance(lr, list) else [lr] * len(seeds)
    return Replicas(
        scenario_of(scenario), [method_of(m) for m in each], list(seeds), [optimizer_of(o) for o in optimizers]
    )


def training_of(network=None, *, iters=8, epochs=None, batch=16, hidden=8, schedule="constant", evaluation=None):
    """How to train; the network is an MLP of so many hidden units unless one is named."""
    network = find_network(network) if network else MLPNetwork(width=hidden)
    iters, schedule = None if epochs else iters, find_schedule(schedule)
    return Training(iters, batch, network, epochs=epochs, schedule=schedule, evaluation=evaluation)


def cohort(
    stream, scenario, seeds, *, method="none", lr=1e-2, checkpoint=None, report=None, runner=None, keeper=None, **how
) -> Measured:
    """Train one stack; `how` as in `training_of`."""
    if checkpoint and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    also = {name: value for name, value in (("report", report), ("runner", runner), ("keeper", keeper)) if value}
    asked, training = replicas(scenario, method, seeds, lr), training_of(**how)
    (measured,) = train(STREAMS.get(stream, stream), [asked], training, checkpoint, **also)
    return measured


@dataclass
class Seen:
    """A cohort and what was seen of it."""

    measured: Measured | None = None
    orders: list = field(default_factory=list)  # for each replica, the classes of each task
    batches: list = field(default_factory=list)  # (task in training, indices, tasks) of all that reached steps
    losses: list = field(default_factory=list)  # of each step, for every replica
    states: list = field(default_factory=list)  # all weights and memories before training and after every task
    buffers: list = field(default_factory=list)  # the classifiers', such as batch norm's statistics, alike

    @property
    def weights(self):
        """The classifiers before training and after every task."""
        return [params["classifier"] for params, _ in self.states]

    def of_task(self, task):
        """The batches of one task: indices and tasks, replicas × steps × samples."""
        indices, tasks = zip(*((i, t) for current, i, t in self.batches if current == task), strict=True)
        return torch.stack(indices, 1), torch.stack(tasks, 1)


def watched(*args, prepare=lambda stack: None, **kwargs):
    """`cohort`, written down. `prepare` is called with the stack when a task begins."""
    seen = Seen()
    batch_of, take, begin_task, measure = Sampler._batch, TrainingStep.take, Stacks.begin_task, engine.accuracies

    def watched_batch(self, samples, step, *moves):
        found = batch_of(self, samples, step, *moves)
        seen.batches.append((self.task, found.indices.clone(), found.task.clone()))
        return found

    def watched_take(self, batch, drawn):
        take(self, batch, drawn)
        seen.losses.append(self.stack.loss.clone())

    def watched_begin(self, task):
        begin_task(self, task)
        for stack in self.trained:
            prepare(stack)

    def watched_measure(stack, tasks_seen):
        seen.orders = [[task.classes for task in tasks] for tasks in stack.data.sequences]
        seen.states.append(copied((stack.params, stack.memory)))
        seen.buffers.append(copied(stack.buffers))
        return measure(stack, tasks_seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sampler, "_batch", watched_batch)
        patch.setattr(TrainingStep, "take", watched_take)
        patch.setattr(Stacks, "begin_task", watched_begin)
        patch.setattr(engine, "accuracies", watched_measure)
        seen.measured = cohort(*args, **kwargs)
    return seen


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
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


def same_bits(one, other):
    """Are two trees of tensors equal, where numbers that are none count as equal?"""
    assert tree_structure(one) == tree_structure(other)
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def same_measured(one, other):
    """Did two cohorts come to the same, in every bit?"""
    assert one.diverged_at == other.diverged_at
    assert [sorted(kept) for kept in one.kept] == [sorted(kept) for kept in other.kept]
    return same_bits((one.initial, one.matrix, one.kept), (other.initial, other.matrix, other.kept))
