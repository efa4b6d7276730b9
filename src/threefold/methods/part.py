"""What a method is made of.

A part is written for ONE network: plain functions of that network's parameters, memory and batch. The engine maps them
over all replicas of a cohort. Hooks that run once per task, when a task is finished, see the whole stack.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from torch import Tensor, nn
from torch.func import functional_call

from threefold.errors import ThreefoldError
from threefold.methods.misspelt import warn_of_misspelt
from threefold.protocols import Task
from threefold.scenarios import Outputs

if TYPE_CHECKING:
    from threefold.methods.method import Method

Params = dict[str, Tensor]
Memory = dict[str, Any]  # a tree of tensors


class Batch(NamedTuple):
    """Samples that reach a step."""

    x: Tensor  # (samples, inputs)
    y: Tensor  # (samples,) target units
    task: Tensor  # (samples,) the task each belongs to


class Replay(NamedTuple):
    """Replayed samples: `y` is a unit for each (hard targets) or a probability for each unit (soft targets)."""

    x: Tensor
    y: Tensor
    task: Tensor


class Now(NamedTuple):
    """Where training stands. Rows of the masks are tasks, columns output units."""

    seen: Tensor  # how many tasks have been seen, the current one included (the paper's K)
    active: Tensor  # units active for data of each task
    taught: Tensor  # units that were active before the current task: those that targets are defined over
    step: Tensor  # of the current task, counted from 0
    shares: Tensor  # the weights of current and of replayed data: 1/K and 1 − 1/K (section 4.2)

    @classmethod
    def at(cls, task: int, active: Tensor, taught: Tensor) -> "Now":
        """When this task is trained."""
        share = 1 / (task + 1)
        return cls(torch.tensor(float(task + 1)), active, taught, torch.tensor(0), torch.tensor([share, 1 - share]))


class Samples(NamedTuple):
    """Draws of training samples, steps × batch: the engine turns each step's row into a `Batch`."""

    indices: Tensor
    task: Tensor


class Noise(NamedTuple):
    """A wish for standard normal draws of this shape at every step."""

    shape: tuple[int, ...]


class Leash(NamedTuple):
    """A quadratic penalty, ½ · strength · Σ_i precision_i (θ_i − anchor_i)².

    Its gradient, strength · precision · (θ − anchor), is elementwise: the engine adds it where it takes the step,
    in one pass over the weights, instead of deriving it.
    """

    strength: float | Tensor
    anchor: Params
    precision: Params

    def penalty(self, params: Params) -> Tensor:
        return 0.5 * self.strength * quadratic(params, self.anchor, self.precision)


def quadratic(params: Params, anchor: Params, precision: Params) -> Tensor:
    """Σ_i precision_i (θ_i − anchor_i)²."""
    return torch.stack([(precision[n] * (p - anchor[n]) ** 2).sum() for n, p in params.items()]).sum()


@dataclass(frozen=True)
class Setting:
    """What a method may know about the experiment before training."""

    outputs: Outputs
    inputs: int
    hidden: int
    batch: int
    unit_interval: bool = True  # are all inputs in [0, 1]?


