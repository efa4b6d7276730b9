"""The types that the hooks of a method work with: a network in training, its batches, and what it may draw."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from threefold.errors import ThreefoldError
from threefold.networks import (
    AnyNetwork,
    GateOn,
    MLPNetwork,
    OwnNetwork,
    Structure,
    called,
    drawing,
    with_addressed_dropout,
)
from threefold.scenarios import Outputs

if TYPE_CHECKING:
    from threefold.methods.part import Part

Params = dict[str, Tensor]
Memory = dict[str, Any]  # a tree of tensors
STEP = 0x85EBCA6B  # offset of the random key inside networks, from one step to the next


def copied(params: Params) -> Params:
    """Copies, as what a part remembers must not change with the weights."""
    return {name: p.clone() for name, p in params.items()}


class Batch(NamedTuple):
    """The samples of a step."""

    x: Tensor  # (samples, *shape): images keep theirs, channels first
    y: Tensor  # (samples,) target units
    task: Tensor  # (samples,) the task each belongs to
    indices: Tensor  # (samples,) their places in the training data


class Replay(NamedTuple):
    """Replayed samples: `y` is a unit for each (hard targets) or a probability for each unit (soft targets)."""

    x: Tensor
    y: Tensor
    task: Tensor


class Now(NamedTuple):
    """The current position in training. Rows of the masks are tasks, columns output units."""

    seen: Tensor  # how many tasks have been seen, the current one included (the paper's K)
    earlier: Tensor  # how many tasks replays may be for
    active: Tensor  # units active for data of each task
    taught: Tensor  # units that were active before the current task: those that targets are defined over
    step: Tensor  # of the current task, counted from 0
    shares: Tensor  # the weights of current and of replayed data: 1/K and 1 − 1/K (section 4.2)

    @classmethod
    def at(cls, task: int, active: Tensor, taught: Tensor) -> "Now":
        """During this task."""
        share = 1 / (task + 1)
        shares = torch.tensor([share, 1 - share])
        return cls(torch.tensor(float(task + 1)), torch.tensor(task), active, taught, torch.tensor(0), shares)

    @classmethod
    def in_flow(cls, active: Tensor) -> "Now":
        """Where tasks have no ends: units that are ever active are so from the start, and all data weigh alike."""
        return cls(torch.tensor(1.0), torch.tensor(0), active, active.clone(), torch.tensor(0), torch.full((2,), 0.5))


class Samples(NamedTuple):
    """Training samples for each step, steps × batch: a step finds each row as a `Batch` in `learner.drawn`."""

    indices: Tensor
    task: Tensor


class OfLabel(NamedTuple):
    """Requests a batch of the current task's samples of one label for each step; `label` has one entry per step."""

    label: Tensor


class Noise(NamedTuple):
    """Requests standard normal numbers of this shape for every step."""

    shape: tuple[int, ...]


class Uniform(NamedTuple):
    """Requests uniform numbers in [0, 1) of this shape for every step."""

    shape: tuple[int, ...]


Draws = dict[str, Samples | OfLabel | Noise | Uniform]


class Quadratic(NamedTuple):
    """A quadratic penalty, ½ · strength · Σ_i precision_i (θ_i − anchor_i)²."""

    strength: float | Tensor
    anchor: Params
    precision: Params

    def value(self, params: Params) -> Tensor:
        return 0.5 * self.strength * quadratic(params, self.anchor, self.precision)


def quadratic(params: Params, anchor: Params, precision: Params) -> Tensor:
    """Σ_i precision_i (θ_i − anchor_i)²."""
    return torch.stack([(precision[n] * (p - anchor[n]) ** 2).sum() for n, p in params.items()]).sum()


class PathIntegral(NamedTuple):
    """Requests that −Δθ · ∂L/∂θ be summed in this entry of the memory, which has a tensor for each parameter."""

    entry: str


class Step(NamedTuple):
    """What a step did to the classifier."""

    batch: Batch
    before: Params  # the weights before it
    gradient: Params  # of the whole loss


