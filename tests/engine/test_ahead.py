"""The next task's batches drawn beside this task's training: the same batches, by whomever they are drawn."""

from importlib import import_module
from itertools import product

import pytest
import torch
from tiny_cohorts import PROTOCOLS

from threefold.engine import Training, train
from threefold.methods import Method, Offline, parse
from threefold.scenarios import find

draws = import_module("threefold.engine.draws")
METHODS = ["none", "offline", "ewc:strength=50", "lwf", "dgr", "er:budget=30"]


@pytest.fixture
def drawn(monkeypatch):
    """(task, was it drawn ahead?) of every stack, in turn; on a CPU nothing is, unless `spare` is called."""
    found = []
    take = draws.Ahead.take

    def told(self, stack):
        got = take(self, stack)
        found.append((stack.task, got is not None))
        return got

    monkeypatch.setattr(draws.Ahead, "take", told)
    return found


def outcome(method, scenario="class", seeds=(1, 2, 2)):
    """Where strengths differ, two networks of a seed have the same batches."""
    chosen = [parse(method.replace("50", strength)) for strength in ("50", "50", "70")]
    return train(PROTOCOLS["split"], find(scenario), chosen, seeds, [1e-2] * len(seeds), Training(6, 16, 8))


@pytest.mark.parametrize(("method", "scenario"), [*product(METHODS, ["task", "class"]), ("icarl:budget=30", "class")])
def test_what_is_drawn_ahead_is_what_would_have_been_drawn(method, scenario, drawn, monkeypatch):
    plain = outcome(method, scenario)
    assert not any(ahead for _, ahead in drawn)
    drawn.clear()
    monkeypatch.setattr(draws, "_spares_cores", lambda stack: True)
    again = outcome(method, scenario)
    assert torch.equal(plain.matrix, again.matrix)
    remembers = method.startswith("icarl")  # from its second task on, it trains on what it stored
    assert drawn == [(0, False), (1, not remembers), (2, not remembers)]


def test_what_cannot_be_drawn_is_an_error_where_it_is_needed(drawn, monkeypatch):
    class Stubborn(Offline):
        name = "stubborn"

        def pool(self, tasks, task, memory):
            if task == 2:
                raise ValueError("no data today")
            return super().pool(tasks, task, memory)

    monkeypatch.setattr(draws, "_spares_cores", lambda stack: True)
    with pytest.raises(ValueError, match="no data today"):
        train(PROTOCOLS["split"], find("class"), [Method(Stubborn())], [1], [1e-2], Training(6, 16, 8))
    assert [task for task, _ in drawn] == [0, 1]
