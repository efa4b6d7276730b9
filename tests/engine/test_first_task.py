"""In the first task there is nothing to protect and nothing stored: a whole grid learns it as one network."""

from importlib import import_module

import pytest
import torch
from tiny_cohorts import PROTOCOLS

from threefold.engine import Checkpoint, Crew, Training, train, train_together
from threefold.engine.company import Company, first_task
from threefold.methods import EWC, Part, hyper, parse
from threefold.scenarios import find

company = import_module("threefold.engine.company")
SEEDS = [1, 1, 1, 2, 2, 2]
GRIDS = {
    "ewc": [f"ewc:strength={s}" for s in (0, 50, 5000)],
    "online-ewc": [f"online-ewc:strength={s},decay={d}" for s, d in ((5, 1), (5e5, 0.5), (5e5, 0.01))],
    "si": ["si:strength=2", "si:strength=200", "si:strength=2,damping=3"],
    "lwf": [f"lwf:temperature={t}" for t in (1, 2, 5)],
    "er": [f"er:budget={b},use=both" for b in (6, 12, 30)],
    "icarl": ["icarl:budget=6", "icarl:budget=30", "icarl:budget=30,temperature=3"],
    "a-gem": [f"a-gem:budget={b}" for b in (6, 12, 30)],
    "dgr-distill": [f"dgr-distill:temperature={t}" for t in (1, 2, 5)],
    "ewc and xdg": [f"ewc:strength={s}+xdg:share=0.5" for s in (0, 5e3, 5e6)],
}


def outcome(methods, lr=1e-2, scenario=None, checkpoint=None, report=lambda progress: None):
    scenario = scenario or ("task" if "xdg" in methods[0] else "class")
    chosen = [parse(method) for method in methods] * 2
    rates = lr if isinstance(lr, list) else [lr] * len(SEEDS)
    training = Training(iters=8, batch=16, hidden=8)
    return train(PROTOCOLS["split"], find(scenario), chosen, SEEDS, rates, training, checkpoint, report)


@pytest.fixture
def sizes(monkeypatch):
    """How many networks are in each stack that is made."""
    found, build = [], company.Lockstep

    def counted(methods, seeds, *rest):
        found.append(len(seeds))
        return build(methods, seeds, *rest)

    monkeypatch.setattr(company, "Lockstep", counted)
    return found


@pytest.fixture
def apart(monkeypatch):
    """The same, every network by itself from the beginning."""

    def trained(*args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(Company, "seedlings", lambda self: self.trained)
            return outcome(*args, **kwargs)

    return trained


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_a_grid_learns_its_first_task_once_for_each_seed(grid, sizes, apart):
    expected = apart(grid)
    sizes.clear()
    found = outcome(grid)
    assert sizes == [6, 2]
    assert torch.equal(found.initial, expected.initial)
    assert torch.equal(found.matrix, expected.matrix)
    assert found.diverged_at == expected.diverged_at
    different = {tuple(row.flatten().tolist()) for row in found.matrix}
    assert len(different) > 2 or "xdg" in grid[0], "later tasks are learned apart"


def test_other_learning_rates_are_other_networks(sizes, apart):
    rates = [1e-2, 1e-3, 1e-2, 1e-2, 1e-2, 1e-2]
    expected = apart(GRIDS["ewc"], rates)
    sizes.clear()
    assert torch.equal(outcome(GRIDS["ewc"], rates).matrix, expected.matrix)
    assert sizes == [6, 3]


def test_gates_count_from_the_first_task_on(sizes):
    outcome([f"xdg:share={share}" for share in (0, 0.25, 0.5)])
    assert sizes == [6]


def test_a_generator_that_grew_from_the_first_task_is_the_one_that_was_lent():
    """Cells that share a generator, each a grid: the lender's networks were moved in place."""
    methods = [parse(method) for method in GRIDS["dgr-distill"]] * 2
    crews = [Crew(find(name), methods, SEEDS, [1e-2] * len(SEEDS)) for name in ("task", "class")]
    training = Training(iters=8, batch=16, hidden=8)
    together = train_together(PROTOCOLS["split"], crews, training)
    for crew, found in zip(crews, together, strict=True):
        (alone,) = train_together(PROTOCOLS["split"], [crew], training)
        assert torch.equal(found.matrix, alone.matrix)
        for some, others in zip(found.kept, alone.kept, strict=True):
            assert torch.equal(some["dreams"], others["dreams"])


class Killed(Exception):
    pass


@pytest.mark.parametrize("task", [0, 1, 2])
def test_killed_in_any_task_it_ends_the_same(task, tmp_path):
    undisturbed = outcome(GRIDS["si"])

    def kill(progress):
        if progress.task == task:
            raise Killed

    with pytest.raises(Killed):
        outcome(GRIDS["si"], checkpoint=Checkpoint(tmp_path / "c.pt"), report=kill)
    resumed = outcome(GRIDS["si"], checkpoint=Checkpoint(tmp_path / "c.pt"))
    assert torch.equal(resumed.matrix, undisturbed.matrix)


class Stretched(EWC):
    """An heir that uses the strength in the first task already."""

    name = "stretched"

    def loss(self, learner, batch):
        logits = learner.logits(batch.x, batch.task)
        return (1 + self.strength) * torch.nn.functional.cross_entropy(logits, batch.y) + (
            self.strength * logits**2
        ).mean()


class Own(Part):
    name = "own"
    now: float = hyper("counts at once", 1.0)
    then: float = hyper("counts later", 1.0, later=True)


def test_an_heir_from_elsewhere_is_not_trusted_with_what_it_inherits():
    assert first_task(Stretched(strength=1)) != first_task(Stretched(strength=2))
    assert first_task(Own(then=1)) == first_task(Own(then=2))
    assert first_task(Own(now=1)) != first_task(Own(now=2))


def test_parts_of_other_kinds_are_never_alike():
    (ewc,), (online,) = parse("ewc:strength=1").parts, parse("online-ewc:strength=1,decay=1").parts
    assert first_task(ewc) != first_task(online)
