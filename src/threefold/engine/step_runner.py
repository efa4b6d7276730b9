"""Runs the steps of a task: one by one, or replayed as a CUDA graph. The step itself is the same code."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol

import torch

from threefold.engine.compile import CompiledFunction
from threefold.engine.sampling import Sampler
from threefold.engine.stack import ReplicaStack
from threefold.engine.step import TrainingStep

WORTH_COMPILING = 10**12  # remaining weight updates from which compiling pays: it takes ten seconds or more
WARM_UP = 3  # steps taken one by one before a capture: libraries set themselves up at their first call


class StepRunner(Protocol):
    wait_for_device: Callable[[], None]  # waits until no other thread uses the device
    stream: "torch.cuda.Stream | None"  # that steps run on, if not the default one

    def begin_task(self, sampler: Sampler, ahead: int, start: int = 0) -> None:
        """Begin a task, or resume it at step `start`. `ahead`: the steps left, those of later tasks included."""

    def go_on(self) -> None:
        """The memory has changed in the middle of a task."""

    def take(self, step: int) -> None:
        """Take this step (counted from 0, in order)."""


def runner_for(stack: ReplicaStack, one_of_several: bool = False) -> StepRunner:
    """The fastest runner for the stack's device; `one_of_several`: other stacks take steps at the same time."""
    if stack.device.type != "cuda" or not stack.setting.structure.capturable:
        return Eager(stack)
    return Captured(stack, torch.cuda.Stream(stack.device) if one_of_several else None)  # type: ignore[no-untyped-call]


class Eager:
    """Launches every step operation by operation."""

    def __init__(self, stack: ReplicaStack) -> None:
        self.step = TrainingStep(stack)
        self.stream: torch.cuda.Stream | None = None
        self.wait_for_device: Callable[[], None] = lambda: None

    def begin_task(self, sampler: Sampler, ahead: int, start: int = 0) -> None:
        self.sampler, self.step.plan = sampler, None
        sampler.go_on(start)
        self.step.stack.now.step.fill_(start)

    def go_on(self) -> None:
        self.step.plan = None

    def take(self, step: int) -> None:
        self.sampler.prepare(step)
        self.step.take(*self.sampler.at(step))


class Captured:
    """Captures a step once and replays it: on a GPU the launches would take longer than the work.

    A graph uses tensors by address, so it is valid as long as parameters, samples and what steps read of the memory
    stay in place: usually for all tasks but the first. If many steps are left, the gradient in it is compiled as well.
    The step's number is counted on the device. On a `stream` of its own it runs concurrently with the graphs of other
    stacks, as small networks leave some of a GPU idle.
    """

    def __init__(
        self, stack: ReplicaStack, stream: "torch.cuda.Stream | None" = None, worth: int | None = None
    ) -> None:
        """`worth`: remaining weight updates from which the gradient is compiled, if not `WORTH_COMPILING`."""
        self.step, self.stream, self.worth = TrainingStep(stack), stream, WORTH_COMPILING if worth is None else worth
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0  # steps taken one by one since the last graph
        self.sampler: Sampler | None = None
        self.captured_for: object = None
        self.wait_for_device: Callable[[], None] = lambda: None

    def begin_task(self, sampler: Sampler, ahead: int, start: int = 0) -> None:
        stack = self.step.stack
        compiles = stack.task > 0 and ahead * stack.weights >= self.worth  # the first task's step often differs
        fits = self.graph is not None and self.captured_for == (compiles, self.step.addresses())
        if not (fits and self.sampler and self.sampler.replaced_by(sampler)):
            self.sampler = sampler
            self._forget()
            self.step.compiled = CompiledFunction() if compiles else None
        self.sampler.go_on(start)
        stack.now.step.fill_(start)
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(stack.device))

    def go_on(self) -> None:
        if self.graph is not None and self.captured_for != (self.step.compiled is not None, self.step.addresses()):
            self._forget()
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(self.step.stack.device))

    def _forget(self) -> None:
        """Discard the captured step, as steps have changed."""
        self.graph, self.step.plan, self.warm = None, None, 0

    def take(self, step: int) -> None:
        assert self.sampler is not None
        with torch.cuda.stream(self.stream) if self.stream else nullcontext():
            self.sampler.prepare(step)
            if self.graph is None and self.warm >= WARM_UP:
                self._capture()
            if self.graph is None:
                self.step.take(*self.sampler.at(self.step.stack.now.step))
                self.warm += 1
            else:
                self.graph.replay()

    def _capture(self) -> None:
        assert self.sampler is not None
        graph = torch.cuda.CUDAGraph()
        self.wait_for_device()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self.step.take(*self.sampler.at(self.step.stack.now.step))
        self.graph = graph
        self.captured_for = (self.step.compiled is not None, self.step.addresses())
