"""A check for a machine with a GPU, since CI has none: python tests/gpu_smoke.py

Every method is trained step by step and captured, killed after its first task and resumed; some are compiled as well.
The ways must agree. Small data of its own, about two minutes. Exits with 1 if anything differs.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from threefold.data import Dataset
from threefold.engine import Adam, Checkpoint, Progress, Replicas, Training, train
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import Captured, Eager, StepRunner, runner_for
from threefold.methods import parse
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS
from threefold.streams import Permuted, Split, Stream

METHODS = (
    *("none", "offline", "ewc:strength=100", "online-ewc:strength=100,decay=0.9", "si:strength=1", "lwf", "dgr"),
    *("dgr-distill", "icarl:budget=60", "er:budget=60", "er:budget=60,use=both", "a-gem:budget=60"),
    *("xdg:share=0.5", "ewc:strength=100+xdg:share=0.5", "si:strength=1+er:budget=60"),
)
COMPILED = ("si:strength=1", "lwf", "dgr")
PERMUTED = ("none", "si:strength=1", "lwf", "dgr-distill", "icarl:budget=60")
SEEDS, ITERS, CLOSE = (1, 2, 3), 40, 3.0  # points: compiled steps are rounded differently, and that grows


class Killed(Exception):
    pass


def data() -> Dataset:
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(1800) % 6
    images = torch.rand(6, 12, 12, generator=source)[labels] + 0.4 * torch.randn(1800, 12, 12, generator=source)
    images = images.clamp(0, 1)
    return Dataset.from_arrays(images[:1200], labels[:1200], images[1200:], labels[1200:], name="blobs")


def trained(
    stream: Stream, method: str, runner: Callable[[ReplicaStack, bool], StepRunner], checkpoint: Path | None = None
) -> Tensor:
    scenario = SCENARIOS["task" if "xdg" in method else "class"]
    replicas = Replicas(scenario, [parse(method)] * len(SEEDS), SEEDS, [Adam(lr=1e-3)] * len(SEEDS))
    training = Training(ITERS, 48, MLPNetwork(width=64), "fp32", "cuda")
    run = partial(train, stream, [replicas], training, runner=runner)
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


def main() -> int:
    wrong = 0
    cases = [(Split, method) for method in METHODS] + [(Permuted, method) for method in PERMUTED]
    for kind, method in cases:
        stream = kind(data(), 3)
        eager = trained(stream, method, lambda stack, _: Eager(stack))
        captured = trained(stream, method, runner_for)
        with tempfile.TemporaryDirectory() as folder:
            resumed = trained(stream, method, runner_for, Path(folder) / "cohort.pt")
        found = {
            "captured is eager": torch.equal(captured, eager),
            "resumed is captured": torch.equal(resumed, captured),
        }
        if method in COMPILED and kind is Split:
            compiled = trained(stream, method, lambda stack, _: Captured(stack, worth=0))
            apart = (compiled[:, -1] - captured[:, -1]).mean().abs().item()
            found[f"compiled within {CLOSE} points"] = apart <= CLOSE
        failed = [name for name, holds in found.items() if not holds]
        wrong += bool(failed)
        told = f": NOT {'; '.join(failed)}" if failed else ""
        print(f"{kind.name} {method}: {captured[:, -1].mean():.2f}{told}", flush=True)
    print(f"{wrong} of {len(cases)} differ" if wrong else "all agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
