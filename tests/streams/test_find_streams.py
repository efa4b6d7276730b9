"""Streams by name: how any text is parsed, and streams as they are stored."""

import sys
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numbered_data import labelled, numbered

from threefold.errors import ThreefoldError
from threefold.streams import STREAMS, OwnStream, Permuted, RecordedStream, Rotated, Split, Timed, find, find_boundaries

FILE = """
from threefold import Stream, Task


def whole(data, seed):
    return [Task(range(data.classes), range(len(data.train_y)), range(len(data.test_y)))]


class Whole(Stream):
    def sequence(self, seed):
        return whole(self.data, seed)


class Twice(Stream):
    def __init__(self, data, by=2):
        super().__init__(data)
        self.by = by

    def sequence(self, seed):
        return whole(self.data, seed) * self.by


class Wants(Stream):
    def __init__(self, data, tasks=None, *, colour):
        super().__init__(data, tasks)

    def sequence(self, seed):
        return whole(self.data, seed)


class Forgets(Stream):
    def __init__(self, data, tasks=None):
        self.number = 3

    def sequence(self, seed):
        return whole(self.data, seed)


class Abstract(Stream):
    pass


class Refuses(Stream):
    def __init__(self, data, tasks=None):
        from threefold import ThreefoldError

        raise ThreefoldError("colours must be given, got none.")

    def sequence(self, seed):
        return []


class Other:
    pass


NUMBER = 5
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working folder has such a file, also under names that begin like our streams, and one that is broken."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("streams_of_mine", "split-mine", "timed"):
        (tmp_path / f"{name}.py").write_text(FILE)
    (tmp_path / "broken_streams.py").write_text("1 / 0\n")
    (tmp_path / "streams_package").mkdir()
    (tmp_path / "streams_package" / "inner.py").write_text(FILE)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "kind", "data", "options"),
    [
        ("split", Split, None, {}),
        ("split-cifar-10", Split, "cifar-10", {}),
        ("split-mnist:classes=5-3-2,order=fixed", Split, "mnist", {"classes": "5-3-2", "order": "fixed"}),
        ("rotated-fashion-mnist:angles=0-30", Rotated, "fashion-mnist", {"angles": "0-30"}),
        ("timed:column=year", Timed, None, {"column": "year"}),
        ("several-mnist+fashion-mnist", STREAMS["several"], "mnist+fashion-mnist", {}),
        ("permuted-mine.npz", Permuted, "mine.npz", {}),
    ],
)
def test_a_text_is_a_stream_its_data_and_its_options(text, kind, data, options):
    found = find(text)
    assert (found.kind, found.data, found.options, found.text) == (kind, data, options, None)
    assert found.defaults == kind.defaults


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_is_found_by_its_own_name(name):
    assert find(name).kind is STREAMS[name]
    assert STREAMS[name].name == name
    assert STREAMS[name].meaning


@pytest.mark.parametrize(
    "text",
    [
        "streams_of_mine.py:whole",
        "./streams_of_mine.py:whole",
        "streams_of_mine:whole",
        "streams_package.inner:whole",
        "split-mine.py:whole",
        "timed.py:whole",
        "streams_of_mine.py:Whole",
        "streams_package.inner:Whole",
        "streams_package/inner.py:Twice",
        "split-mine.py:Twice",
    ],
)
def test_a_users_stream_is_found_in_a_file_or_a_module(text):
    data, name = numbered(2, 2), text.partition(":")[2]
    stream = find(text).of(data)
    assert isinstance(stream, OwnStream) == (name == "whole")
    assert (stream.name, stream.title, stream.text, stream.written) == (name, f"{name}-numbered", text, text)
    assert stream.tasks == (2 if name == "Twice" else 1)
    assert all(task.train.tolist() == list(range(9)) for task in stream.learned(1))


@pytest.mark.parametrize("name", ["whole", "Whole", "Twice"])
def test_a_number_of_tasks_that_a_users_stream_has_not_is_refused(name):
    """Whether its class takes one or not."""
    right = 2 if name == "Twice" else 1
    named = find(f"streams_of_mine.py:{name}")
    assert named.of(numbered(2, 2), right).tasks == right
    with pytest.raises(ThreefoldError) as refused:
        _ = named.of(numbered(2, 2), 7).tasks
    assert str(refused.value) == f"tasks is 7, but stream {name} has {right}."


WRONG = [
    ("streams_of_mine.py:Wants", "stream streams_of_mine.py:Wants cannot be built (TypeError: Wants.__init__() missing"
     " 1 required keyword-only argument: 'colour')."),
    ("streams_of_mine.py:Forgets", "stream streams_of_mine.py:Forgets must have its data; call super().__init__(data,"
     " tasks) in its __init__."),
    ("streams_of_mine.py:Refuses", "colours must be given, got none."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_a_class_that_cannot_be_built_is_told_why(text, sentence):
    with pytest.raises(ThreefoldError) as refused:
        find(text).of(numbered(2, 2))
    assert str(refused.value) == sentence


def test_a_class_without_tasks_cannot_be_built():
    with pytest.raises(
        ThreefoldError, match=r"^stream streams_of_mine\.py:Abstract cannot be built \(TypeError: .*\)\.$"
    ):
        find("streams_of_mine.py:Abstract").of(numbered(2, 2))


EVERY = "known: permuted, permuted-mnist, rotated, rotated-mnist, several, split, split-mnist, timed."
UNKNOWN = [
    ("splt-mnist:classes=5-3-2", "stream 'splt-mnist' is not known; did you mean 'split-mnist'?"),
    ("rotate", "stream 'rotate' is not known; did you mean 'rotated'?"),
    ("-", f"stream '-' is not known; {EVERY}"),
    ("../x", f"stream '../x' is not known; {EVERY}"),
    ("'; DROP TABLE runs; --", f"stream ''; DROP TABLE runs; --' is not known; {EVERY}"),
    ("\x00", f"stream '\x00' is not known; {EVERY}"),
    ("split-", "stream 'split-' has no data after the hyphen; use split or split-mnist."),
    ("several-:", "stream 'several-:' has nothing after the colon; use several- or several-:key=value."),
    ("split:", "stream 'split:' has nothing after the colon; use split or split:key=value."),
    ("split-mnist:fixed", "stream 'split-mnist:fixed' has 'fixed'; use key=value."),
    ("split:order=fixed,order=random", "stream 'split:order=fixed,order=random' gives order twice; give it once."),
    ("split:colour=red", "option of split 'colour' is not known; known: classes, first, left, order."),
    ("permuted:order=fixed", "stream permuted has no options, but 'order' was given."),
    ("streams_of_mine.py:Other", "stream 'streams_of_mine.py:Other' must be a subclass of Stream or a function, got"
     " <class 'streams_of_mine.Other'>."),
    ("streams_of_mine.py:NUMBER", "stream 'streams_of_mine.py:NUMBER' must name a class or function, and"
     " streams_of_mine.py has none of that name."),
    ("streams_of_mine.py:wole", "stream 'streams_of_mine.py:wole' must name a class or function, and streams_of_mine.py"
     " has none of that name."),
    ("streams_of_mine.py", "stream 'streams_of_mine.py' lacks the name of a class or function; use"
     " streams_of_mine.py:whole or streams_of_mine.py:Whole or streams_of_mine.py:Twice or streams_of_mine.py:Wants or"
     " streams_of_mine.py:Forgets or streams_of_mine.py:Abstract or streams_of_mine.py:Refuses or"
     " streams_of_mine.py:Other."),
    ("absent.py:whole", "stream 'absent.py:whole' names a file that is not there; use FILE.py:NAME."),
    ("absent.py", "stream 'absent.py' names a file that is not there; use FILE.py:NAME."),
    ("absent_module:whole", "stream 'absent_module:whole' cannot be imported (ModuleNotFoundError: No module named"
     " 'absent_module')."),
    ("broken_streams.py:x", "stream 'broken_streams.py:x' cannot be imported (ZeroDivisionError: division by zero)."),
    (":whole", "stream ':whole' cannot be imported (ValueError: Empty module name)."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), UNKNOWN, ids=range(len(UNKNOWN)))
def test_what_is_no_stream_is_said_in_a_sentence(text, sentence):
    with pytest.raises(ThreefoldError) as refused:
        find(text)
    assert str(refused.value) == sentence


@given(st.text(max_size=30))
def test_any_text_is_a_stream_or_refused(text):
    with suppress(ThreefoldError):
        assert find(text).kind in STREAMS.values()


@given(st.sampled_from(sorted(STREAMS)), st.text("abcxyz0123-/,=.+", max_size=20))
def test_any_options_are_taken_or_refused(name, options):
    with suppress(ThreefoldError):
        stream = find(f"{name}:{options}").of(numbered(4, 4, classes=4, train=40, test=20))
        tasks = stream.learned(1)
        assert len(tasks) == stream.tasks
        assert {label for task in tasks for label in task.classes} <= set(range(4))


# what a store knows


def recorded(stream, **more):
    """The stream again, from what a spec says of it."""
    spec = {"name": stream.title, "tasks": stream.cut, "data": stream.data.fingerprint, **stream.details(), **more}
    return RecordedStream(spec, stream.text)


YEARS = labelled(range(6), range(6), columns={"year": (torch.arange(6) // 3, torch.arange(6) // 3)})


@pytest.mark.parametrize(
    "stream",
    [
        Split(numbered(2, 2), 3),
        Split(numbered(2, 2), classes=[[2], [0, 1]]),
        Split(numbered(2, 2), classes=[[2, 1, 0]]),
        Split(numbered(2, 2), 2, first=1, order=(2, 1, 0)),
        Permuted(numbered(2, 2), 4),
        Rotated(numbered(2, 2), angles=[-30, 0.5]),
        Timed(YEARS, column="year"),
        Timed(YEARS, at=[2]),
    ],
    ids=lambda stream: stream.written,
)
def test_a_stream_from_the_store_is_called_as_it_was(stream):
    stream.boundaries = find_boundaries("blurred:width=3")
    found = recorded(stream)
    assert (found.label, found.written, found.title) == (stream.label, stream.written, stream.title)
    assert (found.tasks, found.cut, found.usual_tasks) == (stream.tasks, stream.cut, stream.usual_tasks)
    assert (found.details(), found.boundaries, found.defaults) == (stream.details(), stream.boundaries, stream.defaults)
    with pytest.raises(ThreefoldError, match=rf"^stream {stream.title} is read from a store"):
        found.sequence(1)


def test_one_of_the_users_is_known_without_its_code():
    stream = find("streams_of_mine.py:whole").of(YEARS)
    found = recorded(stream, code="0" * 64)
    assert (found.written, found.label, found.title) == ("streams_of_mine.py:whole", "whole-arrays", "whole-arrays")
    assert found.details() == stream.details() == {}
    assert RecordedStream({"name": "whole-arrays", "tasks": 1, "data": ""}).written == "whole-arrays"


@pytest.mark.parametrize(
    ("stream", "usual"),
    [
        (Split(numbered(2, 2), classes=[1, 2]), None),
        (Split(numbered(2, 2), 3, order="fixed"), 5),
        (Rotated(numbered(2, 2)), 5),
        (Rotated(numbered(2, 2), angles=[0]), None),
        (Timed(YEARS, 2), 5),
        (Timed(YEARS, column="year"), None),
    ],
    ids=lambda value: getattr(value, "written", str(value)),
)
def test_where_options_say_how_many_tasks_there_are_no_number_is_usual(stream, usual):
    assert stream.usual_tasks == recorded(stream).usual_tasks == usual


def test_of_the_first_tasks_alone_it_knows_how_many():
    assert recorded(Split(numbered(2, 2), 3), first=2).tasks == 2
