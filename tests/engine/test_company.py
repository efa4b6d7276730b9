"""Crews that train something alike train it once, and come bit for bit to what each comes to alone."""

import gc
import weakref
from dataclasses import dataclass
from importlib import import_module

import pytest
import torch
from tiny_cohorts import PROTOCOLS
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from threefold.engine import Checkpoint, Crew, Outcome, Training, train_together
from threefold.engine.lockstep import Lockstep
from threefold.methods import DGR, ER, EWC, Method, Noise, Part, hyper, parse
from threefold.nets.layers import Layer
from threefold.scenarios import find

engine = import_module("threefold.engine.train")
company = import_module("threefold.engine.company")

SEEDS, LR = [3, 1], [1e-2, 5e-3]
TRAINING = Training(iters=3, batch=12, hidden=8)
SCENARIOS = ["task", "domain", "class"]


def crew(scenario, *methods, seeds=SEEDS, lr=LR):
    """Replicas with one method, or with one each; "hidden" is Task-IL with the task in the hidden layers alone."""
    chosen = [parse(m) if isinstance(m, str) else m if isinstance(m, Method) else Method(m) for m in methods]
    wanted = find("task").using_task_in("hidden") if scenario == "hidden" else find(scenario)
    return Crew(
        wanted, chosen if len(chosen) == len(seeds) else chosen * len(seeds), list(seeds), list(lr)[: len(seeds)]
    )


def grid(scenario, make, numbers, seeds=(1, 2), lr=1e-2):
    """Every number with every seed."""
    pairs = [(number, seed) for number in numbers for seed in seeds]
    methods = [Method(*make(number)) for number, _ in pairs]
    return Crew(find(scenario), methods, [seed for _, seed in pairs], [lr] * len(pairs))


def generative(scenarios=SCENARIOS):
    return [crew(scenario, method) for method in ("dgr", "dgr-distill") for scenario in scenarios]


@dataclass
class Seen:
    """A crew's outcome, and all weights at the end: few samples are decided otherwise by slightly wrong ones."""

    outcome: Outcome
    weights: dict[str, dict[str, torch.Tensor]]


KNOWN: dict[object, Seen] = {}


def alone(crews, protocol="split"):
    """Each crew as an experiment of its own; one that several tests compare with is trained once."""
    found = []
    for c in crews:
        key = protocol, c.scenario, tuple(c.networks())
        if key not in KNOWN:
            (KNOWN[key],) = together([c], protocol)
        found.append(KNOWN[key])
    return found


def same(some, others):
    """Do these crews agree in every bit?"""
    assert len(some) == len(others)
    for mine, its in zip(some, others, strict=True):
        one, other = mine.outcome, its.outcome
        assert mine.weights.keys() == its.weights.keys()
        for net, params in mine.weights.items():
            assert all(torch.equal(p.nan_to_num(), its.weights[net][name].nan_to_num()) for name, p in params.items())
        assert torch.equal(one.initial, other.initial)
        assert torch.equal(one.matrix.nan_to_num(-1), other.matrix.nan_to_num(-1))
        assert one.diverged_at == other.diverged_at
        assert [kept.keys() for kept in one.keepsakes] == [kept.keys() for kept in other.keepsakes]
        assert all(
            torch.equal(mine[name], its[name])
            for mine, its in zip(one.keepsakes, other.keepsakes, strict=True)
            for name in mine
        )


@pytest.fixture
def stacks(monkeypatch):
    """All stacks that are built: those with an optimiser are trained."""
    built, build = [], company.Lockstep

    def watched(*args):
        built.append(build(*args))
        return built[-1]

    monkeypatch.setattr(company, "Lockstep", watched)
    return built


def together(crews, protocol="split", **also):
    """Crews as one experiment."""
    seen, measure = [], engine.accuracies

    def watched(stack, tasks_seen):
        seen.append(tree_map(torch.clone, stack.params))
        return measure(stack, tasks_seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "accuracies", watched)
        outcomes = train_together(PROTOCOLS[protocol], crews, TRAINING, **also)
    return [Seen(outcome, weights) for outcome, weights in zip(outcomes, seen[-len(crews) :], strict=True)]


def trained(stacks):
    return [stack for stack in stacks if stack.optimizer]


