"""Exports, read back by the tools they are for and compared with the store."""

import csv
import gzip
import json
import math
import os
import re
import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from fake_sections import a_cell, a_result, stream
from pyarrow import parquet
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_lab import Ended, contents, write_npz

import threefold.export
from threefold.results import Record, Store

KINDS = ("csv", "npz", "parquet")


@pytest.fixture(scope="module")
def runs() -> list[Record]:
    """Five tasks and ten, dreams, hyperparameters, and a seed that diverged."""
    results = [
        a_result(a_cell(stream(), "class", "dgr"), 90.0, seeds=2),
        a_result(a_cell(stream(), "task", "ewc:strength=100"), 98.0, seeds=3, diverged=[2]),
        a_result(a_cell(stream("permuted-mnist"), "domain", "none"), 70.0, seeds=1),
    ]
    return [record for result in results for record in result.records]


@pytest.fixture(scope="module")
def store(runs: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "some.db"
    with Store(path) as opened:
        opened.add(runs)
    return path


def same(ours: float, theirs: object) -> bool:
    return theirs in (None, "") if math.isnan(ours) else float(str(theirs)) == ours


def test_csv_has_every_accuracy(cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    assert cli("export", "csv", file, "--store", store) == Ended(0, f"{file}: 6 runs.\n", "")
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == sum(len(run.initial) * (len(run.initial) + 1) for run in runs)
    by_place = {(row["key"], int(row["after_tasks"]), int(row["task"])): row for row in rows}
    for run in runs:
        for after, accuracies in enumerate((run.initial, *run.matrix)):
            for task, accuracy in enumerate(accuracies, start=1):
                row = by_place[run.key, after, task]
                assert same(accuracy, row["accuracy"])
                assert (row["method"], row["scenario"]) == (run.spec["method"]["name"], run.spec["scenario"]["name"])
                assert (int(row["seed"]), int(row["tasks"])) == (run.spec["seed"], len(run.initial))
                first = (after, task) == (0, 1)  # of the run's rows: what is said of all of it stands there
                assert all(same(value, row[name]) if first else row[name] == "" for name, value in run.metrics.items())
                if not first:
                    assert row["spec"] == row["network"] == row["iters"] == ""
                    continue
                assert json.loads(row["spec"]) == run.spec
                assert int(row["iters"]) == run.spec["training"]["iters"]
                width, lr = (run.spec[a]["hyperparameters"][b] for a, b in (("network", "width"), ("optimizer", "lr")))
                assert row["network"] == f"mlp:depth=2,width={width},activation=relu"
                assert row["optimizer"] == f"adam:lr={lr},reset=false,betas=0.9-0.999,weight_decay=0.0"


def test_npz_needs_no_pickle(cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path) -> None:
    file = tmp_path / "runs"  # as it was called: NumPy would add .npz
    assert cli("export", "npz", file, "--store", store).status == 0
    with np.load(file, allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive.files}
    assert found["matrix"].shape == (6, 10, 10)
    for place, run in enumerate(runs):
        tasks = found["tasks"][place]
        assert tasks == len(run.initial)
        assert np.array_equal(found["matrix"][place, :tasks, :tasks], np.array(run.matrix), equal_nan=True)
        assert np.array_equal(found["initial"][place, :tasks], run.initial)
        assert np.isnan(found["matrix"][place, tasks:]).all()
        assert json.loads(str(found["spec"][place])) == run.spec
        assert (found["key"][place], found["seed"][place]) == (run.key, run.spec["seed"])
        for name, value in run.metrics.items():
            assert np.array_equal(found[f"metric_{name}"][place], value, equal_nan=True)


def test_parquet_has_a_row_for_each_run(
    cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path
) -> None:
    file = tmp_path / "runs.parquet"
    assert cli("export", "parquet", file, "--store", store).status == 0
    rows = parquet.read_table(file).to_pylist()
    assert [row["key"] for row in rows] == [run.key for run in runs]
    for row, run in zip(rows, runs, strict=True):
        assert np.array_equal(row["matrix"], np.array(run.matrix), equal_nan=True)
        assert row["initial"] == list(run.initial)
        assert json.loads(row["spec"]) == run.spec
        assert (row["seed"], row["status"], row["diverged_at"]) == (run.spec["seed"], run.status, run.diverged_at)
        assert all(same(value, row[name]) for name, value in run.metrics.items())


def test_tensorboard_shows_the_curves(
    cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "board"
    ended = cli("export", "tensorboard", folder, "--store", store)
    assert ended == Ended(0, f"{folder}: 6 runs written, 0 were there already.\n", "")
    found = {path.parent.name[-8:]: path.parent for path in folder.rglob("events*")}
    assert len(found) == 6
    for run in runs:
        board = EventAccumulator(str(found[run.key[:8]]), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
        board.Reload()
        for task in range(len(run.initial)):
            measured = enumerate((run.initial[task], *(row[task] for row in run.matrix)))
            ours = {after: np.float32(value) for after, value in measured if not math.isnan(value)}
            assert {e.step: np.float32(e.value) for e in board.Scalars(f"accuracy/task {task + 1}")} == ours
        for name, value in run.metrics.items():
            if not math.isnan(value):
                assert [np.float32(e.value) for e in board.Scalars(f"metric/{name}")] == [np.float32(value)]
        (spec,) = board.Tensors("spec/text_summary")
        assert json.loads(spec.tensor_proto.string_val[0]) == run.spec
        (matrix,) = board.Tensors("accuracy matrix/text_summary")
        assert repr(run.initial[0]) in matrix.tensor_proto.string_val[0].decode()
        assert len(board.Images("dreams") if "dreams" in board.Tags()["images"] else []) == 5 * bool(run.kept)
        assert "_hparams_/session_start_info" in board.summary_metadata


def test_tensorboard_adds_what_is_new(store: Path, runs: list[Record], tmp_path: Path) -> None:
    folder = tmp_path / "board"
    assert threefold.export.to_tensorboard(runs[:2], folder) == 2
    (folder / "mine.txt").write_text("stays")
    before = contents(folder)
    assert threefold.export.to_tensorboard(runs, folder) == 4
    after = contents(folder)
    assert before.items() <= after.items()
    assert threefold.export.to_tensorboard(runs, folder) == 0
    assert contents(folder) == after
    assert [path.name for path in tmp_path.iterdir()] == ["board"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_replaced_whole_or_not_at_all(
    kind: str, runs: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"runs.{kind}"
    threefold.export.to_file(kind, runs[:2], file)
    before = file.read_bytes()

    def fails(runs: object, stream: BinaryIO) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        known = threefold.export.FILES[kind]
        patch.setattr(threefold.export, "FILES", {kind: known._replace(write=fails)})
        with pytest.raises(threefold.ThreefoldError, match=r"'.*runs.*' cannot be written \(No space left on device\)"):
            threefold.export.to_file(kind, runs, file)
    assert contents(tmp_path) == {file.name: before}
    threefold.export.to_file(kind, runs, file)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert file.read_bytes() != before


OTHERS = {  # what was typed: why it is refused
    ("csv", "a.db"): "is the store itself; give another file.",
    ("csv", "../here/a.db"): "is the store itself",
    ("npz", "link.npz"): "is the store itself",
    ("parquet", "hard.parquet"): "is the store itself",
    ("rows", "link.jsonl"): "is the store itself",
    ("csv", "other.csv"): "is there already, and no earlier output of this kind; give a name that is not in use.",
    ("csv", "mine.toml"): "no earlier output of this kind",
    ("csv", "to_toml.csv"): "no earlier output of this kind",
    ("csv", "notes.txt"): "no earlier output of this kind",
    ("csv", "data.npz"): "no earlier output of this kind",
    ("csv", "report.csv"): "no earlier output of this kind",
    ("npz", "data.npz"): "no earlier output of this kind",
    ("npz", "notes.txt"): "no earlier output of this kind",
    ("parquet", "Makefile"): "no earlier output of this kind",
    ("parquet", "mine.parquet"): "no earlier output of this kind",
    ("rows", "mine.jsonl"): "no earlier output of this kind",
    ("rows", "mine.jsonl.gz"): "no earlier output of this kind",
}


@pytest.mark.parametrize(("words", "why"), OTHERS.items(), ids=map(" ".join, OTHERS))
def test_nothing_but_an_earlier_export_is_replaced(
    cli: Callable[..., Ended],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, str],
    why: str,
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("a.db", "other.csv"):
        shutil.copy(store, name)
    for name in ("link.npz", "link.jsonl"):
        Path(name).symlink_to("a.db")
    Path("hard.parquet").hardlink_to("a.db")
    for name in ("mine.toml", "Makefile"):
        Path(name).write_text("mine")
    Path("to_toml.csv").symlink_to("mine.toml")
    for name in ("notes.txt", "mine.jsonl", "report.csv"):
        Path(name).write_text('{"experiment": "stream,mine"}\n')
    Path("mine.jsonl.gz").write_bytes(gzip.compress(b"mine"))
    parquet.write_table(pa.table({"key": [1]}), "mine.parquet")
    write_npz(Path("data.npz"))
    before = contents(folder)
    ended = cli("export", *words, "--store", "a.db")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"threefold: file '{words[1]}' is ")
    assert why in ended.err
    assert ended.err.count("\n") == 1
    assert contents(folder) == before


def test_an_earlier_export_and_an_empty_file_are_replaced(
    cli: Callable[..., Ended], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("csv", "A"), ("npz", "a.txt"), ("parquet", "b"), ("rows", "a.jsonl"), ("rows", "a.jsonl.gz")):
        Path(words[1]).touch()  # as mktemp makes them
        for _ in range(2):
            assert cli("export", *words, "--store", store) == Ended(0, f"{words[1]}: 6 runs.\n", "")


@pytest.mark.parametrize(("kind", "file"), [("csv", "runs.csv"), ("rows", "runs.jsonl")])
def test_text_can_be_piped(
    cli: Callable[..., Ended], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = cli("export", kind, "-", "--store", store)
    assert contents(tmp_path) == {}
    assert cli("export", kind, file, "--store", store).status == 0
    assert ended == Ended(0, Path(file).read_text(encoding="utf-8"), "")


def test_half_a_board_leaves_nothing(runs: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threefold.export import tensorboard

    write, written = tensorboard.write, []

    def fails(run: Record, folder: Path) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(folder)
        write(run, folder)

    monkeypatch.setattr(tensorboard, "write", fails)
    with pytest.raises(threefold.ThreefoldError, match="No space left"):
        threefold.export.to_tensorboard(runs, tmp_path / "board")
    assert len(written) == 2
    assert contents(tmp_path) == {}


def test_a_board_on_a_full_disk_is_one_sentence(
    runs: list[Record], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a limit on the size of files: no thread of another package may print a traceback of its own."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        with pytest.raises(
            threefold.ThreefoldError, match=r"board' cannot be written \(File too large\); give a place"
        ):
            threefold.export.to_tensorboard(runs, tmp_path / "board")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capfd.readouterr() == ("", "")
    assert contents(tmp_path) == {}


def test_what_a_killed_export_left_goes_with_the_next(runs: list[Record], tmp_path: Path) -> None:
    from threefold.export import tensorboard

    child = os.fork()
    if child == 0:
        tensorboard.write = lambda run, folder: (folder.mkdir(parents=True), os.kill(os.getpid(), signal.SIGKILL))
        threefold.export.to_tensorboard(runs, tmp_path / "board")
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(contents(tmp_path)) > 0
    assert threefold.export.to_tensorboard(runs, tmp_path / "board") == 6
    assert [path.name for path in tmp_path.iterdir()] == ["board"]


def test_nothing_in_a_table_is_a_formula(tmp_path: Path, runs: list[Record]) -> None:
    """Neither a value nor the name of a column, for a spreadsheet would run it."""
    evil = ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\r\n=2", "\n=3"]
    spec = runs[0].spec | {
        "method": {"name": evil[0], "hyperparameters": {}},
        "training": {each: each for each in evil},
    }
    run = Record(**{field.name: getattr(runs[0], field.name) for field in fields(Record)} | {"spec": spec})
    threefold.export.to_file("csv", [run], tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(newline="", encoding="utf-8") as opened:
        names, *rows = csv.reader(opened)
    quoted = [
        "'" + each.replace("\r\n", "\n").replace("\r", "\n") for each in evil
    ]  # Python's reader and others differ on \r alone
    assert set(quoted) <= set(names)
    for row in (names, *rows):
        texts = [cell for cell in row if not re.fullmatch(r"-?[\d.e+-]+", cell) or cell in evil]
        assert [cell for cell in texts if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))] == []
    assert rows[0][names.index(quoted[0])] == quoted[0]
    assert {row[names.index("method")] for row in rows} == {quoted[0]}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("csv", "."), "file '.' is a folder; give a file."),
        (("npz", "/dev/null"), "file '/dev/null' is a device or pipe; give a file, which is written whole."),
        (("csv", "/dev/null"), "file '/dev/null' is a device or pipe; give a file, which is written whole."),
        (("npz", "-"), "file is '-', but npz is no text for standard output; give a file."),
        (("parquet", "-"), "file is '-', but parquet is no text for standard output; give a file."),
        (("tensorboard", "-"), "folder is '-', but TensorBoard reads files; give a folder."),
        (("parquet", "none/such"), "'none/such' cannot be written (No such file or directory); give a place in a"),
        (("tensorboard", "file"), "folder 'file' is a file; give a folder, or a name that is not in use."),
        (("csv",), "file is missing: File to write"),
        (("cvs", "x"), "command 'cvs' is not known; did you mean 'csv'?"),
    ],
)
def test_a_bad_place_is_one_sentence(
    cli: Callable[..., Ended],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    ended = cli("export", *words, *(["--store", store] if len(words) > 1 and words[0] != "cvs" else []))
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"threefold: {sentence}")
    assert ended.err.count("\n") == 1
    assert contents(tmp_path) == {"file": b""}


def test_a_store_without_runs_makes_no_file(cli: Callable[..., Ended], tmp_path: Path) -> None:
    Store(tmp_path / "empty.db").close()
    ended = cli("export", "csv", tmp_path / "out.csv", "--store", tmp_path / "empty.db")
    assert ended.status == 2
    assert "holds no runs" in ended.err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(("kind", "module"), [("tensorboard", "tensorboard"), ("parquet", "pyarrow")])
def test_a_missing_extra_is_named(
    cli: Callable[..., Ended],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    module: str,
) -> None:
    monkeypatch.setattr("threefold.extras.find_spec", lambda name: None if name == module else True)
    ended = cli("export", kind, tmp_path / "out", "--store", store)
    assert ended.status == 2
    assert ended.err == (
        f"threefold: export {kind} needs {module}, which is not installed; install it with: pip install"
        f" 'threefold[{kind}]'\n"
    )
    assert contents(tmp_path) == {}
