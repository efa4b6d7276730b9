"""Networks beside the classifier that several crews would train alike are trained once, and lent."""

import pytest
import torch
from company_lab import SCENARIOS, TRAINING, Critic, alone, crew, generative, same, together, trained
from torch.utils._pytree import tree_leaves

from threefold.engine.lockstep import Lockstep
from threefold.methods import DGR, ER, Part


@pytest.mark.parametrize("protocol", ["split", "permuted"])
def test_cells_with_one_generator_come_to_what_each_comes_to_alone(protocol, stacks):
    crews = [*generative(), crew("hidden", "dgr+xdg:share=0.5")]
    by_themselves = alone(crews, protocol)
    stacks.clear()
    same(together(crews, protocol), by_themselves)
    assert len(trained(stacks)) == len(stacks) == len(crews)
    assert [list(stack.own) for stack in stacks] == [["classifier", "generator"], *[["classifier"]] * 6]
    for stack in stacks[1:]:
        assert {id(p) for p in stack.optimizer.params} == {id(p) for p in stack.params["classifier"].values()}
        assert stack.params["generator"] is stacks[0].params["generator"]
    assert all(len(seen.outcome.kept) == 3 for seen in by_themselves)
    assert all("dreams" in kept for seen in by_themselves for kept in seen.outcome.kept)
    ends = {float(seen.weights["classifier"]["features.layers.0.weighted.weight"].sum()) for seen in by_themselves}
    assert len(ends) == len(crews), "their classifiers are not the same"


def test_only_the_stack_that_trains_the_generator_moves_it(stacks, monkeypatch):
    moved, step = [], Lockstep.step

    def watched(stack, *drawn):
        before = [leaf.clone() for leaf in tree_leaves(stacks[0].params["generator"])]
        step(stack, *drawn)
        after = tree_leaves(stacks[0].params["generator"])
        moved.append(not all(torch.equal(a, b) for a, b in zip(before, after, strict=True)))

    monkeypatch.setattr(Lockstep, "step", watched)
    together(generative(["class", "domain"]))
    assert moved == [True, False, False, False] * (TRAINING.iters * 3)


class OtherLoss(DGR):
    """For these tests, as the next ones: heirs that may do anything."""

    name = "other-loss"

    def side_loss(self, learner, batch, replay, drawn):
        return 2 * super().side_loss(learner, batch, replay, drawn)


class OtherRecall(DGR):
    name = "other-recall"

    def recall(self, learner, batch, drawn):
        replay = super().recall(learner, batch, drawn)
        return replay._replace(x=replay.x.round())


class OtherNetworks(DGR):
    name = "other-networks"

    def networks(self, setting):
        return super().networks(setting)


APART = {
    "other seeds": crew("class", "dgr", seeds=[3, 2]),
    "the same seeds in another order": crew("class", "dgr", seeds=[1, 3], lr=[5e-3, 1e-2]),
    "learning rates the other way round": crew("class", "dgr", lr=[5e-3, 1e-2]),
    "fewer seeds": crew("class", "dgr", seeds=[3]),
    "another loss": crew("domain", OtherLoss()),
    "another recall": crew("domain", OtherRecall()),
    "other networks": crew("domain", OtherNetworks()),
    "other data": crew("domain", "dgr+offline"),
    "stored data too": crew("class", "dgr+icarl:budget=30"),
}


@pytest.mark.parametrize("case", APART)
def test_a_generator_that_would_learn_otherwise_is_not_lent(case, stacks):
    crews = [crew("task", "dgr"), APART[case], crew("domain", "dgr-distill")]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [len(stack.own) for stack in stacks] == [2, 2, 1], "the third is lent the first one's"


class Silent(Critic):
    """Says nothing of what it depends on."""

    name = "silent"
    networks_depend_on = Part.networks_depend_on


def test_a_part_of_ones_own_lends_its_networks(stacks):
    crews = [crew("class", Critic()), crew("task", Critic(weight=0.5)), crew("class", Critic() + DGR())]
    crews += [crew("domain", Critic() + ER(budget=30, use="execution")), crew("domain", Critic())]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [sorted(stack.own) for stack in trained(stacks)] == [
        ["classifier", "first", "second"],
        ["classifier"],
        ["classifier", "generator"],
        ["classifier"],  # of the two last, which differ in execution alone
    ]
    assert len(stacks) == 5


def test_a_network_of_several_that_are_lent_in_part_finds_its_place(stacks):
    """Lent networks come last in a stack; one that is judged has them where its parts name them."""
    crews = [crew("task", "dgr"), crew("class", DGR() + Critic())]
    crews += [crew("class", DGR() + Critic() + ER(budget=30, use="execution"))]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [list(stack.params) for stack in stacks[1:]] == [
        ["classifier", "first", "second", "generator"],
        ["classifier", "generator", "first", "second"],
    ]


def test_numbers_that_differ_in_any_replica_are_not_lent_across(stacks):
    first, second = [Critic(rate=1.0), Critic(rate=2.0)], [Critic(rate=1.0), Critic(rate=3.0)]
    crews = [crew("class", *first), crew("task", *second), crew("domain", *first)]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [len(stack.own) for stack in stacks] == [3, 3, 1]


def test_a_part_that_says_nothing_is_never_shared(stacks):
    crews = [crew(scenario, Silent()) for scenario in SCENARIOS]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [len(stack.own) for stack in stacks] == [3, 3, 3]


class Peeping(Critic):
    """Asks a network that another stack may have trained further already."""

    name = "peeping"

    def penalty(self, params, memory):
        return None

    def loss(self, learner, batch):
        return learner.all_params["first"]["weighted.weight"].sum() + 0 * sum(p.sum() for p in learner.params.values())


def test_a_step_that_asks_a_lent_network_fails_and_is_not_wrong():
    with pytest.raises(KeyError, match="first"):
        together([crew("class", Peeping()), crew("task", Peeping())])