# networks beside the classifier


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
    assert all(len(seen.outcome.keepsakes) == 3 for seen in by_themselves)
    assert all("dreams" in kept for seen in by_themselves for kept in seen.outcome.keepsakes)
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


class Critic(Part):
    """A part as docs/your-own-method.md describes it: a network beside the classifier that learns from inputs alone."""

    name = "critic"
    rate: float = hyper("how strongly it learns", 1.0, gt=0)
    weight: float = hyper("what the classifier makes of it", 0.1, ge=0)

    def networks(self, setting):
        return {"first": Layer(setting.inputs, 3), "second": Layer(3, 1)}

    def networks_depend_on(self):
        return "generator", self.rate  # a word that another part might use, too

    def side_draws(self, setting, seed, task, memory, steps):
        return {"critic noise": Noise((setting.batch, setting.inputs))}

    def side_loss(self, learner, batch, replay, drawn):
        x = batch.x + drawn["critic noise"]
        for name in ("first", "second"):
            x = functional_call(learner.nets[name], learner.all_params[name], (x,)).relu()
        return self.rate * ((x - 1) ** 2).mean()

    def penalty(self, params, memory):
        size = memory["size"] if memory else 0.0
        return self.weight * size * sum((p**2).sum() for p in params.values())

    def consolidate(self, stack, memory, task):
        return {"size": stack.params["first"]["weighted.weight"].abs().mean((1, 2))}


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


# networks that are judged in several ways


def stored(scenario, use, budgets=(6, 12), more=()):
    return grid(scenario, lambda budget: (*more, ER(budget=budget, use=use)), budgets)


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


# kept, killed, diverged, let go


COMPANIES = {
    "a lent generator": [crew("class", "dgr"), crew("task", "dgr-distill"), crew("hidden", "dgr+xdg:share=0.5")],
    "views": [
        stored("class", "both"),
        stored("class", "training"),
        stored("class", "execution", more=[EWC(strength=9)]),
        crew("class", EWC(strength=9), seeds=[1, 2], lr=[1e-2] * 2),
    ],
    "views on what is lent": [
        crew("task", "dgr"),
        crew("class", "dgr+er:budget=30,use=execution"),
        crew("class", "dgr"),
    ],
}


class Killed(Exception):
    pass


def killed_in(task):
    def report(progress):
        if progress.task == task:
            raise Killed

    return report


@pytest.mark.parametrize("kind", COMPANIES)
def test_killed_after_each_task_it_goes_on_bit_for_bit(kind, tmp_path):
    crews, path = COMPANIES[kind], tmp_path / "cohort.pt"
    undisturbed = alone(crews)
    for task in (1, 2):
        with pytest.raises(Killed):
            together(crews, checkpoint=Checkpoint(path), report=killed_in(task))
        assert Checkpoint(path).load(torch.device("cpu"))["finished"] == task
    same(together(crews, checkpoint=Checkpoint(path)), undisturbed)


def test_a_checkpoint_holds_everything_once(tmp_path):
    """What views remember as the stack they look at does is not written for each of them."""
    path = tmp_path / "cohort.pt"
    with pytest.raises(Killed):
        together(COMPANIES["views"], checkpoint=Checkpoint(path), report=killed_in(1))
    state = Checkpoint(path).load(torch.device("cpu"))["company"]
    assert [list(each["memory"]) for each in state["trained"]] == [["er"], ["ewc"]]
    assert [list(memory) for memory in state["judged"]] == [[], [], ["er"], []]
    with pytest.raises(Killed):
        together(COMPANIES["a lent generator"], checkpoint=Checkpoint(tmp_path / "b.pt"), report=killed_in(1))
    state = Checkpoint(tmp_path / "b.pt").load(torch.device("cpu"))["company"]
    assert [list(each["params"]) for each in state["trained"]] == [["classifier", "generator"], *[["classifier"]] * 2]


def test_a_checkpoint_of_an_older_format_is_set_aside(tmp_path, monkeypatch):
    crews, path = COMPANIES["a lent generator"], tmp_path / "cohort.pt"
    with monkeypatch.context() as patch:
        patch.setattr(import_module("threefold.engine.checkpoint"), "FORMAT", 3)
        with pytest.raises(Killed):
            together(crews, checkpoint=Checkpoint(path), report=killed_in(2))
    checkpoint, tasks = Checkpoint(path), []
    same(together(crews, checkpoint=checkpoint, report=lambda progress: tasks.append(progress.task)), alone(crews))
    assert checkpoint.set_aside == tmp_path / "cohort.damaged"
    assert min(tasks) == 0, "it began anew"


