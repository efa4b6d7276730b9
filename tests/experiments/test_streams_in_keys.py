"""What of a stream is in the key of its runs, and the command that trains them again."""

import shlex
import sys
from textwrap import dedent

import numpy as np
import pytest
import torch

import threefold
from threefold import Dataset, OwnStream, Rotated, Several, Split, Stream, Task, Timed
from threefold.experiments import Cell, Settings, run_request
from threefold.experiments.command import reproducing, run_command
from threefold.methods import Method
from threefold.results import run_key
from threefold.scenarios import SCENARIOS

SHORT = {"iters": 2, "hidden": 4, "batch": 8, "device": "cpu"}
MINE = """
import torch
from threefold import Stream, Task

SHARE = 0.5

def dimmed(by):
    def dim(x):
        return x * by
    return dim

def shares(data, seed):
    order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(seed))
    cut = int(SHARE * len(order))
    classes, every = range(data.classes), range(len(data.test_y))
    return [Task(classes, order[:cut], every), Task(classes, order[cut:], every, transform=dimmed(0.5))]

class Shares(Stream):
    def sequence(self, seed):
        return shares(self.data, seed)
"""


def dots(name="dots", classes=4, columns=None):
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(240) % classes
    images = (torch.rand(classes, 5, 5, generator=source)[labels] + 0.2 * torch.randn(240, 5, 5, generator=source)) / 2
    parts = (images[:160], labels[:160], images[160:], labels[160:])
    return Dataset.from_arrays(*parts, name=name, columns=columns)


@pytest.fixture(scope="module")
def data():
    return dots()


def spec(stream, scenario="class", **settings):
    return Cell.of(stream, SCENARIOS[scenario], Method(), Settings.checked(**SHORT | settings)).spec()


def keys(streams):
    return [run_key(spec(stream)) for stream in streams]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the file, as a module of a package, too; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shares_file.py").write_text(MINE)
    (tmp_path / "shares_package").mkdir()
    (tmp_path / "shares_package" / "inner.py").write_text(MINE)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def in_a_notebook(text=MINE):
    """What it defines, where there is no file."""
    scope = {"__name__": "__main__"}
    exec(compile(dedent(text), "<cell>", "exec"), scope)
    return scope


@pytest.mark.parametrize("name", ["shares", "Shares"])
def test_however_a_users_stream_is_found_it_is_the_same_run(name, data, folder):
    def made(own):
        return own(data) if isinstance(own, type) else OwnStream(own, data)

    import shares_file

    texts = [f"shares_file.py:{name}", f"{folder}/shares_file.py:{name}", f"shares_file:{name}"]
    texts += [f"shares_package.inner:{name}", f"shares_package/inner.py:{name}"]
    found = [spec(threefold.streams.find(text).of(data)) for text in texts]
    found += [spec(made(in_a_notebook()[name])), spec(made(getattr(shares_file, name)))]
    assert found[0]["stream"] == {
        "name": f"{name}-dots",
        "tasks": 2,
        "data": data.fingerprint,
        "code": found[0]["stream"]["code"],
    }
    assert all(each == found[0] for each in found)
    assert spec(threefold.streams.find(texts[0]).of(data, 2)) == found[0], "a number of tasks that it has anyway"


CHANGES = {
    "a value of the module": ("SHARE = 0.5", "SHARE = 0.25"),
    "what a closure holds": ("dimmed(0.5)", "dimmed(0.25)"),
    "what a transform does": ("x * by", "x + by"),
    "the order": ("order[:cut]", "order[cut:]"),
}


@pytest.mark.parametrize("name", ["shares", "Shares"])
@pytest.mark.parametrize("change", CHANGES)
def test_code_that_changes_is_another_run(change, name, data):
    def of(text):
        own = in_a_notebook(text)[name]
        return own(data) if isinstance(own, type) else OwnStream(own, data)

    first, again, other = keys(of(text) for text in (MINE, MINE + "# a remark\n", MINE.replace(*CHANGES[change])))
    assert first == again != other


