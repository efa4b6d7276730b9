"""Timed: stretches of the samples in the order given, and classes that come again."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numbered_data import labelled

from threefold.errors import ThreefoldError
from threefold.scenarios import SCENARIOS, Outputs
from threefold.streams import Timed, find


def data(train=60, test=30, classes=3, **more):
    return labelled(np.arange(train) % classes, np.arange(test) % classes, **more)


def stretches(stream, seed=1):
    return [(task.train.tolist(), task.test.tolist()) for task in stream.sequence(seed)]


@given(st.integers(3, 80), st.integers(3, 40), st.sets(st.integers(1, 79), max_size=6))
def test_tasks_are_the_stretches_between_the_numbers_and_test_samples_are_cut_at_the_same_shares(train, test, at):
    at = sorted(number for number in at if number < train)
    assume(at)
    bounds = [0, *at, train]
    cuts = [int(np.floor(test * (bound / train) + 1e-9)) for bound in bounds]
    assume(len(set(cuts)) == len(cuts))
    stream = Timed(data(train, test), at=at)
    expected = [(list(range(*bounds[n : n + 2])), list(range(*cuts[n : n + 2]))) for n in range(len(at) + 1)]
    assert stretches(stream, 1) == stretches(stream, 99) == expected
    assert (stream.tasks, stream.smallest_task(1)) == (len(at) + 1, int(np.diff(bounds).min()))


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_without_numbers_stretches_are_equal(tasks):
    found = stretches(Timed(data(63, 31), tasks))
    for place, size, most in ((0, 63, 1), (1, 31, 2)):
        lengths = [len(each[place]) for each in found]
        assert max(lengths) - min(lengths) <= most
        assert [n for each in found for n in each[place]] == list(range(size))
    assert Timed(data()).tasks == 5


def test_a_task_has_the_classes_that_come_in_it_in_the_order_of_their_labels():
    labels = [2, 2, 0, 2, 1, 0, 0, 1, 2, 1, 2, 1]
    stream = Timed(labelled(labels, [2, 0, 1, 0, 2, 1]), at=[4, 8])
    assert [task.classes for task in stream.sequence(1)] == [(0, 2), (0, 1), (1, 2)]
    assert stream.classes_per_task == 2
    assert stream.recurring == ((0, 1), (0, 2), (2, 1)), "numbered as they first come"


def test_a_class_that_only_the_test_samples_have_is_one_of_the_task():
    stream = Timed(labelled([0, 0, 1, 1], [0, 1, 1, 0]), at=[2])
    assert [task.classes for task in stream.sequence(1)] == [(0, 1), (0, 1)]


UNITS = {  # by hand: classes 0 2, then 0 1, then 1 2, of which 0 was the first to come, then 2, then 1
    "task": (6, [[0, 1], [2, 3], [4, 5]]),
    "domain": (3, [[0, 1], [0, 2], [2, 1]]),
    "class": (3, [[0, 1], [0, 2], [2, 1]]),
}


@pytest.mark.parametrize("name", UNITS)
def test_a_class_that_comes_again_is_the_same_class_but_where_each_task_has_a_head(name):
    stream = Timed(labelled([2, 2, 0, 2, 1, 0, 0, 1, 2, 1, 2, 1], [2, 0, 1, 0, 2, 1]), at=[4, 8])
    outputs = Outputs.of(SCENARIOS[name], stream)
    assert (outputs.units, [outputs.units_of(task) for task in range(3)]) == UNITS[name]


def test_of_the_first_tasks_alone_units_are_theirs():
    stream = Timed(labelled([2, 2, 0, 2, 1, 0, 0, 1, 3, 1, 3, 1], [2, 0, 1, 0, 3, 1]), at=[4, 8])
    stream.only = 2
    for name, units in {"task": 4, "domain": 3, "class": 3}.items():
        assert Outputs.of(SCENARIOS[name], stream).units == units


YEARS = {"year": (np.array([2003, 2001, 2003, 2002, 2001, 2003]), np.array([2002, 2003, 2001]))}


def test_each_value_of_a_column_is_a_task_in_rising_order():
    stream = Timed(labelled([0, 1, 1, 0, 1, 0], [0, 1, 1], columns=YEARS), column="year")
    assert stretches(stream) == [([1, 4], [2]), ([3], [0]), ([0, 2, 5], [1])]
    assert [task.classes for task in stream.sequence(1)] == [(1,), (0,), (0, 1)]
    assert (stream.tasks, stream.usual_tasks, stream.classes_per_task) == (3, None, (1, 1, 2))


@given(st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=4, max_size=30))
def test_any_numbers_may_be_a_column(values):
    values = np.array([*values, 0.0])
    labels = np.arange(len(values)) % 2
    stream = Timed(labelled(labels, labels, columns={"when": (values, values)}), column="when")
    expected = [[n for n, each in enumerate(values) if each == value] for value in sorted({*values.tolist()})]
    assert stretches(stream) == [(each, each) for each in expected]


def test_a_columns_values_are_in_the_key_and_other_columns_are_not():
    labels = ([0, 1, 1, 0, 1, 0], [0, 1, 1])
    changed = {"year": (YEARS["year"][0][::-1].copy(), YEARS["year"][1])}
    more = {**YEARS, "place": YEARS["year"]}
    first, other, same = (Timed(labelled(*labels, columns=c), column="year").details() for c in (YEARS, changed, more))
    values = b"".join(each.astype("<f8").tobytes() for each in YEARS["year"])
    assert first == same == {"options": {"column": "year"}, "column": sha256(values).hexdigest()}
    assert other != first
    assert Timed(labelled(*labels, columns=YEARS), 2).details() == {}


@pytest.mark.parametrize("options", [{"at": [20, 40]}, {"at": "7"}, {"column": "year"}])
def test_it_is_read_back_from_its_text(options):
    columns = {"year": (np.arange(60) // 20, np.arange(30) // 10)}
    made = Timed(data(columns=columns), **options)
    assert stretches(find(made.written).of(made.data)) == stretches(made)


WRONG = [
    ({"at": "60"}, "at must be rising numbers below 60, the training samples of arrays, got 60."),
    ({"at": "70"}, "at must be rising numbers below 60, the training samples of arrays, got 70."),
    ({"at": "10-10"}, "at must be rising numbers below 60, the training samples of arrays, got 10 after 10."),
    ({"at": "20-10"}, "at must be rising numbers below 60, the training samples of arrays, got 10 after 20."),
    ({"at": "20-90"}, "at must be rising numbers below 60, the training samples of arrays, got 90 after 20."),
    ({"at": "1"}, "task 1 of timed must have test samples, but the 30 of arrays leave none for it; use fewer or longer"
     " tasks."),
    ({"tasks": 31}, "tasks must be at most 30 for arrays, a sample each to train and to test on, got 31."),
    ({"tasks": 61}, "tasks must be at most 30 for arrays, a sample each to train and to test on, got 61."),
    ({"tasks": 3, "at": "20"}, "tasks is 3, but at cuts arrays into 2."),
    ({"tasks": 3, "column": "year"}, "tasks is 3, but column cuts arrays into 2."),
    ({"at": "20", "column": "year"}, "at is given, but column is 'year'; give one of them."),
    ({"column": "yeer"}, "column must be one of arrays, got 'yeer'; it has year, late, early."),
    ({"column": "late"}, "column late of arrays must have test samples for 1, got none."),
    ({"column": "early"}, "column early of arrays must have training samples for -1, got none."),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=lambda value: str(value)[:30])
def test_what_cannot_be_is_said_in_a_sentence(options, sentence):
    zeros, others = np.zeros(60), np.zeros(30)
    columns = {
        "year": (np.arange(60) // 30, np.arange(30) // 15),
        "late": (np.arange(60) // 30, others),
        "early": (zeros, others - (np.arange(30) < 3)),
    }
    with pytest.raises(ThreefoldError) as refused:
        Timed(data(columns=columns), **options)
    assert str(refused.value) == sentence


def test_data_without_columns_are_told_how_to_have_them():
    with pytest.raises(ThreefoldError) as refused:
        Timed(data(), column="year")
    assert str(refused.value) == (
        "column must be one of arrays, got 'year'; it has none; give arrays train_year and test_year."
    )


@pytest.mark.parametrize("at", ["", "0", "-5", "a", "1e1", "2.5", (), 20, [0, 5]])
def test_what_numbers_must_be(at):
    with pytest.raises(ThreefoldError) as refused:
        Timed(data(), at=at)
    assert str(refused.value) == f"at of timed must be rising numbers such as 2000-5000, from 1 on, got '{at}'."
