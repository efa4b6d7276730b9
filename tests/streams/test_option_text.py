"""The text of a stream's options, on the command line and in reports, parses to the same options."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams import STREAMS, Timed
from threefold.values import pairs_of

numbers = st.integers(1, 10**6)
labels = st.lists(st.integers(0, 50), min_size=1, max_size=4)
options = st.one_of(
    st.tuples(st.just("split"), st.fixed_dictionaries({"classes": st.lists(numbers, min_size=1, max_size=4)})),
    st.tuples(st.just("split"), st.fixed_dictionaries({"classes": st.lists(labels, min_size=1, max_size=4)})),
    st.tuples(st.just("split"), st.fixed_dictionaries({"order": labels, "first": numbers})),
    st.tuples(
        st.just("rotated"),
        st.fixed_dictionaries({"angles": st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1)}),
    ),
    st.tuples(st.just("timed"), st.fixed_dictionaries({"at": st.lists(numbers, min_size=1, max_size=5)})),
)


@given(options)
def test_what_is_written_is_read_again(drawn):
    name, given = drawn
    kind = STREAMS[name].options_type
    made = kind(**given)
    text, pairs = pairs_of(made.written(), "stream")
    assert text == name
    assert kind(**pairs) == made


def with_years(train, test):
    x = np.zeros((max(len(train), len(test)), 2), np.float32)
    y = np.arange(len(x)) % 2
    columns = {"year": (np.array(train), np.array(test))}
    return Dataset.from_arrays(x[: len(train)], y[: len(train)], x[: len(test)], y[: len(test)], columns=columns)


years = st.lists(st.sampled_from([1999, 2000.5, 2001, -3]), min_size=2, max_size=30)


@given(years, years)
def test_each_value_of_a_column_is_a_task_of_its_samples(train, test):
    data = with_years(train, test)
    if missing := sorted(set(train) ^ set(test)):
        kind = "test" if missing[0] in train else "training"
        with pytest.raises(ThreefoldError, match=rf"must have {kind} samples for {missing[0]}, got none"):
            Timed(data, column="year")
        return
    tasks = Timed(data, column="year").sequence(1)
    assert len(tasks) == len(set(train))
    for value, task in zip(sorted(set(train)), tasks, strict=True):
        for own, every in ((task.train, train), (task.test, test)):
            assert own.tolist() == [place for place, year in enumerate(every) if year == value]


def test_a_year_that_is_no_number_is_no_task():
    with pytest.raises(ThreefoldError, match=r"^column year of arrays must be finite numbers"):
        Timed(with_years([1.0, float("nan")], [1.0, float("nan")]), column="year")
