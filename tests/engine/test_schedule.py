"""Which samples reach which step."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from threefold.engine.schedule import passes, schedule


def drawn(size, steps, batch, seed=0):
    return passes(size, steps, batch, torch.Generator().manual_seed(seed))


shapes = st.integers(1, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, 30), st.integers(1, size)))


@given(shapes, st.integers(0, 1000))
def test_a_pass_repeats_no_sample_and_drops_its_incomplete_batch(shape, seed):
    size, steps, batch = shape
    rows = drawn(size, steps, batch, seed).tolist()
    assert [len(row) for row in rows] == [batch] * steps
    whole = size // batch
    for start in range(0, steps, whole):
        one_pass = [n for row in rows[start : start + whole] for n in row]
        assert len(set(one_pass)) == len(one_pass)
        assert set(one_pass) <= set(range(size))


def test_a_pass_whose_batches_are_all_whole_sees_every_sample_once():
    rows = drawn(24, 30, 8)
    for start in range(0, 30, 3):
        assert sorted(rows[start : start + 3].flatten().tolist()) == list(range(24))


def test_passes_are_shuffled_anew():
    rows = drawn(24, 30, 8)
    orders = {tuple(rows[start : start + 3].flatten().tolist()) for start in range(0, 30, 3)}
    assert len(orders) == 10
    assert tuple(range(24)) not in orders


def test_the_samples_that_are_dropped_are_not_always_the_same():
    """10 samples, batches of 6: four are left out of each pass; over 100 passes each sample is seen about 60 times."""
    counts = Counter(drawn(10, 100, 6).flatten().tolist())
    assert set(counts) == set(range(10))
    assert min(counts.values()) > 35  # five standard deviations below 60


def test_fewer_steps_are_the_first_of_more():
    assert torch.equal(drawn(20, 7, 6), drawn(20, 25, 6)[:7])


POOL = [(0, torch.arange(100, 117)), (1, torch.arange(200, 223)), (3, torch.arange(300, 312))]
HOME = {number: set(indices.tolist()) for number, indices in POOL}
subsets = st.integers(1, 3).map(lambda k: POOL[:k])


@given(subsets, st.integers(1, 12), st.integers(1, 20), st.integers(0, 50), st.integers(0, 5), st.booleans())
def test_a_sample_is_always_drawn_as_one_of_its_own_task(pool, batch, steps, seed, task, equally):
    samples = schedule(pool, seed, task, steps, batch, shared_equally=equally)
    assert samples.indices.shape == (steps, batch)
    tasks = samples.task.expand_as(samples.indices)
    for index, number in zip(samples.indices.flatten().tolist(), tasks.flatten().tolist(), strict=True):
        assert index in HOME[number]


@given(subsets, st.integers(1, 12), st.integers(1, 20), st.integers(0, 50))
def test_shares_of_a_batch_differ_by_one_at_most(pool, batch, steps, seed):
    samples = schedule(pool, seed, 2, steps, batch, shared_equally=True)
    for row in samples.task.expand_as(samples.indices).tolist():
        counts = [row.count(number) for number, _ in pool]
        assert sum(counts) == batch
        assert max(counts) - min(counts) <= 1


def test_each_tasks_share_goes_through_its_data_in_passes():
    samples = schedule(POOL, 1, 2, 12, 9, shared_equally=True)  # three samples of each task at each step
    for number, indices in POOL:
        own = samples.indices[samples.task == number].tolist()
        assert len(own) == 12 * 3
        for start in range(0, len(own), len(indices)):
            one_pass = own[start : start + len(indices)]
            assert len(set(one_pass)) == len(one_pass)


def test_more_tasks_than_samples_in_a_batch_take_turns():
    samples = schedule(POOL, 1, 2, 9, 2, shared_equally=True)
    assert [int((samples.task == number).sum()) for number, _ in POOL] == [6, 6, 6]


@given(st.integers(1, 30), st.integers(1, 52), st.integers(0, 50))
def test_a_pool_that_is_not_shared_is_one_set_of_data(steps, batch, seed):
    samples = schedule(POOL, seed, 2, steps, batch, shared_equally=False)
    whole = 52 // batch
    for start in range(0, steps, whole):
        indices = samples.indices[start : start + whole].flatten().tolist()
        assert len(set(indices)) == len(indices)
        if whole * batch == 52 and start + whole <= steps:
            assert set(indices) == HOME[0] | HOME[1] | HOME[3]


def test_the_same_sample_as_part_of_two_tasks_is_two_samples():
    """Permuted: all tasks index the same images."""
    everything = torch.arange(10)
    samples = schedule([(0, everything), (1, everything)], 1, 1, 4, 5, shared_equally=False)
    pairs = list(zip(samples.indices.flatten().tolist(), samples.task.flatten().tolist(), strict=True))
    assert sorted(pairs) == sorted((n, task) for n in range(10) for task in (0, 1))


@pytest.mark.parametrize("equally", [True, False])
@pytest.mark.parametrize("pool", [POOL[:1], POOL], ids=["one task", "three tasks"])
def test_batches_are_addressed_by_seed_and_task(pool, equally):
    def draw(seed, task):
        return schedule(pool, seed, task, 10, 6, shared_equally=equally).indices.tolist()

    assert draw(1, 0) == draw(1, 0)
    assert draw(1, 0) != draw(2, 0)
    assert draw(1, 0) != draw(1, 1)
