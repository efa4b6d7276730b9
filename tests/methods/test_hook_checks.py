"""What parts return for each parameter is put in order; a value that does not fit is an error."""

import pytest
import torch
from tiny_stack import TinyStack, near
from torch.func import functional_call

from threefold.engine.compile import CompiledFunction
from threefold.errors import ThreefoldError
from threefold.methods import Method, Part, PathIntegral, Quadratic

LAST, WEIGHTS = "output.shift.bias", "features.layers.0.weighted.weight"


def changed(hook, change):
    """A part that returns what `change` makes of what is right, in this hook."""

    class Changed(Part):
        name = "changed"

        def start(self, setting, seed, params):
            return change(hook, "start", {"sums": {n: torch.zeros_like(p) for n, p in params.items()}})

        def adjust(self, learner, gradient):
            return change(hook, "adjust", {n: 2 * g for n, g in gradient.items()}) if hook == "adjust" else None

        def penalty(self, learner):
            sizes = {n: 1 + p.detach().abs() for n, p in learner.params.items()}
            return change(hook, "penalty", Quadratic(3.0, sizes, sizes)) if hook == "penalty" else None

        def after_step(self, learner, step):
            if hook == "after_step":
                return change(hook, "after_step", {"sums": learner.params})
            return PathIntegral("sums") if hook == "start" else None

    return Changed()


def with_change(function):
    return lambda hook, where, given: function(given) if hook == where else given


def stack_of(hook, function=lambda given: given):
    return TinyStack("split", "class", changed(hook, with_change(function)), (3, 1))


def backwards(tree):
    assert list(tree) != sorted(tree, reverse=True)
    return {name: tree[name] for name in sorted(tree, reverse=True)}


def without(tree):
    return {name: value for name, value in tree.items() if name != LAST}


ORDERS = {
    "adjust": backwards,
    "penalty": lambda q: Quadratic(q.strength, backwards(q.anchor), backwards(q.precision)),
    "start": lambda memory: {"sums": backwards(memory["sums"])},
    "after_step": lambda memory: {"sums": backwards(memory["sums"])},
}


@pytest.mark.parametrize("hook", ORDERS)
def test_in_which_order_a_part_names_parameters_makes_no_difference(hook):
    first, turned, plain = stack_of(hook), stack_of(hook, ORDERS[hook]), TinyStack("split", "class", "none", (3, 1))
    for tiny in (first, turned, plain):
        tiny.train()
    assert near(turned.params, first.params)
    sums, its = (tiny.memory("changed")["sums"] for tiny in (first, turned))
    assert near(sums, {name: its[name] for name in sums})
    writes = hook in ("start", "after_step")
    assert near(first.params, plain.params) == writes
    assert all(each.abs().sum() > 0 for each in sums.values()) == writes


def with_one(tree, name, change):
    return tree | {name: change(tree[name])}


NOT_FITTING = {
    "adjust": {
        "what adjust of changed returns must hold a tensor for 'output.shift.bias', got nothing": without,
        "and no other, got one for 'bias'": lambda g: g | {"bias": g[LAST]},
        r"shape \(8, 16\) for 'features.layers.0.weighted.weight', got \(16, 8\)": lambda g: with_one(
            g, WEIGHTS, torch.t
        ),
        r"must have the parameter's shape \(6,\) for .*, got \(\)": lambda g: with_one(g, LAST, torch.sum),
        "must hold a tensor for 'output.shift.bias', got a float": lambda g: g | {LAST: 0.0},
        "must be a dictionary with a tensor for each parameter, got a list": lambda g: list(g.values()),
    },
    "penalty": {
        "anchor in the quadratic penalty of changed must hold a tensor for": lambda q: q._replace(
            anchor=without(q.anchor)
        ),
        r"precision in the quadratic penalty of changed must have the parameter's shape \(8, 16\)": (
            lambda q: q._replace(precision=with_one(q.precision, WEIGHTS, torch.t))
        ),
        "strength in .* of changed must be one number, got a str": lambda q: q._replace(strength="strong"),
        r"strength in .* must be one number, got shape \(3,\)": lambda q: q._replace(strength=torch.ones(3)),
    },
    "start": {
        "path integral of changed must hold a tensor for 'output": lambda m: {"sums": without(m["sums"])},
        r"path integral of changed must have the parameter's shape \(2, 6\) .* got \(2, 1\)": (
            lambda m: {"sums": with_one(m["sums"], LAST, lambda sums: sums[:1])}
        ),
        "path integral of changed must be a dictionary .* got nothing": lambda m: {},
        "start of changed must return a dictionary of tensors, got a list": lambda m: [],
        "start of changed must return tensors, got an int for 'count'": lambda m: m | {"count": 0},
    },
    "after_step": {
        "writes 'more', which is not in its memory; return it from start": lambda m: {"more": m["sums"]},
        "writes 'sums' with other shapes or types than it has": lambda m: {"sums": without(m["sums"])},
        "they must stay the same": lambda m: {"sums": {n: p.float() for n, p in m["sums"].items()}},
        "after_step of changed must return a dictionary of tensors, got a Tensor": lambda m: torch.zeros(3),
    },
}
EACH = [(hook, words, function) for hook, cases in NOT_FITTING.items() for words, function in cases.items()]


