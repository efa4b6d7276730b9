"""Several datasets in turn: one shape for all, padded by hand with NumPy, and a unit for every class."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered_data import numbered

from threefold.data import Dataset, joined
from threefold.errors import ThreefoldError
from threefold.scenarios import SCENARIOS, Outputs
from threefold.streams import Several, find

SIDES = st.integers(1, 5)


def framed(images, height, width):
    """In the middle of zeros; where the border is odd, the larger half is below and to the right."""
    down, right = height - images.shape[-2], width - images.shape[-1]
    out = np.zeros((*images.shape[:-2], height, width))
    out[..., down // 2 : down // 2 + images.shape[-2], right // 2 : right // 2 + images.shape[-1]] = images
    return out


@given(st.lists(st.tuples(SIDES, SIDES), min_size=2, max_size=3))
@settings(max_examples=40)
def test_smaller_images_are_in_the_middle_of_zeros(sides):
    datasets = [numbered(*side, classes=2 + n, name=f"d{n}") for n, side in enumerate(sides)]
    height, width = max(side[0] for side in sides), max(side[1] for side in sides)
    found = joined(datasets)
    for part in ("train_x", "test_x"):
        expected = np.concatenate(
            [framed(getattr(data, part).numpy().astype(float), height, width) for data in datasets]
        )
        assert np.array_equal(getattr(found, part).numpy().astype(float), expected)
        assert getattr(found, part).dtype == torch.float32
    assert found.name == "+".join(data.name for data in datasets)
    assert found.shape == (height, width)


def test_grey_images_have_equal_channels_beside_coloured_ones():
    grey, colour = numbered(2, 3, name="grey"), numbered(3, 4, 4, name="colour")
    found = joined([grey, colour])
    assert found.shape == (3, 4, 4)
    expected = np.repeat(framed(grey.train_x.numpy(), 4, 4)[:, None], 3, axis=1)
    assert np.array_equal(found.train_x[:9].numpy(), expected)
    assert torch.equal(found.train_x[9:], colour.train_x)
    one = joined([grey, numbered(1, 2, 3, name="one channel")])
    assert one.shape == (1, 2, 3)
    assert torch.equal(one.train_x[:9, 0], grey.train_x)


def test_vectors_are_filled_up_with_zeros():
    short, long = numbered(3, name="short"), numbered(5, name="long")
    found = joined([short, long])
    assert np.array_equal(found.train_x[:9].numpy(), np.pad(short.train_x.numpy(), ((0, 0), (0, 2))))
    assert torch.equal(found.test_x[6:], long.test_x)


def datasets(*classes):
    return [numbered(2, 2, classes=number, train=3 * number, test=number, name=f"of{number}") for number in classes]


@given(st.lists(st.integers(2, 5), min_size=2, max_size=4), st.integers(0, 99))
@settings(max_examples=30)
def test_a_task_is_a_whole_dataset_and_its_labels_follow_those_before(classes, seed):
    each = datasets(*classes)
    stream = Several(each)
    assert (stream.tasks, stream.cut, stream.usual_tasks, stream.recurring) == (len(classes),) * 2 + (None, None)
    assert stream.classes_per_task in (tuple(classes), classes[0])
    train, test, label = 0, 0, 0
    for task, data in zip(stream.sequence(seed), each, strict=True):
        assert task.classes == tuple(range(label, label + data.classes))
        assert sorted(task.train.tolist()) == list(range(train, train + len(data.train_y)))
        assert sorted(task.test.tolist()) == list(range(test, test + len(data.test_y)))
        assert torch.equal(stream.data.train_y[train : train + len(data.train_y)], data.train_y + label)
        train, test, label = train + len(data.train_y), test + len(data.test_y), label + data.classes
    assert stream.smallest_task(seed) == min(len(data.train_y) for data in each)


UNITS = {  # by hand, of datasets of 3, 2 and 4 classes
    "task": (9, [[0, 1, 2], [3, 4], [5, 6, 7, 8]]),
    "domain": (4, [[0, 1, 2], [0, 1], [0, 1, 2, 3]]),
    "class": (9, [[0, 1, 2], [3, 4], [5, 6, 7, 8]]),
}


@pytest.mark.parametrize("name", UNITS)
def test_a_class_has_its_output_unit(name):
    outputs = Outputs.of(SCENARIOS[name], Several(datasets(3, 2, 4)))
    assert (outputs.units, [outputs.units_of(task) for task in range(3)]) == UNITS[name]
    active = {"task": [3, 4], "domain": [0, 1, 2, 3], "class": [0, 1, 2, 3, 4]}[name]
    assert torch.nonzero(outputs.active(1, 2)).flatten().tolist() == active


def test_the_sum_of_the_data_is_that_of_the_parts_in_their_order():
    one, other, third = datasets(2, 3, 4)
    sums = {joined(each).fingerprint for each in ([one, other], [other, one], [one, other, third], [one, one])}
    assert len(sums) == 4
    again = [Dataset.from_arrays(d.train_x, d.train_y, d.test_x, d.test_y, name=d.name) for d in (one, other)]
    assert joined(again).fingerprint in sums


def test_a_dataset_that_comes_twice_is_two_tasks_with_classes_of_their_own():
    stream = Several([numbered(2, 2)] * 2)
    assert [task.classes for task in stream.sequence(1)] == [(0, 1, 2), (3, 4, 5)]
    assert torch.equal(stream.data.train_x[:9], stream.data.train_x[9:])


def test_by_name_the_data_are_joined_already():
    data = joined(datasets(2, 3))
    stream = find("several").of(data)
    assert (stream.title, stream.written, stream.details()) == ("several-of2+of3", "several-of2+of3", {})
    assert [task.classes for task in stream.sequence(1)] == [
        task.classes for task in Several(datasets(2, 3)).sequence(1)
    ]
    assert find("several-mnist+fashion-mnist").data == "mnist+fashion-mnist"


TWO = "data of several must be two datasets or more, such as mnist+fashion-mnist, got numbered."


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Several(numbered(2, 2)), TWO),
        (lambda: Several([numbered(2, 2)]), TWO),
        (lambda: Several([]), "data that are joined must be two datasets or more, got none."),
        (
            lambda: Several(datasets(2, 3), 3),
            "tasks is 3, but of2+of3 is 2 datasets, a task each.",
        ),
        (
            lambda: Several([numbered(2, 2, name="image"), numbered(4, name="vector")]),
            "data image+vector must all be images or all be vectors; image has 2×2, vector has 4.",
        ),
        (
            lambda: Several([numbered(2, 2, 2, 2, name="volume"), numbered(2, 2, name="image")]),
            "data volume+image must all be images or all be vectors; volume has 2×2×2×2, image has 2×2.",
        ),
        (
            lambda: Several([numbered(2, 4, 4), numbered(3, 4, 4)]),
            "data that are joined must have one number of channels, or 1, got 2 and 3.",
        ),
        (
            lambda: Several([numbered(2, 2, name="a").normalized(), numbered(2, 2, name="b")]),
            "data a+b must all be normalized or none; normalize them when they are one.",
        ),
        (lambda: Several(datasets(2, 3), order="fixed"), "stream several has no options, but 'order' was given."),
    ],
)
def test_what_cannot_be_joined_is_said_in_a_sentence(make, sentence):
    with pytest.raises(ThreefoldError) as refused:
        make()
    assert str(refused.value) == sentence
