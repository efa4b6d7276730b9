"""A check for a machine with a GPU, since CI has none: python tests/gpu_smoke.py

Every method is trained step by step and captured, killed after its first task and resumed; some are compiled as well.
So are networks for images, other optimisers and lengths, and streams whose tasks do not end. Some are tested during
training. The ways must agree. Small data of its own, a few minutes. Exits with 1 if anything differs.

    python tests/gpu_smoke.py [cuda|cpu] [WORD …]    # only cases whose names have one of the words

On a CPU it tries the check itself: nothing is captured there.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from unittest.mock import patch

import torch

from threefold.data import Dataset
from threefold.engine import (
    Checkpoint,
    Evaluation,
    Measured,
    Progress,
    Replicas,
    Training,
    find_optimizer,
    find_schedule,
    train,
)
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import Captured, Eager, StepRunner, runner_for
from threefold.methods import parse
from threefold.networks import find_network
from threefold.scenarios import SCENARIOS
from threefold.streams import Permuted, Split, Stream, find_boundaries

METHODS = (
    *("none", "offline", "ewc:strength=100", "online-ewc:strength=100,decay=0.9", "si:strength=1", "lwf", "dgr"),
    *("dgr-distill", "icarl:budget=60", "er:budget=60", "er:budget=60,use=both", "a-gem:budget=60"),
    *("xdg:share=0.5", "ewc:strength=100+xdg:share=0.5", "si:strength=1+er:budget=60", "fromp:strength=1,budget=10"),
    *("bi-r", "lwf:weighting=added,t_squared=false", "er:budget=10,per_class=true,sampling=whole"),
    *("der-pp:budget=60", "mas", "separate:width=32", "gem:budget=60", "generative-classifier:samples=9"),
)
COMPILED = ("si:strength=1", "lwf", "dgr")
PERMUTED = ("none", "si:strength=1", "lwf", "dgr-distill", "icarl:budget=60")
CNN, RESNET = "cnn:channels=8-16,norm=group", "resnet18:width=8"
SGD = "sgd:lr=0.03,momentum=0.9"
ON_IMAGES = (
    *(
        "none",
        "ewc:strength=100",
        "si:strength=1",
        "lwf",
        "dgr",
        "icarl:budget=60",
        "er:budget=60",
        "a-gem:budget=60",
        "der:budget=60",
    ),
    "xdg:share=0.5",
)
BLURRED, MIXED = "blurred:width=10,every=7", "none:every=9"
WITHOUT_ENDS = (
    *("none", "offline", "si:strength=1", "lwf", "xdg:share=0.5", "er:budget=60,selection=reservoir"),
    *("a-gem:budget=60,selection=reservoir", "icarl:budget=60,selection=reservoir", "der-pp:budget=60"),
)
TESTED = Evaluation(every=7, first=3, samples=50, training=True)
SEEDS, ITERS, FEW, CLOSE = (1, 2, 3), 40, 10, 3.0  # points: compiled steps are rounded differently, and that grows


@dataclass(frozen=True)
class Case:
    """What is trained."""

    method: str
    kind: type[Stream] = Split
    images: bool = False  # in colour
    network: str = "mlp:width=64"
    optimizer: str = "adam:lr=0.001"
    schedule: str = "constant"
    iters: int | None = ITERS
    epochs: int | None = None
    augment: bool = False
    boundaries: str = "sharp"
    tested: bool = False  # during training
    scenarios: tuple[str, ...] = ("class",)  # trained together

    @property
    def compiled(self) -> bool:
        return self.method in COMPILED and self == Case(self.method)

    def __str__(self) -> str:
        told = [self.kind.name, self.method, self.network, self.optimizer, self.schedule]
        told += [f"{self.epochs} epochs"] if self.epochs else []
        told += [f"boundaries {self.boundaries}"] if self.boundaries != "sharp" else []
        told += ["augmented"] * self.augment + ["tested"] * self.tested
        return " ".join([*told, *(self.scenarios if len(self.scenarios) > 1 else ())])


CASES = (
    *(Case(method) for method in METHODS),
    *(Case(method, Permuted) for method in PERMUTED),
    *(Case(method, images=True, network=CNN, iters=FEW) for method in ON_IMAGES),
    *(Case(method, images=True, network=RESNET, optimizer=SGD, iters=FEW) for method in ON_IMAGES),
    Case("none", images=True, network="cnn:channels=8-16", iters=FEW),
    Case("er:budget=60", images=True, network=CNN, iters=FEW, augment=True),
    Case("er:budget=60", images=True, network=RESNET, optimizer=SGD, schedule="cosine", iters=FEW, augment=True),
    Case("er:budget=60", iters=None, epochs=1),
    Case("er:budget=60", images=True, network=CNN, iters=None, epochs=1),
    *(Case(method, optimizer=SGD, schedule="cosine") for method in ("none", "ewc:strength=100", "si:strength=1")),
    *(Case(method, optimizer="adamw:lr=0.001,reset=true") for method in ("none", "ewc:strength=100", "si:strength=1")),
    Case("none", optimizer="adam:lr=0.001,weight_decay=0.1", schedule="step"),
    *(Case(method, boundaries=BLURRED, tested=True) for method in WITHOUT_ENDS),
    *(Case(method, boundaries=MIXED) for method in ("lwf", "er:budget=60,selection=reservoir")),
    *(Case(method, tested=True) for method in ("none", "ewc:strength=100", "icarl:budget=60", "er:budget=60,use=both")),
    Case("dgr", tested=True, scenarios=("task", "class")),  # one generator, a stream of the device for each scenario
    Case("er:budget=60", iters=None, epochs=1, tested=True),
    Case("none", images=True, network=RESNET, optimizer=SGD, iters=FEW, tested=True),
)


class Killed(Exception):
    pass


@cache
def stream(kind: type[Stream], images: bool, boundaries: str) -> Stream:
    """Classes differ in size, so that replicas take different numbers of steps in a pass."""
    source = torch.Generator().manual_seed(1)
    labels = torch.repeat_interleave(torch.arange(6), torch.tensor([260, 280, 300, 300, 320, 340]))
    labels = labels[torch.randperm(1800, generator=source)]
    shape = (3, 16, 16) if images else (12, 12)
    inputs = torch.rand(6, *shape, generator=source)[labels] + 0.4 * torch.randn(1800, *shape, generator=source)
    inputs = inputs.clamp(0, 1)
    data = Dataset.from_arrays(inputs[:1200], labels[:1200], inputs[1200:], labels[1200:], name="blobs")
    found = kind(data, 3)
    found.boundaries = find_boundaries(boundaries)
    return found


def trained(
    case: Case,
    device: str,
    runner: Callable[[ReplicaStack, bool], StepRunner],
    checkpoint: Path | None = None,
    evaluation: Evaluation | None = None,
) -> list[Measured]:
    scenarios = ("task",) if "xdg" in case.method or "separate" in case.method else case.scenarios
    methods, optimizers = [parse(case.method)] * len(SEEDS), [find_optimizer(case.optimizer)] * len(SEEDS)
    asked = [Replicas(SCENARIOS[scenario], methods, SEEDS, optimizers) for scenario in scenarios]
    training = Training(
        case.iters,
        48,
        find_network(case.network),
        "fp32",
        device,
        case.epochs,
        find_schedule(case.schedule),
        case.augment,
        evaluation,
    )
    run = partial(train, stream(case.kind, case.images, case.boundaries), asked, training, runner=runner)
    if checkpoint is None:
        return run()

    def kill(progress: Progress) -> None:
        if progress.task == 1:
            raise Killed

    try:
        run(Checkpoint(checkpoint), kill)
    except Killed:
        return run(Checkpoint(checkpoint))
    raise AssertionError("it was not killed")


def same(these: list[Measured], those: list[Measured]) -> bool:
    return all(torch.equal(this.matrix, that.matrix) for this, that in zip(these, those, strict=True))


def differing(case: Case, device: str) -> tuple[list[str], float]:
    """What should hold and does not, and the accuracy after the last task."""
    eager = trained(case, device, lambda stack, _: Eager(stack))
    with patch.object(Captured, "_capture", autospec=True, side_effect=Captured._capture) as captures:
        captured = trained(case, device, runner_for)
    with tempfile.TemporaryDirectory() as folder:
        resumed = trained(case, device, runner_for, Path(folder) / "cohort.pt")
    found = {"captured is eager": same(captured, eager), "resumed is captured": same(resumed, captured)}
    found["a step is captured"] = captures.called or device != "cuda"
    if case.compiled and device == "cuda":
        compiled = trained(case, device, lambda stack, _: Captured(stack, worth=0))
        apart = (compiled[0].matrix[:, -1] - captured[0].matrix[:, -1]).mean().abs().item()
        found[f"compiled within {CLOSE} points"] = apart <= CLOSE
    if case.tested:
        found |= tested(case, device, captured)
    return [name for name, holds in found.items() if not holds], captured[0].matrix[:, -1].mean().item()


def tested(case: Case, device: str, untested: list[Measured]) -> dict[str, bool]:
    """What must hold of tests during training."""
    eager = trained(case, device, lambda stack, _: Eager(stack), evaluation=TESTED)
    captured = trained(case, device, runner_for, evaluation=TESTED)
    whole = trained(case, device, runner_for, evaluation=Evaluation(every=7, samples=None))
    with tempfile.TemporaryDirectory() as folder:
        resumed = trained(case, device, runner_for, Path(folder) / "cohort.pt", TESTED)
    ends = [
        torch.allclose(found.matrix[:, task], found.curves["accuracy"][place].double(), atol=1e-3)
        for found in whole
        for task, place in enumerate(_ends(found))
    ]
    return {
        "tests change nothing": same(captured, untested),
        "captured tests are eager ones": _same_curves(captured, eager),
        "resumed tests are captured ones": _same_curves(resumed, captured),
        "the last test of a task is its end": bool(ends) and all(ends),
    }


def _ends(found: Measured) -> list[int]:
    """The places of the last points before each task's end."""
    tasks, steps = found.matrix.shape[1], [point[1] for point in found.points]
    if len({point[0] for point in found.points}) == 1:  # no task ends: all is tested as often as there are tasks
        return [steps.index(max(steps) * (task + 1) // tasks) for task in range(tasks)]
    each = [[place for place, point in enumerate(found.points) if point[0] == task] for task in range(tasks)]
    return [places[-1] for places in each]


def _same_curves(these: list[Measured], those: list[Measured]) -> bool:
    def equal(this: Measured, that: Measured) -> bool:
        values = ((this.curves[name].nan_to_num(-1), that.curves[name].nan_to_num(-1)) for name in this.curves)
        return this.points == that.points and all(torch.equal(*pair) for pair in values)

    return all(equal(this, that) for this, that in zip(these, those, strict=True))


def main(device: str = "cuda", *words: str) -> int:
    torch.backends.cudnn.deterministic = True  # or two runs of the same steps may differ in the last bits
    cases = [case for case in CASES if not words or any(word in str(case) for word in words)]
    wrong = 0
    for case in cases:
        failed, accuracy = differing(case, device)
        wrong += bool(failed)
        told = f": NOT {'; '.join(failed)}" if failed else ""
        print(f"{case}: {accuracy:.2f}{told}", flush=True)
    print(f"{wrong} of {len(cases)} differ" if wrong else "all agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
