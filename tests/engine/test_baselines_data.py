"""What the two baselines get to see, written down at the door of the step."""

import pytest
from tiny_cohorts import PROTOCOLS, watched

SEEDS = [6, 2, 13]
ITERS, BATCH = 12, 16


def steps(kind, scenario, method):
    """(seed, newest task, indices of a batch, tasks of its samples) for every step of every replica."""
    seen = watched(kind, scenario, SEEDS, method=method, iters=ITERS, batch=BATCH)
    assert len(seen.batches) == 3 * ITERS
    for newest in range(3):
        indices, tasks = seen.of_task(newest)
        for replica, seed in enumerate(SEEDS):
            for step in range(ITERS):
                yield seed, newest, indices[replica, step].tolist(), tasks[replica, step].tolist()


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_none_sees_the_current_task_alone(kind, scenario):
    labels = PROTOCOLS[kind].data.train_y.tolist()
    for seed, newest, indices, tasks in steps(kind, scenario, "none"):
        classes = PROTOCOLS[kind].sequence(seed)[newest].classes
        assert len(indices) == BATCH
        assert {labels[index] for index in indices} <= set(classes)
        assert set(tasks) == {newest}


def test_none_goes_through_a_tasks_data_in_passes():
    seen = watched("split", "class", SEEDS, iters=ITERS, batch=BATCH)
    for newest in range(3):
        indices, _ = seen.of_task(newest)
        for replica, seed in enumerate(SEEDS):
            whole = len(PROTOCOLS["split"].sequence(seed)[newest].train) // BATCH
            assert whole < ITERS
            for start in range(0, ITERS, whole):
                one_pass = indices[replica, start : start + whole].flatten().tolist()
                assert len(set(one_pass)) == len(one_pass)


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_offline_sees_every_sample_as_one_of_its_own_task(kind, scenario):
    labels = PROTOCOLS[kind].data.train_y.tolist()
    for seed, newest, indices, tasks in steps(kind, scenario, "offline"):
        sequence = PROTOCOLS[kind].sequence(seed)
        assert set(tasks) <= set(range(newest + 1))
        for index, task in zip(indices, tasks, strict=True):
            assert labels[index] in sequence[task].classes


@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_offline_in_task_il_shares_every_batch_equally(kind):
    for _, newest, _, tasks in steps(kind, "task", "offline"):
        counts = [tasks.count(task) for task in range(newest + 1)]
        assert sum(counts) == BATCH
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("scenario", ["domain", "class"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_offline_elsewhere_draws_from_the_union(kind, scenario):
    """Passes over all data so far, so no sample comes twice in one, and tasks come as often as they have data."""
    drawn = {}
    for seed, newest, indices, tasks in steps(kind, scenario, "offline"):
        drawn.setdefault((seed, newest), []).append(list(zip(indices, tasks, strict=True)))
    uneven = 0
    for (seed, newest), rows in drawn.items():
        sequence = PROTOCOLS[kind].sequence(seed)
        size = sum(len(sequence[task].train) for task in range(newest + 1))
        whole = size // BATCH
        for start in range(0, ITERS, whole):
            one_pass = [pair for row in rows[start : start + whole] for pair in row]
            assert len(set(one_pass)) == len(one_pass)
            if len(rows[start : start + whole]) == whole:  # all but the remainder was seen
                for task in range(newest + 1):
                    missed = len(sequence[task].train) - sum(t == task for _, t in one_pass)
                    assert 0 <= missed < BATCH
        uneven += any(abs(sum(t == newest for _, t in row) - BATCH / (newest + 1)) > 1 for row in rows)
    assert uneven > 0  # chance decides a batch's shares
