"""A run does not depend on the other runs in its stack: on a CPU its result is bit for bit that of the run alone.

All widths here are multiples of 16: inputs, hidden units, output units, latent variables, batches. With others, the
last numbers of a stacked tensor do not fill a vector, and PyTorch's kernels (Adam's, the sigmoid's) round those in
another way than the rest; whose numbers they are depends on the height of the stack.
"""

import pytest
import torch
from every_method import networks_of
from tiny_cohorts import (
    EVEN,
    SCENARIOS,
    furthest,
    method_of,
    of,
    same_bits,
    same_measured,
    scenario_of,
    tiny_data,
    watched,
)

from covering import covering, rest_in_full
from threefold.methods import METHODS as REGISTRY
from threefold.methods import Setting, bir, parse, replay
from threefold.networks import VAE, MLPNetwork
from threefold.scenarios import Outputs
from threefold.streams import Split

METHODS = [  # with other numbers for two more replicas, where it has any; 2000 samples are more than there are
    ["none"],
    ["offline"],
    ["xdg:share=0.5", "xdg:share=0.25", "xdg:share=0.75"],
    ["separate:width=16"],
    ["ewc:strength=50", "ewc:strength=0.5", "ewc:strength=5000"],
    ["ewc:strength=50,labels=sampled,fisher_samples=20"],
    ["online-ewc:strength=50,decay=0.8", "online-ewc:strength=50,decay=1", "online-ewc:strength=5,decay=0.5"],
    ["si:strength=2", "si:strength=0.2", "si:strength=2,damping=0.01"],
    ["fromp:strength=1,budget=2", "fromp:strength=5,budget=2,prior=1", "fromp:strength=0.5,budget=2,clip=0.5"],
    ["mas", "mas:strength=0.1", "mas:strength=10"],
    ["lwf", "lwf:temperature=1", "lwf:temperature=5"],
    ["lwf:replayed_for=every"],
    ["dgr"],
    ["dgr-distill", "dgr-distill:temperature=1", "dgr-distill:temperature=5"],
    ["bi-r", "bi-r:gating=0.5", "bi-r:gating=0,temperature=5"],
    ["bi-r:feedback=false,distil=false"],
    ["icarl", "icarl:budget=100", "icarl:budget=100,temperature=2"],
    ["er", "er:budget=48", "er:budget=500"],
    ["er:budget=100,use=both", "er:budget=48,use=both", "er:use=both"],
    ["er:budget=100,use=execution,selection=random"],
    ["a-gem", "a-gem:budget=48", "a-gem:budget=500"],
    ["gem:budget=48", "gem:budget=48,margin=0", "gem:budget=48,margin=2"],
    ["gem"],
    ["der:budget=48", "der:budget=48,alpha=0.1", "der:budget=48,alpha=2"],
    ["der-pp:budget=48", "der-pp:budget=48,alpha=0", "der-pp:budget=48,beta=2"],
    [f"generative-classifier:hidden=16,latent=16,samples=16,lr={rate}" for rate in (0.01, 0.001, 0.1)],
    ["ewc:strength=50+xdg:share=0.5", "ewc:strength=5+xdg:share=0.25", "ewc:strength=500+xdg:share=0.5"],
]

STACKS = ["two", "three", "five"]
FURTHER = {("permuted", "domain"): "si:strength=2", ("permuted", "class"): "icarl"}


def supported(method, scenario):
    outputs = Outputs(scenario_of(scenario), 3, 16)
    return method_of(method).refuse(Setting(outputs, (1, 4, 4), 16, MLPNetwork(width=16))) is None


CASES = [("split", scenario, m[0]) for m in METHODS for scenario in SCENARIOS if supported(m[0], scenario)]
CASES += [("permuted", "task", METHODS[-1][0])]
CASES += [(*where, m[0]) for m in METHODS for where, name in FURTHER.items() if m[0] == name]
CASES = [(*case, stack) for case in CASES for stack in STACKS]
NUMBERS = {m[0]: m for m in METHODS}


@pytest.fixture
def _latent_variables(monkeypatch):
    monkeypatch.setattr(replay, "LATENT", 112)
    monkeypatch.setattr(bir, "LATENT", 112)
    monkeypatch.setattr(VAE.__init__, "__defaults__", (112,))


def trained(kind, scenario, methods, seeds, **also):
    return watched(EVEN[kind], scenario, seeds, method=methods, hidden=16, **{"iters": 3} | also)


