"""Both streams over the real MNIST."""

import numpy as np
import torch

from threefold.data import load
from threefold.streams import Permuted, Split


def test_mnist_in_five_tasks_and_in_permutations():
    data = load("mnist")
    tasks = Split(data).sequence(1)
    assert [len(task.classes) for task in tasks] == [2] * 5
    assert sorted(torch.cat([task.train for task in tasks]).tolist()) == list(range(60_000))
    assert sorted(torch.cat([task.test for task in tasks]).tolist()) == list(range(10_000))
    for task in tasks:
        assert set(data.train_y[task.train].tolist()) == set(data.test_y[task.test].tolist()) == set(task.classes)

    stream = Permuted(data)
    images = stream.inputs(data.test_x)
    assert images.shape == (10_000, 1, 32, 32)
    expected = np.zeros((32, 32), np.float32)
    expected[2:30, 2:30] = data.test_x[1234].numpy()
    assert np.array_equal(images[1234, 0].numpy(), expected)
    assert len(stream.sequence(1)) == 10
    assert all(len(task.pixels) == 1024 for task in stream.sequence(1))
