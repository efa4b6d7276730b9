"""What several runs share is trained once, and each result is bit for bit that of the run alone."""

import gc
import weakref
from importlib import import_module
from types import SimpleNamespace

import pytest
import torch
from tiny_cohorts import (
    EVEN,
    SCENARIOS,
    Burden,
    Killed,
    copied,
    killed_in,
    replicas,
    same_bits,
    same_measured,
    training_of,
)
from torch.utils._pytree import tree_leaves

from covering import covering, rest_in_full
from threefold.engine import Checkpoint, train
from threefold.engine.step import TrainingStep
from threefold.methods import DGR, ER, EWC, Part

engine = import_module("threefold.engine.train")
SEEDS, LR, TRAINING = [3, 1], [1e-2, 5e-3], training_of(iters=3, hidden=16)
CPU = torch.device("cpu")


def runs(scenario, *methods, seeds=SEEDS, lr=LR):
    """Replicas with one method, or with one each."""
    each = list(methods) if len(methods) == len(seeds) else list(methods) * len(seeds)
    return replicas(scenario, each, seeds, list(lr)[: len(seeds)])


def grid(scenario, make, numbers, seeds=(1, 2)):
    """Every number with every seed."""
    pairs = [(number, seed) for number in numbers for seed in seeds]
    return replicas(scenario, [make(number) for number, _ in pairs], [seed for _, seed in pairs])


def stored(scenario, use, budgets=(48, 96)):
    return grid(scenario, lambda budget: ER(budget=budget, use=use), budgets)


def generative(scenarios=SCENARIOS):
    return [runs(scenario, method) for method in ("dgr", "dgr-distill") for scenario in scenarios]


def together(asked, stream="split", checkpoint=None, report=lambda progress: None):
    """What was measured, and all weights at the end: few samples are decided otherwise by slightly wrong ones."""
    seen, measure = [], engine.accuracies

    def watched(stack, tasks_seen):
        seen.append(copied(stack.params))
        return measure(stack, tasks_seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "accuracies", watched)
        measured = train(EVEN.get(stream, stream), asked, TRAINING, checkpoint, report)
    sizes = (len(each.seeds) for each in asked)
    ends = [{net: {n: p[:size] for n, p in params.items()} for net, params in weights.items()}
            for weights, size in zip(seen[-len(asked) :], sizes, strict=True)]  # fmt: skip
    return [SimpleNamespace(measured=m, weights=w) for m, w in zip(measured, ends, strict=True)]


KNOWN = {}


def alone(asked, stream="split"):
    """Each as an experiment of its own; one that several tests compare with is trained once."""
    for each in asked:
        key = stream, each.scenario, tuple(each.networks())
        if key not in KNOWN:
            (KNOWN[key],) = together([each], stream)
        yield KNOWN[key]


def as_alone(asked, stacks, stream="split"):
    """Train together, and compare with each alone; `stacks` are those of the training together then."""
    wanted = list(alone(asked, stream))
    stacks.clear()
    found = together(asked, stream)
    for mine, its in zip(found, wanted, strict=True):
        assert same_bits(mine.weights, its.weights)
        assert same_measured(mine.measured, its.measured)
    return found


def trained(stacks):
    return [stack for stack in stacks if stack.optimizer]


# DGR's generator


@pytest.mark.parametrize("stream", ["split", "permuted"])
def test_cells_with_one_generator_come_to_what_each_comes_to_alone(stream, stacks):
    asked = [*generative(), runs("hidden", "dgr+xdg:share=0.5")]
    found = as_alone(asked, stacks, stream)
    assert len(trained(stacks)) == len(stacks) == len(asked)
    assert [list(stack.own) for stack in stacks] == [["classifier", "generator"], *[["classifier"]] * 6]
    for stack in stacks[1:]:
        assert {id(p) for p in stack.optimizer.params} == {id(p) for p in stack.params["classifier"].values()}
        assert stack.params["generator"] is stacks[0].params["generator"]
    assert all("dreams" in kept for each in found for kept in each.measured.kept)
    ends = {float(each.weights["classifier"]["features.layers.0.weighted.weight"].sum()) for each in found}
    assert len(ends) == len(asked), "their classifiers are not the same"


def test_only_the_stack_that_trains_the_generator_moves_it(stacks, monkeypatch):
    moved, take = [], TrainingStep.take

    def watched(step, *drawn):
        before = copied(stacks[0].params["generator"])
        take(step, *drawn)
        moved.append(not same_bits(before, stacks[0].params["generator"]))

    monkeypatch.setattr(TrainingStep, "take", watched)
    together(generative(["class", "domain"]))
    assert moved == [True, False, False, False] * (TRAINING.iters * 3)


