"""Errors in a stream of the user's are one sentence, before anything is trained."""

import itertools
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from numbered_data import numbered

import threefold
from threefold import OwnStream, Stream, Task
from threefold.errors import ThreefoldError

DATA = numbered(2, 2, train=12)  # 12 and 6 samples of the classes 0, 1, 2
GOOD = {"classes": (0, 1, 2), "train": [0, 1, 2], "test": [0, 1, 2]}
TRAIN, TEST = "train of task 1 of stream wrong must be", "test of task 1 of stream wrong must be"
CLASSES, PIXELS = "classes of task 1 of stream wrong must be", "pixels of task 1 of stream wrong must be"
TRANSFORM = "samples of transform made"

TASKS = [
    ({"classes": None}, f"{CLASSES} labels, got NoneType None."),
    ({"classes": "01"}, f"{CLASSES} labels, got str '01'."),
    ({"classes": 3}, f"{CLASSES} labels, got int 3."),
    ({"classes": (0, 1.0)}, f"{CLASSES} labels, got tuple (0, 1.0)."),
    ({"classes": (0, "1")}, f"{CLASSES} labels, got tuple (0, '1')."),
    ({"classes": torch.tensor([0.0, 1.0])}, f"{CLASSES} labels, got Tensor tensor([0., 1.])."),
    ({"classes": ()}, f"{CLASSES} different labels, at least one, got ()."),
    ({"classes": (0, 1, 0)}, f"{CLASSES} different labels, at least one, got (0, 1, 0)."),
    ({"classes": (0, 1, 3)}, f"{CLASSES} labels 0…2, got 3."),
    ({"classes": (-1, 1)}, f"{CLASSES} labels 0…2, got -1."),
    ({"train": None}, f"{TRAIN} whole numbers, got NoneType None."),
    ({"train": "all"}, f"{TRAIN} whole numbers, got str 'all'."),
    ({"train": {0, 1}}, f"{TRAIN} whole numbers, got set {{0, 1}}."),
    ({"train": [[0], [1, 2]]}, f"{TRAIN} whole numbers, got list [[0], [1, 2]]."),
    ({"train": [2**70]}, f"{TRAIN} whole numbers, got list [1180591620717411303424]."),
    ({"train": np.array([0.0, 1.0])}, f"{TRAIN} whole numbers, got torch.float64."),
    ({"train": torch.tensor([1j])}, f"{TRAIN} whole numbers, got torch.complex64."),
    ({"train": DATA.train_y < 2}, f"{TRAIN} whole numbers, got torch.bool; use torch.nonzero(…).flatten()."),
    (
        {"train": torch.zeros(3, dtype=torch.int64, device="meta")},
        f"{TRAIN} whole numbers, got Tensor tensor(..., device='meta', size=(3,), d….",
    ),
    (
        {"train": torch.arange(3).to_sparse()},
        f"{TRAIN} whole numbers, got Tensor tensor(indices=tensor([[1, 2]]), values….",
    ),
    ({"test": [True, False]}, f"{TEST} whole numbers, got torch.bool; use torch.nonzero(…).flatten()."),
    ({"train": []}, f"{TRAIN} a list of samples, got the shape (0,)."),
    ({"train": np.array([], int)}, f"{TRAIN} a list of samples, got the shape (0,)."),
    ({"train": 3}, f"{TRAIN} a list of samples, got the shape ()."),
    ({"test": torch.zeros(2, 1, dtype=torch.int64)}, f"{TEST} a list of samples, got the shape (2, 1)."),
    ({"train": [0, 12]}, f"{TRAIN} samples 0…11, got 12."),
    ({"test": [-1, 5]}, f"{TEST} samples 0…5, got -1."),
    (
        {"classes": (0, 1)},
        "train of task 1 of stream wrong has samples of class 2, which is none of its classes.",
    ),
    (
        {"classes": (0, 1), "train": [0, 1]},
        "test of task 1 of stream wrong has samples of class 2, which is none of its classes.",
    ),
    ({"pixels": [0, 1, 2]}, f"{PIXELS} 4 numbers, one for each input, got 3."),
    ({"pixels": [[0, 1], [2, 3]]}, f"{PIXELS} 4 numbers, one for each input, got 2×2."),
    ({"pixels": [0, 1, 2, 4]}, f"{PIXELS} numbers 0…3, or -1 for none, got 4."),
    ({"pixels": [0, -2, 2, 3]}, f"{PIXELS} numbers 0…3, or -1 for none, got -2."),
    ({"pixels": [0.0, 1, 2, 3]}, f"{PIXELS} whole numbers, got torch.float32."),
    ({"pixels": "3210"}, f"{PIXELS} whole numbers, got str '3210'."),
    ({"transform": 5}, "transform of task 1 of stream wrong must be a function, got int 5."),
]  # fmt: skip


def made(body):
    """A transform of that name."""

    def function(x):
        return body(x)

    function.__qualname__ = "made"
    return function


