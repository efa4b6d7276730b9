"""Networks that several crews would train alike are trained once, and judged in several ways."""

import pytest
import torch
from company_lab import SCENARIOS, alone, crew, grid, same, stored, together, trained
from torch.utils._pytree import tree_leaves

from threefold.engine import Crew
from threefold.methods import ER, EWC, Method, Part, hyper
from threefold.scenarios import find


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("protocol", ["split", "permuted"])
def test_stored_data_used_at_any_time_come_to_what_each_comes_to_alone(protocol, scenario, stacks):
    plain = Crew(find(scenario), [Method()] * 2, [1, 2], [1e-2] * 2)
    crews = [stored(scenario, use) for use in ("training", "execution", "both")] + [plain]
    by_themselves = alone(crews, protocol)
    stacks.clear()
    same(together(crews, protocol), by_themselves)
    assert [len(stack.seeds) for stack in trained(stacks)] == [4, 2, 2], "the last for the first task of the first"
    assert len(stacks) == 5, "training and execution are views, both and none are what is trained"


def test_a_view_has_its_own_numbers_and_order(stacks):
    several = [
        grid("class", lambda budget: [ER(budget=budget, use="training")], [6, 12, 30]),
        grid("class", lambda budget: [ER(budget=budget, use="both")], [30, 8, 6], seeds=(2, 1)),
    ]
    by_themselves = alone(several)
    stacks.clear()
    found = [seen.outcome for seen in together(several)]
    assert [len(stack.seeds) for stack in trained(stacks)] == [8, 2], "6, 12, 30 and 8 with two seeds"
    for one, other in zip(found, (seen.outcome for seen in by_themselves), strict=True):
        assert torch.equal(one.initial, other.initial)
        # a higher stack is multiplied in another order: at most a sample of 18 is decided otherwise
        assert (one.matrix - other.matrix).abs().max() <= 100 / 18


def test_a_leash_is_shared_by_those_that_judge_otherwise(stacks):
    """The memory of EWC is the trained stack's, the exemplars are each view's own."""
    crews = [
        stored("class", "execution", more=[EWC(strength=50)]),
        crew("class", EWC(strength=50), seeds=[1, 2], lr=[1e-2] * 2),
    ]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [len(stack.seeds) for stack in trained(stacks)] == [2]
    judged = next(stack for stack in stacks if not stack.optimizer)
    assert judged.memory.keys() == {"ewc", "er"}


class Blurred(Part):
    """A part as docs/your-own-method.md describes it: one of its numbers counts at test time only."""

    name = "blurred"
    pull: float = hyper("weight of a penalty", 0.01, ge=0)
    blur: float = hyper("how much of each score is left to its neighbour", 0.0, ge=0)

    def trained_as(self):
        return self.model_copy(update={"blur": 0.0}) if self.pull else None

    def penalty(self, params, memory):
        return self.pull * sum((p**2).sum() for p in params.values())

    def scores(self, learner, x, task):
        logits = learner.logits(x, task)
        return logits + self.blur * logits.roll(1, -1)


class Sharp(Blurred):
    """Says nothing of how it is trained."""

    name = "sharp"
    trained_as = Part.trained_as


def test_a_part_of_ones_own_is_judged_in_several_ways(stacks):
    (blurred,) = together([grid("class", lambda blur: [Blurred(blur=blur)], [0, 1, 5])])
    assert [len(stack.seeds) for stack in stacks] == [2, 6]
    stacks.clear()
    (apart,) = together([grid("class", lambda blur: [Sharp(blur=blur)], [0, 1, 5])])
    assert [len(stack.seeds) for stack in stacks] == [6]
    assert torch.equal(blurred.outcome.matrix, apart.outcome.matrix)  # rounding moves no sample of these
    pairs = zip(tree_leaves(blurred.weights), tree_leaves(apart.weights), strict=True)
    assert max(float((a - b).abs().max()) for a, b in pairs) < 1e-5
    assert len({tuple(row.flatten().tolist()) for row in apart.outcome.matrix}) > 3


@pytest.mark.parametrize("pulls", [(0.0, 0.01), (0.01, 0.0)])
def test_a_number_may_decide_how_a_part_is_trained(pulls, stacks):
    """Without a pull it is None's network; in a stack where some pull, all are trained as they are."""
    crews = [grid("class", lambda pull: [Blurred(pull=pull, blur=1.0)], pulls)]
    crews += [crew("class", Method(), seeds=[1, 2], lr=[1e-2] * 2)]
    crews += [grid("class", lambda pull: [Blurred(pull=pull, blur=2.0)], [0.0])]
    by_themselves = alone(crews)
    stacks.clear()
    same(together(crews), by_themselves)
    assert [len(stack.seeds) for stack in trained(stacks)] == [4, 2]
