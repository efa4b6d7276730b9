"""Runs that differ only in what is done at test time share one network, and come to the same as each on its own."""

from importlib import import_module

import pytest
import torch
from tiny_cohorts import PROTOCOLS

from threefold.engine import Checkpoint, Training, train
from threefold.methods import ER, Method
from threefold.scenarios import find

engine = import_module("threefold.engine.company")

BUDGETS, SEEDS, LR = [6, 12, 30, 6, 12, 30], [1, 1, 1, 2, 2, 2], [1e-2, 1e-2, 5e-3, 1e-2, 1e-2, 1e-2]


def outcome(protocol, scenario, use="execution", checkpoint=None, report=lambda progress: None):
    methods = [Method(ER(budget=budget, use=use)) for budget in BUDGETS]
    training = Training(iters=8, batch=16, hidden=8)
    return train(PROTOCOLS[protocol], find(scenario), methods, SEEDS, LR, training, checkpoint, report)


@pytest.fixture
def alone(monkeypatch):
    """The same runs, each with a network of its own."""

    def apart(*args):
        with monkeypatch.context() as patch:
            patch.setattr(ER, "trained_as", lambda part: part)
            return outcome(*args)

    return apart


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("protocol", ["split", "permuted"])
def test_budgets_that_are_used_in_execution_only_share_a_network(protocol, scenario, alone, monkeypatch):
    apart = alone(protocol, scenario)
    sizes, build = [], engine.Lockstep

    def counted(methods, seeds, *rest):
        sizes.append(len(seeds))
        return build(methods, seeds, *rest)

    monkeypatch.setattr(engine, "Lockstep", counted)
    together = outcome(protocol, scenario)
    assert torch.equal(together.initial, apart.initial)
    assert torch.equal(together.matrix, apart.matrix)
    assert together.diverged_at == [None] * 6
    assert sizes == [3, 6]  # seed 1 with two learning rates and seed 2 are trained; six are judged
    assert len({tuple(row.flatten().tolist()) for row in together.matrix}) > 3  # budgets make a difference


def test_stored_data_that_are_replayed_have_networks_of_their_own(monkeypatch):
    sizes, build = [], engine.Lockstep
    monkeypatch.setattr(engine, "Lockstep", lambda *args: (sizes.append(len(args[1])), build(*args))[1])
    outcome("split", "class", use="both")
    assert sizes == [6, 3]  # but for the first task, when nothing is stored yet


class Killed(Exception):
    pass


@pytest.mark.parametrize("task", [1, 2])
def test_they_go_on_from_a_checkpoint(task, tmp_path, alone):
    apart = alone("split", "class")
    path = tmp_path / "cohort.pt"

    def kill(progress):
        if progress.task == task:
            raise Killed

    with pytest.raises(Killed):
        outcome("split", "class", checkpoint=Checkpoint(path), report=kill)
    resumed = outcome("split", "class", checkpoint=Checkpoint(path))
    assert torch.equal(resumed.matrix, apart.matrix)
