"""A step's gradient, compiled, against the functions it was made of, for every method."""

import pytest
import torch
from every_method import FURTHER, ONE_EACH, PERMUTED
from tiny_stack import TinyStack
from torch.utils._pytree import tree_leaves

from covering import rest_in_full
from threefold.engine.compile import CompiledFunction


def close(some, others):
    pairs = zip(tree_leaves(some), tree_leaves(others), strict=True)
    return all(torch.allclose(mine, its, rtol=1e-12, atol=1e-14) for mine, its in pairs)


ALWAYS = [case for case in ONE_EACH if case[-1] not in FURTHER] + PERMUTED[:1]


@pytest.mark.parametrize(("kind", "scenario", "method"), rest_in_full(ONE_EACH + PERMUTED, ALWAYS))
def test_what_is_compiled_gives_what_the_functions_give_at_every_step(kind, scenario, method):
    """Traced at one step of the second task and used at the others."""
    tiny = TinyStack(kind, scenario, method).reach(1)
    compiled, gradients = (
        CompiledFunction(backend="eager"),
        tiny.step.gradients,
    )  # the tracing is ours, not the compiler
    with torch.no_grad():
        for batch, drawn in tiny.draws(2):
            tiny.step.take(batch, drawn)
            given = tiny.given(batch, drawn)
            assert close(compiled(gradients, given), gradients(given))
    assert not compiled.broken


def test_it_does_not_depend_on_what_it_does_not_read():
    """iCaRL's lists of stored samples grow and shrink from task to task; its gradient reads only the teacher."""
    tiny = TinyStack("split", "class", "icarl:budget=30").reach(1)
    compiled, gradients = CompiledFunction(backend="eager"), tiny.step.gradients
    with torch.no_grad():
        batch, drawn = next(tiny.draws(1))
        tiny.step.take(batch, drawn)
        given = tiny.given(batch, drawn)
        compiled(gradients, given)
        changed = tiny.memory("icarl") | {"stored": torch.zeros(3, 2, 1).long()}
        assert close(compiled(gradients, given._replace(memory={"icarl": changed})), gradients(given))


def test_without_a_compiler_the_functions_themselves_are_used():
    def broken(graph, inputs):
        raise RuntimeError("no C compiler found")

    def twice(x):
        return {"twice": 2 * x}

    compiled = CompiledFunction(backend=broken)
    with pytest.warns(UserWarning, match="steps are not compiled here.*no C compiler found"):
        assert compiled(twice, torch.tensor([1.0]))["twice"].item() == 2
    assert compiled.broken
    assert compiled(twice, torch.tensor([2.0, 3.0]))["twice"].tolist() == [4, 6]  # and without another word
