"""Every method on every kind of network in every scenario: a replica alone is itself in a stack, and one that was
stopped and goes on is as if it had not been. Bit for bit: networks with convolutions are computed one by one.
"""

import pytest
from every_method import METHODS, Leaving, left, networks_of
from test_independence import everything
from tiny_cohorts import (
    EVEN,
    SCENARIOS,
    method_of,
    of,
    same_bits,
    same_measured,
    scenario_of,
    tiny_images,
    watched,
)

from covering import covering, rest_in_full
from threefold.engine import stack as engine_stack
from threefold.methods import METHODS as REGISTRY
from threefold.methods import Setting, parse
from threefold.networks import find_network
from threefold.scenarios import Outputs
from threefold.streams import Split

STREAM = Split(tiny_images(base=8, more=1), 3)
IMAGES = ["cnn:channels=8-16,norm=group", "resnet18:width=4"]
APART = ("separate", "generative-classifier")  # these train other networks than the classifier
DEEP = "mlp:depth=3,width=16,activation=gelu"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Tasks have few samples here."""
    monkeypatch.setattr(engine_stack, "SAMPLES", 32)


def supported(method, scenario, network):
    setting = Setting(Outputs(scenario_of(scenario), 3, 2), (3, 8, 8), 8, find_network(network))
    return method_of(method).refuse(setting) is None


CASES = [(n, s, m) for n in IMAGES for m in METHODS for s in SCENARIOS if supported(m, s, n)]
# the slowest network: stored data that count at test time are trained on as the others are, and methods that the paper
# does not have are tried where the task must be inferred
CASES = [case for case in CASES if case[0] == IMAGES[0] or "use=" not in case[-1]]
CASES = [
    (network, scenario, method)
    for network, scenario, method in CASES
    if network == IMAGES[0] or scenario == "class" or not method.startswith(("fromp", "bi-r", "gem", "der", "mas"))
]
FURTHER = [(DEEP, "class", "si:strength=2"), (DEEP, "task", "ewc:strength=50+xdg:share=0.5")]
# every method on one of them in one scenario, and each network in each scenario
ALWAYS = covering(CASES, 0, 1) + FURTHER
CASES += FURTHER


def trained(network, scenario, method, seeds, **also):
    iters = 1 if network.startswith("resnet") else 2
    run = {"iters": iters, "batch": 8, "lr": "sgd:lr=0.05,momentum=0.9", "network": network}
    stream = STREAM if network in IMAGES else EVEN["split"]  # with others, a mapped stack rounds by its height
    return watched(stream, scenario, seeds, method=method, **run | also)


def all_of(seen, replica):
    return everything(seen, replica), of(seen.buffers, replica)


def agree(network, scenario, method, folder, **also):
    stack = trained(network, scenario, method, [9, 2, 4], checkpoint=Leaving(folder / "cohort.pt"), **also)
    alone = trained(network, scenario, method, [4], **also)
    assert same_bits(all_of(alone, 0), all_of(stack, 2))
    assert alone.orders[0] == stack.orders[2]
    assert not same_bits(of(stack.weights[-1], 1), of(stack.weights[-1], 2))
    path = folder / "cohort.pt"
    path.write_bytes(left(folder, 2).read_bytes())
    resumed = trained(network, scenario, method, [9, 2, 4], checkpoint=path, **also)
    assert len(resumed.states) == 1  # it began where the other had saved
    assert same_measured(resumed.measured, stack.measured)
    assert same_bits((resumed.states[-1], resumed.buffers[-1]), (stack.states[-1], stack.buffers[-1]))
    return stack


@pytest.mark.parametrize(("network", "scenario", "method"), rest_in_full(CASES, ALWAYS))
def test_a_replica_is_itself_alone_in_a_stack_and_resumed(network, scenario, method, tmp_path):
    stack = agree(network, scenario, method, tmp_path)
    assert stack.measured.diverged_at == [None] * 3
    first, last = map(networks_of, stack.states[::3])
    for before, after in zip(first, last, strict=True):
        moved = [bool((before[name] != after[name]).any()) for name in before]
        assert all(moved) or (before is first[0] and not any(moved) and method.startswith(APART))


def test_adam_rounds_no_number_by_where_the_stack_ends():
    """Two output units fill no vector of the processor; PyTorch alone would round those of the last replica apart."""
    run = {"iters": 8, "lr": "adam:lr=0.001"}
    stack = trained(IMAGES[0], "class", "er:budget=20", [9, 2, 4], **run)
    alone = trained(IMAGES[0], "class", "er:budget=20", [4], **run)
    for mine, its in zip(alone.batches, stack.batches, strict=True):
        assert same_bits(of(mine[1:], 0), of(its[1:], 2))
    assert same_bits(of(alone.weights[-1], 0), of(stack.weights[-1], 2))


def test_every_method_of_the_registry_is_here():
    used = {name for *_, method in ALWAYS for name in parse(method).hyperparameters()}
    assert used | {"none"} == set(REGISTRY)
