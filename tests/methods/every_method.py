"""All methods by name, with hyperparameters for tiny data, and the checkpoint of a process killed after a task."""

import shutil
from io import BytesIO
from pathlib import Path

import torch
from tiny_cohorts import watched
from tiny_stack import SCENARIOS, STREAMS, supported

from threefold.engine import Checkpoint, KeptNetwork, state_of
from threefold.fingerprint import is_ours
from threefold.methods import METHODS as REGISTRY
from threefold.methods import parse

NUMBERS = {
    "xdg": "share=0.5",
    "ewc": "strength=50",
    "online-ewc": "strength=50,decay=0.8",
    "si": "strength=2",
    "mas": "strength=0.5",
    "fromp": "strength=1,budget=4",
    "bi-r": "gating=0.3",
    "separate": "width=6",
    "generative-classifier": "hidden=10,latent=3,samples=9,lr=0.02",
}
FURTHER = [
    "bi-r:feedback=false,conditional=false,gating=0,distil=false",
    "er:budget=30,use=both",
    "er:budget=30,use=execution,selection=random",
    "ewc:strength=50+xdg:share=0.5",
    "dgr-distill+xdg:share=0.5",
]


def small(name, part):
    """A method with numbers that suit tiny data."""
    numbers = NUMBERS.get(name, "budget=30" if part and "budget" in part.model_fields else "")
    return f"{name}:{numbers}" if numbers else name


METHODS = [small(name, entry.part) for name, entry in REGISTRY.items() if not entry.part or is_ours(entry.part)]
METHODS += FURTHER
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
    ("permuted", "task", "fromp:strength=1,budget=4"),
]
CASES = SPLIT + PERMUTED
ONE_EACH = list({case[-1]: case for case in SPLIT}.values())  # the last: Class-IL where it can be used


def trained(kind, scenario, method, seeds, **also):
    run = {"method": method, "iters": 5, "batch": 12, "hidden": 10}
    return watched(STREAMS.get(kind, kind), scenario, seeds, **run | also)


def networks_of(state):
    """The weights of all networks that are trained, those in a memory too."""
    params, memory = state
    return [*params.values(), *(part["vaes"] for part in memory.values() if "vaes" in part)]


class Kept:
    """Keeps one replica's networks after each task, as they come back from a file."""

    def __init__(self, replica):
        self.replica, self.states, self.settings = replica, [], []

    def holds(self, tasks):
        return True

    def keep(self, tasks, stacks, measured):
        row = {"after": tasks, "accuracies": measured[0].matrix[self.replica, tasks - 1].tolist()}
        torch.save(row | state_of(stacks[0], self.replica), packed := BytesIO())
        packed.seek(0)
        self.states.append(torch.load(packed, weights_only=True))
        self.settings.append(stacks[0].setting)

    def networks(self, method):
        return [KeptNetwork(setting, parse(method), s) for setting, s in zip(self.settings, self.states, strict=True)]


class Leaving(Checkpoint):
    """Leaves a copy of what it saved after every task: what a process killed right then would have left."""

    def save(self, state):
        super().save(state)
        shutil.copy(self.path, left(self.path.parent, state["finished"]))


def left(folder, finished):
    return Path(folder) / f"after-{finished}.pt"