class MyDGR(DGR):
    """A user's: it may do anything."""

    name = "my-dgr"


APART = {
    "other seeds": runs("class", "dgr", seeds=[3, 2]),
    "the same seeds in another order": runs("class", "dgr", seeds=[1, 3], lr=[5e-3, 1e-2]),
    "learning rates the other way round": runs("class", "dgr", lr=[5e-3, 1e-2]),
    "fewer seeds": runs("class", "dgr", seeds=[3]),
    "a user's heir": runs("domain", MyDGR()),
    "a user's part beside it": runs("domain", DGR() + Burden()),
    "other data": runs("domain", "dgr+offline"),
    "stored data too": runs("class", "dgr+icarl:budget=50"),
}


@pytest.mark.parametrize("case", APART)
def test_a_generator_that_may_learn_otherwise_is_not_lent(case, stacks):
    as_alone([runs("task", "dgr"), APART[case], runs("domain", "dgr-distill")], stacks)
    assert [len(stack.own) for stack in stacks] == [2, 2, 1], "the third is lent the first one's"


# networks that are evaluated in several ways


WHERE = [(scenario, stream) for scenario in SCENARIOS for stream in ("split", "permuted")]


@pytest.mark.parametrize(("scenario", "stream"), rest_in_full(WHERE, covering(WHERE, 1)))
def test_stored_data_used_at_any_time_come_to_what_each_comes_to_alone(scenario, stream, stacks):
    plain = replicas(scenario, "none", [1, 2])
    as_alone([*(stored(scenario, use) for use in ("training", "execution", "both")), plain], stacks, stream)
    assert [len(stack.seeds) for stack in trained(stacks)] == [4, 2]
    assert len(stacks) == 4, "the first and the second are evaluated as others are trained"


def test_budgets_that_are_used_in_execution_only_share_a_network(stacks):
    """Seed 1 with two learning rates and seed 2 are trained; six are evaluated."""
    methods = [ER(budget=budget, use="execution") for budget in (48, 96, 960)] * 2
    asked = replicas("class", methods, [1, 1, 1, 2, 2, 2], [1e-2, 1e-2, 5e-3, 1e-2, 1e-2, 1e-2])
    (found,) = together([asked])
    assert [len(stack.seeds) for stack in stacks] == [3, 6]
    for place in range(6):
        (wanted,) = together([replicas("class", [methods[place]], [asked.seeds[place]], [asked.optimizers[place]])])
        assert torch.equal(found.measured.matrix[place], wanted.measured.matrix[0])
    assert len({tuple(row.flatten().tolist()) for row in found.measured.matrix}) > 3  # budgets make a difference


def test_each_has_its_own_numbers_and_order(stacks):
    several = [
        grid("class", lambda budget: ER(budget=budget, use="training"), [48, 96, 300]),
        grid("class", lambda budget: ER(budget=budget, use="both"), [300, 60, 48], seeds=(2, 1)),
    ]
    as_alone(several, stacks)
    assert [len(stack.seeds) for stack in trained(stacks)] == [8], "48, 96, 300 and 60 with two seeds"


def test_a_penalty_is_shared_by_those_that_are_evaluated_otherwise(stacks):
    """The memory of EWC is the trained stack's, the exemplars are each one's own."""
    asked = [
        grid("class", lambda budget: EWC(strength=50) + ER(budget=budget, use="execution"), [48, 96]),
        replicas("class", EWC(strength=50), [1, 2]),
    ]
    as_alone(asked, stacks)
    assert [len(stack.seeds) for stack in trained(stacks)] == [2]
    evaluated = next(stack for stack in stacks if not stack.optimizer)
    assert evaluated.memory.keys() == {"ewc", "er"}


class MyER(ER):
    name = "my-er"


class Reading(Part):
    """A user's, which reads what ER remembers."""

    name = "reading"

    def penalty(self, learner):
        stored = learner.memory["er"].get("count", torch.zeros(()))
        return 1e-3 * stored.sum() * sum((p**2).sum() for p in learner.params.values())


USERS = {
    "an heir": lambda budget: MyER(budget=budget, use="execution"),
    "beside it": lambda budget: Reading() + ER(budget=budget, use="execution"),
}


@pytest.mark.parametrize("make", USERS.values(), ids=USERS)
def test_what_a_user_wrote_is_never_shared(make, stacks):
    as_alone([grid("class", make, [48, 96]), replicas("class", "none", [1, 2])], stacks)
    assert [len(stack.seeds) for stack in trained(stacks)] == [4, 2]


