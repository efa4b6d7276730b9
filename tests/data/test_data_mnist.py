"""Known properties of MNIST."""

import torch

from threefold.data import check, load, names


def test_mnist(mnist):
    assert (mnist.name, mnist.classes, mnist.shape) == ("mnist", 10, (28, 28))
    assert mnist.train_x.shape == (60_000, 28, 28)
    assert mnist.test_x.shape == (10_000, 28, 28)
    assert torch.bincount(mnist.train_y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(mnist.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    for x in (mnist.train_x, mnist.test_x):
        assert x.dtype == torch.float32
        assert (x.min(), x.max()) == (0, 1)
    assert abs(mnist.train_x.mean(dtype=torch.float64) - 0.1306604762738429) < 1e-8  # which many normalise by
    # part of every run's key: should this ever change, no stored run is found again
    assert mnist.fingerprint == "2adaf6ef40cba05b70d5285797ace7d5705ca19136b518610f6b432dd58fa847"


def test_a_second_load_is_the_same_and_the_files_are_good(mnist):
    again = load("mnist")
    assert again.fingerprint == mnist.fingerprint
    assert torch.equal(again.train_x, mnist.train_x)
    assert [state for _, state in check("mnist")] == ["good"] * 4


def test_names():
    assert names() == ("mnist", "fashion-mnist", "cifar-10", "cifar-100")
