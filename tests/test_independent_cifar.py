"""tests/independent_cifar.py: its loop and threefold take the same steps from the same weights on the same batches."""

from typing import Any

import pytest
import torch
from torch import Tensor

import threefold
from independent_cifar import LR, Loop
from threefold import ER, Dataset, Part, Split
from threefold.methods import Method

WIDTH, STEPS = 2, 3


class Recorder(Part):
    """Writes down what one network begins with, sees, and ends with."""

    name = "recorder"

    def start(self, setting: Any, seed: int, params: Any) -> Any:
        RECORD.update(first=list(params.values()), steps={})
        return {"taken": torch.tensor(0)}

    def after_step(self, learner: Any, step: Any) -> Any:
        stored = learner.drawn.get("er stored")
        place = (int(learner.now.seen), int(learner.now.step))
        RECORD["steps"][place] = (step.batch.indices.clone(), None if stored is None else stored.indices.clone())
        return {"taken": learner.memory[self.name]["taken"] + 1}

    def consolidate(self, stack: Any, memory: Any, task: int) -> Any:
        RECORD["last"] = [p[0].clone() for p in stack.params["classifier"].values()]
        return memory


RECORD: dict[str, Any] = {}


def images() -> Dataset:
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 4
    x = torch.rand(4, 3, 8, 8, generator=source)[labels] + 0.3 * torch.rand(120, 3, 8, 8, generator=source)
    return Dataset.from_arrays(x[:80], labels[:80], x[80:], labels[80:], name="tiny")


def like(loop: Loop, tensors: list[Tensor]) -> None:
    """Both networks register their layers in the order in which they are called."""
    with torch.no_grad():
        for mine, its in zip(loop.net.parameters(), tensors, strict=True):
            mine.copy_(its)


@pytest.mark.parametrize("scenario", ["task", "class"])
@pytest.mark.parametrize("method", [Method(), Method(ER(budget=12))], ids=["none", "er"])
def test_the_loop_and_threefold_take_the_same_steps(scenario: str, method: Method) -> None:
    stream = Split(images(), 2)
    how = {"network": f"resnet18:width={WIDTH}", "optimizer": f"sgd:lr={LR}", "iters": STEPS, "batch": 16}
    result = threefold.run(
        stream, scenario=scenario, method=method + Recorder(), seeds=[7], store=None, device="cpu", **how
    )
    loop = Loop(stream.data, stream.sequence(7), scenario == "task", WIDTH, "cpu")
    like(loop, RECORD["first"])
    places = [(seen, step) for seen in (1, 2) for step in range(STEPS)]
    for seen, step in places:
        current, replayed = RECORD["steps"][seen, step]
        assert (replayed is not None) == (seen > 1 and bool(method.parts))
        loop.step(seen, current, replayed)
    for mine, its, first in zip(loop.net.parameters(), RECORD["last"], RECORD["first"], strict=True):
        assert (mine - its).abs().max() < 1e-3 * (its - first).abs().max().clamp(min=0.1)
    assert loop.accuracy() == pytest.approx(result.accuracy.mean)


def test_herding_chooses_what_threefold_stores() -> None:
    """From the same features, and the same weights as first drawn."""
    stream, kept = Split(images(), 2), {}

    class Watched(ER):
        name = "er"

        def consolidate(self, stack: Any, memory: Any, task: int) -> Any:
            found = super().consolidate(stack, memory, task)
            if not task:
                kept.update(
                    params=[p[0].clone() for p in stack.params["classifier"].values()], stored=found["stored"][0]
                )
                kept["buffers"] = [b[0].clone() for b in stack.buffers.values()]
            return found

    how = {"network": f"resnet18:width={WIDTH}", "optimizer": f"sgd:lr={LR}", "iters": STEPS, "batch": 16}
    threefold.run(stream, scenario="class", method=Watched(budget=500), seeds=[7], store=None, device="cpu", **how)
    loop = Loop(stream.data, stream.sequence(7), False, WIDTH, "cpu")
    like(loop, kept["params"])
    for mine, its in zip(loop.net.buffers(), kept["buffers"], strict=True):
        mine.copy_(its)
    loop.store(0)
    agreeing = [
        len(set(mine[:10].tolist()) & set(its[:10].tolist()))
        for mine, its in zip(loop.stored, kept["stored"], strict=True)
    ]
    assert min(agreeing) >= 8, "near ties may be broken otherwise"
