"""A step's gradient as a traced program against the functions it was made of, for every method."""

import pytest
import torch
from every_method import CASES
from method_lab import Lab
from torch.utils._pytree import tree_leaves

from threefold.engine.program import Program


def ids(case):
    return "-".join(case)


def arguments(lab, batch, drawn):
    stack = lab.stack
    return stack.params, stack.memory, stack._numbers, batch, drawn, stack.now


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_program_gives_what_the_functions_give_at_every_step(case):
    """Traced at one step of the second task and used at the others."""
    lab = Lab(*case).reach(1)
    program = Program(backend="eager")  # the tracing is ours; the compiler is PyTorch's
    with torch.no_grad():
        for batch, drawn in lab.draws(3):
            args = arguments(lab, batch, drawn)
            got, wanted = program(lab.stack.plain_gradients, *args), lab.stack.plain_gradients(*args)
            for mine, other in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
                assert torch.allclose(mine, other, rtol=1e-12, atol=1e-14)
            lab.stack.step(batch, drawn)
    assert not program.broken


def test_a_program_does_not_depend_on_what_it_does_not_read():
    """iCaRL's lists of stored samples grow and shrink from task to task; its gradient reads only the teacher."""
    lab = Lab("split", "class", "icarl:budget=30").reach(1)
    program = Program(backend="eager")
    with torch.no_grad():
        batch, drawn = next(lab.draws(1))
        args = arguments(lab, batch, drawn)
        program(lab.stack.plain_gradients, *args)
        changed = lab.stack.memory["icarl"] | {"stored": torch.zeros(3, 2, 1).long()}
        again = program(lab.stack.plain_gradients, args[0], {"icarl": changed}, *args[2:])
        for mine, other in zip(tree_leaves(again), tree_leaves(lab.stack.plain_gradients(*args)), strict=True):
            assert torch.allclose(mine, other, rtol=1e-12, atol=1e-14)


def test_without_a_compiler_the_functions_themselves_are_used():
    def broken(graph, inputs):
        raise RuntimeError("no C compiler found")

    def twice(x):
        return {"twice": 2 * x}

    program = Program(backend=broken)
    with pytest.warns(UserWarning, match="steps are not compiled here.*no C compiler found"):
        assert program(twice, torch.tensor([1.0]))["twice"].item() == 2
    assert program.broken
    assert program(twice, torch.tensor([2.0, 3.0]))["twice"].tolist() == [4, 6]  # and without another word
