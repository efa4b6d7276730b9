"""What a part of one's own may count on, whatever the engine does to be quick."""

import pytest
import torch
from hook_lab import STEPS, Leashed, Rope, same, trained
from tiny_stack import TinyStack

from threefold.errors import ThreefoldError
from threefold.methods import AGEM, ER, EWC, SI, Leash, Method, Part, Replay, classification
from threefold.methods.part import quadratic


class Floating(Rope):
    def leash(self, memory):
        return Leash(3.0, memory, self.precision(memory))


class Even(Rope):
    def precision(self, memory):
        return {n: torch.ones_like(p) for n, p in memory.items()}


class OneNumber(Even):
    def leash(self, memory):
        return Leash(self.strength, memory, {n: p.new_ones(()) for n, p in memory.items()})


class SlackAtFirst(Leashed):
    def leash(self, memory):
        return super().leash(memory) if "ready" in memory else None

    def consolidate(self, stack, memory, task):
        kept = super().consolidate(stack, memory, task)
        return kept | ({"ready": torch.ones(len(stack.seeds))} if task else {})

    def precision(self, memory):
        return super().precision({n: p for n, p in memory.items() if n != "ready"})


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize(("leash", "penalty"), [(Leashed, Rope), (Floating, Rope), (OneNumber, Even)])
def test_a_leash_is_what_the_same_penalty_is(leash, penalty, scenario):
    assert leash().leashes
    assert not penalty().leashes
    assert same(trained(leash(), scenario), trained(penalty(), scenario))
    assert not same(trained(leash(), scenario), trained(Method(), scenario))


def test_a_leash_sees_one_network_whoever_is_trained_beside_it():
    alone = trained(Leashed(), seeds=(3,))
    beside = trained(Leashed(), seeds=(3, 1, 2))
    assert same(alone, {name: p[:1] for name, p in beside.items()})


def test_a_leash_may_be_slack_for_some_tasks():
    assert same(trained(SlackAtFirst(), tasks=2), trained(Method(), tasks=2))
    assert not same(trained(SlackAtFirst(), tasks=3), trained(Method(), tasks=3))


def test_leash_and_adjusted_gradient_go_together():
    """A-GEM must see the whole gradient, so there the leash is a penalty like any other."""
    assert same(trained(Leashed() + AGEM(budget=30)), trained(Rope() + AGEM(budget=30)))


@pytest.mark.parametrize("beside", [None, AGEM(budget=30)], ids=["alone", "with a-gem"])
def test_of_penalty_and_leash_the_one_defined_last_counts(beside):
    class Mine(EWC):
        def penalty(self, params, memory):
            return 1e-3 * quadratic(params, memory["anchor"], {n: torch.ones_like(p) for n, p in params.items()})

    class Theirs(Mine):
        def leash(self, memory):
            return Leash(self.strength, memory["anchor"], memory["precision"])

    def weights(part):
        return trained(Method(part) if beside is None else part + beside)

    assert not Mine(strength=50).leashes
    assert not same(weights(Mine(strength=50)), weights(EWC(strength=50)))
    assert same(weights(Theirs(strength=50)), weights(EWC(strength=50)))


def test_one_class_cannot_define_both():
    with pytest.raises(
        ThreefoldError, match=r"Both defines penalty and leash, two forms of one thing; right would be one\."
    ):

        class Both(Part):
            name = "both"

            def penalty(self, params, memory):
                return None

            def leash(self, memory):
                return None


def test_several_leashes_and_paths_add_up():
    """Two leashes and a path at once, against penalties that are derived."""

    class Summed(SI):
        def penalty(self, params, memory):
            return self.strength * quadratic(params, memory["anchor"], memory["importance"])

    two = trained(Leashed() + SI(strength=2), tasks=3)
    assert same(two, trained(Rope() + Summed(strength=2), tasks=3))


def test_who_observes_sees_the_whole_gradient():
    class Witness(Part):
        name = "witness"

        def begin(self, setting, seed, params):
            return {n: torch.zeros_like(p) for n, p in params.items()}

        def observe(self, memory, before, after, grads):
            for n, g in grads.items():
                memory[n].copy_(g)

    found = []
    for rope in (Leashed(), Rope()):
        tiny = TinyStack("split", "class", rope + Witness(), (3, 1))
        tiny.reach(1)
        tiny.train(STEPS)
        found.append({n: g.clone() for n, g in tiny.memory("witness").items()})
    assert same(*found)


def test_a_look_at_the_logits_without_gradient_does_not_stop_learning():
    class Careful(Part):
        name = "careful"

        def loss(self, learner, batch):
            with torch.no_grad():
                sure = torch.softmax(learner.logits(batch.x, batch.task), -1).amax()
            return classification(learner, *batch) * (1 + 0 * sure)

    assert same(trained(Careful()), trained(Method()))
    assert same(trained(Careful() + ER(budget=30)), trained(ER(budget=30)))  # where replays go through together


def test_what_is_replayed_need_not_be_inputs():
    """Latent replay: features of the last hidden layer, which only the output layer sees."""

    class Latent(Part):
        name = "latent"

        def recall(self, learner, batch, drawn):
            return Replay(learner.features(batch.x, batch.task), batch.y, batch.task)

        def replay_loss(self, learner, replay):
            weights, bias = learner.params["output.weighted.weight"], learner.params["output.shift.bias"]
            return (replay.x @ weights.T + bias).square().mean()

    assert not same(trained(Latent()), trained(Method()))


@pytest.mark.parametrize(
    ("module", "outside"),
    [("threefold.methods.mine", False), ("threefold", False), ("threefold_extras.parts", True), ("__main__", True)],
)
def test_a_part_knows_whether_it_is_from_outside(module, outside):
    """An heir is from where it was written, whatever it inherits from."""
    heir = type("Heir", (ER,), {"__module__": module})
    assert heir.from_outside() is outside
    assert heir(budget=30).from_outside() is outside
    assert not ER.from_outside()


def test_an_heir_of_er_is_trained_by_its_own_rules():
    class Heir(ER):
        def loss(self, learner, batch):
            return 0 * classification(learner, *batch)

    assert Heir(budget=30, use="execution").trained_as() == Heir(budget=30, use="execution")
    assert ER(budget=30, use="execution").trained_as() is None
