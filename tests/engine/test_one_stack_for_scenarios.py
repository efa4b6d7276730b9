"""Task-IL and Class-IL differ in masks alone, for many methods: one stack trains both, and each comes out as alone."""

import pytest
import torch
from tiny_cohorts import PROTOCOLS

from threefold.engine import Checkpoint, Crew, Training, train, train_together
from threefold.engine.company import Company
from threefold.methods import EWC, LwF, Method, parse
from threefold.scenarios import find

SEEDS, RATES = [1, 2, 3], [1e-2] * 3
TRAINING = Training(iters=8, batch=16, hidden=8)
PAIRS = {  # in Task-IL and in Class-IL: numbers may differ
    "none": ("none", "none"),
    "offline": ("offline", "offline"),
    "ewc": ("ewc:strength=5000", "ewc:strength=50"),
    "online-ewc": ("online-ewc:strength=5000,decay=0.8", "online-ewc:strength=50,decay=1"),
    "si": ("si:strength=50", "si:strength=0.5"),
    "lwf": ("lwf", "lwf:temperature=3"),
    "ewc and si": ("ewc:strength=500+si:strength=5", "ewc:strength=50+si:strength=0.5"),
}


def crews(pair, scenarios=("task", "class")):
    return [Crew(find(s), [parse(m)] * 3, SEEDS, RATES) for m, s in zip(pair, scenarios, strict=True)]


def alone(method, scenario, protocol):
    return train(PROTOCOLS[protocol], find(scenario), [parse(method)] * 3, SEEDS, RATES, TRAINING)


def same(one, other):
    assert torch.equal(one.initial, other.initial)
    assert torch.equal(one.matrix, other.matrix)
    assert one.diverged_at == other.diverged_at


@pytest.mark.parametrize("protocol", ["split", "permuted"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_each_scenario_comes_out_as_it_does_alone(pair, protocol):
    assert len(Company(PROTOCOLS[protocol], crews(pair), TRAINING).trained) == 1
    together = train_together(PROTOCOLS[protocol], crews(pair), TRAINING)
    apart = [alone(method, scenario, protocol) for method, scenario in zip(pair, ("task", "class"), strict=True)]
    for one, other in zip(together, apart, strict=True):
        same(one, other)
    assert not torch.equal(together[0].matrix, together[1].matrix)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_first_task_is_learned_once_for_both(pair):
    """One task is active alone, whatever the scenario: no mask differs yet."""
    company = Company(PROTOCOLS["split"], crews(pair), TRAINING)
    (seedling,) = company.seedlings()
    assert len(company.trained[0].seeds) == 6
    assert list(seedling.seeds) == SEEDS


OTHERS = {
    "domain": ("none", "none", ("task", "domain")),
    "dgr": ("dgr", "dgr", ("task", "class")),
    "er": ("er:budget=30", "er:budget=30", ("task", "class")),
    "every": ("lwf:replayed_for=every", "lwf:replayed_for=every", ("task", "class")),
    "other code": ("ewc:strength=5", "ewc:strength=5,labels=true", ("task", "class")),
}


@pytest.mark.parametrize(("one", "other", "scenarios"), OTHERS.values(), ids=OTHERS)
def test_where_more_than_masks_differs_there_are_two_stacks(one, other, scenarios):
    assert len(Company(PROTOCOLS["split"], crews((one, other), scenarios), TRAINING).trained) == 2


class OwnEWC(EWC):
    """From elsewhere: it may ask for the scenario wherever it likes."""

    name = "own-ewc"


class OwnLwF(LwF):
    name = "own-lwf"


@pytest.mark.parametrize("part", [OwnEWC(strength=5), OwnLwF()], ids=["ewc", "lwf"])
def test_heirs_from_elsewhere_have_stacks_of_their_own(part):
    both = [Crew(find(s), [Method(part)] * 3, SEEDS, RATES) for s in ("task", "class")]
    assert len(Company(PROTOCOLS["split"], both, TRAINING).trained) == 2


def test_three_crews_of_which_two_are_one_stack():
    both = crews(PAIRS["ewc"])
    every = [*both, Crew(find("domain"), [parse("ewc:strength=5")] * 3, SEEDS, RATES)]
    first, second, third = train_together(PROTOCOLS["split"], every, TRAINING)
    same(first, alone("ewc:strength=5000", "task", "split"))
    same(second, alone("ewc:strength=50", "class", "split"))
    same(third, alone("ewc:strength=5", "domain", "split"))


class Killed(Exception):
    pass


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_killed_in_the_last_task_and_resumed(pair, tmp_path):
    whole = train_together(PROTOCOLS["split"], crews(pair), TRAINING)
    checkpoint = Checkpoint(tmp_path / "both.pt")

    def killing(progress):
        if progress.task == 2:
            raise Killed

    with pytest.raises(Killed):
        train_together(PROTOCOLS["split"], crews(pair), TRAINING, checkpoint, killing)
    for one, other in zip(train_together(PROTOCOLS["split"], crews(pair), TRAINING, checkpoint), whole, strict=True):
        same(one, other)
