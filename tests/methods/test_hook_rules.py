"""What a part of one's own may count on, whatever the engine does to be quick."""

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from method_lab import CLOSE, Lab
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from threefold.engine.program import Program
from threefold.errors import ThreefoldError
from threefold.methods import AGEM, ER, EWC, SI, Leash, Method, Part, Replay, classification, hyper
from threefold.methods.part import quadratic

STEPS = 4


def same(mine, other):
    return all(
        torch.allclose(a, b, rtol=CLOSE, atol=CLOSE) for a, b in zip(tree_leaves(mine), tree_leaves(other), strict=True)
    )


def trained(method, scenario="class", seeds=(3, 1), tasks=2):
    """Weights after so many tasks."""
    lab = Lab("split", scenario, method, seeds)
    lab.reach(tasks - 1)
    lab.train(STEPS)
    return {name: p.clone() for name, p in lab.params["classifier"].items()}


class Rope(Part):
    """Holds every weight to where the last task left it: as a penalty."""

    name = "rope"
    strength: float = hyper("how tightly", 3.0, ge=0)

    def consolidate(self, stack, memory, task):
        return {n: p.clone() for n, p in stack.params["classifier"].items()}

    def precision(self, memory):
        """By a network's own weights, so that a mix-up of networks would show."""
        return {n: p.abs() / p.abs().sum() for n, p in memory.items()}

    def penalty(self, params, memory):
        return 0.5 * self.strength * quadratic(params, memory, self.precision(memory))


class Leashed(Rope):
    """The same as a leash."""

    def leash(self, memory):
        return Leash(self.strength, memory, self.precision(memory))


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
        lab = Lab("split", "class", rope + Witness(), (3, 1))
        lab.reach(1)
        lab.train(STEPS)
        found.append({n: g.clone() for n, g in lab.memory("witness").items()})
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


# what a part hands back for each parameter


class Adjusted(Part):
    """A gradient that `change` makes of the right one."""

    name = "adjusted"
    change: ClassVar[Callable[..., object]] = staticmethod(lambda grads: grads)

    def adjust(self, grads, learner, drawn):
        return self.change({n: 2 * g for n, g in grads.items()})


class Led(Leashed):
    """A leash that `change` makes of the right one."""

    change: ClassVar[Callable[..., object]] = staticmethod(lambda leash: leash)

    def leash(self, memory):
        return self.change(super().leash(memory))


class Summed(Part):
    """A path in the memory, as `change` hands it over."""

    name = "summed"
    change: ClassVar[Callable[..., object]] = staticmethod(lambda path: path)

    def begin(self, setting, seed, params):
        return {n: torch.zeros_like(p) for n, p in params.items()}

    def path(self, memory):
        return self.change(memory)


def made(part, change):
    return type(part.__name__, (part,), {"change": staticmethod(change), "__module__": __name__})()


def backwards(tree):
    assert list(tree) != sorted(tree, reverse=True)
    return {name: tree[name] for name in sorted(tree, reverse=True)}


LAST, WEIGHTS = "output.shift.bias", "features.layers.0.weighted.weight"


def without(tree):
    return {name: value for name, value in tree.items() if name != LAST}


def test_in_which_order_a_part_hands_over_makes_no_difference():
    assert same(trained(made(Adjusted, backwards)), trained(Adjusted()))
    assert not same(trained(Adjusted()), trained(Method()))
    turned = made(Led, lambda leash: Leash(leash.strength, backwards(leash.anchor), backwards(leash.precision)))
    assert same(trained(turned), trained(Leashed()))
    summed = []
    for part in (Summed(), made(Summed, backwards)):
        lab = Lab("split", "class", part, (3, 1))
        lab.train(STEPS)
        summed.append(dict(lab.memory("summed")))
        assert all(path.abs().sum() > 0 for path in summed[-1].values())
    assert same(*summed)


