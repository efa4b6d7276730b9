"""A stream of the user's, a function or a class: its tasks, and a comparison with the built-in streams."""

from functools import cached_property, partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numbered_data import numbered
from tiny_cohorts import tiny_data

import threefold
from threefold import Dataset, OwnStream, Permuted, Split, Stream, Task
from threefold.engine.device_data import DeviceData
from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Settings
from threefold.methods import Method
from threefold.scenarios import SCENARIOS, Outputs

SHORT = {"seeds": 2, "iters": 4, "hidden": 8, "batch": 8, "device": "cpu", "store": None}
CPU = torch.device("cpu")


def halves(data, seed):
    """Tasks with a class in common: 0 and 1, then 1 and 2."""
    return [_of(data, (0, 1)), _of(data, (1, 2))]


def _of(data, classes, **seen):
    train, test = (
        [n for n, label in enumerate(labels.tolist()) if label in classes] for labels in (data.train_y, data.test_y)
    )
    return Task(classes, train, test, **seen)


class Halves(Stream):
    def sequence(self, seed):
        return halves(self.data, seed)


BOTH = pytest.mark.parametrize("made", [partial(OwnStream, halves), Halves], ids=["function", "class"])


@BOTH
def test_its_tasks_are_those_it_gives(made):
    data = numbered(2, 2, classes=4, train=12, test=8)
    stream = made(data)
    for task, classes in zip(stream.learned(3), [(0, 1), (1, 2)], strict=True):
        assert task.classes == classes
        for indices, labels in ((task.train, data.train_y), (task.test, data.test_y)):
            assert indices.dtype == torch.int64
            assert [n for n, label in enumerate(labels.tolist()) if label in classes] == indices.tolist()
    assert (stream.tasks, stream.cut, stream.classes_per_task, stream.samples) == (2, 2, 2, 6)
    assert (stream.smallest_task(1), stream.usual_tasks, stream.details(), stream.text) == (6, None, {}, None)


UNITS = {
    "task": (4, [[0, 1], [2, 3]]),
    "domain": (3, [[0, 1], [1, 2]]),
    "class": (3, [[0, 1], [1, 2]]),
}


@BOTH
@pytest.mark.parametrize("name", UNITS)
def test_a_class_of_two_tasks_is_one_class_but_where_each_has_a_head(made, name):
    outputs = Outputs.of(SCENARIOS[name], made(numbered(2, 2, classes=4, train=12, test=8)))
    assert (outputs.units, [outputs.units_of(task) for task in range(2)]) == UNITS[name]


def test_classes_of_two_tasks_are_two_where_the_stream_says_so():
    class Apart(Halves):
        same_classes = False

    stream = Apart(numbered(2, 2, classes=4, train=12, test=8))
    assert stream.recurring is None
    found = {name: Outputs.of(SCENARIOS[name], stream) for name in SCENARIOS}
    assert [found[name].units for name in ("task", "domain", "class")] == [4, 2, 4]
    assert [found["class"].units_of(task) for task in range(2)] == [[0, 1], [2, 3]]


SETS = [
    lambda n: n,
    lambda n: tuple(n),
    lambda n: np.array(n, np.int32),
    lambda n: np.array(n, np.uint16),
    lambda n: torch.tensor(n, dtype=torch.int16),
    lambda n: torch.tensor(n),
]


@pytest.mark.parametrize("kind", range(len(SETS)))
def test_samples_and_classes_may_be_numbers_of_any_kind(kind):
    data = numbered(2, 2)
    made, plain = SETS[kind], _of(data, (2, 0), pixels=[3, -1, 0, 1])

    def stream(data, seed):
        return [Task(made([2, 0]), made(plain.train), made(plain.test), pixels=SETS[kind % 3](plain.pixels))]

    (task,) = OwnStream(stream, data).learned(1)
    assert task.classes == (2, 0)
    assert all(type(label) is int for label in task.classes)
    assert (task.train.tolist(), task.test.tolist(), task.pixels.tolist()) == (plain.train, plain.test, plain.pixels)


def test_ranges_will_do():
    (task,) = OwnStream(lambda data, seed: (Task(range(3), range(9), range(1, 6)),), numbered(2, 2)).learned(1)
    assert (task.classes, task.train.tolist(), task.test.tolist()) == ((0, 1, 2), [*range(9)], [1, 2, 3, 4, 5])


# what a network sees


