"""Streams on the command line: trained, listed, reported and exported by name and options."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_lab import SETTINGS, Ended, arrays, contents, refusal, write_npz

Cli = Callable[..., Ended]

MINE = """
from threefold import Stream, Task


def halves(data, seed):
    cut = len(data.train_y) // 2
    tests = range(len(data.test_y))
    return [Task(range(4), range(cut), tests), Task(range(4), range(cut, 2 * cut), tests, transform=darker)]


def darker(x):
    return x / 2


class Halves(Stream):
    def sequence(self, seed):
        return halves(self.data, seed)


def flat(data, seed):
    return [Task(range(4), range(20), range(8), transform=lambda x: x.flatten(1))]
"""


@pytest.fixture
def room(lab: Path) -> Path:
    """The laboratory with years of the samples, a second dataset, and streams of the user's."""
    years = {"train_year": np.arange(240) // 80, "test_year": np.arange(80) // 30}
    write_npz(lab / "tiny.npz", **arrays(), **years)
    write_npz(lab / "small.npz", **{n: v[..., :3] if n.endswith("_x") else v for n, v in arrays(2).items()})
    (lab / "mine.py").write_text(MINE)
    return lab


def trained(cli: Cli, stream: str, *words: str) -> dict[str, object]:
    """What `--json` says of one method's only scenario."""
    ended = cli("run", stream, *SETTINGS, "--seeds", "2", "--scenario", "class", "--json", *words)
    assert (ended.status, ended.err) == (0, "")
    (found,) = json.loads(ended.out)["results"]
    return dict(found)


STREAMS = [  # text, data, title, tasks
    ("split:classes=3-1", "tiny.npz", "split-tiny:classes=3-1", 2),
    ("split:classes=0-3/1-2", "tiny.npz", "split-tiny:classes=0-3/1-2", 2),
    ("split:first=2,left=last,order=fixed", "tiny.npz --tasks 3", "split-tiny:first=2,order=fixed,left=last", 3),
    ("rotated:angles=0-45", "tiny.npz", "rotated-tiny:angles=0-45", 2),
    ("several", "tiny.npz+small.npz", "several-tiny+small", 2),
    ("timed:at=100", "tiny.npz", "timed-tiny:at=100", 2),
    ("timed:column=year", "tiny.npz", "timed-tiny:column=year", 3),
    ("mine.py:halves", "tiny.npz", "halves-tiny", 2),
    ("mine.py:Halves", "tiny.npz --boundaries blurred:width=2,every=4", "Halves-tiny, blurred:every=4,width=2", 2),
    ("split:order=fixed", "tiny.npz --tasks 2 --boundaries none --online --iters", "split-tiny:order=fixed, none", 2),
]


@pytest.mark.parametrize(("text", "words", "title", "tasks"), STREAMS, ids=[text for text, *_ in STREAMS])
def test_each_stream_is_trained_and_called_by_its_options(
    room: Path, cli: Cli, text: str, words: str, title: str, tasks: int
) -> None:
    more, settings = words.split(), SETTINGS
    if more[-1] == "--iters":
        place = SETTINGS.index(more.pop())
        settings = SETTINGS[:place] + SETTINGS[place + 2 :]
    command = ["run", text, "--data", *more, *settings, "--seeds", "2", "--scenario", "class"]
    shown = cli(*command)
    assert (shown.status, shown.err) == (0, "")
    assert shown.out.replace("\n", " ").startswith(f"{title}: average accuracy over all tasks")
    found = json.loads(cli(*command, "--json").out)["results"][0]
    assert np.shape(found["accuracy_matrix"]) == (2, tasks, tasks)
    name, _, boundaries = title.partition(", ")
    (line,) = cli("status").out.splitlines()
    assert re.fullmatch(rf"run {re.escape(name)}, (6 iterations|1 epoch): 2 of 2 runs done", line)
    report = cli("report", "--format", "csv")
    (row,) = csv.DictReader(report.out.splitlines())
    assert (row["stream"], row["tasks"], row["boundaries"]) == (name, str(tasks), boundaries or "sharp")
    rows = list(csv.DictReader(cli("export", "csv", "-").out.splitlines()))
    assert {row["stream"] for row in rows} == {name}
    every = {"none": "none:every=100"}  # hyperparameter, also the usual ones
    assert {row.get("boundaries", "") for row in rows} == {every.get(boundaries, boundaries)}
    for kind in ("markdown", "latex", "html"):
        assert cli("report", "--format", kind, "--output", f"report.{kind}").status == 0
    assert name in (room / "report.markdown").read_text(encoding="utf-8")
    assert cli("export", "npz", "runs.npz").status == 0


def test_streams_of_one_dataset_are_tables_of_their_own_and_boundaries_are_told_in_rows(room: Path, cli: Cli) -> None:
    (room / "streams.toml").write_text(
        """
        title = "Streams"
        seeds = 2
        training = { iters = 6, hidden = 8, batch = 16 }
        [[parts]]
        stream = "split:order=fixed"
        data = "tiny.npz"
        tasks = 2
        scenarios = ["class"]
        methods = [{ method = "none" }]
        [[parts]]
        stream = "split:classes=3-1"
        data = "tiny.npz"
        scenarios = ["class"]
        methods = [{ method = "none" }]
        [[parts]]
        stream = "split:classes=3-1"
        data = "tiny.npz"
        boundaries = "blurred:width=3"
        scenarios = ["class"]
        methods = [{ method = "none" }]
        [[parts]]
        stream = "mine.py:halves"
        data = "tiny.npz"
        orders = [1, 2]
        scenarios = ["class"]
        methods = [{ method = "none" }]
        """,
        encoding="utf-8",
    )
    ended = cli("experiment", "streams.toml", "--device", "cpu")
    assert (ended.status, ended.err) == (0, "")
    rows = list(csv.DictReader(cli("report", "--format", "csv").out.splitlines()))
    assert [(row["stream"], row["method"], row["seeds"]) for row in rows] == [
        ("split-tiny:order=fixed", "None", "2"),
        ("split-tiny:classes=3-1", "None", "2"),
        ("split-tiny:classes=3-1", "None (blurred:width=3)", "2"),
        ("halves-tiny", "None", "4"),
    ]
    rehearsal = cli("experiment", "streams.toml", "--device", "cpu", "--quick")
    assert (rehearsal.status, rehearsal.err) == (0, "")


def test_the_same_stream_found_otherwise_is_not_trained_again(room: Path, cli: Cli) -> None:
    first = trained(cli, "mine.py:halves", "--data", "tiny.npz")
    for text in ("mine:halves", "./mine.py:halves"):
        assert trained(cli, text, "--data", "tiny.npz") == first
    assert len({row["key"] for row in csv.DictReader(cli("export", "csv", "-").out.splitlines())}) == 2


REFUSED = [
    ("split:classes=3-2", "", "classes must be 4 in all, as many as tiny has, got 5; change the numbers."),
    ("split:classes=a", "", "classes of split must be numbers of classes such as 5-3-2, or labels such as 0-1/2-3-4,"
     " got 'a'."),
    ("rotated:angles=x", "", "angles of rotated must be degrees such as 0-30-60, or random, got 'x'."),
    ("several", "", "data of several must be two datasets or more, such as mnist+fashion-mnist, got tiny."),
    ("timed:column=month", "", "column must be one of tiny, got 'month'; it has year."),
    ("split-mnist", "", "data is 'tiny.npz', but stream 'split-mnist' names its data; use split with data 'tiny.npz'."),
    ("mine.py:halves", "--tasks 3", "tasks is 3, but stream halves has 2."),
    ("mine.py:Halves", "--tasks 3", "tasks is 3, but stream Halves has 2."),
    ("mine.py:flat", "", "samples of transform flat.<locals>.<lambda> must have the shape 1×4×4, got 16."),
    ("mine.py", "", "stream 'mine.py' lacks the name of a class or function; use mine.py:halves or mine.py:darker or"
     " mine.py:Halves or mine.py:flat."),
    ("mine.py:halves", "--boundaries blurred:width=4", "width of blurred must be at most 3, half of the shortest task's"
     " steps, got 4."),
    ("split", "--boundaries blurrd", "boundaries 'blurrd' is not known; did you mean 'blurred'?"),
    ("timed", "--boundaries none:evry=3", "hyperparameter of none 'evry' is not known; did you mean 'every'?"),
    ("split", "--tasks 2 --online", "iters is 6, but online is one pass; give one of them."),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "words", "sentence"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_is_one_sentence_and_nothing_is_written(
    room: Path, cli: Cli, stream: str, words: str, sentence: str
) -> None:
    before = contents(room)
    ended = cli("run", stream, "--data", "tiny.npz", *SETTINGS, "--seeds", "2", *words.split())
    assert refusal(ended) == f"threefold: {sentence}\n"
    after = {name: content for name, content in contents(room).items() if "__pycache__" not in name}
    assert after == before


def test_validation_of_a_stream_in_time_is_refused(room: Path, cli: Cli) -> None:
    (room / "timed.toml").write_text(
        'stream = "timed"\ndata = "tiny.npz"\n[validation]\n[[methods]]\nmethod = "none"\n', encoding="utf-8"
    )
    assert refusal(cli("experiment", "timed.toml", "--device", "cpu")) == (
        "threefold: validation holds out the last samples of each class, but timed goes by the order of samples; use"
        " another stream, or no validation.\n"
    )


def test_streams_and_boundaries_are_listed_with_their_options(cli: Cli) -> None:
    for what, names in (
        ("streams", ["split", "permuted", "rotated", "several", "timed", "classes:", "angles:", "column:", "left:"]),
        ("boundaries", ["sharp", "blurred", "none", "width:", "every:"]),
    ):
        ended = cli("list", what)
        assert (ended.status, ended.err) == (0, "")
        words = ended.out.split()
        assert all(name in words for name in names)
        assert max(map(len, ended.out.splitlines())) <= 140
