"""Data in which every value is another number, and classes have unequal numbers of samples."""

import numpy as np

from threefold.data import Dataset


def numbered(*shape, classes=3, train=9, test=6, name="numbered", columns=None):
    """Every value of every sample is another number, none of them zero."""
    x = np.arange(1, 1 + (train + test) * int(np.prod(shape)), dtype=np.float32).reshape(train + test, *shape)
    y = np.arange(train + test) % classes
    return Dataset.from_arrays(x[:train], y[:train], x[train:], y[train:], name=name, columns=columns)


def labelled(train_y, test_y, name="arrays", columns=None):
    """Images of these labels; each is filled with a number of its own."""
    every = np.arange(len(train_y) + len(test_y), dtype=np.float32)[:, None, None] * np.ones((4, 4), np.float32)
    train, test = every[: len(train_y)], every[len(train_y) :]
    return Dataset.from_arrays(train, np.array(train_y), test, np.array(test_y), name=name, columns=columns)


def uneven(classes):
    """Class c has c + 2 training and 2c + 1 test samples, in no order."""
    rng = np.random.default_rng(classes)
    train_y = rng.permutation(np.repeat(np.arange(classes), np.arange(classes) + 2))
    test_y = rng.permutation(np.repeat(np.arange(classes), 2 * np.arange(classes) + 1))
    return labelled(train_y, test_y)