class Learner:
    """One network in training, as the parts of its method see it."""

    def __init__(
        self,
        nets: Mapping[str, nn.Module],
        outputs: Outputs,
        parts: Sequence["Part"],
        params: Mapping[str, Params],
        memory: Mapping[str, Memory],
        now: Now,
    ) -> None:
        self.nets, self.outputs, self.parts = nets, outputs, parts
        self.all_params, self.memory, self.now = params, memory, now
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []  # inputs, tasks and their logits

    @property
    def params(self) -> Params:
        return self.all_params["classifier"]

    def logits(self, x: Tensor, task: Tensor, params: Params | None = None) -> Tensor:
        """The classifier's output, inactive units included, for samples of `task`: one for all, or one each.

        Or several tasks for each, tasks × samples: then so is the output.
        """
        if params is None:
            for mine, its, logits in self._seen:
                if x is mine and task is its:
                    return logits
        return _for_each(task, self._forward(x, task, self.params if params is None else params))

    def _forward(self, x: Tensor, task: Tensor, params: Params) -> Tensor:
        logits: Tensor = functional_call(self.nets["classifier"], params, (x, self._gates(task)))
        return logits

    def see(self, samples: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Send these inputs (with their tasks) through the network at once; `logits` knows them from then on.

        So each weight's gradient is one product instead of a sum of several. The same inputs (LwF's) go through once,
        unless gates make them different ones. Inputs that are gated for several tasks each go by themselves.
        """
        gated = self._gates(samples[0][1]) is not None
        samples = [(x, task) for x, task in samples if not gated or task.dim() < 2]
        keys = [(id(x), id(task) if gated else 0) for x, task in samples]
        different = dict(zip(keys, samples, strict=True))
        inputs, tasks = zip(*different.values(), strict=True)
        if len(different) == 1:
            logits = self._forward(inputs[0], tasks[0], self.params)
        else:
            each = [(task if task.dim() < 2 else task[0]).expand(len(x)) for x, task in different.values()]
            logits = self._forward(torch.cat(inputs), torch.cat(each), self.params)
        pieces = dict(zip(different, torch.split(logits, [len(x) for x in inputs]), strict=True))
        self._seen = [(x, task, _for_each(task, pieces[key])) for key, (x, task) in zip(keys, samples, strict=True)]

    def features(self, x: Tensor, task: Tensor) -> Tensor:
        """Activations of the last hidden layer (iCaRL's ψ)."""
        prefix = "features."
        params = {name.removeprefix(prefix): p for name, p in self.params.items() if name.startswith(prefix)}
        hidden: nn.Module = self.nets["classifier"].features  # type: ignore[assignment]
        features: Tensor = functional_call(hidden, params, (x, self._gates(task)))
        return features

    def _gates(self, task: Tensor) -> Sequence[Tensor] | None:
        for part in self.parts:
            gates = part.gates(self.memory[part.name], task)
            if gates is not None:
                return gates
        return None


class Stack(Protocol):
    """A cohort at the end of a task: what `consolidate` may use. Every tensor has a leading replica axis."""

    params: dict[str, Params]
    parts: list["Part"]  # numeric hyperparameters are tensors, one number for each replica
    setting: Setting
    seeds: Sequence[int]
    device: torch.device

    def training_data(self, chosen: Sequence[Tensor] | None = None) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """The training data of the task just finished, or of it the `chosen` indices of each replica, in pieces.

        Replicas' tasks differ in size: each sample comes with a weight, 0 for padding, that sums to 1 for a replica,
        and with its index.
        """

    def own_samples(self, label: int | None = None) -> list[Tensor]:
        """For each replica, the indices of the finished task's training samples, of all labels or of one."""

    def fetch(self, indices: Tensor, task: Tensor) -> Batch:
        """Training samples (replicas × samples) as the networks see them."""

    def map(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(learner, *args)` for every replica; arguments carry the replica axis first."""


def hyper(meaning: str, default: Any = None, *, per_replica: bool = True, later: bool = False, **bounds: Any) -> Any:
    """A hyperparameter: its meaning, default and range. No default: the paper's value for the protocol and scenario.

    Numbers may differ between the replicas of a cohort, unless `per_replica` is False; whatever changes shapes or code
    may not. `later`: no step of the first task depends on it, so replicas that differ in it alone share that task.
    """
    return Field(default, description=meaning, json_schema_extra={"per_replica": per_replica, "later": later}, **bounds)


class Part(BaseModel):
    """A building block of methods; every hook is optional. Its fields are the hyperparameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: ClassVar[str]
    uses_task: ClassVar[bool] = False  # does it use the task in the hidden layers?
    replays_inputs: ClassVar[bool] = False  # does its `replay_loss` take the logits of what it recalls, all of it?

    @classmethod
    def per_replica(cls) -> list[str]:
        """The hyperparameters that may differ between the replicas of a cohort."""
        return [
            name
            for name, field in cls.model_fields.items()
            if field.annotation in (int, float)
            and isinstance(field.json_schema_extra, dict)
            and field.json_schema_extra["per_replica"]
        ]

    @classmethod
    def from_outside(cls) -> bool:
        """Was this very class written elsewhere, by a user? Then it may do anything, whatever it inherits from."""
        return cls.__module__.partition(".")[0] != "threefold"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if {"penalty", "leash"} <= vars(cls).keys():
            raise ThreefoldError(
                f"{cls.__name__} defines penalty and leash, two forms of one thing; right would be one."
            )
        warn_of_misspelt(cls, Part)

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, given: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        """A value that does not fit is an error in our words."""
        try:
            return build(given)
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0]) if first["loc"] else cls.name
            message = first["msg"][0].lower() + first["msg"][1:].rstrip(".")
            raise ThreefoldError(f"hyperparameter {key} of {cls.name} is '{first['input']}': {message}.") from error

    def __add__(self, other: "Part | Method") -> "Method":
        from threefold.methods.method import Method

        return Method(self) + other

    # before training

    def refuse(self, setting: Setting) -> str | None:
        """Why this part cannot work in this setting; None if it can."""
        return None

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        """Networks to be trained beside the classifier."""
        return {}

    def begin(self, setting: Setting, seed: int, params: Params) -> Memory:
        """What one network remembers before its first task."""
        return {}

    # before each task, for one network

    def pool(self, tasks: Sequence[Task], task: int, memory: Memory) -> list[tuple[int, Tensor]] | None:
        """The training data of this task, as (task, indices) pairs; None: the task's own."""
        return None

    def draws(self, setting: Setting, seed: int, task: int, memory: Memory, steps: int) -> dict[str, Samples | Noise]:
        """Further draws that each step needs, by name."""
        return {}

    # at each step, for one network; `recall`, `penalty`, `leash` and `adjust` from the second task on

    def steps_read(self, memory: Memory) -> Memory:
        """What of its memory a step reads. The rest may change its shape, and no step has to be captured anew."""
        return memory

    def gates(self, memory: Memory, task: Tensor) -> Sequence[Tensor] | None:
        """For each hidden layer a factor per unit, for samples of `task`."""
        return None

    def loss(self, learner: Learner, batch: Batch) -> Tensor | None:
        """The loss on the current data; None: classification (equation 1)."""
        return None

    def recall(self, learner: Learner, batch: Batch, drawn: Mapping[str, Any]) -> Replay | None:
        """The samples to replay at this step, with their targets. No gradient flows through them."""
        return None

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor | None:
        """The loss on what this part recalled."""
        return None

    def penalty(self, params: Params, memory: Memory) -> Tensor | None:
        """A regularisation term, its strength included."""
        leash = self.leash(memory)
        return leash.penalty(params) if leash else None

    def leash(self, memory: Memory) -> Leash | None:
        """A regularisation term that is quadratic: quicker than `penalty`."""
        return None

    def side_draws(
        self, setting: Setting, seed: int, task: int, memory: Memory, steps: int
    ) -> dict[str, Samples | Noise]:
        """Further draws that `side_loss` alone needs."""
        return {}

    def side_loss(
        self, learner: Learner, batch: Batch, replay: Replay | None, drawn: Mapping[str, Any]
    ) -> Tensor | None:
        """The loss of the networks trained beside the classifier."""
        return None

    def adjust(self, grads: Params, learner: Learner, drawn: Mapping[str, Any]) -> Params:
        """The classifier's gradient, changed before the optimiser sees it."""
        return grads

    # after each step, for one network or the stack

    def observe(self, memory: Memory, before: Params, after: Params, grads: Params) -> None:
        """What a step did. Elementwise and in place, so the same code serves one network and the stack."""

    def path(self, memory: Memory) -> Params | None:
        """Where the engine is to add up −Δθ · ∂L/∂θ, step by step: quicker than `observe`."""
        return None

    @property
    def observes(self) -> bool:
        return type(self).observe is not Part.observe

    # what several runs may share: networks that would be trained alike are trained once

    def trained_as(self) -> "Part | None":
        """The part that stands for all that train the same network; None: it changes nothing about training."""
        return self

    def networks_depend_on(self) -> Hashable | None:
        """Equal for parts whose networks beside the classifier learn the same, whatever the classifier learns.

        None: they are like no other's.
        """
        return None

    @property
    def scenario_in_masks(self) -> bool:
        """Does it meet the scenario in the masks of `learner.now` only, if at all? Then scenarios may share a stack."""
        return False

    @property
    def leashes(self) -> bool:
        """Is the penalty a leash? The one of `penalty` and `leash` counts that was defined last."""
        return _defines(type(self), "leash") < _defines(type(self), "penalty")

    @property
    def adjusts(self) -> bool:
        return type(self).adjust is not Part.adjust

    # once, when a task is finished: the whole stack

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """The memory with the finished task taken in."""
        return memory

    def keepsakes(self, stack: Stack, memory: Memory) -> dict[str, Tensor]:
        """Small things worth looking at later, for each replica; kept with its results after every task."""
        return {}

    # at test time, for one network

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor | None:
        """A score for each output unit, the highest active one wins; None: the classifier's output."""
        return None


def _defines(part: type[Part], hook: str) -> int:
    """How far up the classes of a part the hook was defined; Part's own definition is as far as nobody's."""
    return next(place for place, cls in enumerate(part.__mro__) if hook in vars(cls) or cls is Part)


def _for_each(task: Tensor, logits: Tensor) -> Tensor:
    """Where each sample is for several tasks, tasks × samples × units, even if no gate made a difference."""
    return logits if logits.dim() > task.dim() else logits.expand(len(task), *logits.shape)