def seen(stream, seeds=(1,)):
    """The training samples of each task of the first seed, and the engine's data."""
    data = DeviceData(stream, Outputs.of(SCENARIOS["domain"], stream), seeds, 1, CPU)
    found = []
    for number, task in enumerate(data.sequences[0]):
        indices = task.train.unsqueeze(0).expand(len(seeds), -1)
        found.append(data.train(indices, torch.tensor(number)).x[0].numpy())
    return found, data


def brighter(x):
    return x * 2 + 1


@given(st.permutations(range(4)), st.lists(st.integers(-1, 3), min_size=4, max_size=4))
def test_pixels_are_looked_up_in_what_the_transform_made_and_minus_one_is_zero(order, some):
    """`train` may be in any order; each task is seen in its own way, and one without either as it is."""
    data = numbered(2, 2)

    def stream(data, seed):
        return [
            Task((0, 1, 2), [8, 0, 3], [0]),
            Task((0, 1, 2), [1, 5], [1], pixels=order),
            Task((0, 1, 2), [5, 2], [2], transform=brighter),
            Task((0, 1, 2), [4, 1], [3], pixels=some, transform=brighter),
        ]

    flat = data.train_x.flatten(1).numpy()
    padded = np.concatenate([flat * 2 + 1, np.zeros((9, 1), np.float32)], axis=1)
    expected = [flat[[8, 0, 3]], flat[[1, 5]][:, order], flat[[5, 2]] * 2 + 1, padded[[4, 1]][:, some]]
    for found, wanted in zip(seen(OwnStream(stream, data))[0], expected, strict=True):
        assert np.array_equal(found.reshape(len(found), -1), wanted)


@pytest.mark.parametrize(("shape", "seen_as"), [((4,), (4,)), ((2, 3), (1, 2, 3)), ((3, 2, 2), (3, 2, 2))])
def test_a_transform_is_given_batches_of_samples_as_networks_see_them(shape, seen_as):
    given_ = []

    def looks(x):
        given_.append(x)
        return x

    data = numbered(*shape, train=600, test=6)
    (found,), _ = seen(OwnStream(lambda data, seed: [Task((0, 1, 2), range(600), [0], transform=looks)], data))
    assert all(x.dim() == len(seen_as) + 1 and x.shape[1:] == seen_as for x in given_)
    assert max(len(x) for x in given_) <= 256
    assert np.array_equal(found.reshape(600, -1), data.train_x.flatten(1).numpy())


def test_a_transform_that_writes_into_its_batch_changes_no_data():
    data = numbered(2, 2)
    before = data.train_x.clone()
    seen(OwnStream(lambda data, seed: [Task((0, 1, 2), range(9), [0], transform=lambda x: x.zero_())], data))
    assert torch.equal(data.train_x, before)


def test_what_replicas_have_in_common_is_transformed_and_kept_once():
    def shared(data, seed):
        return [Task((0, 1, 2), range(9), [0], transform=brighter)]

    def each(data, seed):
        return [Task((0, 1, 2), range(9), [0], transform=lambda x: x + seed)]

    data = numbered(2, 2)
    assert len(seen(OwnStream(shared, data), seeds=(1, 2, 3))[1].train_x) == 9 + 9
    assert len(seen(OwnStream(each, data), seeds=(1, 2, 3))[1].train_x) == 9 + 3 * 9


@pytest.mark.parametrize("method", ["none", "er:budget=6", "ewc:strength=10", "offline"])
def test_one_that_says_what_split_says_is_trained_bit_for_bit_alike(method):
    data = tiny_data(6)
    own = OwnStream(lambda data, seed: Split(data, 3).sequence(seed), data)
    for scenario in SCENARIOS:
        ours, theirs = (
            threefold.run(each, scenario=scenario, method=method, **SHORT) for each in (Split(data, 3), own)
        )
        assert (ours.matrix == theirs.matrix).all()


def test_permuted_by_pixels_is_permuted_by_a_transform():
    data = tiny_data(3)
    permuted = Permuted(data, 2)

    class ByTransform(Permuted):
        def sequence(self, seed):
            return [self._moved(task) for task in super().sequence(seed)]

        def _moved(self, task):
            pixels = task.pixels
            return Task(task.classes, task.train, task.test, transform=lambda x: x.flatten(1)[:, pixels].view(x.shape))

    for scenario in SCENARIOS:
        ours, theirs = (
            threefold.run(each, scenario=scenario, method="er:budget=6", **SHORT)
            for each in (permuted, ByTransform(data, 2))
        )
        assert (ours.matrix == theirs.matrix).all()


# classes


