"""Modified training data: replay of current inputs or of generated ones, with hard or soft targets (section 3.3)."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from threefold.methods.learner import Batch, Draws, Learner, Memory, Noise, Params, Replay, Setting, Stack, copied
from threefold.methods.losses import Reduction, cross_entropy, distillation
from threefold.methods.losses import only_active as only
from threefold.methods.part import Part, hyper
from threefold.networks import CNN, LATENT, VAE, CNNNetwork, ConvolutionalVAE, Convolutions, Decoder, EncodedVAE
from threefold.randomness import generator

ReplayedFor = Literal["one", "every"]
DREAMS = 8  # generated images kept after each task


class Taught(Part):
    """Replays with targets from a copy of the classifier, stored after the previous task."""

    def taught(self, learner: Learner) -> bool:
        """Is there a copy yet? Not in the first task."""
        return "teacher" in learner.memory[self.name]

    def _teacher(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        """The logits of the copy, over the units that were active one task ago."""
        logits = learner.logits(x, task, params=learner.memory[self.name]["teacher"])
        return only(logits, learner.now.taught[task])

    def hard(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        """The most likely unit among those that were active one task ago (section A.1.1)."""
        return self._teacher(learner, x, task).argmax(-1)

    def soft(self, learner: Learner, x: Tensor, task: Tensor, temperature: float) -> Tensor:
        """ỹ: probabilities over the units active one task ago, zero for all others (equation 2)."""
        return torch.softmax(self._teacher(learner, x, task) / temperature, -1)

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        return memory | {"teacher": stack.snapshot()}


class ForEarlierTasks(Taught):
    """Each replayed sample is for one earlier task or for all of them: in Task-IL each has its own head or gates."""

    replayed_for: ReplayedFor = hyper("the earlier tasks that a replayed sample is for: one, by turns, or every", "one")

    def tasks(self, learner: Learner, samples: int) -> Tensor:
        """The task of each replayed sample; where each is for several, tasks × samples.

        Replays are shared equally over the earlier tasks, which take turns across steps (A.1.1). If every sample is
        replayed for every task, there is a row for each task but the last, so that shapes never change.
        """
        outputs, earlier = learner.outputs, learner.now.earlier
        if self.replayed_for == "one" or not outputs.scenario.task_known:  # otherwise the task makes no difference
            return (torch.arange(samples, device=earlier.device) + learner.now.step * samples) % earlier
        rows = outputs.tasks - 1 if learner.setting.tasks_end else outputs.tasks
        return (torch.arange(rows, device=earlier.device) % earlier).unsqueeze(1).expand(-1, samples)

    def mean(self, learner: Learner, losses: Tensor) -> Tensor:
        """The mean over samples and the tasks they are for; rows that only pad to the fixed shape do not count."""
        if losses.dim() < 2:
            return losses.mean()
        earlier = learner.now.earlier
        counts = torch.arange(len(losses), device=losses.device) < earlier
        return torch.where(counts, losses.mean(-1), 0).sum() / earlier


class Distilled(ForEarlierTasks):
    """Replays with soft targets."""

    temperature: float = hyper("temperature T of the softmax in distillation", 2.0, gt=0)
    reduction: Reduction = hyper("distillation over the active classes: their sum or mean", "sum")
    t_squared: bool = hyper("multiply distillation by T², as equation 3 does", True, later=True)

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        logits, active = learner.logits(replay.x, replay.task), learner.now.active[replay.task]
        how = self.temperature, self.reduction
        return self.mean(learner, distillation(logits, replay.y, active, *how, t_squared=self.t_squared))


class LwF(Distilled):
    """Learning without forgetting: current inputs replayed with the previous model's soft targets."""

    name = "lwf"
    citation = "li2018"
    weighting: Literal["shared", "added"] = hyper(
        "the current data's and the distillation's weights: 1/K and 1 − 1/K, or 1 and the number of earlier tasks (1"
        " where these compete)",
        "shared",
        later=True,
    )

    @property
    def adds_replay(self) -> bool:
        return self.weighting == "added"

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        if not self.taught(learner):
            return None
        task = self.tasks(learner, len(batch.y))
        return Replay(batch.x, self.soft(learner, batch.x, task, self.temperature), task)

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        loss = super().replay_loss(learner, replay)
        return loss * learner.now.earlier if self.adds_replay and not learner.outputs.all_compete else loss


