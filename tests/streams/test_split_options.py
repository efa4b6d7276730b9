"""Split's options: sizes, labels, a larger first task, an order, and classes left over."""

from hashlib import sha256
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numbered_data import uneven

from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.randomness import generator
from threefold.streams import Permuted, Split, find

DATA = {classes: uneven(classes) for classes in range(2, 13)}
SEEDS = st.integers(0, 2**40)


def dealt(stream, seed=1):
    """The classes of each task, made sure that its samples are exactly those of its classes."""
    tasks = stream.sequence(seed)
    for task in tasks:
        for indices, labels in ((task.train, stream.data.train_y), (task.test, stream.data.test_y)):
            expected = [n for n, label in enumerate(labels.tolist()) if label in task.classes]
            assert sorted(indices.tolist()) == expected
    sizes = [len(task.classes) for task in tasks]
    assert stream.classes_per_task in (tuple(sizes), sizes[0])
    assert isinstance(stream.classes_per_task, tuple) == (len(set(sizes)) > 1)
    assert stream.tasks == stream.cut == len(tasks)
    assert stream.smallest_task(seed) == min(len(task.train) for task in tasks)
    return [list(task.classes) for task in tasks]


def cut(order, sizes):
    """An order cut into pieces of these sizes."""
    bounds = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    return [list(order[start:stop]) for start, stop in pairwise(bounds)]


@st.composite
def compositions(draw):
    """A number of classes, and sizes of tasks that are no more than these in all."""
    classes = draw(st.integers(2, 12))
    sizes = draw(st.lists(st.integers(1, classes), min_size=1, max_size=6))
    assume(sum(sizes) <= classes)
    return classes, sizes


@given(compositions(), SEEDS)
def test_sizes_are_as_asked_and_every_class_comes_once(asked, seed):
    classes, sizes = asked
    exact = [*sizes[:-1], classes - sum(sizes[:-1])]
    for given_, left in ((exact, "refuse"), (sizes, "last")):
        found = dealt(Split(DATA[classes], classes=given_, left=left), seed)
        assert [len(task) for task in found] == exact
        assert sorted(label for task in found for label in task) == list(range(classes))


@given(compositions(), SEEDS, st.randoms(use_true_random=False))
def test_an_order_is_cut_into_tasks_whatever_the_seed(asked, seed, source):
    classes, sizes = asked
    sizes = [*sizes[:-1], classes - sum(sizes[:-1])]
    order = source.sample(range(classes), classes)
    assert dealt(Split(DATA[classes], classes=sizes, order=order), seed) == cut(order, sizes)
    assert dealt(Split(DATA[classes], classes=sizes, order="fixed"), seed) == cut(range(classes), sizes)


@given(compositions(), SEEDS, st.randoms(use_true_random=False))
def test_labels_are_as_asked_and_those_left_over_go_last_in_their_order(asked, seed, source):
    classes, sizes = asked
    labels = cut(source.sample(range(classes), sum(sizes)), sizes)
    rest = sorted(set(range(classes)) - {label for task in labels for label in task})
    found = dealt(Split(DATA[classes], classes=labels, left="last"), seed)
    assert found == [*labels[:-1], labels[-1] + rest]
    if rest:
        with pytest.raises(ThreefoldError, match=f"^classes leaves out {rest[0]}"):
            Split(DATA[classes], classes=labels)


@given(st.integers(3, 12), st.data(), SEEDS)
def test_a_larger_first_task_leaves_equal_shares_to_the_others(classes, data, seed):
    first = data.draw(st.integers(1, classes - 1))
    others = data.draw(st.integers(1, classes - first))
    share, over = divmod(classes - first, others)
    found = dealt(Split(DATA[classes], 1 + others, first=first, left="last"), seed)
    assert [len(task) for task in found] == [first, *[share] * (others - 1), share + over]
    if over:
        with pytest.raises(ThreefoldError, match=r"^tasks must leave equal shares"):
            Split(DATA[classes], 1 + others, first=first)
    else:
        assert dealt(Split(DATA[classes], 1 + others, first=first), seed) == found


