"""A check for a machine with a GPU, since CI has none: python tests/gpu_smoke.py

Every method is trained step by step and captured, killed after its first task and resumed; some are compiled as well.
So are networks for images, other optimisers and lengths. The ways must agree. Small data of its own, a few minutes.
Exits with 1 if anything differs. `python tests/gpu_smoke.py cpu` tries the check itself: nothing is captured there.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.engine import Checkpoint, Progress, Replicas, Training, find_optimizer, find_schedule, train
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import Captured, Eager, StepRunner, runner_for
from threefold.methods import parse
from threefold.networks import find_network
from threefold.scenarios import SCENARIOS
from threefold.streams import Permuted, Split, Stream

METHODS = (
    *("none", "offline", "ewc:strength=100", "online-ewc:strength=100,decay=0.9", "si:strength=1", "lwf", "dgr"),
    *("dgr-distill", "icarl:budget=60", "er:budget=60", "er:budget=60,use=both", "a-gem:budget=60"),
    *("xdg:share=0.5", "ewc:strength=100+xdg:share=0.5", "si:strength=1+er:budget=60"),
)
COMPILED = ("si:strength=1", "lwf", "dgr")
PERMUTED = ("none", "si:strength=1", "lwf", "dgr-distill", "icarl:budget=60")
CNN, RESNET = "cnn:channels=8-16,norm=group", "resnet18:width=8"
SGD = "sgd:lr=0.03,momentum=0.9"
ON_IMAGES = (
    *("none", "ewc:strength=100", "si:strength=1", "lwf", "dgr", "icarl:budget=60", "er:budget=60", "a-gem:budget=60"),
    "xdg:share=0.5",
)
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

    @property
    def compiled(self) -> bool:
        return self.method in COMPILED and self == Case(self.method)

    def __str__(self) -> str:
        told = [self.kind.name, self.method, self.network, self.optimizer, self.schedule]
        told += [f"{self.epochs} epochs"] if self.epochs else []
        return " ".join(told + ["augmented"] * self.augment)


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
)


class Killed(Exception):
    pass


@cache
def stream(kind: type[Stream], images: bool) -> Stream:
    """Classes differ in size, so that replicas take different numbers of steps in a pass."""
    source = torch.Generator().manual_seed(1)
    labels = torch.repeat_interleave(torch.arange(6), torch.tensor([260, 280, 300, 300, 320, 340]))
    labels = labels[torch.randperm(1800, generator=source)]
    shape = (3, 16, 16) if images else (12, 12)
    inputs = torch.rand(6, *shape, generator=source)[labels] + 0.4 * torch.randn(1800, *shape, generator=source)
    inputs = inputs.clamp(0, 1)
    return kind(Dataset.from_arrays(inputs[:1200], labels[:1200], inputs[1200:], labels[1200:], name="blobs"), 3)


def trained(
    case: Case, device: str, runner: Callable[[ReplicaStack, bool], StepRunner], checkpoint: Path | None = None
) -> Tensor:
    scenario = SCENARIOS["task" if "xdg" in case.method else "class"]
    optimizers = [find_optimizer(case.optimizer)] * len(SEEDS)
    replicas = Replicas(scenario, [parse(case.method)] * len(SEEDS), SEEDS, optimizers)
    training = Training(
        case.iters,
        48,
        find_network(case.network),
        "fp32",
        device,
        case.epochs,
        find_schedule(case.schedule),
        case.augment,
    )
    run = partial(train, stream(case.kind, case.images), [replicas], training, runner=runner)
    if checkpoint is None:
        return run()[0].matrix

    def kill(progress: Progress) -> None:
        if progress.task == 1:
            raise Killed

    try:
        run(Checkpoint(checkpoint), kill)
    except Killed:
        return run(Checkpoint(checkpoint))[0].matrix
    raise AssertionError("it was not killed")


def differing(case: Case, device: str) -> tuple[list[str], float]:
    """What should hold and does not, and the accuracy after the last task."""
    eager = trained(case, device, lambda stack, _: Eager(stack))
    captured = trained(case, device, runner_for)
    with tempfile.TemporaryDirectory() as folder:
        resumed = trained(case, device, runner_for, Path(folder) / "cohort.pt")
    found = {
        "captured is eager": torch.equal(captured, eager),
        "resumed is captured": torch.equal(resumed, captured),
    }
    if case.compiled and device == "cuda":
        compiled = trained(case, device, lambda stack, _: Captured(stack, worth=0))
        apart = (compiled[:, -1] - captured[:, -1]).mean().abs().item()
        found[f"compiled within {CLOSE} points"] = apart <= CLOSE
    return [name for name, holds in found.items() if not holds], captured[:, -1].mean().item()


def main(device: str = "cuda") -> int:
    torch.backends.cudnn.deterministic = True  # or two runs of the same steps may differ in the last bits
    wrong = 0
    for case in CASES:
        failed, accuracy = differing(case, device)
        wrong += bool(failed)
        told = f": NOT {'; '.join(failed)}" if failed else ""
        print(f"{case}: {accuracy:.2f}{told}", flush=True)
    print(f"{wrong} of {len(CASES)} differ" if wrong else "all agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