def without_padding(memory):
    """Stored data of a class are as long as the longest of the stack: what fills up a row is nobody's."""
    for part in memory.values():
        if "stored" in part:
            part["stored"] = [row[:n] for row, n in zip(part["stored"], part["count"].tolist(), strict=True)]
    return memory


def everything(seen, replica):
    """All that belongs to one replica: what its steps were given, its weights and memories, what was measured."""
    batches = [(indices, tasks) for _, indices, tasks in seen.batches]
    states = [(of(params, replica), without_padding(of(memory, replica))) for params, memory in seen.states]
    measured = seen.measured.initial, seen.measured.matrix, seen.measured.kept
    return of(batches, replica), states, of(measured, replica)


@pytest.mark.usefixtures("_latent_variables")
@pytest.mark.parametrize(("kind", "scenario", "method", "stack"), rest_in_full(CASES, covering(CASES, 3)))
def test_a_replica_alone_is_itself_in_stacks_of_two_three_and_five(kind, scenario, method, stack):
    """The last of the stack. The others have other seeds, or the same seed and other numbers."""
    methods = NUMBERS[method]
    _, *others = methods if len(methods) > 1 else methods * 3
    each, seeds = {
        "two": ([others[0], method], [9, 4]),
        "three": ([*others, method], [4, 4, 4] if len(methods) > 1 else [8, 5, 4]),
        "five": ([*others, *others, method], [2, 7, 1, 3, 4]),
    }[stack]
    alone, together = trained(kind, scenario, method, [4]), trained(kind, scenario, each, seeds)
    assert same_bits(everything(alone, 0), everything(together, len(seeds) - 1))
    assert alone.orders[0] == together.orders[-1]
    *ends, mine = (of(networks_of(together.states[-1]), replica) for replica in range(len(seeds)))
    assert not any(same_bits(mine, end) for end in ends)  # or a mix-up could not be seen


def test_every_method_of_the_registry_is_here():
    assert {name for m in METHODS for name in parse(m[0]).hyperparameters()} | {"none"} == set(REGISTRY)


@pytest.mark.parametrize("method", ["er", "icarl"])
def test_a_budget_of_more_than_there_is_makes_no_seed_depend_on_others(method):
    """Ten output units: the stacked weights end in the middle of a line."""
    sizes = {"hidden": 32, "batch": 64, "iters": 20}
    stream, others = Split(tiny_data(100, 10, 2), 5), [2, 7, 1, 8, 5, 6]
    alone = watched(stream, "class", [3], method=method, **sizes)
    stack = watched(stream, "class", [*others, 3], method=method, **sizes)
    assert same_bits(everything(alone, 0), everything(stack, len(others)))


@pytest.mark.parametrize("method", ["none", "ewc:strength=50", "er:budget=30,use=both"])
def test_with_other_widths_the_last_bits_may_differ_and_no_more(method):
    """Ten hidden units, batches of 12: draws are the same, and so is what is learned."""
    sizes = {"hidden": 10, "batch": 12, "iters": 8}
    alone = watched("split", "class", [4], method=method, **sizes)
    five = watched("split", "class", [2, 7, 1, 3, 4], method=method, **sizes)
    assert same_bits(of(alone.states[0], 0), of(five.states[0], 4))
    for mine, its in zip(alone.batches, five.batches, strict=True):
        assert torch.equal(mine[1][0], its[1][4])
    assert furthest(of(alone.weights[-1], 0), of(five.weights[-1], 4)) < 2e-5


@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_scenario_and_global_generator_change_neither_classes_nor_batches(kind):
    before = torch.get_rng_state()
    seen = {}
    try:
        for place, scenario in enumerate([*SCENARIOS, "class"]):
            torch.manual_seed(place)
            seen[place] = watched(kind, scenario, [11, 3], iters=5)
    finally:
        torch.set_rng_state(before)
    for other in (seen[1], seen[2], seen[3]):
        assert seen[0].orders == other.orders
        assert all(same_bits(a[1:], b[1:]) for a, b in zip(seen[0].batches, other.batches, strict=True))
    assert same_bits(seen[2].states, seen[3].states)
    assert same_measured(seen[2].measured, seen[3].measured)
    assert not same_bits(of(seen[2].weights[0], 0), of(seen[2].weights[0], 1))
    assert all((i[0] != i[1]).any() for _, i, _ in seen[2].batches)  # replicas draw apart
