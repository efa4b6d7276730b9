"""All methods by name, with numbers that suit tiny data, and cohorts watched from outside while they train."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from method_lab import PROTOCOLS, SCENARIOS, copied, method_of, scenario_of, supported

from threefold.engine import Checkpoint, Outcome, Training, train
from threefold.engine.draws import Draws
from threefold.engine.lockstep import Lockstep
from threefold.engine.material import Material

METHODS = [
    "none",
    "offline",
    "xdg:share=0.5",
    "ewc:strength=50",
    "online-ewc:strength=50,decay=0.8",
    "si:strength=2",
    "lwf",
    "dgr",
    "dgr-distill",
    "icarl:budget=30",
    "er:budget=30",
    "a-gem:budget=30",
    "er:budget=30,use=both",
    "er:budget=30,use=execution,selection=random",
    "ewc:strength=50+xdg:share=0.5",
    "dgr-distill+xdg:share=0.5",
]
SPLIT = [("split", scenario, method) for method in METHODS for scenario in SCENARIOS if supported(method, scenario)]
PERMUTED = [
    ("permuted", "class", "none"),
    ("permuted", "hidden", "ewc:strength=50+xdg:share=0.5"),
    ("permuted", "domain", "si:strength=2"),
    ("permuted", "task", "lwf"),
    ("permuted", "class", "dgr-distill"),
    ("permuted", "class", "icarl:budget=30"),
    ("permuted", "task", "er:budget=30,use=both"),
    ("permuted", "domain", "a-gem:budget=30"),
]
CASES = SPLIT + PERMUTED
ITERS, BATCH, HIDDEN, LR = 5, 12, 10, 1e-2


@dataclass
class Seen:
    """A cohort and what was seen of it."""

    outcome: Outcome | None = None
    first: dict = field(default_factory=dict)  # all weights before the first step
    losses: list = field(default_factory=list)  # of each step, for every replica
    batches: list = field(default_factory=list)  # task in training, and all indices and tasks that reached the step
    after: list = field(default_factory=list)  # all weights and memories after each task


def protocol_of(kind):
    return PROTOCOLS.get(kind, kind)


def training(kind, scenario, methods, seeds, checkpoint=None, iters=ITERS, lr=LR):
    """Train replica i with method i and seed i; `lr` is one number or one for each."""
    return train(
        protocol_of(kind),
        scenario_of(scenario),
        [method_of(m) for m in methods],
        list(seeds),
        lr if isinstance(lr, list) else [lr] * len(seeds),
        Training(iters=iters, batch=BATCH, hidden=HIDDEN),
        checkpoint,
    )


def watched(*args, prepare=lambda stack: None, **kwargs):
    """`training`, written down. `prepare` is called when a task begins."""
    seen = Seen()
    at, gather, step, consolidate = Draws.at, Material.train, Lockstep.step, Lockstep.consolidate
    reach, drawing = Lockstep.reach, []

    def watched_at(self, number):
        drawing.append(self.stack.task)
        try:
            return at(self, number)
        finally:
            drawing.pop()

    def watched_gather(self, indices, task):
        if drawing:
            seen.batches.append((drawing[-1], indices.clone(), task.expand_as(indices).clone()))
        return gather(self, indices, task)

    def watched_step(self, batch, drawn):
        seen.first = seen.first or copied(self.params)
        step(self, batch, drawn)
        seen.losses.append(self.loss.clone())

    def watched_consolidate(self):
        consolidate(self)
        seen.after.append(copied((self.params, self.memory)))

    def watched_reach(self, task):
        reach(self, task)
        prepare(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draws, "at", watched_at)
        patch.setattr(Material, "train", watched_gather)
        patch.setattr(Lockstep, "step", watched_step)
        patch.setattr(Lockstep, "consolidate", watched_consolidate)
        patch.setattr(Lockstep, "reach", watched_reach)
        seen.outcome = training(*args, **kwargs)
    return seen


class Leaving(Checkpoint):
    """Leaves a copy of what it saved after every task: what a process killed right then would have left."""

    def save(self, state):
        super().save(state)
        shutil.copy(self.path, left(self.path.parent, state["finished"]))


def left(folder, finished):
    return Path(folder) / f"after-{finished}.pt"
