"""A store written as a small text file and read back."""

import gzip
import json
import math
import os
import random
import resource
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import compress

import numpy as np
import pytest
from sample_runs import a_diverged_run, a_run, asked_for
from typer.testing import CliRunner

from threefold.cli.app import app
from threefold.errors import ThreefoldError
from threefold.results import Record, Rows, Store, is_rows, merge, pack, run_key, write_rows
from threefold.results.merge import Merged
from threefold.results.rows import rows_text

NAMES = ["paper.jsonl", "paper.jsonl.gz"]


def filled(path: Path) -> list[Record]:
    """A store with runs of two methods, one of them diverged, and something that was asked for."""
    runs = [a_run(seed, method=method) for method in ("none", "ewc") for seed in (1, 2, 30)] + [a_diverged_run(7)]
    with Store(path) as store:
        store.add(runs)
        store.remember("mine", asked_for(*runs))
    return runs


@pytest.mark.parametrize("name", NAMES)
def test_every_number_comes_back(tmp_path: Path, name: str) -> None:
    runs = filled(tmp_path / "a.db")
    with Store(tmp_path / "a.db", readonly=True) as store:
        assert write_rows(store, tmp_path / name) == len(runs)
    rows = Rows(tmp_path / name)
    assert sorted(rows.all(), key=lambda run: run.key) == sorted(runs, key=lambda run: run.key)
    assert rows.experiments() == {"mine": asked_for(*runs)}


@pytest.mark.parametrize("name", NAMES)
def test_rows_merge_like_a_store_and_agree_with_it(tmp_path: Path, name: str) -> None:
    runs = filled(tmp_path / "a.db")
    with Store(tmp_path / "a.db", readonly=True) as store:
        write_rows(store, tmp_path / name)
    first = merge(tmp_path / "b.db", [tmp_path / name])
    assert (first.added, first.present) == (len(runs), 0)
    again = merge(tmp_path / "b.db", [tmp_path / "a.db", tmp_path / name])  # no conflict: the numbers are the same
    assert again.added == 0
    with Store(tmp_path / "b.db", readonly=True) as store:
        assert {run.key for run in store.all()} == {run.key for run in runs}


def test_a_metric_that_is_added_later_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = filled(tmp_path / "a.db")
    with Store(tmp_path / "a.db", readonly=True) as store:
        write_rows(store, tmp_path / "a.jsonl")
    monkeypatch.setattr("threefold.results.record.measure", lambda initial, matrix, curve, ends: {"later": 1.0})
    assert merge(tmp_path / "a.db", [tmp_path / "a.jsonl"]) == Merged(0, len(runs))
    with Store(tmp_path / "a.db", readonly=True) as store:
        assert all(run.metrics == {"later": 1.0} for run in store.all())


def run_with_curve(seed: int, value: float = 50.0, *, level: int = 9) -> Record:
    """A run that was tested during training, as zlib of another level packs it."""
    plain = a_run(seed)
    evaluation = {"every": 1, "first": 0, "samples": None, "training": False}
    spec = {**plain.spec, "training": {**plain.spec["training"], "evaluation": evaluation}}
    points = np.array([(task, step, task + 1) for task in range(3) for step in range(1, 6)])
    accuracy = np.full((len(points), 3), 50.0)
    accuracy[-1, -1] = value
    curves = {"points": pack(points), "accuracy": pack(accuracy)}
    for packed, array in zip(curves.values(), (points, accuracy), strict=True):
        packed["bytes"] = b64encode(compress(array.tobytes(), level)).decode()
    return a_run(seed, spec=spec, key=run_key(spec), curves=curves)


def test_curves_that_differ_are_two_results(tmp_path: Path) -> None:
    for name, value in (("a.db", 50.0), ("b.db", 50.000001)):
        with Store(tmp_path / name) as store:
            store.add([run_with_curve(1, value)])
    with Store(tmp_path / "b.db") as store:
        write_rows(store, tmp_path / "b.jsonl")
    for source in ("b.db", "b.jsonl"):
        with pytest.raises(ThreefoldError, match="has two results: its accuracy during training is of sum "):
            merge(tmp_path / "a.db", [tmp_path / source])