def test_what_was_loaded_is_let_go(tmp_path):
    """On a GPU it would take memory, three times the weights, for the rest of training."""
    crews, held = COMPANIES["a lent generator"], []

    class Watched(Checkpoint):
        def load(self, device):
            state = super().load(device)
            if state:
                optimizers = [each["optimizer"] for each in state["company"]["trained"]]
                held.extend(weakref.ref(leaf) for leaf in tree_leaves(optimizers))
            return state

    with pytest.raises(Killed):
        together(crews, checkpoint=Watched(tmp_path / "c.pt"), report=killed_in(1))
    left = []

    def still(progress):
        left.append([ref for ref in held if ref() is not None])

    together(crews, checkpoint=Watched(tmp_path / "c.pt"), report=still)
    assert held
    assert left[0] == []


@pytest.mark.parametrize("kind", COMPANIES)
def test_a_finished_company_leaves_no_memory_behind(kind, monkeypatch):
    stacks, build = [], company.Lockstep

    def watched(*args):
        stack = build(*args)
        stacks.append(weakref.ref(stack))
        return stack

    monkeypatch.setattr(company, "Lockstep", watched)
    gc.collect()
    gc.disable()
    try:
        together(COMPANIES[kind])
        assert len(stacks) >= 3
        assert not any(ref() for ref in stacks)
    finally:
        gc.enable()


class Burden(Part):
    """A penalty, so from the second task on; strong enough it is infinite."""

    name = "burden"
    strength: float = hyper("weight", 0.0)

    def penalty(self, params, memory):
        return self.strength * sum((p**2).sum() for p in params.values()) * 1e30


def test_a_classifier_that_diverges_leaves_other_crews_alone():
    """Here it is the one beside the generator that all are lent."""
    wild = [DGR() + Burden(strength=strength) for strength in (1e30, 0)]
    crews = [crew("class", *wild), crew("task", "dgr"), crew("domain", "dgr-distill")]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[1, None], [None, None], [None, None]]
    same(outcomes, alone(crews))


def test_a_generator_that_diverges_marks_all_that_were_lent_it():
    crews = [crew(scenario, "dgr", lr=[1e-2, 1e30]) for scenario in SCENARIOS] + [crew("class", "none")]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[None, 0]] * 3 + [[None, None]]
    same(outcomes, alone(crews))


class Exploding(Critic):
    """Its own network diverges, in the second task, and no classifier does."""

    name = "exploding"

    def penalty(self, params, memory):
        return None

    def side_loss(self, learner, batch, replay, drawn):
        wild = torch.where(learner.now.seen > 1, torch.inf, 1.0)
        return super().side_loss(learner, batch, replay, drawn) * torch.where(self.rate > 1, wild, 1.0)


def test_a_network_beside_that_diverges_marks_the_replicas_of_all_crews():
    parts = [Exploding(rate=1.0), Exploding(rate=2.0)]
    crews = [crew(scenario, *parts) for scenario in SCENARIOS]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[None, 1]] * 3
    same(outcomes, alone(crews))


class Shouting(Part):
    """From the second task on its loss may be infinite, and no weight is."""

    name = "shouting"
    volume: float = hyper("above 0: infinite", 0.0)

    def penalty(self, params, memory):
        return torch.where(self.volume > 0, torch.inf, 0.0)


def test_a_loss_that_is_not_finite_marks_every_view():
    parts = [Shouting(volume=1.0), Shouting(volume=0.0)]
    crews = [crew("class", *parts), crew("class", *(part + ER(budget=6, use="execution") for part in parts))]
    outcomes = together(crews)
    assert [seen.outcome.diverged_at for seen in outcomes] == [[1, None]] * 2
    same(outcomes, alone(crews))


def test_progress_of_several_crews_has_no_average():
    said = []
    together(generative(["class"]), report=said.append)
    assert {progress.accuracy for progress in said} == {None}
    assert [(said[-1].step, said[-1].steps)] == [(3 * TRAINING.iters,) * 2]
