"""A replica with non-finite numbers is marked as diverged and does not affect the others."""

import pytest
import torch
from tiny_cohorts import EVEN, SCENARIOS, Burden, Killed, cohort, killed_in, of, same_bits, watched

SEEDS = [1, 2, 3, 4]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_diverged_replica_is_marked_and_harms_no_other(scenario, place):
    run = {"hidden": 16, "iters": 3}
    wild = watched(
        EVEN["split"], scenario, SEEDS, **run, lr=[1e30 if replica == place else 1e-2 for replica in range(4)]
    )
    assert wild.measured.diverged_at == [0 if replica == place else None for replica in range(4)]
    assert not all(p[place].isfinite().all() for p in wild.weights[-1].values())
    calm = watched(EVEN["split"], scenario, SEEDS, **run)
    assert calm.measured.diverged_at == [None] * 4
    for replica in {0, 1, 2, 3} - {place}:
        assert same_bits(of(wild.states, replica), of(calm.states, replica))
        assert torch.equal(wild.measured.matrix[replica], calm.measured.matrix[replica])


def test_divergence_is_marked_after_the_task_it_came_with():
    methods = [Burden(strength=strength) for strength in (0, 1e30, 0)]
    assert cohort("split", "class", [1, 2, 3], method=methods, iters=4).diverged_at == [None, 1, None]


def test_a_mark_survives_a_resumed_run(tmp_path):
    run = {"lr": [1e-2, 1e30], "checkpoint": tmp_path / "c.pt"}
    with pytest.raises(Killed):
        cohort("split", "class", [1, 2], report=killed_in(2), **run)
    assert cohort("split", "class", [1, 2], **run).diverged_at == [None, 0]