@dataclass(frozen=True)
class Setting:
    """What a method may know about the experiment before training."""

    outputs: Outputs
    shape: tuple[int, ...]  # of one sample: channels × height × width, or a number of features
    batch: int
    network: AnyNetwork
    unit_interval: bool = True  # are all inputs in [0, 1]?
    tasks_end: bool = True  # else `consolidate` is called every so many steps

    @property
    def inputs(self) -> int:
        """How many numbers a sample has."""
        return prod(self.shape)

    @property
    def units(self) -> int:
        """How many logits the classifier has."""
        return self.outputs.units

    @property
    def hidden(self) -> int:
        """How many features the classifier has: the units of its last hidden layer."""
        known = self.network.width if isinstance(self.network, MLPNetwork) else None
        return known or self.structure.feature_size

    @cached_property
    def structure(self) -> Structure:
        """The classifier's layers."""
        return _structure(self)

    def classifier(self) -> nn.Module:
        """The module that defines the computation; its parameters have shapes but no values, if it can be built so."""
        try:
            with torch.device("meta"):
                return with_addressed_dropout(self.network.build(self))
        except (ThreefoldError, torch.OutOfMemoryError):
            raise
        except Exception:  # a user's module may read values while it is built
            if not isinstance(self.network, OwnNetwork):
                raise
        return self.built()

    def built(self) -> nn.Module:
        """The classifier with values, from any seed."""
        try:
            with torch.random.fork_rng(devices=[]):
                return with_addressed_dropout(self.network.build(self))
        except (ThreefoldError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ThreefoldError(f"network {self.network.name} cannot be built: {_reason(error)}.") from error


@lru_cache(256)
def _structure(setting: Setting) -> Structure:
    """Computed with real values: with meta tensors PyTorch imports its compiler, which takes seconds."""
    net, name = setting.built(), setting.network.name
    try:
        own = isinstance(setting.network, OwnNetwork)
        return Structure.of(net, name, setting.shape, setting.units, _device(net), own=own)
    except (ThreefoldError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        shape = "×".join(map(str, setting.shape))
        raise ThreefoldError(f"network {name} cannot take inputs of {shape}: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    """An error's message, as the end of a sentence."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def _device(net: nn.Module) -> str:
    return str(next((p.device for p in net.parameters()), torch.device("cpu")))


class InTraining(NamedTuple):
    """What a network has during a training step only."""

    drawn: Mapping[str, Any]
    samples: Callable[[Tensor, Tensor], Batch]
    key: Tensor  # of the randomness inside the network: dropout


class Learner:
    """One network in training, as the parts of its method see it."""

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        setting: Setting,
        parts: Sequence["Part"],
        params: Mapping[str, Params],
        memory: Mapping[str, Mapping[str, Any]],
        now: Now,
        buffers: Params | None = None,
        training: "InTraining | None" = None,
    ) -> None:
        self.networks, self.setting, self.parts = networks, setting, parts
        self.all_params, self.memory, self.now = params, memory, now
        self.buffers = buffers or {}  # the classifier's, such as batch norm's statistics
        self.drawn = training.drawn if training else {}  # what the parts requested in `draws`, for this step
        self._training = training
        self._dropouts = 0  # so far in this step
        self._known: list[tuple[Tensor, Tensor, Tensor, Tensor | None]] = []  # inputs, tasks, their logits and features

    @property
    def outputs(self) -> Outputs:
        return self.setting.outputs

    @property
    def params(self) -> Params:
        """The classifier's parameters."""
        return self.all_params["classifier"]

    def samples(self, indices: Tensor, task: Tensor) -> Batch:
        """Training samples by their indices, for memories that store indices."""
        assert self._training is not None, "samples are at hand during training only"
        return self._training.samples(indices, task)

    def logits(self, x: Tensor, task: Tensor, params: Params | None = None) -> Tensor:
        """The classifier's output, inactive units included, for samples of `task`: one for all, or one each.

        With several tasks for each, tasks × samples, the output has that leading axis too. `params`: weights to use
        instead of its own; a `Stack.snapshot` includes buffers and computes as at test time.
        """
        if params is None:
            for mine, its, logits, _ in self._known:
                if x is mine and task is its:
                    return logits
        return _for_each(task, self._forward(x, task, params))

    def _forward(self, x: Tensor, task: Tensor, params: Params | None = None) -> Tensor:
        gates, on = self._gates(task)
        if gates is not None and task.dim() > 1 and not isinstance(self.setting.network, MLPNetwork):
            return torch.stack([self._forward(x, each, params) for each in task])
        net = self.networks["classifier"]
        with self.setting.structure.gated(net, gates, on) if gates is not None else nullcontext():
            return self._call(net, x, params)

    def _call(self, net: nn.Module, x: Tensor, params: Params | None) -> Tensor:
        """The network as in training; for a snapshot, or outside training, as at test time, without buffer updates."""
        weights, buffers, training = params or self.params, self.buffers, self._training
        if x.dim() == 4 and x.is_cuda and self.setting.structure.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        if not self.setting.structure.has_modes:
            return called(net, weights, x)
        if params is not None and buffers.keys() <= params.keys():
            weights, buffers = _split(params, buffers)
            training = None
        if net.training != (training is not None):  # it takes a while to tell all modules
            net.train(training is not None)
        if training is None:
            return called(net, {**weights, **buffers}, x)
        fresh = copied(buffers)  # they are written in place
        with drawing(training.key + self.now.step * STEP, self._dropouts) as drawn:
            logits = called(net, {**weights, **fresh}, x)
        if params is None:
            self.buffers, self._dropouts = fresh, drawn.calls
        return logits

    def forward_together(self, samples: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Send these inputs (with their tasks) through the network in one pass; `logits` then reuses the results.

        So each weight's gradient is one product instead of a sum of several. Equal inputs (LwF's) go through once,
        unless they are gated differently. Inputs gated for several tasks each are passed separately; what does not have
        the shape of inputs (a part may replay features) is left out.
        """
        gated, shape = self._gates(samples[0][1])[0] is not None, samples[0][0].shape[1:]
        samples = [(x, task) for x, task in samples if x.shape[1:] == shape and (not gated or task.dim() < 2)]
        keys = [(id(x), id(task) if gated else 0) for x, task in samples]
        different = dict(zip(keys, samples, strict=True))
        inputs, tasks = zip(*different.values(), strict=True)
        structure, wanted = self.setting.structure, any(part.uses_features for part in self.parts)
        with ExitStack() as hooks:
            net = self.networks["classifier"]
            tapped: list[Tensor] = hooks.enter_context(structure.tapped(net)) if wanted else []
            if len(different) == 1:
                logits = self._forward(inputs[0], tasks[0])
            else:
                each = [(task if task.dim() < 2 else task[0]).expand(len(x)) for x, task in different.values()]
                logits = self._forward(torch.cat(inputs), torch.cat(each))
        sizes = [len(x) for x in inputs]
        pieces = dict(zip(different, torch.split(logits, sizes), strict=True))
        features = dict(zip(different, torch.split(tapped[0], sizes), strict=True)) if tapped else {}
        self._known = [
            (x, task, _for_each(task, pieces[key]), features.get(key))
            for key, (x, task) in zip(keys, samples, strict=True)
        ]

    def features(self, x: Tensor, task: Tensor) -> Tensor:
        """Activations of the last hidden layer (iCaRL's ψ)."""
        for mine, its, _, found in self._known:
            if x is mine and task is its and found is not None:
                return found
        with self.setting.structure.tapped(self.networks["classifier"]) as tapped:
            self._forward(x, task)
        return tapped[0]

    def _gates(self, task: Tensor) -> tuple[Sequence[Tensor] | None, GateOn]:
        """The factors of the first part that has gates, and whether they multiply activations or weighted inputs."""
        for part in self.parts:
            gates = part.gates(self, task)
            if gates is not None:
                return gates, getattr(part, "gate_on", "activation")
        return None, "activation"


def _split(params: Params, buffers: Params) -> tuple[Params, Params]:
    """A snapshot as parameters and buffers."""
    weights = {name: p for name, p in params.items() if name not in buffers}
    return weights, {name: params[name] for name in buffers}


def _for_each(task: Tensor, logits: Tensor) -> Tensor:
    """Expand to tasks × samples × units where each sample is for several tasks, even if there are no gates."""
    return logits if logits.dim() > task.dim() else logits.expand(len(task), *logits.shape)


class Stack(Protocol):
    """All replicas at the end of a task: what `consolidate` may use. Every tensor has a leading replica axis."""

    params: dict[str, Params]
    setting: Setting
    seeds: Sequence[int]
    device: torch.device

    def snapshot(self) -> Params:
        """A copy of the classifiers, parameters and buffers, to be given to `Learner.logits` later."""

    def training_data(
        self, chosen: Sequence[Tensor] | None = None, task: int | Sequence[Tensor] | None = None
    ) -> Iterator[tuple[Batch, Tensor]]:
        """The training data of the task just finished, in pieces; or the `chosen` indices of each replica, of `task`
        (one for all, or for each replica a tensor with one for each index).

        Replicas' tasks differ in size: each sample comes with a weight, 0 for padding, that sums to 1 for a replica.
        """

    def own_samples(self, label: int | None = None) -> list[Tensor]:
        """For each replica, the indices of the finished task's training samples, of all labels or of one."""

    def map(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(learner, *args)` for every replica; arguments carry the replica axis first."""
