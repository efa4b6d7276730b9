"""Trains one cohort through its sequence of tasks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from threefold.engine import hook_checks
from threefold.engine.checkpoint import Checkpoint
from threefold.engine.curves import Curves
from threefold.engine.evaluate import accuracies
from threefold.engine.sampling import Prefetch, Sampler, own_steps
from threefold.engine.saved_state import fits
from threefold.engine.saver import Saver
from threefold.engine.sharing import Evaluated, Replicas, Stacks
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import StepRunner, runner_for
from threefold.engine.training import Training
from threefold.streams import Stream

REPORT_EVERY = 10  # steps between two reports of progress


@dataclass(frozen=True)
class Progress:
    """How far a cohort is: `step` of `steps` over all tasks, and the average accuracy after the last task."""

    step: int
    steps: int
    task: int
    tasks: int
    accuracy: float | None


@dataclass
class Measured:
    """Accuracy in per cent before training and after each task, for every replica of a stack."""

    initial: Tensor  # replicas × tasks
    matrix: Tensor  # replicas × tasks trained × tasks tested
    diverged_at: list[int | None]  # the first task after which a replica's numbers were not finite
    kept: list[dict[str, Tensor]] = field(default_factory=list)  # for each task: replicas × what parts kept
    seconds: dict[str, float] = field(default_factory=dict)  # of the whole cohort
    points: list[list[int]] = field(default_factory=list)  # task, step and tasks so far of each test during training
    curves: dict[str, Tensor] = field(default_factory=dict)  # their results, points × replicas (× tasks)

    @classmethod
    def before_training(cls, stack: ReplicaStack) -> "Measured":
        replicas, tasks = len(stack.seeds), stack.setting.outputs.tasks
        empty = torch.full((replicas, tasks, tasks), torch.nan, dtype=torch.float64)
        return cls(accuracies(stack, 0), empty, [None] * replicas)

    def measure(self, stack: ReplicaStack, task: int) -> None:
        self.matrix[:, task] = accuracies(stack, task + 1)
        for replica, finite in enumerate(stack.finite().tolist()):
            if not finite and self.diverged_at[replica] is None:
                self.diverged_at[replica] = task

    def first(self, replicas: int) -> "Measured":
        """The first replicas only."""
        kept = [{name: value[:replicas] for name, value in each.items()} for each in self.kept]
        cut = (self.initial[:replicas], self.matrix[:replicas], self.diverged_at[:replicas])
        curves = {name: values[:, :replicas] for name, values in self.curves.items()}
        return Measured(*cut, kept, self.seconds, self.points, curves)

    def add(self, curves: Curves) -> None:
        """Add the results of tests during training."""
        points, values = curves.new()
        self.points += points
        self.curves = {n: torch.cat([self.curves[n], v]) if n in self.curves else v for n, v in values.items()}


class Keeper(Protocol):
    """Keeps the networks after each task."""

    def holds(self, tasks: int) -> bool:
        """Are those after each of the first so many tasks kept already?"""

    def keep(self, tasks: int, stacks: Sequence[ReplicaStack], measured: Sequence[Measured]) -> None:
        """Keep those after so many tasks."""


def train(
    stream: Stream,
    asked: Sequence[Replicas],
    training: Training,
    checkpoint: Checkpoint | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    keeper: Keeper | None = None,
    runner: Callable[[ReplicaStack, bool], StepRunner] = runner_for,
) -> list[Measured]:
    """Train these stacks on the same tasks in step; what they share is trained once.

    It resumes after the checkpoint's last finished task, if there is one; with a keeper, only if that holds the
    networks of all tasks before. `runner`: makes a stack's step runner.
    """
    device, tasks = torch.device(training.device), stream.tasks
    sizes = [len(each.seeds) for each in asked]
    with torch.no_grad(), precise(training.precision), Saver(checkpoint, device) as saver, Prefetch() as prefetch:
        stacks = Stacks(stream, asked, training)
        state = _State.at(stacks, checkpoint, keeper)
        runners = [runner(stack, len(stacks.trained) > 1) for stack in stacks.trained]
        for each in runners:
            each.wait_for_device = saver.wait_for_device
        courses = [Course(stack, each, training) for stack, each in zip(stacks.trained, runners, strict=True)]
        flow, state.courses = stacks.flow, courses
        planned = [max(own_steps(stack, training, task) for stack in stacks.trained) for task in range(tasks)]
        planned = [flow.steps] if flow else planned
        for task in range(0 if flow else state.finished, len(planned)):
            stacks.begin_task(task)
            start = flow.marks[state.finished - 1] if flow and state.finished else 0
            with _timed(state.seconds, "train"):
                for course in courses:
                    course.begin_task(Sampler(course.stack, training, prefetch), sum(planned[task:]), start)
                if start:
                    stacks.at_step(start)
                if task + 1 < len(planned):
                    prefetch.begin(stacks.trained, task + 1, training)
                steps = max(course.lengths.longest for course in courses)
                for step in range(start, steps):
                    for each, course in zip(runners, courses, strict=True):
                        if step < course.lengths.longest:
                            each.take(step)
                            course.taken(step + 1)
                    if (step + 1) % REPORT_EVERY == 0 or step + 1 == steps:
                        done = sum(planned[:task]) + planned[task] * (step + 1) // steps
                        report(Progress(done, sum(planned), state.finished, tasks, state.accuracy()))
                    if flow and step + 1 < steps and flow.consolidates(step + 1):
                        state.go_on(step + 1, saver)
                _wait(device)
                for course in courses:
                    course.lengths.restore()
            state.finish_task(steps)
            if state.finished < tasks:
                saver.save(state.saved())
    for measured in state.measured:
        measured.seconds = state.seconds
    return [measured.first(size) for measured, size in zip(state.measured, sizes, strict=True)]


class Lengths:
    """How many steps each replica of a stack takes on a task: its own number, however many the others take.

    All replicas of a stack take each step. So the state of a replica that has taken its last one is saved, and restored
    at the end of the task: the steps in between have no effect on it.
    """

    def __init__(self, stack: ReplicaStack, steps: Sequence[int]) -> None:
        self.stack, self.steps, self.longest = stack, steps, max(steps)
        self._ends: dict[int, list[int]] = {}
        for replica, own in enumerate(steps):
            if own < self.longest:
                self._ends.setdefault(own, []).append(replica)
        self._aside: list[tuple[Tensor, Any]] = []

    def taken(self, steps: int) -> None:
        """This many steps have been taken."""
        if steps in self._ends:
            _wait(self.stack.device)  # steps may run on their own stream
            rows = torch.tensor(self._ends[steps], device=self.stack.device)
            self._aside.append((rows, self.stack.rows(rows)))

    def restore(self) -> None:
        for rows, state in self._aside:
            self.stack.put_rows(rows, state)


class Course:
    """One stack's training through the tasks: how its steps are run, and when it is tested in between."""

    def __init__(self, stack: ReplicaStack, runner: StepRunner, training: Training) -> None:
        self.stack, self.runner = stack, runner
        self.curves = Curves(stack, training.evaluation, runner) if training.evaluation else None
        self.lengths = Lengths(stack, [0])

    def begin_task(self, sampler: Sampler, ahead: int, start: int) -> None:
        self.lengths = Lengths(self.stack, sampler.each_steps)
        self.runner.begin_task(sampler, ahead, start)
        if self.curves:
            self.curves.begin_task(start)

    def taken(self, steps: int) -> None:
        """This many steps of the task have been taken."""
        self.lengths.taken(steps)
        if self.curves and steps < self.lengths.longest and self.curves.wanted(steps):
            self.curves.take(steps, self.lengths.steps)


