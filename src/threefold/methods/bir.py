"""BI-R: brain-inspired replay (van de Ven, Siegelmann and Tolias 2020).

It adds five things to generative replay, each of which can be left out: feedback, a prior with a mode for each class,
gates in the decoder, distillation; and internal replay, which means learning from frozen features (`--features`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from threefold.methods.learner import Batch, Draws, Learner, Memory, Noise, Params, Replay, Setting, Stack, Uniform
from threefold.methods.losses import cross_entropy, distillation
from threefold.methods.part import hyper
from threefold.methods.replay import Taught
from threefold.networks import LATENT, FeedbackVAE
from threefold.randomness import generator


class BIR(Taught):
    """Brain-inspired replay: generated inputs, by a generator that shares the classifier's hidden layers."""

    name = "bi-r"
    citation = "vandeven2020"
    uses_features = True
    feedback: bool = hyper("the classifier's hidden layers encode for the generator, instead of some of its own", True)
    conditional: bool = hyper("the generator's prior has a mode for each class, instead of one for all", True)
    gating: float = hyper("share of the decoder's units that is silenced for a class, or for a task", 0.1, ge=0, lt=1)
    distil: bool = hyper("replay has soft targets, instead of the most likely label", True)
    temperature: float = hyper("temperature T of the softmax in distillation", 2.0, gt=0)

    def refuse(self, setting: Setting) -> str | None:
        if setting.tasks_end:
            return None
        return f"{self.name} copies its generator when a task ends, and in this stream none does."

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        sizes = setting.inputs, setting.hidden, setting.units, LATENT
        return {"generator": FeedbackVAE(*sizes, encoder=not self.feedback, modes=self.conditional)}

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        """Gates for each class, or for each task where classes share units, and lookup tables of the classes."""
        outputs, sources = setting.outputs, [generator(seed, "gates of the decoder", layer) for layer in range(2)]
        rows = outputs.units if outputs.scenario.own_units else outputs.tasks
        gates = [(torch.rand(rows, setting.hidden, generator=source) >= self.gating) * 1.0 for source in sources]
        units = [unit for task in range(outputs.tasks) for unit in outputs.units_of(task)]
        before = [outputs.before(task) for task in range(outputs.tasks + 1)]
        of_class = outputs.tasks_of_classes(outputs.tasks, torch.device("cpu"))
        return {"gates": gates, "units": torch.tensor(units), "before": torch.tensor(before), "tasks": of_class}

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        names = ["noise", "noise of replay", "dreamt"] if task else ["noise"]
        noise: Draws = {f"{self.name} {name}": Noise((setting.batch, LATENT)) for name in names}
        return noise | ({f"{self.name} class": Uniform((setting.batch,))} if task else {})

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        """Inputs of earlier classes, made by the previous generator, all classes equally often."""
        if not self.taught(learner):
            return None
        memory, drawn = learner.memory[self.name], learner.drawn
        (unit, task), z = self._classes(learner, drawn[f"{self.name} class"]), drawn[f"{self.name} dreamt"]
        made, net = memory["generator"], learner.networks["generator"].get_submodule("decoder")
        if self.conditional:
            z = made["modes.mean.numbers"][unit] + torch.exp(made["modes.log_variance.numbers"][unit] / 2) * z
        decoder = {name.removeprefix("decoder."): p for name, p in made.items() if name.startswith("decoder.")}
        gates = self._gates(learner, _one_hot(unit, learner.setting.units), task)
        x = functional_call(net, decoder, (z, gates)).view(-1, *learner.setting.shape)
        x = torch.sigmoid(x) if learner.setting.unit_interval else x
        y = self.soft(learner, x, task, self.temperature) if self.distil else self.hard(learner, x, task)
        return Replay(x, y, task)

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        logits, active = learner.logits(replay.x, replay.task), learner.now.active[replay.task]
        if not self.distil:
            return cross_entropy(logits, replay.y, active).mean()
        return distillation(logits, replay.y, active, self.temperature, "sum", t_squared=False).mean()

    def side_loss(self, learner: Learner, batch: Batch, replay: Replay | None) -> Tensor:
        """The generator's loss on current and on replayed data, weighted as the classifier's."""
        losses = [self._generative(learner, batch.x, _one_hot(batch.y, learner.setting.units), batch.task, "noise")]
        if replay is None:
            return losses[0]
        chances = replay.y if self.distil else _one_hot(replay.y, learner.setting.units)
        losses.append(self._generative(learner, replay.x, chances, replay.task, "noise of replay"))
        return learner.now.shares[0] * losses[0] + learner.now.shares[1] * losses[1]

    def _generative(self, learner: Learner, x: Tensor, chances: Tensor, task: Tensor, noise: str) -> Tensor:
        """The generator's mean loss; `chances` are each sample's probabilities of the units' classes."""
        features = learner.features(x, task) if self.feedback else x
        given = learner.drawn[f"{self.name} {noise}"], self._gates(learner, chances, task), chances
        inputs = x, features, *given, learner.setting.unit_interval
        each: Tensor = functional_call(learner.networks["generator"], learner.all_params["generator"], inputs)
        return each.mean()

    def _classes(self, learner: Learner, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """A unit and an earlier task for each number: of all classes, or of one task's, the tasks taking turns."""
        memory, before, earlier = learner.memory[self.name], learner.memory[self.name]["before"], learner.now.earlier
        task = (torch.arange(len(uniform), device=uniform.device) + learner.now.step * len(uniform)) % earlier
        every = learner.outputs.all_compete  # indexing with a 0-d tensor would read its value on the host
        first, last = (0, before[earlier.view(1)]) if every else (before[task], before[task + 1])
        place = first + (uniform * (last - first)).long()
        return memory["units"][place], memory["tasks"][place]

    def _gates(self, learner: Learner, chances: Tensor, task: Tensor) -> Sequence[Tensor]:
        rows = chances if learner.outputs.scenario.own_units else _one_hot(task, learner.outputs.tasks)
        return [rows @ table for table in learner.memory[self.name]["gates"]]

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        kept = {n: p for n, p in stack.params["generator"].items() if n.startswith(("decoder.", "modes."))}
        return super().consolidate(stack, memory, task) | {"generator": {n: p.clone() for n, p in kept.items()}}


def _one_hot(numbers: Tensor, kinds: int) -> Tensor:
    return (numbers.unsqueeze(-1) == torch.arange(kinds, device=numbers.device)).to(torch.get_default_dtype())
