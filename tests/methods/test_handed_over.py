"""What parts hand back for each parameter is put in order, and what does not fit is told."""

from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from hook_lab import STEPS, Leashed, same, trained
from threefold.engine.program import Program
from tiny_stack import TinyStack
from torch.func import functional_call

from threefold.errors import ThreefoldError
from threefold.methods import Leash, Method, Part


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
        tiny = TinyStack("split", "class", part, (3, 1))
        tiny.train(STEPS)
        summed.append(dict(tiny.memory("summed")))
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
    "no leash": (Led, lambda leash: tuple(leash), "leash of rope gives a tuple; right would be a Leash, or None"),
    "a strength that is none": (
        Led,
        lambda leash: leash._replace(strength="strong"),
        "strength in the leash of rope is a str; right would be one number",
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
    tiny = TinyStack("split", "class", made(Adjusted, without), (3, 1))
    tiny.reach(1)
    tiny.stack.program = Program(backend="eager")
    with pytest.raises(ThreefoldError, match="gives nothing for"):
        tiny.train(STEPS)
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
    labs = [TinyStack("split", "class", part, (3, 1)) for part in parts]
    labs[0].train(STEPS)
    labs[1].stack.restore(labs[0].stack.state())
    assert same(*({name: tiny.params[name] for name in ("one", "other")} for tiny in labs))
    assert same(*(tiny.stack.optimizer.means for tiny in labs))


def test_a_memory_is_in_one_piece_however_it_is_handed_over():
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

            def pennalty(self, params, memory):
                return 0.0

            def helper(self):
                return 1


@pytest.mark.parametrize(
    ("hook", "given", "named"),
    [
        ("kept", None, "kept of mine gives nothing; right would be a dictionary of tensors"),
        ("kept", {"a": 1.0}, "kept of mine gives a float for 'a'; right would be a tensor"),
        ("networks", None, "networks of mine gives nothing; right would be a dictionary of modules"),
        ("networks", {"a": 3}, "networks of mine gives what is no module; right would be a dictionary of modules"),
        ("begin", [], "begin of mine gives a list; right would be a dictionary of tensors"),
    ],
)
def test_what_other_hooks_give_is_told_too(hook, given, named):
    mine = type("Mine", (Part,), {"name": "mine", "__annotations__": {}, hook: lambda *_: given})

    def kept():
        return TinyStack("split", "class", Method(mine())).stack.kept()

    with pytest.raises(ThreefoldError, match=named):
        kept()
