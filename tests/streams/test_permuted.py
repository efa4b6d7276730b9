"""Permuted: all classes in every task, each seen through a permutation of its own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered_data import numbered

from threefold.errors import ThreefoldError
from threefold.streams import Permuted, find


def test_images_of_28_are_padded_to_32_with_zeros_around():
    data = numbered(28, 28)
    expected = np.zeros((9, 32, 32), np.float32)
    expected[:, 2:30, 2:30] = data.train_x.numpy()
    assert np.array_equal(Permuted(data, 2).inputs(data.train_x).numpy(), expected[:, None])


def test_an_image_need_not_be_square():
    data = numbered(3, 5)
    expected = np.zeros((6, 7, 9), np.float32)
    expected[:, 2:5, 2:7] = data.test_x.numpy()
    assert np.array_equal(Permuted(data, 2).inputs(data.test_x).numpy(), expected[:, None])


def test_vectors_are_not_padded():
    data = numbered(20)
    stream = Permuted(data, 2)
    assert torch.equal(stream.inputs(data.train_x), data.train_x)
    assert sorted(stream.sequence(1)[0].pixels.tolist()) == list(range(20))


@given(st.integers(-(2**70), 2**70), st.integers(1, 12))
@settings(max_examples=30)
def test_each_map_is_a_permutation_of_all_inputs_the_first_tasks_too(seed, tasks):
    sequence = Permuted(DATA, tasks).sequence(seed)
    maps = [tuple(task.pixels.tolist()) for task in sequence]
    identity = tuple(range(64))
    assert len(maps) == len(set(maps)) == tasks
    for pixels in maps:
        assert pixels != identity
        assert tuple(sorted(pixels)) == identity


DATA = numbered(4, 4)  # 8×8 when padded


def test_maps_differ_between_seeds_and_not_between_calls():
    stream = Permuted(DATA, 3)
    maps = {seed: [tuple(t.pixels.tolist()) for t in stream.sequence(seed)] for seed in range(20)}
    assert len({pixels for row in maps.values() for pixels in row}) == 60
    assert [tuple(t.pixels.tolist()) for t in Permuted(DATA, 3).sequence(7)] == maps[7]


def test_more_tasks_leave_the_first_ones_as_they_were():
    few, many = (Permuted(DATA, tasks).sequence(3) for tasks in (2, 9))
    assert [t.pixels.tolist() for t in few] == [t.pixels.tolist() for t in many[:2]]


def test_every_pixel_gets_everywhere():
    """Position 0 shows each of 64 pixels about as often: 20 times over 1280 permutations."""
    stream = Permuted(DATA, 10)
    counts = np.bincount([int(t.pixels[0]) for seed in range(128) for t in stream.sequence(seed)], minlength=64)
    assert counts.min() > 0
    assert counts.max() < 50


def test_every_task_has_all_classes_and_all_samples_without_a_copy():
    stream = Permuted(DATA, 4)
    assert stream.classes_per_task == 3
    sequences = [stream.sequence(seed) for seed in (1, 2)]
    for task in (task for tasks in sequences for task in tasks):
        assert task.classes == (0, 1, 2)
        assert task.train.tolist() == list(range(9))
        assert task.test.tolist() == list(range(6))
    for part in ("train", "test"):
        assert len({getattr(task, part).data_ptr() for tasks in sequences for task in tasks}) == 1


def test_any_number_of_tasks_but_none():
    assert len(Permuted(DATA, 7).sequence(1)) == 7
    with pytest.raises(ThreefoldError, match="tasks must be at least 1, got 0"):
        Permuted(DATA, 0)


def test_the_papers_defaults_of_permuted():
    named = find("permuted-mnist")
    assert (named.kind, named.data) == (Permuted, "mnist")
    assert len(Permuted(DATA).sequence(1)) == 10
    d = Permuted.defaults
    assert (d.iters, d.lr, d.hidden, d.batch) == (5000, 1e-4, 1000, 128)