@dataclass
class _State:
    """A cohort's progress and measurements so far."""

    stacks: Stacks
    measured: list[Measured]  # for each of `Stacks.evaluated`
    seconds: dict[str, float]
    finished: int = 0  # tasks
    courses: Sequence[Course] = ()
    keeper: Keeper | None = None

    @classmethod
    def at(cls, stacks: Stacks, checkpoint: Checkpoint | None, keeper: Keeper | None) -> "_State":
        """The checkpoint's state, or the initial one.

        The loaded tensors are copied and freed here: gigabytes on a GPU must not stay for the rest of training.
        """
        saved = checkpoint.load(stacks.device, lambda state: fits(stacks, state)) if checkpoint else None
        if saved and (keeper is None or keeper.holds(saved["finished"])):
            stacks.restore(saved["stacks"])
            measured = [Measured(**each) for each in tree_map_only(Tensor, Tensor.cpu, saved["measured"])]
            return cls(stacks, measured, saved["seconds"], saved["finished"], keeper=keeper)
        seconds = {"train": 0.0, "consolidate": 0.0, "evaluate": 0.0}
        with _timed(seconds, "evaluate"):
            measured = [Measured.before_training(each.stack) for each in stacks.evaluated]
            return cls(stacks, measured, seconds, keeper=keeper)

    def finish_task(self, steps: int) -> None:
        """Finish a task trained in this many steps: update the memories and test all tasks."""
        each: list[tuple[Evaluated, Measured]] = list(zip(self.stacks.evaluated, self.measured, strict=True))
        with _timed(self.seconds, "consolidate"):
            self.stacks.consolidate()
            for evaluated, measured in each:
                measured.kept.append(hook_checks.kept(evaluated.stack.kept(), measured.kept))
            _wait(self.stacks.device)
        with _timed(self.seconds, "evaluate"):
            for evaluated, measured in each:
                measured.measure(evaluated.stack, self.finished)
            for course, (_, measured) in zip(self.courses, each, strict=False):
                if course.curves:
                    course.curves.take(steps, course.lengths.steps, last=True)
                    measured.add(course.curves)
        self.finished += 1
        if self.keeper:
            self.keeper.keep(self.finished, [each.stack for each in self.stacks.evaluated], self.measured)

    def go_on(self, steps: int, saver: Saver) -> None:
        """This many steps of a flow have been taken, and more follow."""
        flow, begun = self.stacks.flow, time.perf_counter()
        assert flow is not None
        _wait(self.stacks.device)
        if steps in flow.marks:
            self.finish_task(steps)
            saver.save(self.saved())
        else:
            with _timed(self.seconds, "consolidate"):
                self.stacks.consolidate()
        self.stacks.at_step(steps)
        for course in self.courses:
            course.runner.go_on()
        self.seconds["train"] -= time.perf_counter() - begun  # this time is counted elsewhere

    def saved(self) -> dict[str, Any]:
        measured = [vars(each) for each in self.measured]
        return {"stacks": self.stacks.state(), "measured": measured, "finished": self.finished, "seconds": self.seconds}

    def accuracy(self) -> float | None:
        """The average accuracy after the last task; None for several methods or scenarios, where it has no meaning."""
        if self.finished == 0 or len(self.measured) != 1:
            return None
        last = self.finished - 1
        return self.measured[0].matrix[:, last, : last + 1].mean().item()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[what] += time.perf_counter() - start


@contextmanager
def precise(precision: str) -> Iterator[None]:
    """Set TF32 for products and convolutions explicitly, whatever the process had set before."""
    cudnn: Any = torch.backends.cudnn  # its attributes have no types
    before = torch.get_float32_matmul_precision()
    conv, rnn = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision  # `allow_tf32` raises where they differ
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        cudnn.allow_tf32 = conv == "tf32"
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = conv, rnn
