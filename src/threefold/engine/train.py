"""Trains one cohort through its sequence of tasks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.company import Company, Crew, View
from threefold.engine.draws import Ahead, Draws
from threefold.engine.evaluate import accuracies
from threefold.engine.lockstep import Lockstep
from threefold.engine.saved_state import fits
from threefold.engine.saver import Saver
from threefold.engine.steps import Steps, steps_for
from threefold.engine.training import Training
from threefold.methods import Method
from threefold.protocols import Protocol
from threefold.scenarios import Scenario

REPORT_EVERY = 10  # steps between two reports of progress


@dataclass(frozen=True)
class Progress:
    """Where a cohort stands: `step` of `steps` over all tasks, and the average accuracy after the last task."""

    step: int
    steps: int
    task: int
    tasks: int
    accuracy: float | None


def _no_time() -> dict[str, float]:
    return {"train": 0.0, "consolidate": 0.0, "evaluate": 0.0}


@dataclass
class Outcome:
    """What a crew measured: per cent correct before training and after each task, for every replica."""

    initial: Tensor  # replicas × tasks
    matrix: Tensor  # replicas × tasks trained × tasks tested
    diverged_at: list[int | None]  # the first task after which a replica's numbers were not finite
    keepsakes: list[dict[str, Tensor]] = field(default_factory=list)  # of each task: replicas × whatever a part kept
    seconds: dict[str, float] = field(default_factory=_no_time)  # of the whole cohort

    @classmethod
    def before_training(cls, view: View) -> "Outcome":
        replicas, tasks = len(view.stack.seeds), view.stack.setting.outputs.tasks
        empty = torch.full((replicas, tasks, tasks), torch.nan, dtype=torch.float64)
        return cls(accuracies(view.stack, 0), empty, [None] * replicas)

    def measure(self, view: View, task: int) -> None:
        self.matrix[:, task] = accuracies(view.stack, task + 1)
        for replica, finite in enumerate(view.stack.finite().tolist()):
            if not finite and self.diverged_at[replica] is None:
                self.diverged_at[replica] = task


def train(
    protocol: Protocol,
    scenario: Scenario,
    methods: Sequence[Method],
    seeds: Sequence[int],
    lr: Sequence[float],
    training: Training,
    checkpoint: Checkpoint | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Outcome:
    """Train replica i with `methods[i]`, `seeds[i]` and `lr[i]`; the methods differ in numbers at most."""
    crews = [Crew(scenario, methods, seeds, lr)]
    (outcome,) = train_together(protocol, crews, training, checkpoint, report)
    return outcome


def train_together(
    protocol: Protocol,
    crews: Sequence[Crew],
    training: Training,
    checkpoint: Checkpoint | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    steps: Callable[[Lockstep, bool], Steps] | None = None,
) -> list[Outcome]:
    """Train several crews on the same tasks, step by step; what they have in common is trained once.

    `steps`: how a stack's steps are taken, if not in the quickest way.
    """
    device = torch.device(training.device)
    with torch.no_grad(), precise(training.precision), Saver(checkpoint, device) as saver, Ahead() as ahead:
        company = Company(protocol, crews, training)

        def taken_by(stack: Lockstep) -> Steps:
            taker = (steps or steps_for)(stack, len(company.trained) > 1)
            taker.quiet = saver.quiet
            return taker

        course = _course(company, checkpoint)
        trainees = Trainees(company, taken_by, course.finished)
        while course.finished < protocol.tasks:
            company.reach(course.finished)
            with _timed(course.seconds, "train"):
                _train_task(trainees, course, report, ahead)
            course.finish_task()
            if course.finished < protocol.tasks:
                saver.save(course.state())
    for outcome in course.outcomes:
        outcome.seconds = course.seconds
    return course.outcomes


@dataclass
class Course:
    """How far a cohort has come, and what was measured on the way."""

    company: Company
    outcomes: list[Outcome]  # of each crew
    seconds: dict[str, float]
    finished: int = 0  # tasks

    @classmethod
    def begun(cls, company: Company) -> "Course":
        seconds = _no_time()
        with _timed(seconds, "evaluate"):
            return cls(company, [Outcome.before_training(view) for view in company.views], seconds)

    @classmethod
    def resumed(cls, company: Company, saved: dict[str, Any]) -> "Course":
        company.restore(saved["company"])
        outcomes = [Outcome(**outcome) for outcome in tree_map_only(Tensor, Tensor.cpu, saved["outcomes"])]
        return cls(company, outcomes, saved["seconds"], saved["finished"])

    def finish_task(self) -> None:
        """The task is trained: it is taken into the memories, and all tasks are judged."""
        each = list(zip(self.company.views, self.outcomes, strict=True))
        with _timed(self.seconds, "consolidate"):
            self.company.consolidate()
            for view, outcome in each:
                outcome.keepsakes.append(view.stack.keepsakes())
            _wait(self.company.device)
        with _timed(self.seconds, "evaluate"):
            for view, outcome in each:
                outcome.measure(view, self.finished)
        self.finished += 1

    def state(self) -> dict[str, Any]:
        outcomes = [vars(outcome) for outcome in self.outcomes]
        course = {"outcomes": outcomes, "finished": self.finished, "seconds": self.seconds}
        return {"company": self.company.state()} | course


def _course(company: Company, checkpoint: Checkpoint | None) -> Course:
    """From where the checkpoint stands, or from the beginning.

    What was read was copied, and is let go of here: gigabytes on a GPU must not stay for the rest of training.
    """
    saved = checkpoint.load(company.device, lambda state: fits(company, state)) if checkpoint else None
    return Course.resumed(company, saved) if saved else Course.begun(company)


class Trainees:
    """The stacks that learn, and who takes the steps of each. The first task is learned by seedlings."""

    def __init__(self, company: Company, taken_by: Callable[[Lockstep], Steps], finished: int) -> None:
        self.company, self.taken_by = company, taken_by
        self.stacks = company.trained if finished else company.seedlings()
        self.takers = [taken_by(stack) for stack in self.stacks]

    def grow(self) -> None:
        """The first task is learned: from now on the company's own stacks learn, the seedlings are let go of."""
        self.company.grow(self.stacks)
        each = zip(self.company.trained, self.stacks, self.takers, strict=True)
        self.takers = [taker if stack is seedling else self.taken_by(stack) for stack, seedling, taker in each]
        self.stacks = self.company.trained


def _train_task(trainees: Trainees, course: Course, report: Callable[[Progress], None], ahead: Ahead) -> None:
    company, task = course.company, course.finished
    tasks, iters = company.protocol.tasks, company.training.iters
    for stack, taker in zip(trainees.stacks, trainees.takers, strict=True):
        taker.begin(Draws(stack, iters, ahead), (tasks - task) * iters)
    if task + 1 < tasks:
        ahead.look(company.trained, task + 1, iters)
    accuracy = _accuracy(course)
    for step in range(iters):
        for taker in trainees.takers:
            taker.take(step)
        if (step + 1) % REPORT_EVERY == 0 or step + 1 == iters:
            report(Progress(task * iters + step + 1, tasks * iters, task, tasks, accuracy))
    _wait(company.device)
    if task == 0:
        trainees.grow()


def _accuracy(course: Course) -> float | None:
    """The average accuracy after the last task; over several methods or scenarios it would mean nothing."""
    if course.finished == 0 or len(course.outcomes) != 1:
        return None
    last = course.finished - 1
    return course.outcomes[0].matrix[:, last, : last + 1].mean().item()


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
    """TF32 products are the caller's explicit choice, whatever the process had set before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
