"""Task-specific components: context-dependent gating (section 3.1)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from threefold.methods.learner import Learner, Memory, Params, Setting
from threefold.methods.part import Part, hyper
from threefold.networks import GateOn
from threefold.randomness import generator


class XdG(Part):
    """Context-dependent gating: for each task a random share of the hidden units is silenced."""

    name = "xdg"
    citation = "masse2018"
    uses_task = True
    share: float = hyper("share of each hidden layer's units that is gated in a task", ge=0, lt=1)
    gate_on: GateOn = hyper(
        "what a gate silences: a unit's activation, or its weighted input (the bias still counts)",
        "activation",
    )

    def refuse(self, setting: Setting) -> str | None:
        if not setting.outputs.scenario.task_known:
            return (
                "XdG chooses its gates by the task, so the task must be given at test time;"
                f" in {setting.outputs.scenario.title} it is not."
            )
        if not setting.structure.hidden:
            name = setting.network.name
            return f"XdG gates linear and convolutional layers before the last one, and network {name} has none."
        if folded := [layer.path for layer in setting.structure.hidden if not layer.by_sample]:
            return (
                f"XdG gates the units of each sample, so network {setting.network.name} must give {folded[0]} a row for"
                " each, samples first."
            )
        return None

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        tasks = range(setting.outputs.tasks)
        layers = []
        for layer, units in enumerate(setting.structure.units):
            gated = min(units - 1, round(self.share * units))  # at least one unit must stay
            gates = torch.ones(len(tasks), units)
            for task in tasks:
                source = generator(seed, "gates", task, layer)
                if setting.tasks_end:
                    gates[task, torch.randperm(units, generator=source)[:gated]] = 0
                else:  # each unit independently, as the authors do in task-free streams
                    gates[task, torch.rand(units, generator=source) < self.share] = 0
            layers.append(gates)
        return {"gates": layers}

    def gates(self, learner: Learner, task: Tensor) -> Sequence[Tensor]:
        """Rows of the table of gates, as one batch may hold samples of several tasks.

        A single task is looked up as a list of one: PyTorch would read its number on the host, which waits for the
        device and cannot be captured."""
        rows = task.reshape(-1)
        return [table[rows].reshape(*task.shape, -1) for table in learner.memory[self.name]["gates"]]