COUNT = itertools.count()
TRANSFORMS = [
    (lambda x: x[:, :, :1], f"{TRANSFORM} must have the shape 1×2×2, got 1×1×2."),
    (lambda x: x.flatten(1), f"{TRANSFORM} must have the shape 1×2×2, got 4."),
    (lambda x: x[:1], f"{TRANSFORM} have the shape (1, 1, 2, 2) for 2 inputs; give a row for each."),
    (lambda x: [0], f"{TRANSFORM} are a list; give a floating-point tensor, a row for each input."),
    (lambda x: x > 0, f"{TRANSFORM} are a tensor of torch.bool; give a floating-point tensor, a row for each input."),
    (lambda x: x / 0, f"{TRANSFORM} have numbers that are not finite; give finite ones."),
    (lambda x: None, f"{TRANSFORM} are a NoneType; give a floating-point tensor, a row for each input."),
    (
        lambda x: x + next(COUNT),
        f"{TRANSFORM} give other numbers for the same inputs the second time; put modules into eval mode.",
    ),
    (
        lambda x: x @ torch.ones(3, 3),
        f"{TRANSFORM} fail for inputs of shape (2, 1, 2, 2) (RuntimeError: mat1 and mat2 shapes cannot be multiplied"
        " (4x2 and 3x3)); fix it.",
    ),
]  # fmt: skip


def stream_of(function):
    function.__qualname__ = "wrong"
    return OwnStream(function, DATA)


def sentence_of(function):
    """What is said of a stream before it is trained: its tasks are looked at more than once."""
    stream = stream_of(function)
    with pytest.raises(ThreefoldError) as refused:
        print([stream.learned(1) for _ in range(2)])
    assert re.fullmatch(r"[^\n]*\.", str(refused.value)), "one line"
    return str(refused.value)


@pytest.mark.parametrize(("change", "sentence"), TASKS, ids=lambda value: str(value)[:40])
def test_a_wrong_task_is_named_with_its_field_and_value(change, sentence):
    assert sentence_of(lambda data, seed: [Task(**GOOD | change)]) == sentence
    later = sentence.replace("of task 1 of", "of task 3 of")
    assert sentence_of(lambda data, seed: [*[Task(**GOOD)] * 2, Task(**GOOD | change)]) == later


@pytest.mark.parametrize(("body", "sentence"), TRANSFORMS, ids=range(len(TRANSFORMS)))
def test_a_wrong_transform_is_tried_before_anything_is_trained(body, sentence):
    transform = made(body)
    assert sentence_of(lambda data, seed: [Task(**GOOD, transform=transform)]) == sentence


def divides(data, seed):
    return 1 / 0


def refuses(data, seed):
    raise ThreefoldError("year must be a column of the data, got none.")


GIVES_NO = "stream wrong gives no tasks for seed 1"
LIST = "stream wrong must give a list of Task, got"
LISTS = [
    (lambda data, seed: None, f"{LIST} NoneType None."),
    (lambda data, seed: [], f"{LIST} list []."),
    (lambda data, seed: Task(**GOOD), f"{LIST} Task Task(classes=(0, 1, 2), train=[0, 1, 2]…."),
    (lambda data, seed: [Task(**GOOD), None], f"{LIST} one with NoneType None."),
    (lambda data, seed: [([0], [0])], f"{LIST} one with tuple ([0], [0])."),
    (lambda data, seed: "tasks", f"{LIST} str 'tasks'."),
    (divides, f"{GIVES_NO} (ZeroDivisionError: division by zero)."),
    (refuses, "year must be a column of the data, got none."),
    (lambda data: [], f"{GIVES_NO} (TypeError: <lambda>() takes 1 positional argument but 2 were given)."),
    (lambda data, seed: Task((0, 1), [0]), f"{GIVES_NO} (TypeError: Task.__init__() missing 1 required positional"
     " argument: 'test')."),
    (lambda data, seed: data.columns["year"], f"{GIVES_NO} (KeyError: 'year')."),
]  # fmt: skip


@pytest.mark.parametrize(("function", "sentence"), LISTS, ids=range(len(LISTS)))
def test_what_is_no_list_of_tasks_is_shown(function, sentence):
    told = sentence_of(function)
    assert told.replace("wrong()", "<lambda>()") == sentence


def test_a_generator_is_no_list():
    def yields(data, seed):
        yield Task(**GOOD)

    assert re.fullmatch(
        r"stream wrong must give a list of Task, got generator <generator object wrong at 0x\w+[>…]\.",
        sentence_of(yields),
    )


def test_a_long_error_is_cut_and_a_value_of_several_lines_is_one():
    def long(data, seed):
        raise ValueError("line\n" * 1000)

    assert len(sentence_of(long)) < 300
    assert sentence_of(lambda data, seed: torch.zeros(3, 3)) == (
        "stream wrong must give a list of Task, got Tensor tensor([[0., 0., 0.], [0., 0., 0.], [0.…."
    )


DRAWS = [
    lambda data: torch.randperm(12)[:6],
    lambda data: np.random.permutation(12)[:6],
    lambda data: torch.arange(next(COUNT) % 5, 12),
    lambda data: random.sample(range(12), 6),
]


