"""Separate Networks: each task has a network of its own (van de Ven et al. 2022)."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from threefold.methods.learner import Batch, Learner, Memory, Params, Setting, Stack
from threefold.methods.losses import cross_entropy
from threefold.methods.part import Part, hyper
from threefold.networks import MLP, initial_params
from threefold.randomness import generator


class Separate(Part):
    """Separate networks: each task has a smaller MLP of its own, trained on that task alone.

    The current task's network is trained as a network of this part, and those of all tasks are in its memory. The
    classifier is neither trained nor used.
    """

    name = "separate"
    citation = "vandeven2022"
    width: int = hyper("hidden units in each of the two layers of a task's network", 100, per_replica=False, ge=1)

    def refuse(self, setting: Setting) -> str | None:
        if not setting.outputs.scenario.task_known:
            return (
                "Separate Networks are chosen by the task, so the task must be given at test time;"
                f" in {setting.outputs.scenario.title} it is not."
            )
        if not setting.tasks_end:
            return "Separate Networks begin another network when a task ends, and in this stream none does."
        return None

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        """It has output units for all tasks; those of other tasks are never active."""
        return {"separate": MLP(setting.inputs, self.width, setting.outputs.units)}

    def size(self, setting: Setting) -> int:
        """The networks of all tasks."""
        with torch.device("meta"):
            net = self.networks(setting)["separate"]
        return setting.outputs.tasks * sum(p.numel() for p in net.parameters())

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        """Every task's initial network; the first one is the engine's."""
        with torch.device("meta"):
            net = self.networks(setting)["separate"]
        tasks = range(setting.outputs.tasks)
        each = [initial_params(net, generator(seed, "weights of separate", task)) for task in tasks]
        return {"networks": tree_map(lambda *own: torch.stack(own), *each)}

    def begin(self, setting: Setting, task: int, memory: Memory) -> dict[str, Params]:
        return {"separate": {name: each[task] for name, each in memory["networks"].items()}}

    def loss(self, learner: Learner, batch: Batch) -> Tensor:
        logits = functional_call(learner.networks["separate"], learner.all_params["separate"], (batch.x,))
        return cross_entropy(logits, batch.y, learner.now.active[batch.task]).mean()

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Store the finished network."""
        networks = {name: each.clone() for name, each in memory["networks"].items()}
        for name, each in networks.items():
            each[:, task] = stack.params["separate"][name]
        return {"networks": networks}

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        """The scores of the task's own network: in training, finished, or still at its initial weights."""
        trained, networks = learner.all_params["separate"], learner.memory[self.name]["networks"]
        now = task == learner.now.seen - 1
        own = {name: each.index_select(0, task.view(1)).squeeze(0) for name, each in networks.items()}
        own = {name: torch.where(now, trained[name], each) for name, each in own.items()}
        scores: Tensor = functional_call(learner.networks["separate"], own, (x,))
        return scores
