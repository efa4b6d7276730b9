"""Trains one cohort through its sequence of tasks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.company import Company, Crew, View
from threefold.engine.draws import Ahead, Draws
from threefold.engine.evaluate import accuracies
from threefold.engine.lockstep import Lockstep
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

        saved = checkpoint.load(device) if checkpoint else None
        seconds: dict[str, float] = saved["seconds"] if saved else _no_time()
        if saved:
            company.restore(saved["company"])
            outcomes = [Outcome(**outcome) for outcome in tree_map_only(Tensor, Tensor.cpu, saved["outcomes"])]
        else:
            with _timed(seconds, "evaluate"):
                outcomes = [Outcome.before_training(view) for view in company.views]
        finished = saved["finished"] if saved else 0
        saved = None  # it was copied: gigabytes on a GPU must not stay for the rest of training
        stacks = company.trained if finished else company.seedlings()
        takers = [taken_by(stack) for stack in stacks]
        for task in range(finished, protocol.tasks):
            company.reach(task)
            with _timed(seconds, "train"):
                _train_task(company, stacks, takers, task, outcomes, report, ahead)
                _wait(device)
                if task == 0:
                    company.grow(stacks)
                    grown = zip(company.trained, stacks, takers, strict=True)
                    takers = [taker if stack is was else taken_by(stack) for stack, was, taker in grown]
                    stacks = company.trained
            with _timed(seconds, "consolidate"):
                company.consolidate()
                for view, outcome in zip(company.views, outcomes, strict=True):
                    outcome.keepsakes.append(view.stack.keepsakes())
                _wait(device)
            with _timed(seconds, "evaluate"):
                for view, outcome in zip(company.views, outcomes, strict=True):
                    outcome.measure(view, task)
            if task + 1 < protocol.tasks:
                state = {"company": company.state(), "outcomes": [vars(outcome) for outcome in outcomes]}
                saver.save(state | {"finished": task + 1, "seconds": seconds})
    for outcome in outcomes:
        outcome.seconds = seconds
    return outcomes


def _train_task(
    company: Company,
    stacks: Sequence[Lockstep],
    takers: Sequence[Steps],
    task: int,
    outcomes: Sequence[Outcome],
    report: Callable[[Progress], None],
    ahead: Ahead,
) -> None:
    tasks, iters = company.protocol.tasks, company.training.iters
    alone = task and len(outcomes) == 1  # an average over several methods or scenarios would mean nothing
    accuracy = outcomes[0].matrix[:, task - 1, :task].mean().item() if alone else None
    for stack, taker in zip(stacks, takers, strict=True):
        taker.begin(Draws(stack, iters, ahead), (tasks - task) * iters)
    if task + 1 < tasks:
        ahead.look(company.trained, task + 1, iters)
    for step in range(iters):
        for taker in takers:
            taker.take(step)
        if (step + 1) % REPORT_EVERY == 0 or step + 1 == iters:
            report(Progress(task * iters + step + 1, tasks * iters, task, tasks, accuracy))


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
