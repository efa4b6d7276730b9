"""Accuracies during training, in every export format, against the store."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_sections import a_cell, a_result, stream
from fake_training import a_tested_result
from pyarrow import parquet
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_lab import Ended, contents

from threefold.results import Record, Store, pack, unpack

POINTS = ["in_task", "step", "steps_so_far", "tasks_so_far"]


def with_training(record: Record) -> Record:
    """The same run, of which the accuracy on training data and the loss were kept, too."""
    accuracy = unpack(record.curves["accuracy"])
    more = {"training accuracy": pack(accuracy / 2), "loss": pack(np.arange(len(accuracy), dtype=np.float32))}
    return replace(record, curves=dict(record.curves) | more)


@pytest.fixture(scope="module")
def runs() -> list[Record]:
    """With ends and without, one that diverged in its third task, one with losses, one that nobody tested."""
    ended = a_tested_result("class", "ewc", 30.0, iters=20, every=10, first=2, seeds=2, diverged=[2]).records
    flow = a_tested_result("class", "none", 30.0, iters=20, every=5, seeds=2, boundaries="blurred:width=5").records
    other = a_result(a_cell(stream("permuted-mnist"), "domain", "none"), 70.0, seeds=1).records
    return [*ended, with_training(flow[0]), flow[1], *other]


@pytest.fixture(scope="module")
def store(runs: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "some.db"
    with Store(path) as opened:
        opened.add(runs)
    return path


def points(run: Record) -> list[tuple[int, int, int, int, list[float]]]:
    """By hand: task, step, steps so far, tasks so far and accuracies at each point while all was finite."""
    if not run.curves:
        return []
    rows = unpack(run.curves["points"]).tolist()
    length = {task: max(step for own, step, _ in rows if own == task) for task, _, _ in rows}
    last = len(run.matrix) if run.diverged_at is None else run.diverged_at
    accuracy = unpack(run.curves["accuracy"]).astype(float).tolist()
    return [
        (task + 1, step, sum(length[earlier] for earlier in range(task)) + step, come, found)
        for (task, step, come), found in zip(rows, accuracy, strict=True)
        if task < last
    ]


def test_the_runs_are_what_they_are_meant_to_be(runs: list[Record]) -> None:
    assert [run.diverged_at for run in runs] == [None, 1, None, None, None]
    assert [len(points(run)) for run in runs] == [21, 5, 21, 21, 0]
    assert {come for *_, come, _ in points(runs[2])} == {1, 2, 3, 4, 5}


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv(cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    assert cli("export", "curves", file, "--store", store) == Ended(0, f"{file}: 5 runs.\n", "")
    assert cli("export", "curves", "-", "--store", store).out == file.read_text()
    assert cli("export", "curves", file, "--store", store).status == 0, "an earlier one is replaced"
    rows = read(file.read_text())
    assert len(rows) == sum(5 * len(points(run)) for run in runs)
    by_place = {(row["key"], int(row["steps_so_far"]), int(row["task"])): row for row in rows}
    for run in runs:
        for place, (*where, accuracies) in enumerate(points(run)):
            for task, accuracy in enumerate(accuracies, start=1):
                row = by_place[run.key, where[2], task]
                assert [int(row[name]) for name in POINTS] == where
                assert float(row["accuracy"]) == accuracy
                lost = run is runs[2]
                assert row["training_accuracy"] == (str(np.float64(np.float32(accuracy) / 2)) if lost else "")
                assert row["loss"] == (f"{float(place)}" if lost else "")
                about = (run.spec["method"]["name"], run.spec["scenario"]["name"], str(run.spec["seed"]))
                assert (row["method"], row["scenario"], row["seed"]) == about


def test_a_store_without_curves_is_refused_in_a_sentence(cli: Callable[..., Ended], tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as opened:
        opened.add(a_result(a_cell(stream(), "task", "none"), 80.0, seeds=1).records)
    before = contents(tmp_path)
    ended = cli("export", "curves", tmp_path / "out.csv", "--store", tmp_path / "a.db")
    said = "threefold: no run was tested during training; give runs that were trained with --evaluate-every.\n"
    assert (ended.status, ended.err) == (2, said)
    assert contents(tmp_path) == before


def test_npz(cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path) -> None:
    assert cli("export", "npz", tmp_path / "runs", "--store", store).status == 0
    with np.load(tmp_path / "runs", allow_pickle=False) as archive:
        found = {name: archive[name] for name in archive.files}
    order = {key: place for place, key in enumerate(found["key"].tolist())}
    assert found["curve_accuracy"].shape == (5, 21, 10)
    for run in runs:
        place, wanted = order[run.key], points(run)
        for column, name in enumerate(POINTS):
            own = found[f"curve_{name}"][place]
            assert own.dtype.kind == "i"
            assert own.tolist() == [point[column] for point in wanted] + [-1] * (21 - len(wanted))
        values = found["curve_accuracy"][place]
        assert values[: len(wanted), :5].tolist() == [point[4] for point in wanted]
        assert np.isnan(values[len(wanted) :]).all()
        assert np.isnan(values[:, 5:]).all()
        assert np.isnan(found["curve_loss"][place]).all() == (run is not runs[2])
    assert found["curve_loss"][order[runs[2].key]].tolist() == list(range(21))


def test_parquet(cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path) -> None:
    assert cli("export", "parquet", tmp_path / "runs", "--store", store).status == 0
    by_key = {row["key"]: row for row in parquet.read_table(tmp_path / "runs").to_pylist()}
    for run in runs:
        row, wanted = by_key[run.key], points(run)
        for column, name in enumerate([*POINTS, "accuracy"]):
            assert row[f"curve_{name}"] == ([point[column] for point in wanted] if run.curves else None)
        assert row["curve_loss"] == (list(range(21)) if run is runs[2] else None)


def test_tensorboard(cli: Callable[..., Ended], store: Path, runs: list[Record], tmp_path: Path) -> None:
    assert cli("export", "tensorboard", tmp_path / "board", "--store", store).status == 0
    folders = {path.parent.name[-8:]: path.parent for path in (tmp_path / "board").rglob("events*")}
    for run in runs:
        board = EventAccumulator(str(folders[run.key[:8]]), size_guidance={"scalars": 0})
        board.Reload()
        tags = [tag for tag in board.Tags()["scalars"] if "during" in tag or "training" in tag]
        if not run.curves:
            assert tags == []
            continue
        for task in range(5):
            shown = {e.step: np.float32(e.value) for e in board.Scalars(f"accuracy during training/task {task + 1}")}
            assert shown == {point[2]: np.float32(point[4][task]) for point in points(run)}
        assert ("training loss" in tags) == ("training accuracy/task 3" in tags) == (run is runs[2])


def test_without_curves_nothing_is_added(cli: Callable[..., Ended], tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as opened:
        opened.add(a_result(a_cell(stream(), "task", "none"), 80.0, seeds=2).records)
    assert cli("export", "npz", tmp_path / "a.npz", "--store", tmp_path / "a.db").status == 0
    with np.load(tmp_path / "a.npz") as archive:
        assert not any(name.startswith("curve_") for name in archive.files)


def test_a_curve_ends_where_its_run_diverged(runs: list[Record]) -> None:
    """Without ends, too: what was tested up to the last row that was measured."""
    curve = runs[1].curve
    assert curve is not None
    assert curve.task.max() == 0
    blurred = a_tested_result("class", "none", 30.0, iters=20, every=5, seeds=2, boundaries="none", diverged=[1])
    flow = blurred.records[0]
    assert flow.curve is not None
    rows = flow.diverged_at
    assert rows
    assert flow.curve.step.tolist() == [0, *range(5, 20 * rows + 1, 5)]
    assert all(math.isnan(value) for value in flow.metrics.values())
