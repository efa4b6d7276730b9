"""How one task gives way to the next: a distribution over tasks for each step of training."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from threefold.errors import ThreefoldError
from threefold.values import Value, build, hyper, known, pairs_of


class Boundaries(Value):
    """How one task gives way to the next."""

    @property
    def clock(self) -> int | None:
        """If tasks have no ends, how many steps there are between consolidations; None: at the end of each task."""
        return None

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "hyperparameters": self.model_dump(mode="json")}

    def refuse(self, lengths: Sequence[int]) -> str | None:
        """Why tasks of these lengths cannot have such boundaries; None if they can."""
        return None

    def begins(self, lengths: Sequence[int]) -> list[int]:
        """The step at which each task first appears."""
        return [sum(lengths[:task]) for task in range(len(lengths))]

    def turns(self, lengths: Sequence[int]) -> list[int]:
        """The steps at which one task gives way to another; if they fade, the middle."""
        return self.begins(lengths)[1:]

    def chances(self, lengths: Sequence[int], start: int, stop: int) -> Tensor:
        """The probability of each task at the steps of this range, steps × tasks."""
        raise NotImplementedError


class Sharp(Boundaries):
    """One task after another; methods are notified when one ends."""

    name = "sharp"


class _WithoutEnds(Boundaries):
    every: int = hyper("steps after which methods consolidate, as no task ever ends", 100, ge=1)

    @property
    def clock(self) -> int:
        return self.every


class Blurred(_WithoutEnds):
    """Each task fades into the next without notice: around each boundary its share falls linearly.

    The tasks are cyclic: the first one is trained at the beginning for half its steps, and again at the end (van de
    Ven, Tuytelaars & Tolias 2022, task-free streams).
    """

    name = "blurred"
    width: int = hyper("steps before and after a boundary in which both tasks come", 500, ge=0)

    def refuse(self, lengths: Sequence[int]) -> str | None:
        """Two fades may touch but not overlap."""
        half = min(lengths[0] // 2, lengths[0] - lengths[0] // 2)
        most = min(half, *(length // 2 for length in lengths))
        if self.width <= most:
            return None
        return f"width of blurred must be at most {most}, half of the shortest task's steps, got {self.width}."

    def turns(self, lengths: Sequence[int]) -> list[int]:
        """From each task to the next, and from the last to the first."""
        return [lengths[0] // 2 + sum(lengths[1 : task + 1]) for task in range(len(lengths))]

    def begins(self, lengths: Sequence[int]) -> list[int]:
        return [0, *(max(0, end - self.width) for end in self.turns(lengths)[:-1])]

    def chances(self, lengths: Sequence[int], start: int, stop: int) -> Tensor:
        steps = torch.arange(start, stop, dtype=torch.float64) + 0.5  # the middle of each
        found = torch.zeros(len(steps), len(lengths), dtype=torch.float64)
        found[:, 0] = 1
        for task, end in enumerate(self.turns(lengths)):
            passed = ((steps - end) / (2 * self.width) + 0.5).clamp(0, 1) if self.width else (steps >= end).double()
            share = found[:, task] * passed
            found[:, task] -= share
            found[:, (task + 1) % len(lengths)] += share
        return found


class Mixed(_WithoutEnds):
    """All tasks at once, at every step alike: there are no boundaries at all."""

    name = "none"

    def begins(self, lengths: Sequence[int]) -> list[int]:
        return [0] * len(lengths)

    def turns(self, lengths: Sequence[int]) -> list[int]:
        return []

    def chances(self, lengths: Sequence[int], start: int, stop: int) -> Tensor:
        shares = torch.tensor(lengths, dtype=torch.float64)
        return (shares / shares.sum()).expand(stop - start, -1)


SHARP = Sharp()
BOUNDARIES: dict[str, type[Boundaries]] = {kind.name: kind for kind in (Sharp, Blurred, Mixed)}


def find_boundaries(given: Any) -> Boundaries:
    """Parse boundaries such as `blurred:width=500`."""
    if isinstance(given, Boundaries):
        return known(BOUNDARIES, "boundaries", given)
    if not isinstance(given, str):
        raise ThreefoldError(f"boundaries must be a name such as 'blurred:width=500', got {given!r}.")
    return build(BOUNDARIES, "boundaries", *pairs_of(given, "boundaries"))
