"""What a method is made of: parts, each a few hooks written for ONE network.

The engine maps the hooks over all replicas. The hooks that run once, when a task is finished, get the whole stack.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from inspect import isfunction
from typing import TYPE_CHECKING, Any, ClassVar
from warnings import warn

import torch
from torch import Tensor, nn

from threefold.methods.learner import (
    Batch,
    Draws,
    Learner,
    Memory,
    Params,
    PathIntegral,
    Quadratic,
    Replay,
    Setting,
    Stack,
    Step,
)
from threefold.streams import Task
from threefold.values import Value, hyper

if TYPE_CHECKING:
    from threefold.methods.method import Method

__all__ = ["Part", "hyper"]


class Part(Value):
    """A building block of methods; every hook is optional. Its fields are the hyperparameters.

    What a part remembers is a dictionary of tensors: `learner.memory[self.name]` in the hooks of a step, `memory` in
    the others.
    """

    citation: ClassVar[str] = ""  # the BibTeX key of its paper; ours are in citations.bib
    uses_task: ClassVar[bool] = False  # does it use the task in the hidden layers?
    over_seen: ClassVar[bool] = False  # is its loss over units of classes seen so far, whatever `active` is?
    uses_features: ClassVar[bool] = False  # does its loss use the features of the samples whose logits are used?

    @property
    def adds_replay(self) -> bool:
        """Is its `replay_loss` added to the loss on current data, instead of sharing the weights 1/K and 1 − 1/K?"""
        return False

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Warn of misspelt hooks, which would never be called."""
        hooks, mine = ({n for n, v in vars(kind).items() if isfunction(v) and n[0] != "_"} for kind in (Part, cls))
        for name in mine - hooks:
            if alike := get_close_matches(name, hooks, n=1, cutoff=0.85):
                warn(f"{cls.__name__} defines {name}, which is no hook; did you mean {alike[0]}?", stacklevel=4)

    def __add__(self, other: "Part | Method") -> "Method":
        from threefold.methods.method import Method

        return Method(self) + other

    # before training

    def refuse(self, setting: Setting) -> str | None:
        """Why this part cannot work in this setting; None if it can."""
        return None

    def networks(self, setting: Setting) -> dict[str, nn.Module]:
        """Networks to train in addition to the classifier, by name."""
        return {}

    def size(self, setting: Setting) -> int:
        """How many numbers it remembers for one network, if many: what exceeds any memory is refused early."""
        return 0

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        """What one network remembers before its first task."""
        return {}

    # before each task, for one network

    def begin(self, setting: Setting, task: int, memory: Memory) -> dict[str, Params]:
        """Before each task but the first: initial weights for this part's own networks, by name.

        The optimiser's state is reset if any are given. Networks that are not named keep their weights.
        """
        return {}

    def data(self, tasks: Sequence[Task], task: int, memory: Memory) -> list[tuple[int, Tensor]] | None:
        """The training data of this task, as (task, indices) pairs; None: the task's own."""
        return None

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        """What the next `steps` steps of this task draw, by name; the hooks find it in `learner.drawn`.

        `source` gives random numbers that depend on the network's seed, this part and the task alone.
        """
        return {}

    # at each step, for one network

    def gates(self, learner: Learner, task: Tensor) -> Sequence[Tensor] | None:
        """For each hidden layer one factor per unit, for samples of `task`."""
        return None

    def loss(self, learner: Learner, batch: Batch) -> Tensor | None:
        """The loss on the current data; None: classification (equation 1)."""
        return None

    def replay(self, learner: Learner, batch: Batch) -> Replay | None:
        """The samples to replay at this step, with their targets. No gradient flows through them."""
        return None

    def replay_loss(self, learner: Learner, replay: Replay) -> Tensor | None:
        """The loss on what this part replays."""
        return None

    def penalty(self, learner: Learner) -> Tensor | Quadratic | None:
        """A regularisation term: a number, or a `Quadratic`, whose gradient is nearly free."""
        return None

    def side_loss(self, learner: Learner, batch: Batch, replay: Replay | None) -> Tensor | None:
        """The loss of the networks other than the classifier."""
        return None

    def adjust(self, learner: Learner, gradient: Params) -> Params | None:
        """The classifier's gradient, changed before the optimiser sees it; None: as it is."""
        return None

    def after_step(self, learner: Learner, step: Step) -> Memory | PathIntegral | None:
        """The entries of the memory that this step changes, or a path integral to accumulate."""
        return None

    # once, when a task is finished: the whole stack

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """The memory after the finished task."""
        return memory

    def keep(self, stack: Stack, memory: Memory) -> dict[str, Tensor]:
        """Small tensors to look at later, such as images, for each replica; stored with its results after each task."""
        return {}

    # at test time, for one network

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor | None:
        """A score for each output unit, of which the highest active one wins; None: the classifier's output."""
        return None