def test_what_a_function_was_made_of_and_what_an_instance_holds_count(data):
    def by(number):
        def made(data, seed):
            return [Task(range(4), range(number, 160), range(80))]

        return made

    class By(Stream):
        factor = 1

        def __init__(self, data, number=8):
            super().__init__(data)
            self.number = number

        def sequence(self, seed):
            return by(self.number * self.factor)(self.data, seed)

    class Twice(By):
        factor = 2

    streams = [OwnStream(by(8), data), OwnStream(by(9), data), By(data), By(data, 9), Twice(data)]
    assert len(set(keys(streams))) == len(streams)
    assert keys([By(data, 8), OwnStream(by(8), data)]) == keys(streams[2::-2])


def test_a_stream_that_was_trained_has_the_key_that_it_had(data):
    stream = in_a_notebook()["Shares"](data)
    (before,) = keys([stream])
    threefold.run(stream, scenario="class", seeds=2, store=None, **SHORT)
    assert keys([stream]) == [before]


STREAMS = {
    "usual": lambda d: Split(d, 2),
    "sizes": lambda d: Split(d, classes=[3, 1]),
    "labels": lambda d: Split(d, classes=[[0, 1], [2, 3]]),
    "other labels": lambda d: Split(d, classes=[[0, 2], [1, 3]]),
    "fixed": lambda d: Split(d, 2, order="fixed"),
    "another order": lambda d: Split(d, 2, order=[3, 2, 1, 0]),
    "larger first": lambda d: Split(d, 2, first=3),
    "rotated": lambda d: Rotated(d, 2),
    "by angles": lambda d: Rotated(d, angles=[0, 90]),
    "timed": lambda d: Timed(d, 2),
    "by number": lambda d: Timed(d, at=[40]),
    "three": lambda d: Timed(d, 3),
    "several": lambda d: Several([d, d]),
}


def test_every_option_makes_another_run(data):
    made = [make(data) for make in STREAMS.values()]
    assert len({run_key(spec(stream, "class")["stream"]) for stream in made}) == len(STREAMS)
    ends = [threefold.streams.find_boundaries(text) for text in ("sharp", "blurred:width=1", "blurred:width=0", "none")]
    blurred = []
    for each in ends:
        stream = Split(data, 2)
        stream.boundaries = each
        blurred.append(stream)
    assert len(set(keys(blurred))) == 4
    assert (
        spec(blurred[0])["stream"]
        == spec(Split(data, 2))["stream"]
        == {
            "name": "split-dots",
            "tasks": 2,
            "data": data.fingerprint,
        }
    ), "what is usual is not written, so that keys are what they were"


# the command that trains it again


def again(command):
    """The request that a command makes."""
    words = shlex.split(command)
    assert words[:2] == ["threefold", "run"]
    given, several = {}, {"--scenario": [], "--method": []}
    for name, value in zip(words[3::2], words[4::2], strict=True):
        several.get(name, []).append(value)
        given[name.removeprefix("--")] = value
    settings = {name: int(given[name]) for name in ("iters", "hidden", "batch") if name in given}
    return run_request(
        words[2],
        several["--scenario"],
        several["--method"],
        given["seeds"],
        orders=given.get("orders"),
        data=given.get("data"),
        tasks=int(given["tasks"]) if "tasks" in given else None,
        boundaries=given.get("boundaries"),
        settings={**settings, "device": given["device"]},
        command="",
    )