def test_another_compression_of_the_same_curve_is_no_conflict(tmp_path: Path) -> None:
    assert run_with_curve(1, level=1).curves != run_with_curve(1).curves
    for name, level in (("a.db", 1), ("b.db", 9)):
        with Store(tmp_path / name) as store:
            store.add([run_with_curve(1, level=level)])
    assert merge(tmp_path / "a.db", [tmp_path / "b.db"]) == Merged(0, 1)


def test_long_curves_of_many_seeds_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a hundred runs would be longer than any that is read."""
    monkeypatch.setattr("threefold.results.rows.LONGEST", 500)
    runs = [run_with_curve(seed) for seed in range(1, 8)]
    each = sum(len(packed["bytes"]) for packed in runs[0].curves.values())
    with Store(tmp_path / "a.db") as store:
        store.add(runs)
        write_rows(store, tmp_path / "a.jsonl")
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines()[1:]
    assert [len(json.loads(line)["runs"]) for line in lines] == [500 // each] * (7 // (500 // each)) + [
        7 % (500 // each)
    ]
    assert sorted(Rows(tmp_path / "a.jsonl").all(), key=lambda run: run.spec["seed"]) == runs


def test_the_same_store_gives_the_same_bytes(tmp_path: Path) -> None:
    filled(tmp_path / "a.db")
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        with Store(tmp_path / "a.db", readonly=True) as store:
            write_rows(store, tmp_path / name)
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()


def test_what_methods_kept_is_left_out_and_a_nan_is_a_nan(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        store.add([a_run(1, kept={"dreams": {"shape": [1], "bytes": "eJxjAAAAAQAB"}}), a_diverged_run(7)])
        write_rows(store, tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text()
    assert "dreams" not in text
    assert "NaN" not in text
    diverged = next(run for run in Rows(tmp_path / "a.jsonl").all() if run.status == "diverged")
    assert math.isnan(diverged.matrix[2][0])
    assert math.isnan(diverged.metrics["average_accuracy"])


def line(content: dict[str, Any]) -> str:
    """A line with its sum: the first 16 digits of the SHA-256 of the line without it."""
    text = json.dumps(content, separators=(",", ":"))
    return f'{text[:-1]},"sum":"{sha256(text.encode()).hexdigest()[:16]}"}}\n'


HEAD = {"format": "threefold rows 2", "experiments": {}, "runs": 0}
DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "another file": lambda content: b"seed,accuracy\n1,99.0\n",
    "empty": lambda content: b"",
    "not JSON": lambda content: gzip.compress(b"{\n"),
    "a bit": lambda content: bytes([*content[:60], content[60] ^ 4, *content[61:]]),
    "half a cohort": lambda content: gzip.compress((line(HEAD) + line({"spec": {}})).encode()),
    "another format": lambda content: gzip.compress(line(HEAD | {"format": "rows 9"}).encode()),
    "more text": lambda content: content + b"more",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_damaged_or_something_else_is_told_and_nothing_is_merged(tmp_path, damage) -> None:
    filled(tmp_path / "a.db")
    path = tmp_path / "a.jsonl.gz"
    with Store(tmp_path / "a.db", readonly=True) as store:
        write_rows(store, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ThreefoldError, match=r"rows '.*a\.jsonl\.gz'.*give a file"):
        merge(tmp_path / "b.db", [path])
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda text: '{"seed": 1}\n',
            "line 1 of rows 'a.jsonl' is wrong (its format is null, not \"threefold rows 2\")",
        ),
        (lambda text: line({"format": HEAD["format"]}), "line 1 of rows 'a.jsonl' lacks the field 'experiments'"),
        (lambda text: line(HEAD | {"format": 1}), "line 1 of rows 'a.jsonl' is wrong (its format is 1, not"),
        (lambda text: "seed,accuracy\n", "line 1 of rows 'a.jsonl' is not JSON from column 1 on"),
        (lambda text: text[:-50], "line 3 of rows 'a.jsonl' is not JSON from column "),
        (lambda text: f"{line(HEAD)}[1, 2]\n", "line 2 of rows 'a.jsonl' is wrong (it holds [1, 2], not an object)"),
        (lambda text: line(HEAD) + line({"spec": {}}), "line 2 of rows 'a.jsonl' lacks the field 'runs'"),
        (
            lambda text: line(HEAD | {"experiments": 5}),
            "line 1 of rows 'a.jsonl' is wrong (its experiments are no table)",
        ),
        (
            lambda text: "".join(text.splitlines(True)[:-1]),
            "rows 'a.jsonl' hold 4 runs, but the first line names 7: a line was",
        ),
        (
            lambda text: text + text.splitlines(True)[1],
            "rows 'a.jsonl' hold 11 runs, but the first line names 7: a line was",
        ),
        (lambda text: "", "rows 'a.jsonl' are empty"),
        (None, "rows 'a.jsonl' cannot be read (No such file or directory)"),
    ],
)
def test_the_line_that_is_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    filled(Path("a.db"))
    if damage:
        with Store("a.db", readonly=True) as store:
            write_rows(store, "a.jsonl")
        Path("a.jsonl").write_text(damage(Path("a.jsonl").read_text()))
    with pytest.raises(ThreefoldError) as caught:
        Rows("a.jsonl")
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("; give a file as `threefold export rows` wrote it.")


def test_every_changed_digit_is_noticed_and_its_line_named(tmp_path: Path) -> None:
    filled(tmp_path / "a.db")
    with Store(tmp_path / "a.db", readonly=True) as store:
        content, _ = rows_text(store)
    lines = content.splitlines(keepends=True)
    source = random.Random(1)
    path = tmp_path / "a.jsonl"
    for number, changed in enumerate(lines, start=1):
        places = [place for place, byte in enumerate(changed) if chr(byte).isdigit()]
        for place in source.sample(places, 12):
            other = bytes([*changed[:place], (changed[place] - 47) % 10 + 48, *changed[place + 1 :]])
            path.write_bytes(b"".join([*lines[: number - 1], other, *lines[number:]]))
            with pytest.raises(ThreefoldError, match=rf"^line {number} of rows '.*' is wrong \((its sum|its format)"):
                Rows(path)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(ThreefoldError, match=r"cannot be read \(it is a pipe or device, not a file\)"):
        Rows(tmp_path / "a.jsonl")


def test_a_file_that_unpacks_to_more_than_fits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threefold.results.rows.memory_limit", lambda: 20 * 10**6)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(line(HEAD).encode() + bytes(10**8)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ThreefoldError, match=r"it holds more than 1\.0 MB unpacked"):
        Rows(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_folder_that_is_not_there_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "a.db")
    with (
        Store(tmp_path / "a.db", readonly=True) as store,
        pytest.raises(ThreefoldError, match=r"'.*' cannot be written \(No such file"),
    ):
        write_rows(store, tmp_path / "nowhere" / "a.jsonl")
    assert {path.name.split("-")[0] for path in tmp_path.iterdir()} == {"a.db"}


def test_rows_are_known_by_their_name() -> None:
    assert is_rows("a/paper.jsonl")
    assert is_rows(Path("paper.jsonl.gz"))
    assert not is_rows("paper.db")


def test_the_command_writes_rows_and_refuses_another_name(tmp_path: Path) -> None:
    runs = filled(tmp_path / "a.db")
    command = CliRunner().invoke(app, ["export", "rows", str(tmp_path / "a.jsonl"), "--store", str(tmp_path / "a.db")])
    assert command.output.strip().endswith(f"a.jsonl: {len(runs)} runs.")
    assert len(list(Rows(tmp_path / "a.jsonl").all())) == len(runs)
    wrong = CliRunner().invoke(app, ["export", "rows", str(tmp_path / "a.txt"), "--store", str(tmp_path / "a.db")])
    assert isinstance(wrong.exception, ThreefoldError)
    assert "it must be a name that ends in .jsonl" in str(wrong.exception)
    assert not (tmp_path / "a.txt").exists()