@pytest.mark.parametrize("classes", range(2, 13))
def test_what_the_sentence_about_the_first_task_advises_works(classes):
    for first in range(1, classes):
        for tasks in range(2, classes - first + 2):
            try:
                Split(DATA[classes], tasks, first=first)
            except ThreefoldError as error:
                advised = str(error).split("use one of ")[1].split(", or left=last")[0].split(", ")
                works = [
                    n for n in range(2, classes + 1) if n - 1 <= classes - first and not (classes - first) % (n - 1)
                ]
                assert [int(number) for number in advised] == works
                assert tasks not in works


def test_all_classes_may_be_in_the_first_task():
    assert dealt(Split(DATA[5], 1, first=5, order="fixed")) == [[0, 1, 2, 3, 4]]


@given(compositions())
def test_a_random_order_differs_between_seeds_and_sizes_only_cut_it(asked):
    classes, sizes = asked
    assume(classes > 4)
    orders = []
    for seed in range(8):
        found = dealt(Split(DATA[classes], classes=sizes, left="last"), seed)
        orders.append(tuple(label for task in found for label in task))
        assert orders[-1] == tuple(label for task in dealt(Split(DATA[classes], 1), seed) for label in task)
    assert len(set(orders)) > 4


@given(st.integers(2, 12), SEEDS)
def test_the_order_of_a_seed_is_one_random_permutation(classes, seed):
    import torch

    order = torch.randperm(classes, generator=generator(seed, "classes")).tolist()
    assert dealt(Split(DATA[classes], classes), seed) == [[label] for label in order]


def test_where_nothing_is_chosen_tasks_are_bit_for_bit_those_before_there_were_options():
    """The sums and classes were taken at commit d0ae7f5, where `Split` had none."""
    rng = np.random.default_rng(10)
    y = np.concatenate([np.arange(10), rng.integers(0, 10, 50)])
    other = np.concatenate([np.arange(10), rng.integers(0, 10, 20)])
    x, other_x = (np.arange(n * 16, dtype=np.float32).reshape(n, 4, 4) for n in (60, 30))
    data = Dataset.from_arrays(x, y, other_x, other)
    assert [task.classes for task in Split(data).sequence(20)] == [(0, 3), (7, 9), (6, 4), (8, 2), (5, 1)]

    def digest(stream):
        found = sha256()
        for seed in (0, 1, 2, 20):
            for task in stream.sequence(seed):
                pixels = None if task.pixels is None else task.pixels.tolist()
                found.update(repr((task.classes, task.train.tolist(), task.test.tolist(), pixels)).encode())
        return found.hexdigest()[:16]

    assert [digest(Split(data)), digest(Split(data, 2))] == ["521de7491da44fb7", "6a983dca37a9a6bd"]
    assert [digest(Permuted(data)), digest(Permuted(data, 3))] == ["4eb3f69067523b59", "34298ad0aab5898c"]
    usual = Split(data, classes=None, first=None, order="random", left="refuse")
    assert (digest(usual), usual.details(), usual.written) == (digest(Split(data)), {}, "split-arrays")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("classes=5-3-2", {"classes": [5, 3, 2]}),
        ("classes=10", {"classes": [10]}),
        ("classes=0-1/2-3-4,left=last", {"classes": [[0, 1], [2, 3, 4]], "left": "last"}),
        ("classes=7/1-2,left=last", {"classes": [[7], [1, 2]], "left": "last"}),
        ("classes=4-2/,left=last", {"classes": [[4, 2]], "left": "last"}),
        ("first=4,left=last", {"first": 4, "left": "last"}),
        ("order=fixed", {"order": "fixed"}),
        ("order=9-8-7-6-5-4-3-2-1-0", {"order": [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]}),
    ],
)
def test_the_text_of_options_is_read_back(text, options):
    """So a command that trains a stream again is one, whether the stream was made in Python or by a text."""
    named, made = find(f"split-arrays:{text}").of(DATA[10]), Split(DATA[10], **options)
    assert named.written == made.written == f"split-arrays:{text}"
    assert named.details() == made.details() == {"options": options}
    assert dealt(named, 3) == dealt(made, 3)


@given(compositions(), st.sampled_from(["refuse", "last"]), st.none() | st.just("fixed"), SEEDS)
def test_any_split_is_found_again_by_what_it_is_written_as(asked, left, order, seed):
    classes, sizes = asked
    options = {"classes": sizes if sum(sizes) == classes or left == "last" else [classes], "left": left}
    made = Split(DATA[classes], **options, **({"order": order} if order else {}))
    again = find(made.written).of(DATA[classes])
    assert (again.details(), again.written) == (made.details(), made.written)
    assert dealt(again, seed) == dealt(made, seed)