@pytest.fixture
def catalogue(monkeypatch):
    """Two datasets of known names that are small."""
    years = {"year": (np.arange(160) // 80, np.arange(80) // 40)}
    known = {name: dots(name, classes, years) for name, classes in (("mnist", 10), ("fashion-mnist", 5))}

    def load(name, report=None):
        names = name.split("+")
        return known[name] if len(names) == 1 else threefold.data.joined([known[each] for each in names])

    monkeypatch.setattr("threefold.experiments.request.load", load)
    return known


@pytest.mark.parametrize(
    ("stream", "more"),
    [
        ("split-mnist", {"tasks": 2}),
        ("split-fashion-mnist:classes=3-2", {}),
        ("split-mnist:classes=0-1/9-8-7,left=last", {}),
        ("split-mnist:classes=4-5/,left=last", {}),
        ("split-mnist:first=4,left=last", {"tasks": 3}),
        ("split-mnist:order=fixed", {"boundaries": "blurred:width=1,every=2"}),
        ("rotated-mnist:angles=-30-45.5", {}),
        ("rotated-mnist", {"tasks": 3, "boundaries": "none:every=1"}),
        ("several-mnist+fashion-mnist", {"seeds": "3-4", "orders": "7,9"}),
        ("timed-mnist:column=year", {}),
        ("timed-mnist:at=20-100", {}),
        ("timed-fashion-mnist", {"tasks": 4}),
        ("shares_file.py:shares", {}),
        ("shares_file.py:Shares", {"data": "fashion-mnist"}),
        ("shares_package.inner:shares", {"data": "mnist+fashion-mnist", "tasks": 2}),
    ],
)
@pytest.mark.usefixtures("catalogue", "folder")
def test_the_command_of_a_cell_makes_the_same_cell(stream, more):
    request = run_request(
        stream, ["class", "domain"], ["none"], more.pop("seeds", 2), command="", settings=SHORT, **more
    )
    cells = [asked.cell for asked in request.asked]
    seeds = request.asked[0].seeds
    described = [Cell.of_description(asked.described()) for asked in request.asked]
    for each in (cells, described):
        command = reproducing(each, seeds)
        assert command, "known from its name alone"
        made = again(command)
        assert [asked.cell.spec() for asked in made.asked] == [cell.spec() for cell in cells]
        assert {asked.seeds for asked in made.asked} == {seeds}
        assert made.title == request.title


def test_a_class_that_goes_by_its_number_of_tasks_is_given_it_again(catalogue, folder):
    (folder / "numbers_file.py").write_text(
        MINE
        + "\n"
        + dedent("""
        class Pieces(Stream):
            def __init__(self, data, tasks=3):
                super().__init__(data, tasks)
                self.number = tasks

            def sequence(self, seed):
                return shares(self.data, seed)[:1] * self.number
    """)
    )
    for tasks in (None, 5):
        request = run_request("numbers_file.py:Pieces", ["class"], ["none"], 1, tasks=tasks, settings=SHORT, command="")
        (asked,) = request.asked
        assert asked.cell.stream.tasks == (tasks or 3)
        (made,) = again(run_command([asked.cell], [1], device="cpu")).asked
        assert made.cell.spec() == asked.cell.spec()


@pytest.mark.usefixtures("catalogue")
def test_what_options_chose_was_not_shortened():
    long = {"iters": 2000, "hidden": 400, "batch": 128, "device": "cpu"}

    def cuts(stream, tasks=None):
        request = run_request(stream, ["class"], ["none"], 1, tasks=tasks, settings={**long, "batch": 8}, command="")
        return request.asked[0].cell.cuts()

    assert cuts("split-mnist:classes=5-3-2") == []
    assert cuts("split-mnist:first=4,left=last", 4) == ["4 of 5 tasks"]
    assert cuts("split-mnist", 2) == ["2 of 5 tasks"]


def test_a_request_is_called_by_the_stream_its_options_and_its_data(data, catalogue, folder):
    def title(stream, **more):
        return run_request(stream, ["class"], ["none"], 1, settings=SHORT, command="", **more).title

    assert title(Split(data, 2)) == "split-dots, 2 iterations"
    assert title("split-mnist:classes=7-3") == "split-mnist:classes=7-3, 2 iterations"
    assert title("shares_file.py:shares") == "shares-mnist, 2 iterations"
    assert title("shares_file.py:shares", data="fashion-mnist") == "shares-fashion-mnist, 2 iterations"
