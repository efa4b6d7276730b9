"""What a part remembers stays what it was, whatever the engine does to keep addresses the same."""

from itertools import pairwise

import pytest
import torch
from tiny_cohorts import PROTOCOLS

from threefold.engine import Training, train
from threefold.methods import Method, Part
from threefold.scenarios import find


class Two(Part):
    """Keeps the networks of the last two tasks; the older is what was the newer, not a copy of it."""

    name = "two"
    older_first: bool = True

    def consolidate(self, stack, memory, task):
        new = {"newer": {n: p.clone() for n, p in stack.params["classifier"].items()}}
        old = {"older": memory["newer"]} if memory else {}
        return old | new if self.older_first else new | old

    def kept(self, stack, memory):
        return {name: torch.cat([p.flatten(1) for p in kept.values()], 1) for name, kept in memory.items()}


class Counting(Part):
    """Leaves out of `steps_read` what `observe` writes to: a mistake."""

    name = "counting"

    def begin(self, setting, seed, params):
        return {"steps": torch.zeros(())}

    def steps_read(self, memory):
        return {}

    def observe(self, memory, before, after, grads):
        memory["steps"] += 1


def outcome(part):
    return train(PROTOCOLS["split"], find("class"), [Method(part)] * 2, [1, 2], [1e-2] * 2, Training(6, 16, 8))


@pytest.mark.parametrize("older_first", [True, False])
def test_a_memory_may_hand_on_what_it_remembered(older_first):
    kept = outcome(Two(older_first=older_first)).kept
    assert "older" not in kept[0]
    for before, after in pairwise(kept):
        assert torch.equal(after["older"], before["newer"])
        assert not torch.equal(after["older"], after["newer"])


def test_what_steps_are_not_said_to_read_they_do_not_get():
    """On a GPU a captured step would go on writing where the memory was."""
    with pytest.raises(KeyError, match="steps"):
        outcome(Counting())