WRONG = [
    ({"classes": "5-3"}, "classes must be 10 in all, as many as arrays has, got 8; change the numbers, or use left=last"
     " to give the other 2 to the last task."),
    ({"classes": "5-6"}, "classes must be 10 in all, as many as arrays has, got 11; change the numbers."),
    ({"classes": "5-6", "left": "last"}, "classes must be 10 in all, as many as arrays has, got 11; change the"
     " numbers."),
    ({"classes": "5-5", "tasks": 3}, "tasks is 3, but classes is for 2 tasks; give one of them."),
    ({"classes": "5-5", "first": 3}, "first is 3, but classes says it for each task; give one of them."),
    ({"classes": "0-1/2", "order": "fixed"}, "order is 'fixed', but classes names the labels; give one of them."),
    ({"classes": "0-1/1-2", "left": "last"}, "classes must name each label once, got 1 twice."),
    ({"classes": "0-1/2-10", "left": "last"}, "classes must be labels 0…9, got 10."),
    ({"classes": "0-1/2-3"}, "classes leaves out 4, 5, 6, 7, 8, 9 of the 10 classes of arrays; name them, or use"
     " left=last to give them to the last task."),
    ({"first": 4}, "tasks must leave equal shares of the 6 classes after the first 4 of arrays, got 5; use one of 2, 3,"
     " 4, 7, or left=last to give what is left over to the last task."),
    ({"first": 7}, "first must be at most 6, which leaves a class for each other task, got 7."),
    ({"first": 11}, "first must be at most 6, which leaves a class for each other task, got 11."),
    ({"first": 9, "tasks": 1}, "tasks must be at least 2 where first is 9 of 10 classes, got 1."),
    ({"first": 0}, "option first of split is '0': input should be greater than or equal to 1."),
    ({"order": "1-2"}, "order must have all 10 classes of arrays, got 2."),
    ({"order": "0-0-1-2-3-4-5-6-7-8"}, "order must name each label once, got 0 twice."),
    ({"order": "1-2-3-4-5-6-7-8-9-10"}, "order must be labels 0…9, got 10."),
    ({"left": "first"}, "option left of split is 'first': input should be 'refuse' or 'last'."),
    ({"tasks": 3}, "tasks must divide the 10 classes of arrays, got 3; use one of 1, 2, 5, 10, or left=last to give"
     " what is left over to the last task."),
    ({"tasks": 11, "left": "last"}, "tasks must divide the 10 classes of arrays, got 11; use one of 1, 2, 5, 10."),
    ({"ordr": "fixed"}, "option of split 'ordr' is not known; did you mean 'order'?"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=lambda value: str(value)[:30])
def test_what_cannot_be_is_said_in_a_sentence(options, sentence):
    with pytest.raises(ThreefoldError) as refused:
        Split(DATA[10], **options)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "given_", ["", "a-b", "5--5", "0-5-5", "5-", "-5", "0-1//2", "1.5-8.5", (), [[], [1]], 5, [5, [1]]]
)
def test_whatever_else_is_given_for_classes_one_sentence_says_what_they_must_be(given_):
    with pytest.raises(ThreefoldError) as refused:
        Split(DATA[10], classes=given_)
    assert str(refused.value) == (
        f"classes of split must be numbers of classes such as 5-3-2, or labels such as 0-1/2-3-4, got '{given_}'."
    )


@pytest.mark.parametrize("given_", ["sorted", "", "1-", "a-b", [0.5], [-1], 3])
def test_and_what_an_order_must_be(given_):
    with pytest.raises(ThreefoldError) as refused:
        Split(DATA[10], order=given_)
    assert str(refused.value) == f"order of split must be random, fixed, or all labels such as 3-0-2-1, got '{given_}'."


@pytest.mark.parametrize("tasks", [2.5, "3", [2]])
def test_a_number_of_tasks_is_a_whole_number(tasks):
    for kind in (Split, Permuted):
        with pytest.raises(ThreefoldError) as refused:
            kind(DATA[4], tasks)
        assert str(refused.value) == f"tasks must be a whole number, at least 1, got '{tasks}'."