class DGR(ForEarlierTasks):
    """Deep generative replay: generated inputs replayed with the previous model's most likely labels."""

    name = "dgr"
    citation = "shin2017"

    def refuse(self, setting: Setting) -> str | None:
        if setting.tasks_end:
            return None
        return f"{self.name} copies its generator when a task ends, and in this stream none does."

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        network, binary = setting.network, setting.unit_interval
        if isinstance(network, CNNNetwork) and network.frozen:
            return {"generator": EncodedVAE(setting.shape, network.channels, setting.hidden, binary=binary)}
        if setting.structure.convolutional and len(setting.shape) == 3:
            return {"generator": ConvolutionalVAE(setting.shape, binary=binary)}
        return {"generator": VAE(setting.inputs, setting.hidden, binary=binary)}

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        """Names are fixed for all subclasses, so that equal seeds generate equal samples."""
        names = ["dgr noise", "dgr noise of replay", "dgr dreamt"] if task else ["dgr noise"]
        return dict.fromkeys(names, Noise((setting.batch, LATENT)))

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        if not self.taught(learner):
            return None
        task = self.tasks(learner, len(batch.y))
        x = dream(learner.networks["generator"], learner.memory[self.name]["generator"], learner.drawn["dgr dreamt"])
        x = x.view(-1, *learner.setting.shape)
        return Replay(x, self.targets(learner, x, task), task)

    def targets(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        return self.hard(learner, x, task)

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor:
        logits, active = learner.logits(replay.x, replay.task), learner.now.active[replay.task]
        return self.mean(learner, cross_entropy(logits, replay.y, active))

    def side_loss(self, learner: Learner, batch: Batch, replay: Replay | None) -> Tensor:
        """The generator's loss, on current data and on its own replay, weighted as the classifier's (section A.3)."""
        drawn = learner.drawn
        if replay is None:
            return self._generative(learner, batch.x, drawn["dgr noise"]).mean()
        noise = torch.cat([drawn["dgr noise"], drawn["dgr noise of replay"]])
        both = self._generative(learner, torch.cat([batch.x, replay.x]), noise)
        now, past = torch.split(both, [len(batch.x), len(replay.x)])
        return learner.now.shares[0] * now.mean() + learner.now.shares[1] * past.mean()

    def _generative(self, learner: Learner, x: Tensor, noise: Tensor) -> Tensor:
        """The generator's loss of each sample."""
        vae, classifier, encoded = learner.networks["generator"], learner.networks["classifier"], None
        if isinstance(vae, EncodedVAE) and isinstance(classifier, CNN):
            encoded = functional_call(Convolutions(classifier), learner.buffers, (x,))
        losses: Tensor = functional_call(vae, learner.all_params["generator"], (x, noise, encoded))
        return losses

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        return super().consolidate(stack, memory, task) | {"generator": copied(decoding(stack.params["generator"]))}

    def keep(self, stack: Stack, memory: Memory) -> dict[str, Tensor]:
        """A few generated images after each task, always from the same latent variables."""
        if not stack.setting.unit_interval:
            return {}
        latent = [torch.randn(DREAMS, LATENT, generator=generator(seed, "dreams")) for seed in stack.seeds]
        z = torch.stack(latent).to(stack.device)

        def dreamt(learner: Learner, z: Tensor) -> Tensor:
            return dream(learner.networks["generator"], learner.all_params["generator"], z)

        return {"dreams": (stack.map(dreamt, z) * 255).round().to(torch.uint8)}


def dream(vae: nn.Module, params: Params, z: Tensor) -> Tensor:
    """Images that a generator decodes from latent variables."""
    assert isinstance(vae, VAE)
    images: Tensor = functional_call(Decoder(vae), decoding(params), (z,))
    return images


def decoding(params: Params) -> Params:
    """The generator's parameters that turn latent variables into images."""
    return {name: p for name, p in params.items() if name.startswith(("decoder.", "pixels."))}


class DGRDistill(Distilled, DGR):
    """Generated inputs replayed with soft targets."""

    name = "dgr-distill"
    citation = "vandeven2018"

    def targets(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        return self.soft(learner, x, task, self.temperature)
