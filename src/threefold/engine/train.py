"""Trains one cohort through its sequence of tasks."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from threefold.engine.checkpoint import Checkpoint
from threefold.engine.draws import Draws
from threefold.engine.evaluate import accuracies
from threefold.engine.lockstep import Lockstep
from threefold.engine.material import Material
from threefold.engine.saver import Saver
from threefold.engine.steps import Steps, steps_for
from threefold.methods import Method
from threefold.methods.part import Setting
from threefold.protocols import Protocol
from threefold.scenarios import Outputs, Scenario

REPORT_EVERY = 10  # steps between two reports of progress


@dataclass(frozen=True)
class Training:
    """How a cohort is trained; the same for all its replicas."""

    iters: int
    batch: int
    hidden: int
    precision: str = "fp32"
    device: str = "cpu"


@dataclass(frozen=True)
class Progress:
    """Where a cohort stands: `step` of `steps` over all tasks, and the average accuracy after the last task."""

    step: int
    steps: int
    task: int
    tasks: int
    accuracy: float | None


@dataclass
class Outcome:
    """What a cohort measured: per cent correct before training and after each task, for every replica."""

    initial: Tensor  # replicas × tasks
    matrix: Tensor  # replicas × tasks trained × tasks tested
    diverged_at: list[int | None]  # the first task after which a replica's numbers were not finite
    keepsakes: list[dict[str, Tensor]] = field(default_factory=list)  # of each task: replicas × whatever a part kept
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "consolidate": 0.0, "evaluate": 0.0})


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
    device = torch.device(training.device)
    outputs = Outputs(scenario, protocol.tasks, protocol.classes_per_task)

    def stacked(
        methods: Sequence[Method], seeds: Sequence[int], lr: Sequence[float] | None, like: Material | None = None
    ) -> Lockstep:
        material = Material(protocol, outputs, seeds, training.batch, device, like)
        inputs = material.train_x.shape[1]
        setting = Setting(outputs, inputs, training.hidden, training.batch, protocol.data.in_unit_interval)
        return Lockstep(methods, seeds, setting, material, lr, device)

    with torch.no_grad(), precise(training.precision), Saver(checkpoint, device) as saver:
        shared = _shared(methods, seeds, lr)
        own = list(dict.fromkeys(shared))
        plain = [Method()] * len(own)
        stack = stacked(plain, [s for s, _ in own], [r for _, r in own]) if shared else stacked(methods, seeds, lr)
        judged = stacked(methods, seeds, None, stack.material) if shared else stack
        which = torch.tensor([own.index(pair) for pair in shared], device=device)
        steps = steps_for(stack)
        steps.quiet = saver.quiet
        saved = checkpoint.load(device) if checkpoint else None
        if saved:
            stack.restore(saved["stack"])
            judged.memory = saved.get("judged", stack.memory)
            outcome = Outcome(**tree_map_only(Tensor, Tensor.cpu, saved["outcome"]))
        else:
            empty = torch.full((len(seeds), outputs.tasks, outputs.tasks), torch.nan, dtype=torch.float64)
            outcome = Outcome(torch.empty(0), empty, [None] * len(seeds))
            with _timed(outcome, "evaluate"):
                outcome.initial = accuracies(judged, 0)
        for task in range(saved["finished"] if saved else 0, outputs.tasks):
            stack.reach(task)
            with _timed(outcome, "train"):
                _train_task(stack, steps, task, training, outcome, report)
                _wait(device)
            with _timed(outcome, "consolidate"):
                if shared:
                    judged.take_over(stack, which)
                judged.consolidate()
                outcome.keepsakes.append(judged.keepsakes())
                _wait(device)
            with _timed(outcome, "evaluate"):
                outcome.matrix[:, task] = accuracies(judged, task + 1)
            for replica, finite in enumerate(judged.finite().tolist()):
                if not finite and outcome.diverged_at[replica] is None:
                    outcome.diverged_at[replica] = task
            if task + 1 < outputs.tasks:
                also = {"judged": judged.memory} if shared else {}
                saver.save({"stack": stack.state(), "finished": task + 1, "outcome": vars(outcome)} | also)
    return outcome


def _shared(methods: Sequence[Method], seeds: Sequence[int], lr: Sequence[float]) -> list[tuple[int, float]]:
    """What each replica's network depends on where no part trains: seed and learning rate; else nothing is shared."""
    parts = [part for method in methods for part in method.parts]
    return list(zip(seeds, lr, strict=True)) if parts and not any(part.trains for part in parts) else []


def _train_task(
    stack: Lockstep,
    steps: Steps,
    task: int,
    training: Training,
    outcome: Outcome,
    report: Callable[[Progress], None],
) -> None:
    tasks, iters = stack.setting.outputs.tasks, training.iters
    accuracy = outcome.matrix[:, task - 1, :task].mean().item() if task else None
    steps.begin(Draws(stack, iters), (tasks - task) * iters)
    for step in range(iters):
        steps.take(step)
        if (step + 1) % REPORT_EVERY == 0 or step + 1 == iters:
            report(Progress(task * iters + step + 1, tasks * iters, task, tasks, accuracy))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def _timed(outcome: Outcome, what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    outcome.seconds[what] += time.perf_counter() - start


@contextmanager
def precise(precision: str) -> Iterator[None]:
    """TF32 products are the caller's explicit choice, whatever the process had set before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
