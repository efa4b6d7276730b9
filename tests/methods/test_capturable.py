"""A step and a test of every method can be captured as a CUDA graph: neither reads a number on the host."""

import pytest
import torch
from every_method import PERMUTED, SPLIT
from tiny_stack import TinyStack
from torch.utils._python_dispatch import TorchDispatchMode

from threefold.engine.curves import Curves
from threefold.engine.step_runner import Eager
from threefold.engine.training import Evaluation

READING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "lift")


class NothingRead(TorchDispatchMode):
    """Refuses what a capture on a GPU refuses: reading a number, shapes that depend on values, copies from the host."""

    @classmethod
    def _should_skip_dynamo(cls):
        """Else PyTorch imports its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name == "index" and any(each is not None and each.dtype is torch.bool for each in args[1])
        if by_mask or name.startswith(READING):
            raise AssertionError(f"{name} cannot be captured")
        return func(*args, **(kwargs or {}))


def test_what_cannot_be_captured_is_noticed():
    table, task = torch.arange(6.0).view(3, 2), torch.tensor(1)
    for which in (lambda: table[task], lambda: table[table[:, 0] > 1], task.item, lambda: torch.tensor([0.5])):
        with pytest.raises(AssertionError, match="cannot be captured"), NothingRead():
            which()
    with NothingRead():
        table[task.view(1)]


@pytest.mark.parametrize(("kind", "scenario", "method"), SPLIT + PERMUTED)
@torch.no_grad()
def test_no_step_and_no_prediction_asks_for_a_number(kind, scenario, method):
    """In the second of three tasks: there are past tasks, this one and one to come."""
    tiny = TinyStack(kind, scenario, method, [1, 2]).reach(1)
    tiny.train(1)  # the first step finds out what hooks return
    curves = Curves(tiny.stack, Evaluation(every=1), Eager(tiny.stack))
    curves.begin_task(1)
    curves._accuracies()  # as before a capture: tables that are looked up later are made
    sampler = tiny.sampler(2)
    sampler.prepare(0)
    tiny.stack.now.step.fill_(0)
    with NothingRead():
        tiny.step.take(*sampler.at(tiny.stack.now.step))
        found = curves._accuracies()["accuracy"]
    assert found.shape == (2, 3)
