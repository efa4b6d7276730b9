"""How the steps of a task are taken: one by one, or replayed as a CUDA graph. The step itself is the same code."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol

import torch

from threefold.engine.draws import Draws
from threefold.engine.lockstep import Lockstep
from threefold.engine.program import Program

WORTH = 10**12  # weights to be moved ahead from which on compiling pays: it takes ten seconds and more
WARM_UP = 3  # steps taken one by one before a capture: libraries set themselves up at their first call


class Steps(Protocol):
    quiet: Callable[[], None]  # waits for whoever else uses the device: called before a capture

    def begin(self, draws: Draws, ahead: int) -> None:
        """A task begins: these are its draws, and so many steps are still to be taken, of later tasks too."""

    def take(self, step: int) -> None:
        """Take this step (counted from 0, in order)."""


def steps_for(stack: Lockstep, in_company: bool = False) -> Steps:
    """The quickest way to take steps on the stack's device; `in_company`: other stacks take theirs at the same time."""
    if stack.device.type != "cuda":
        return Eager(stack)
    return Captured(stack, torch.cuda.Stream(stack.device) if in_company else None)  # type: ignore[no-untyped-call]


class Eager:
    """Every step is launched operation by operation."""

    def __init__(self, stack: Lockstep) -> None:
        self.stack = stack
        self.quiet: Callable[[], None] = lambda: None

    def begin(self, draws: Draws, ahead: int) -> None:
        self.draws = draws

    def take(self, step: int) -> None:
        self.draws.prepare(step)
        self.stack.step(*self.draws.at(step))


class Captured:
    """A step is captured once and replayed: on a GPU the launches would take longer than the work.

    A graph works on tensors by their addresses, so it serves for as long as parameters, memory and draws stay in place:
    for all tasks but the first, unless what steps read of a memory changes its shape. Where much is ahead, the gradient
    in it is compiled as well. The step's number is counted on the device. On a `stream` of its own it runs beside the
    graphs of other stacks: small networks leave some of a GPU idle.
    """

    def __init__(self, stack: Lockstep, stream: "torch.cuda.Stream | None" = None, worth: int | None = None) -> None:
        """`worth`: weights to be moved ahead from which on the gradient is compiled, if not the usual number."""
        self.stack, self.stream, self.worth = stack, stream, WORTH if worth is None else worth
        self.graph: torch.cuda.CUDAGraph | None = None
        self.draws: Draws | None = None
        self.captured: object = None  # what the graph was captured for
        self.quiet: Callable[[], None] = lambda: None

    def begin(self, draws: Draws, ahead: int) -> None:
        later = self.stack.task > 0  # then there is a past to protect: another step
        wanted = (later, [leaf.data_ptr() for leaf in self.stack.tensors()])
        if self.draws is None or wanted != self.captured or not self.draws.replaced_by(draws):
            self.graph, self.draws, self.captured = None, draws, wanted
            worth = ahead * self.stack.weights >= self.worth
            self.stack.program = Program() if worth and later else None
        self.stack.now.step.zero_()
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(self.stack.device))

    def take(self, step: int) -> None:
        with torch.cuda.stream(self.stream) if self.stream else nullcontext():
            self._take(step)

    def _take(self, step: int) -> None:
        assert self.draws is not None
        self.draws.prepare(step)
        if self.graph is None and step < WARM_UP:
            self._step()
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            self.quiet()
            with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                self._step()
        self.graph.replay()

    def _step(self) -> None:
        assert self.draws is not None
        self.stack.step(*self.draws.at(self.stack.now.step))