# killed, resumed and done

COHORTS = {
    "a lent generator": [runs("class", "dgr"), runs("task", "dgr-distill"), runs("hidden", "dgr+xdg:share=0.5")],
    "evaluated in several ways": [
        stored("class", "both"),
        stored("class", "training"),
        grid("class", lambda budget: ER(budget=budget, use="execution") + EWC(strength=9), [48, 96]),
        replicas("class", EWC(strength=9), [1, 2]),
    ],
    "both": [runs("task", "dgr"), runs("class", "dgr+er:budget=50,use=execution"), runs("class", "dgr")],
}


@pytest.mark.parametrize("asked", COHORTS.values(), ids=COHORTS)
def test_killed_after_each_task_it_goes_on_bit_for_bit(asked, tmp_path):
    path = tmp_path / "cohort.pt"
    for task in (1, 2):
        with pytest.raises(Killed):
            together(asked, checkpoint=Checkpoint(path), report=killed_in(task))
        assert Checkpoint(path).load(CPU)["finished"] == task
    for mine, its in zip(together(asked, checkpoint=Checkpoint(path)), alone(asked), strict=True):
        assert same_measured(mine.measured, its.measured)
        assert same_bits(mine.weights, its.weights)


def test_a_checkpoint_holds_everything_once(tmp_path):
    """What is remembered by the stack that is trained is not written for each of those evaluated."""

    def saved(kind):
        checkpoint = Checkpoint(tmp_path / "c.pt")
        checkpoint.discard()
        with pytest.raises(Killed):
            together(COHORTS[kind], checkpoint=checkpoint, report=killed_in(1))
        return checkpoint.load(CPU)["stacks"]

    state = saved("evaluated in several ways")
    assert [list(each["memory"]) for each in state["trained"]] == [["er"], ["ewc"]]
    assert [list(memory) for memory in state["evaluated"]] == [[], [], ["er"], []]
    state = saved("a lent generator")
    assert [list(each["params"]) for each in state["trained"]] == [["classifier", "generator"], *[["classifier"]] * 2]


def test_what_was_loaded_is_let_go(tmp_path):
    """On a GPU it would take memory, three times the weights, for the rest of training."""
    held, left = [], []

    class Watched(Checkpoint):
        def load(self, device, fits):
            state = super().load(device, fits)
            if state:
                optimizers = [each["optimizer"] for each in state["stacks"]["trained"]]
                held.extend(weakref.ref(leaf) for leaf in tree_leaves(optimizers))
            return state

    asked = COHORTS["a lent generator"]
    with pytest.raises(Killed):
        together(asked, checkpoint=Watched(tmp_path / "c.pt"), report=killed_in(1))
    together(asked, checkpoint=Watched(tmp_path / "c.pt"),
             report=lambda progress: left.append([ref for ref in held if ref() is not None]))  # fmt: skip
    assert held
    assert left[0] == []


SINGLE = {method: [runs("class", method)] for method in ("none", "ewc:strength=50", "er:budget=50,use=execution")}


@pytest.mark.parametrize("asked", (COHORTS | SINGLE).values(), ids=COHORTS | SINGLE)
def test_what_was_trained_leaves_no_memory_behind(asked, stacks):
    """No cycle of references: gigabytes must not wait for a collector that comes when it likes."""
    gc.collect()
    gc.disable()
    try:
        together(asked)
        refs = [weakref.ref(stack) for stack in stacks]
        stacks.clear()
        assert len(refs) >= min(3, len(asked))
        assert not any(ref() for ref in refs)
    finally:
        gc.enable()


def test_progress_of_several_stacks_has_no_average():
    said = []
    together(generative(["class"]), report=said.append)
    assert {progress.accuracy for progress in said} == {None}
    assert (said[-1].step, said[-1].steps) == (3 * TRAINING.iters,) * 2


# what diverges


def test_a_generator_that_diverges_marks_all_that_were_lent_it(stacks):
    asked = [runs(scenario, "dgr", lr=[1e-2, 1e30]) for scenario in SCENARIOS] + [runs("class", "none")]
    found = as_alone(asked, stacks)
    assert [each.measured.diverged_at for each in found] == [[None, 0]] * 3 + [[None, None]]


def test_a_network_that_diverges_is_marked_in_every_way_it_is_evaluated(stacks):
    asked = [runs("class", ER(budget=50, use=use), lr=[1e30, 1e-2]) for use in ("training", "both")]
    found = as_alone(asked, stacks)
    assert len(trained(stacks)) == 1
    assert [each.measured.diverged_at for each in found] == [[0, None]] * 2
