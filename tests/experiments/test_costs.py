"""What a cell's training costs, by hand and against networks that were trained in full."""

import json
import math
from functools import cache

import numpy as np
import pytest
import torch
from every_method import METHODS
from small_cells import cell
from tiny_cohorts import cohort, tiny_images
from tiny_stack import supported
from torch.utils._pytree import tree_leaves

from threefold.data import Dataset
from threefold.engine.step_runner import Eager
from threefold.experiments import Cell, Settings
from threefold.experiments.costs import _Operations, _Trained, costs
from threefold.methods import parse
from threefold.scenarios import SCENARIOS
from threefold.streams import STREAMS, RecordedStream, Split, find_boundaries

IMAGES, WIDTH, UNITS, TASKS, CLASSES = 784, 400, 10, 5, 10
PRODUCTS = [IMAGES * WIDTH, WIDTH * WIDTH, WIDTH * UNITS]
WEIGHTS = sum(PRODUCTS) + 2 * WIDTH + UNITS  # with biases
STEPS, BATCH = 40, 128


@cache
def from_store(method: str, scenario: str = "class", stream: str = "split", **settings: object) -> Cell:
    """A cell on MNIST as a report has it: without the data."""
    kind = STREAMS[stream]
    y = np.arange(20) % CLASSES
    few = kind(Dataset.from_arrays(x := np.zeros((20, 28, 28), np.uint8), y, x, y, name="mnist"))
    made = Cell.of(
        few, SCENARIOS[scenario], parse(method), Settings.checked(device="cpu", **({"iters": STEPS} | settings))
    )
    return Cell.of_description(json.loads(json.dumps(made.described())))


def test_plain_training_by_hand() -> None:
    """Each product forward; backward the weights' gradient, and but for the first layer the input's."""
    found = costs(from_store("none"))
    forward = 2 * BATCH * sum(PRODUCTS)
    backward = forward + 2 * BATCH * sum(PRODUCTS[1:])
    assert found.parameters == WEIGHTS
    assert found.memory == 0
    assert found.flops == TASKS * STEPS * (forward + backward)


def test_a_quarter_of_the_batch_takes_a_quarter_of_the_operations() -> None:
    assert costs(from_store("none", batch=32)).flops == costs(from_store("none")).flops / 4


def test_offline_and_penalties_take_as_many_steps_of_the_same_size() -> None:
    plain = costs(from_store("none")).flops
    assert costs(from_store("offline")).flops == plain
    assert costs(from_store("si:strength=1")).flops == plain


@pytest.mark.parametrize("method", ["ewc:strength=1", "online-ewc:strength=1,decay=1"])
def test_ewc_by_hand(method: str) -> None:
    """The weights and their Fisher information; the tasks' penalties are summed up in one."""
    found, plain = costs(from_store(method)), costs(from_store("none"))
    assert found.parameters == WEIGHTS
    assert found.memory == 2 * WEIGHTS * 4
    fisher = 60_000 * 2 * (sum(PRODUCTS) + sum(PRODUCTS) + sum(PRODUCTS[1:]))  # as in training, once for each sample
    assert found.flops - plain.flops == fisher


def test_fewer_samples_of_the_fisher_information() -> None:
    every, some = costs(from_store("ewc:strength=1")), costs(from_store("ewc:strength=1,fisher_samples=600"))
    plain = costs(from_store("none")).flops
    assert some.flops - plain == pytest.approx((every.flops - plain) * 600 / 12_000)


def test_stored_samples_by_hand() -> None:
    """Each has its image in bytes and an index in eight; the batch is as large again from the second task on."""
    found, plain = costs(from_store("er:budget=500,selection=random")), costs(from_store("none")).flops
    assert found.memory == 500 * (IMAGES + 8) + CLASSES * 8
    assert found.flops == plain * (1 + 2 * (TASKS - 1)) / TASKS
    a_reservoir = costs(from_store("er:budget=500,selection=reservoir"))
    assert a_reservoir.memory == 500 * (IMAGES + 8 + 8) + 8
    assert (
        costs(from_store("er:budget=500,selection=random", stream="permuted", iters=1)).memory == 500 * (784 + 8) + 800
    )


def test_generative_replay_by_hand() -> None:
    latent = 100
    encoder = IMAGES * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + 2 * (WIDTH * latent + latent)
    decoder = latent * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + WIDTH * IMAGES + IMAGES
    found = costs(from_store("dgr"))
    assert found.parameters == WEIGHTS + encoder + decoder
    assert found.memory == 4 * (WEIGHTS + decoder), "a copy of the classifier, and of what generates"


def test_lwf_by_hand() -> None:
    """A copy of the classifier, which is asked about the batch in each later task."""
    found, plain = costs(from_store("lwf")), costs(from_store("none"))
    assert found.memory == 4 * WEIGHTS
    assert found.flops - plain.flops == (TASKS - 1) * STEPS * 2 * BATCH * sum(PRODUCTS)