@pytest.mark.parametrize("draw", DRAWS, ids=["torch", "numpy", "a counter", "python"])
def test_tasks_that_are_others_each_time_are_refused_for_no_run_could_go_on_with_them(draw):
    assert sentence_of(lambda data, seed: [Task((0, 1, 2), draw(data), [0])]) == (
        "stream wrong must give the same tasks for seed 1 each time, and does not; draw with a torch.Generator whose"
        " seed follows from it."
    )


def test_draws_that_the_seed_decides_are_welcome():
    def seeded(data, seed):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        return [Task((0, 1, 2), order[:6], [0]), Task((0, 1, 2), order[6:], [1])]

    stream = stream_of(seeded)
    first = [task.train.tolist() for task in stream.learned(1)]
    assert first == [task.train.tolist() for task in stream.learned(1)]
    assert first != [task.train.tolist() for task in stream.learned(2)]


def test_every_seed_must_have_tasks_of_one_form():
    """A stack trains all seeds at once, so their networks have the same units."""
    every = {"classes": (0, 1, 2), "train": range(12), "test": range(6)}
    two = {"classes": (0, 1), "train": [0, 1], "test": [0, 1]}
    other = {"classes": (1, 2), "train": [1, 2], "test": [1, 2]}
    third = {"classes": (0, 2), "train": [0, 2], "test": [0, 2]}
    cases = [
        ([[every, two], [two, every]], "((0, 1), (0, 1, 2))", "((0, 1, 2), (0, 1))"),
        ([[every], [every, every]], "((0, 1, 2), (0, 1, 2))", "((0, 1, 2),)"),
        ([[two, other], [two, third]], "((0, 1), (0, 2))", "((0, 1), (1, 2))"),
    ]
    for forms, got, before in cases:
        stream = stream_of(lambda data, seed, forms=forms: [Task(**task) for task in forms[(seed - 1) % 2]])
        stream.learned(1)
        with pytest.raises(ThreefoldError) as refused:
            stream.learned(2)
        assert str(refused.value) == (
            "stream wrong must have tasks of the same numbers of classes for each seed, and the same of them must come"
            f" again, got {got} for seed 2 after {before}."
        )
    other_labels = stream_of(lambda data, seed: [Task(**(two, other)[seed % 2])])
    assert [task.classes for seed in (1, 2) for task in other_labels.learned(seed)] == [(1, 2), (0, 1)]


def test_where_classes_of_tasks_are_apart_only_their_numbers_count():
    class Apart(Stream):
        same_classes = False

        def sequence(self, seed):
            return [Task((0, 1), [0], [0]), Task([(0, 1), (1, 2)][seed % 2], [1], [1])]

    stream = Apart(DATA)
    assert [[task.classes for task in stream.learned(seed)] for seed in (2, 1)] == [
        [(0, 1), (0, 1)],
        [(0, 1), (1, 2)],
    ]


def test_nothing_is_stored_where_a_transform_fails_on_any_sample(tmp_path):
    """Not only on the first two of a task, with which it is tried when the stream is made."""
    marked = replace(DATA, test_x=DATA.test_x.clone())
    marked.test_x[3] = 7

    def fails(x):
        return x / (x != 7).all()

    store, settings = tmp_path / "runs.db", {"scenario": "class", "iters": 1, "hidden": 2, "batch": 2, "device": "cpu"}
    stream = OwnStream(lambda data, seed: [Task((0, 1, 2), range(6), range(4), transform=fails)], marked)
    with pytest.raises(ThreefoldError, match="have numbers that are not finite"):
        threefold.run(stream, seeds=1, store=store, **settings)
    assert not store.exists()


@pytest.mark.parametrize("seeds", [3, [4]])
def test_nothing_is_stored_of_a_stream_that_is_wrong_for_any_seed(seeds, tmp_path):
    """A mistake in the third and fourth seed's tasks is found with the smallest task, before the store is made."""

    def late(data, seed):
        return [Task((0, 1, 2), range(6), [0]), Task((0, 1, 2), range(6, 12 + (seed > 2)), [1])]

    store = tmp_path / "runs.db"
    settings = {"scenario": "class", "iters": 1, "hidden": 2, "batch": 2, "device": "cpu", "store": store}
    late.__qualname__ = "late"
    with pytest.raises(ThreefoldError, match=r"train of task 2 of stream late must be samples 0…11, got 12\."):
        threefold.run(OwnStream(late, DATA), seeds=seeds, **settings)
    assert not store.exists()


@pytest.mark.parametrize("given_", [divides, Stream, 5, None, [Task(**GOOD)]])
def test_without_its_data_a_function_is_no_stream(given_):
    with pytest.raises(ThreefoldError) as refused:
        threefold.run(given_, scenario="class", store=None)
    assert str(refused.value) == (
        f"stream must be a name such as 'split-mnist', or OwnStream(function, data) or Split(data), got {given_!r}."
    )