@pytest.mark.parametrize(("hook", "words", "function"), EACH, ids=[f"{hook}: {words}" for hook, words, _ in EACH])
def test_what_does_not_fit_is_told(hook, words, function):
    with pytest.raises(ThreefoldError, match=words):
        stack_of(hook, function).train(1)


def test_a_penalty_is_a_quadratic_at_every_step_of_a_task_or_at_none():
    tiny = stack_of("penalty")
    tiny.train(1)
    tiny.stack.template = (changed("penalty", lambda *_: None),)
    with pytest.raises(ThreefoldError, match="penalty of changed must return a Quadratic at every step of a task or"):
        tiny.train(1)


def test_it_is_told_where_steps_are_compiled_too(recwarn):
    tiny = stack_of("adjust", without)
    tiny.step.compiled = CompiledFunction(backend="eager")
    with pytest.raises(ThreefoldError, match="got nothing"):
        tiny.train()
    assert not any("not compiled" in str(warning.message) for warning in recwarn)


def test_a_checkpoint_fits_in_whichever_order_networks_are_named():
    class Two(Part):
        name = "two"
        turned: bool = False

        def networks(self, setting):
            names = ("other", "one") if self.turned else ("one", "other")
            return {name: torch.nn.Linear(setting.inputs, 2) for name in names}

        def side_loss(self, learner, batch, replay):
            networks, params = learner.networks, learner.all_params
            sums = [functional_call(networks[n], params[n], (batch.x.flatten(1),)).sum() for n in ("one", "other")]
            return sums[0] - 2 * sums[1]

    tinies = [TinyStack("split", "class", Two(turned=turned), (3, 1)) for turned in (False, True)]
    tinies[0].train()
    tinies[1].stack.restore(tinies[0].stack.state())
    assert near(*({name: tiny.params[name] for name in ("one", "other")} for tiny in tinies))
    assert near(*(tiny.stack.optimizer.means for tiny in tinies))


def test_a_memory_is_in_one_piece_however_it_is_returned():
    """Weights as they lie in a transposed view would be read, and written to, in the wrong places."""

    class Turned(Part):
        name = "turned"

        def consolidate(self, stack, memory, task):
            weights = stack.params["classifier"][WEIGHTS]
            return {"theirs": weights.mT, "own": (2 * weights).mT}

    tiny = TinyStack("split", "class", Turned(), (3, 1)).reach(1)
    assert all(tensor.is_contiguous() for tensor in tiny.memory("turned").values())
    assert torch.equal(tiny.memory("turned")["theirs"].mT, tiny.params["classifier"][WEIGHTS])


def test_a_misspelt_hook_is_asked_about():
    with pytest.warns(UserWarning, match="Mine defines pennalty, which is no hook; did you mean penalty"):

        class Mine(Part):
            name = "mine"

            def pennalty(self, learner):
                return 0.0

            def helper(self):
                return 1


@pytest.mark.parametrize(
    ("hook", "given", "named"),
    [
        ("keep", None, "keep of mine must return a dictionary of tensors, got nothing"),
        ("keep", {"a": 1.0}, "keep of mine must return tensors, got a float for 'a'"),
        ("consolidate", None, "consolidate of mine must return a dictionary of tensors, got nothing"),
        ("networks", None, "networks of mine must return a dictionary of modules by name, got nothing"),
        ("networks", {"a": 3}, "networks of mine must return a dictionary of modules by name, got what is no module"),
        (
            "networks",
            {"classifier": torch.nn.Linear(16, 6)},
            "networks of mine must not name a 'classifier'; give a network of your own as network=",
        ),
        (
            "networks",
            {"beside": torch.nn.Sequential(torch.nn.Linear(16, 6), torch.nn.BatchNorm1d(6))},
            "networks of mine must have no buffers, and 'beside' has 1.running_mean; use LayerNorm or GroupNorm",
        ),
    ],
)
def test_what_other_hooks_return_is_told_too(hook, given, named):
    mine = type("Mine", (Part,), {"name": "mine", "__annotations__": {}, hook: lambda *_: given})

    def all_hooks():
        tiny = TinyStack("split", "class", Method(mine()))
        tiny.finish()
        tiny.stack.kept()

    with pytest.raises(ThreefoldError, match=named):
        all_hooks()