def test_what_is_trained_instead_of_the_classifier() -> None:
    width = 100
    own = IMAGES * width + width * width + width * UNITS + 2 * width + UNITS
    assert costs(from_store("separate", "task")).parameters == TASKS * own
    vaes = costs(from_store("generative-classifier"))
    assert vaes.memory == 4 * (vaes.parameters + 50 * 5), "each class's VAE, and the noise of importance sampling"


def test_epochs() -> None:
    """A task has 12,000 samples on average; Offline's data grow, iCaRL's by what is stored."""
    one = costs(from_store("none", epochs=1, iters=None)).flops
    assert one == costs(from_store("none", iters=12_000 // BATCH)).flops
    steps = sum(12_000 * task // BATCH for task in range(1, TASKS + 1))
    assert costs(from_store("offline", epochs=1, iters=None)).flops == pytest.approx(
        one / TASKS / (12_000 // BATCH) * steps
    )


EVEN = Dataset.from_arrays(
    *(np.random.default_rng(0).random((288, 4, 4), np.float32), np.arange(288) % 12),
    *(np.random.default_rng(1).random((24, 4, 4), np.float32), np.arange(24) % 12),
    name="even",
)


def where(method: str) -> str:
    return next(scenario for scenario in ("class", "task") if supported(method, scenario))


def trained(method: str, batch: int) -> tuple[Eager, float]:
    """A network trained for three steps on each of six tasks, and the operations of the third ones, times three."""
    runners: list[Eager] = []

    class Counting(Eager):
        number = 0.0

        def take(self, step: int) -> None:
            with _Operations() as counted:
                super().take(step)
            self.number += 3 * counted.number * (step == 2)

    def runner(stack, several):
        runners.append(Counting(stack))
        return runners[-1]

    how = {"method": method, "iters": 3, "batch": batch, "hidden": 10, "runner": runner}
    with torch.no_grad():
        cohort(Split(EVEN, 6), where(method), [1], **how)
    (one,) = runners
    return one, one.number / 2  # a single network is doubled on a CPU


LIKE_OTHERS = ("offline", "xdg", "online-ewc", "mas", "dgr-distill", "der")  # steps and memories as those of others


@pytest.mark.parametrize("method", [each for each in METHODS if each.split(":")[0] not in LIKE_OTHERS])
def test_a_network_trained_in_full(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory after the last task, and its steps: of six tasks only four are tried out, on other batches."""
    runner, operations = trained(method, batch=20)
    monkeypatch.setattr(_Trained, "_consolidate", lambda tried: tried.stack.consolidate() or 0.0)
    found = costs(cell(Split(EVEN, 6), method, where(method), iters=3, batch=20, hidden=10, lr=1e-2))
    assert not found.unknown
    assert found.flops == pytest.approx(operations, rel=1e-9)
    if "fromp" in method or "generative" in method:  # what they hold during the last task, or keep of it
        return
    memory = runner.step.stack.memory
    held = sum(leaf[0].numel() * leaf.element_size() for leaf in tree_leaves(memory))
    assert found.memory == held + stored(memory) * 16 * 4


def stored(memory) -> int:
    indices = [leaf for part in memory.values() for name, leaf in part.items() if name in ("stored", "reservoir")]
    return sum(leaf[0].numel() for leaf in indices)


def test_what_is_not_at_hand_has_a_reason() -> None:
    known = from_store("none")
    described = known.described()
    spec = described["spec"] | {
        "method": {"name": "mine", "hyperparameters": {"mine": {"strength": 1.0}}, "code": {"mine": "0"}}
    }
    absent = Cell.of_description(described | {"spec": spec, "method": "mine"})
    assert costs(absent).unknown == "method mine is not loaded; give its file by --plugin."
    assert math.isnan(costs(absent).flops)
    own = described["spec"] | {"stream": described["spec"]["stream"] | {"name": "split-arrays"}}
    assert (
        costs(Cell.of_description(described | {"spec": own})).unknown
        == "the shape of data arrays is not kept with results."
    )
    features = described["spec"] | {"stream": described["spec"]["stream"] | {"features": "abc"}}
    assert "features" in costs(Cell.of_description(described | {"spec": features})).unknown
    assert isinstance(known.stream, RecordedStream)
    network = described["spec"]["network"] | {"name": "Mine", "code": "0"}
    assert (
        "no code" in costs(Cell.of_description(described | {"spec": described["spec"] | {"network": network}})).unknown
    )


def test_convolutions() -> None:
    """One layer of 3 × 3, forward and for the gradient of its weights, and the layer on its features."""
    small = Split(tiny_images(base=40, more=0), 3)
    found = costs(cell(small, "none", network="cnn:channels=4", iters=10, batch=16, lr=0.01, hidden=None))
    convolution, linear = 8 * 8 * 3 * 3 * 3 * 4, (found.parameters - 6 - 4 - 3 * 3 * 3 * 4)
    assert found.flops == 3 * 10 * 16 * 2 * (2 * convolution + 3 * linear)


def test_streams_without_ends() -> None:
    flowing = Split(EVEN, 6)
    flowing.boundaries = find_boundaries("none")
    found, sharp = (costs(cell(each, "none", "domain", iters=100)) for each in (flowing, Split(EVEN, 6)))
    assert found.flops == sharp.flops
