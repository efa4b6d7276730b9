"""A replica whose numbers are not finite is marked, and leaves the others alone."""

import pytest
import torch
from tiny_cohorts import PROTOCOLS, Burden, cohort, furthest, watched

from threefold.engine import Training, train
from threefold.methods import Method
from threefold.scenarios import find

SEEDS = [1, 2, 3, 4]
# Without the diverged one the stack is lower, so sums may differ in their last bits (see test_cohort_company).
CLOSE = 2e-5


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_diverged_replica_is_marked_and_harms_no_other(scenario, place):
    wild = [1e-2] * 4
    wild[place] = 1e30
    seen = watched("split", scenario, SEEDS, lr=wild)
    assert seen.outcome.diverged_at == [0 if replica == place else None for replica in range(4)]
    assert not all(p[place].isfinite().all() for p in seen.weights[-1].values())
    rest = [replica for replica in range(4) if replica != place]
    calm = watched("split", scenario, [SEEDS[r] for r in rest])
    assert calm.outcome.diverged_at == [None] * 3
    assert furthest({name: p[rest] for name, p in seen.weights[-1].items()}, calm.weights[-1]) < CLOSE
    assert torch.equal(seen.outcome.initial[rest], calm.outcome.initial)
    # test sets have 18 samples and more: at most one of them is decided otherwise
    assert (seen.outcome.matrix[rest] - calm.outcome.matrix).abs().max() <= 100 / 18


def test_divergence_is_marked_after_the_task_it_came_with():
    methods = [Method(Burden(strength=strength)) for strength in (0, 1e30, 0)]
    training = Training(iters=4, batch=16, hidden=8)
    outcome = train(PROTOCOLS["split"], find("class"), methods, [1, 2, 3], [1e-2] * 3, training)
    assert outcome.diverged_at == [None, 1, None]


def test_a_mark_survives_a_resumed_run(tmp_path):
    def stop(progress):
        if progress.task == 2:
            raise KeyboardInterrupt

    run = {"lr": [1e-2, 1e30], "checkpoint": tmp_path / "c.pt"}
    with pytest.raises(KeyboardInterrupt):
        cohort("split", "class", [1, 2], report=stop, **run)
    assert cohort("split", "class", [1, 2], **run).diverged_at == [None, 0]