NOT_FITTING = {
    "a gradient is missing": (Adjusted, without, "adjust of adjusted gives nothing for 'output.shift.bias'; .* tensor"),
    "one too many": (Adjusted, lambda g: g | {"bias": g[LAST]}, "gives 'bias', which is no parameter of the classif"),
    "turned": (
        Adjusted,
        lambda g: g | {WEIGHTS: g[WEIGHTS].T},
        r"adjust of adjusted gives shape \(16, 8\) for 'features.layers.0.weighted.weight'; right would be \(8, 16\)",
    ),
    "one for all": (Adjusted, lambda g: g | {LAST: g[LAST].sum()}, r"gives shape \(\) for 'output.shift.bias'"),
    "a number": (Adjusted, lambda g: g | {LAST: 0.0}, "gives a float for 'output.shift.bias'; right would be a tensor"),
    "no dictionary": (Adjusted, lambda g: list(g.values()), "adjust of adjusted gives a list; right would be a dict"),
    "no gradient": (Adjusted, lambda g: None, "adjust of adjusted gives nothing; right would be a dictionary"),
    "no anchor": (
        Led,
        lambda leash: leash._replace(anchor=without(leash.anchor)),
        "anchor in the leash of rope gives nothing for 'output.shift.bias'",
    ),
    "a precision turned": (
        Led,
        lambda leash: leash._replace(precision=leash.precision | {WEIGHTS: leash.precision[WEIGHTS].T}),
        r"precision in the leash of rope gives shape \(16, 8\) for .*; right would be \(8, 16\)",
    ),
    "a strength of several": (
        Led,
        lambda leash: leash._replace(strength=leash.strength.expand(3)),
        r"strength in the leash of rope has shape \(3,\); right would be one number",
    ),
    "no path": (Summed, without, "path of summed gives nothing for 'output.shift.bias'"),
    "one path for all": (
        Summed,
        lambda path: path | {LAST: path[LAST][:, :1]},
        r"path of summed gives shape \(2, 1\) for 'output.shift.bias'; right would be \(2, 6\)",
    ),
}


@pytest.mark.parametrize(("part", "change", "words"), NOT_FITTING.values(), ids=NOT_FITTING)
def test_what_does_not_fit_the_parameters_is_told(part, change, words):
    with pytest.raises(ThreefoldError, match=words):
        trained(made(part, change))


def test_it_is_told_where_steps_are_compiled_too(recwarn):
    lab = Lab("split", "class", made(Adjusted, without), (3, 1))
    lab.reach(1)
    lab.stack.program = Program(backend="eager")
    with pytest.raises(ThreefoldError, match="gives nothing for"):
        lab.train(STEPS)
    assert not any("not compiled" in str(warning.message) for warning in recwarn)


def test_a_checkpoint_fits_in_whichever_order_networks_are_handed_over():
    class Two(Part):
        name = "two"
        change: ClassVar[Callable[..., object]] = staticmethod(lambda nets: nets)

        def networks(self, setting):
            return self.change({name: torch.nn.Linear(setting.inputs, 2) for name in ("one", "other")})

        def side_loss(self, learner, batch, replay, drawn):
            sums = [functional_call(learner.nets[n], learner.all_params[n], (batch.x,)).sum() for n in ("one", "other")]
            return sums[0] - 2 * sums[1]

    parts = Two(), made(Two, lambda nets: dict(reversed(nets.items())))
    labs = [Lab("split", "class", part, (3, 1)) for part in parts]
    labs[0].train(STEPS)
    labs[1].stack.restore(labs[0].stack.state())
    assert same(*({name: lab.params[name] for name in ("one", "other")} for lab in labs))
    assert same(*(lab.stack.optimizer.means for lab in labs))


def test_a_memory_is_in_one_piece_however_it_is_handed_over():
    """Weights as they lie in a transposed view would be read, and written to, in the wrong places."""

    class Turned(Part):
        name = "turned"

        def consolidate(self, stack, memory, task):
            weights = stack.params["classifier"][WEIGHTS]
            return {"theirs": weights.mT, "own": (2 * weights).mT}

    lab = Lab("split", "class", Turned(), (3, 1)).reach(1)
    assert all(tensor.is_contiguous() for tensor in lab.memory("turned").values())
    assert torch.equal(lab.memory("turned")["theirs"].mT, lab.params["classifier"][WEIGHTS])


def test_a_misspelt_hook_is_asked_about():
    with pytest.warns(UserWarning, match="Mine defines pennalty, which is no hook; did you mean penalty"):

        class Mine(Part):
            name = "mine"

            def pennalty(self, params, memory):
                return 0.0

            def helper(self):
                return 1