def test_a_class_is_called_by_its_name_or_by_the_one_it_gives_itself():
    class Named(Halves):
        name = "named"

    class Child(Named):
        pass

    class Grandchild(Halves):
        pass

    class Cut(Split):
        pass

    assert [kind.name for kind in (Halves, Named, Child, Grandchild, Cut)] == [
        "Halves",
        "named",
        "named",
        "Grandchild",
        "split",
    ]
    assert Named(numbered(2, 2)).title == "named-numbered"
    assert OwnStream(halves, numbered(2, 2)).title == "halves-numbered"


def test_what_one_of_ours_knows_without_its_tasks_is_counted_anew():
    class FirstTwo(Split):
        def sequence(self, seed):
            return super().sequence(seed)[:2]

    class Small(Permuted):
        def sequence(self, seed):
            return [Task((0, 1), [0, 1, 3], [0])] * 4

    first = FirstTwo(tiny_data(6), 3)
    first.asked = None
    assert (first.cut, first.classes_per_task, first.smallest_task(1)) == (
        2,
        2,
        min(len(task.train) for task in Split(tiny_data(6), 3).sequence(1)[:2]),
    )
    small = Small(numbered(2, 2), 4)
    assert (small.cut, small.classes_per_task, small.samples, small.smallest_task(1)) == (4, 2, 3, 3)


def test_a_sequence_from_a_class_beside_ours_is_checked_as_well():
    class Mixin:
        def sequence(self, seed):
            return [Task((0, 9), [0], [0])]

    class Mixed(Mixin, Split):
        pass

    with pytest.raises(ThreefoldError, match="classes of task 1 of stream split must be labels 0…2, got 9"):
        _ = Mixed(numbered(2, 2), 3).tasks


def test_what_a_class_of_the_users_says_itself_stays_also_for_those_that_inherit_from_it():
    class Quick(Halves):
        def smallest_task(self, seed):
            return 5

    class Child(Quick):
        def sequence(self, seed):
            return halves(self.data, seed)

    assert [kind(numbered(2, 2)).smallest_task(1) for kind in (Quick, Child)] == [5, 5]


def test_what_an_instance_computes_once_is_not_what_it_holds():
    """Else the key of a stream that was looked at would be another."""

    class Lazy(Halves):
        def __init__(self, data, by=1):
            super().__init__(data)
            self.by = by

        @cached_property
        def order(self):
            return list(range(self.by))

        def sequence(self, seed):
            assert self.order
            return halves(self.data, seed)

    stream = Lazy(numbered(2, 2), 3)
    assert (stream.held(), stream.tasks, stream.recurring is not None, stream.held()) == ({"by": 3}, 2, True, {"by": 3})


def test_a_number_of_tasks_is_passed_on_to_a_class_and_held_against_a_function():
    class Any(Stream):
        def __init__(self, data, tasks=None):
            super().__init__(data, tasks)
            self.number = tasks or 2

        def sequence(self, seed):
            return [Task((0, 1, 2), range(9), range(6))] * self.number

    assert [Any(numbered(2, 2), tasks).tasks for tasks in (None, 1, 5)] == [2, 1, 5]
    for wrong in (OwnStream(halves, numbered(2, 2), 3), Halves(numbered(2, 2), 3)):
        with pytest.raises(ThreefoldError, match=rf"^tasks is 3, but stream {wrong.name} has 2\.$"):
            _ = wrong.tasks
    assert OwnStream(halves, numbered(2, 2), 2).tasks == 2


def test_an_epoch_is_as_long_as_its_tasks_are():
    """Also without ends of tasks, where every task is given the mean length: 3 and 7 samples are 2 steps of 2 each."""

    def unequal(data, seed):
        return [Task((0, 1, 2), range(3), [0]), Task((0, 1, 2), range(2, 9), [1])]

    stream = OwnStream(unequal, numbered(2, 2, train=90))
    assert stream.samples == 5
    settings = Settings.checked(epochs=1, batch=2, hidden=4, device="cpu")
    cell = Cell.of(stream, SCENARIOS["class"], Method(), settings)
    assert cell.training.steps(stream.samples) == 2


def test_data_held_out_are_what_the_function_is_given():
    data = tiny_data(4)
    given_ = []

    def looks(data, seed):
        given_.append(data)
        return [_of(data, (0, 1)), _of(data, (2, 3))]

    held = data.validation(0.2)
    assert OwnStream(looks, held).tasks == 2
    assert all(each is held for each in given_)
    assert isinstance(held, Dataset)
