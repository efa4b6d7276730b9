"""Stacks of tiny networks in float64, stepped by hand."""

from functools import partial

import torch
from tiny_cohorts import furthest, method_of, of, optimizer_of, scenario_of, tiny_data, training_of
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from threefold.engine.device_data import DeviceData
from threefold.engine.optimizer import pulled
from threefold.engine.sampling import Sampler
from threefold.engine.schedule import CONSTANT
from threefold.engine.stack import ReplicaStack
from threefold.engine.step import REPLICA_AXES, StepInput, TrainingStep
from threefold.methods import Batch, Setting
from threefold.networks import MLPNetwork, find_network
from threefold.scenarios import Outputs
from threefold.streams import Permuted, Split

CPU = torch.device("cpu")
SEEDS = [3, 1, 2]
CLOSE = 1e-10  # float64 against float64, in sums of at most some thousand numbers of size 1
SCENARIOS = ["task", "domain", "class"]
STREAMS = {
    "split": Split(tiny_data(dtype=torch.float64), 3),
    "few": Split(tiny_data(base=6, more=3, dtype=torch.float64), 3),  # for loops over every sample
    "permuted": Permuted(tiny_data(classes=4, base=18, dtype=torch.float64), 3),
}


def outputs_of(stream, scenario):
    stream = STREAMS.get(stream, stream)
    return Outputs(scenario_of(scenario), stream.tasks, stream.classes_per_task)


def setting_of(scenario, stream="split", hidden=8, batch=12, shape=(1, 4, 4), **also):
    return Setting(outputs_of(stream, scenario), shape, batch, MLPNetwork(width=hidden), **also)


def supported(method, scenario, stream="split"):
    return method_of(method).refuse(setting_of(scenario, stream)) is None


class TinyStack:
    """`method` is one for all replicas, or a list of one for each."""

    @torch.no_grad()
    def __init__(self, stream, scenario, method, seeds=SEEDS, *, hidden=8, batch=12, lr=1e-2, network=None):
        self.stream, self.scenario, self.seeds = STREAMS.get(stream, stream), scenario, list(seeds)
        outputs = outputs_of(self.stream, scenario)
        data = DeviceData(self.stream, outputs, self.seeds, batch, CPU)
        self.network = find_network(network) if network else MLPNetwork(width=hidden)
        setting = Setting(outputs, data.shape, batch, self.network, self.stream.data.in_unit_interval)
        methods = [method_of(m) for m in (method if isinstance(method, list) else [method] * len(self.seeds))]
        optimizer = optimizer_of(lr)
        stacked = partial(optimizer.stacked, each=[optimizer] * len(self.seeds), schedule=CONSTANT)
        self.stack = ReplicaStack(methods, self.seeds, setting, data, stacked)
        self.step = TrainingStep(self.stack)
        self.classes = outputs.classes_per_task
        self.sequences = [self.stream.sequence(seed) for seed in self.seeds]

    @property
    def task(self):
        return self.stack.task

    @property
    def params(self):
        return self.stack.params

    def memory(self, part):
        return self.stack.memory[part]

    def sampler(self, steps):
        return Sampler(self.stack, training_of(self.network, iters=steps))

    def draws(self, steps):
        """What each of these steps of the current task works on."""
        sampler = self.sampler(steps)
        for step in range(steps):
            sampler.prepare(step)
            self.stack.now.step.fill_(step)
            yield sampler.at(step)

    @torch.no_grad()
    def train(self, steps=4):
        for batch, drawn in self.draws(steps):
            self.step.take(batch, drawn)

    @torch.no_grad()
    def finish(self):
        self.stack.consolidate()

    @torch.no_grad()
    def begin(self, task):
        self.stack.begin_task(task)
        self.step.plan = None

    def reach(self, task):
        """Learn all tasks before this one, and stand at its beginning."""
        while self.task < task:
            self.train()
            self.finish()
            self.begin(self.task + 1)
        return self

    def given(self, batch, drawn):
        stack = self.stack
        return StepInput(
            *(stack.own, stack.memory, stack.numbers, batch, drawn, stack.now, stack.data.tables),
            *(stack.buffers, stack.keys),
        )

    @torch.no_grad()
    def at_step(self, function, batch, drawn):
        """`function(learner, batch)` for every replica, as the hooks of a step see them."""

        def one(given):
            return function(self.step._learner(given), given.batch)

        return self.stack.mapping(one, (REPLICA_AXES,), self.given(batch, drawn))

    def replay(self, batch, drawn, place=0):
        """What a part replays at a step."""
        return self.at_step(lambda learner, batch: learner.parts[place].replay(learner, batch), batch, drawn)

    @torch.no_grad()
    def gradients(self, batch, drawn):
        """The loss of a step and the gradient that reaches the optimiser, for every replica; no weight is changed."""
        stack, caught = self.stack, []
        optimizer, step = stack.optimizer, stack.optimizer.step

        def catch(grads, beside, **_):
            caught.extend(pulled(p, g, b.pulls) for p, g, b in zip(optimizer.params, grads, beside, strict=True))

        optimizer.step = catch
        try:
            self.step.take(batch, drawn)
        finally:
            optimizer.step = step
        loss = stack.loss.clone()
        for place in self.step.plan.left_to_optimizer:  # penalties whose gradient the optimiser adds
            loss += stack.map(lambda learner, at=place: learner.parts[at].penalty(learner).value(learner.params))
        return loss, tree_unflatten(caught, tree_structure(self.params))

    def gates(self, replica, task):
        """The gates of one network's task, or None."""
        if "xdg" not in self.stack.memory:
            return None
        return [table[replica, int(task)] for table in self.stack.memory["xdg"]["gates"]]

    def inputs(self, replica, index, task):
        """A training sample as the network of this replica sees it in this task."""
        image, pixels = self.stream.data.train_x[index], self.sequences[replica][task].pixels
        return image.flatten() if pixels is None else torch.nn.functional.pad(image, (2, 2, 2, 2)).flatten()[pixels]

    def label(self, replica, index, task):
        """The label of a training sample within its task."""
        return self.sequences[replica][task].classes.index(int(self.stream.data.train_y[index]))

    def held(self, replica, part=None):
        """For each class in the memory of the first part, or of this one, its stored indices in order."""
        memory = of(self.memory(part or self.stack.template[0].name), replica)
        return [row[:count].tolist() for row, count in zip(memory["stored"], memory["count"].tolist(), strict=True)]


def stored_in(drawn):
    """The one batch of stored samples among a step's draws."""
    (stored,) = (value for value in drawn.values() if isinstance(value, Batch))
    return stored


def near(one, other, tolerance=CLOSE):
    """Do two trees of tensors agree, compared with the size of their largest number?"""
    size = max(float(leaf.abs().max()) for leaf in tree_leaves(other))
    return furthest(one, other) <= tolerance * max(size, 1e-6)
