"""Split: every class is in exactly one task."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered_data import uneven

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.streams import Permuted, RecordedStream, Split, find

DATA = {classes: uneven(classes) for classes in range(2, 13)}
cuts = st.sampled_from([(c, t) for c in DATA for t in range(1, c + 1) if c % t == 0])
any_seed = st.integers(-(2**70), 2**70)


@given(cuts, any_seed)
def test_every_class_is_dealt_once_over_tasks_of_equal_size(cut, seed):
    classes, tasks = cut
    stream = Split(DATA[classes], tasks)
    dealt = [task.classes for task in stream.sequence(seed)]
    assert Counter(c for deal in dealt for c in deal) == dict.fromkeys(range(classes), 1)
    assert [len(deal) for deal in dealt] == [stream.classes_per_task] * tasks


@given(cuts, any_seed)
def test_indices_are_exactly_the_samples_of_the_tasks_classes(cut, seed):
    classes, tasks = cut
    data = DATA[classes]
    for task in Split(data, tasks).sequence(seed):
        for indices, labels in ((task.train, data.train_y), (task.test, data.test_y)):
            expected = [n for n, label in enumerate(labels.tolist()) if label in task.classes]
            assert sorted(indices.tolist()) == expected
        assert task.pixels is None


@given(cuts, any_seed)
def test_the_same_seed_deals_the_same(cut, seed):
    classes, tasks = cut
    first, again = (Split(DATA[classes], tasks).sequence(seed) for _ in range(2))
    assert [(t.classes, t.train.tolist(), t.test.tolist()) for t in first] == [
        (t.classes, t.train.tolist(), t.test.tolist()) for t in again
    ]


def test_different_seeds_deal_differently_and_every_class_gets_everywhere():
    stream = Split(DATA[6], 3)
    orders = [tuple(c for task in stream.sequence(seed) for c in task.classes) for seed in range(200)]
    assert len(set(orders)) > 150  # of 720
    for place in range(6):
        counts = Counter(order[place] for order in orders)
        assert set(counts) == set(range(6))
        assert max(counts.values()) < 60  # 33 expected; five standard deviations are 26


def test_the_number_of_tasks_does_not_change_the_order_of_classes():
    orders = {
        tuple(c for task in Split(DATA[12], tasks).sequence(5) for c in task.classes) for tasks in (1, 2, 3, 4, 6)
    }
    assert len(orders) == 1


@pytest.mark.parametrize(("classes", "tasks"), [(10, 3), (10, 4), (10, 20), (7, 2)])
def test_tasks_that_do_not_divide_the_classes_are_refused(classes, tasks):
    with pytest.raises(ThreefoldError, match=rf"tasks must divide the {classes} classes of .*, got {tasks};") as info:
        Split(DATA[classes], tasks)
    numbers = str(info.value).split("one of ")[1].partition(", or ")[0].rstrip(".").split(", ")
    assert {int(n) for n in numbers} == {n for n in range(1, classes + 1) if classes % n == 0}


def test_data_of_one_class_are_refused():
    with pytest.raises(ThreefoldError, match="data must have at least 2 classes, got arrays with 1"):
        Split(uneven(1), 1)


@pytest.mark.parametrize("tasks", [0, -1])
def test_fewer_than_one_task_is_refused(tasks):
    with pytest.raises(ThreefoldError, match=f"tasks must be at least 1, got {tasks}"):
        Split(DATA[4], tasks)


def test_inputs_are_the_images_with_a_channel_and_no_copy():
    data = DATA[4]
    images = Split(data, 2).inputs(data.train_x)
    assert images.shape == (len(data.train_y), 1, 4, 4)
    assert images.data_ptr() == data.train_x.data_ptr()


def test_the_papers_defaults():
    assert Split.default_tasks == 5
    assert (Split.defaults.iters, Split.defaults.lr, Split.defaults.hidden, Split.defaults.batch) == (
        2000,
        1e-3,
        400,
        128,
    )


@pytest.mark.parametrize(
    ("stream", "name", "tasks"),
    [(Split, "cifar-100", 10), (Split, "cifar-10", 5), (Split, "other", 5), (Permuted, "cifar-100", 10)],
)
def test_some_data_have_a_usual_number_of_tasks_of_their_own(stream, name, tasks):
    data = uneven(100)
    data = Dataset.from_arrays(data.train_x, data.train_y, data.test_x, data.test_y, name=name)
    made = stream(data)
    assert (made.tasks, made.usual_tasks) == (tasks, tasks)
    assert (stream(data, 20).tasks, stream(data, 20).usual_tasks) == (20, tasks)
    recorded = RecordedStream({"name": f"{stream.name}-{name}", "data": "", "tasks": 20})
    assert recorded.usual_tasks == tasks  # reports need it, and have no data


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("split-mnist", "mnist"),
        ("split", None),
        ("split-fashion-mnist", "fashion-mnist"),
        ("split-cifar-10", "cifar-10"),
    ],
)
def test_a_name_is_a_stream_and_its_data(name, data):
    assert (find(name).kind, find(name).data) == (Split, data)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("splitt-mnist", "did you mean 'split-mnist'?"),
        ("permutd-mnist", "did you mean 'permuted-mnist'?"),
        ("splt", "did you mean 'split'?"),
        ("SPLIT", "did you mean 'split'?"),
        ("Permuted-MNIST", "did you mean 'permuted-mnist'?"),
        ("", "known: permuted, permuted-mnist, rotated, rotated-mnist, several, split, split-mnist, timed."),
        ("xyzzy", "known: permuted, permuted-mnist, rotated, rotated-mnist, several, split, split-mnist, timed."),
    ],
)
def test_unknown_streams_are_refused_with_a_suggestion(name, hint):
    with pytest.raises(ThreefoldError) as info:
        find(name)
    assert str(info.value) == f"stream '{name}' is not known; {hint}"
