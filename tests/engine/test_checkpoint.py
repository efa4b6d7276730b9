"""Training killed at any point: the same call continues, and its result is bit for bit that of an uninterrupted run."""

import errno
import os
from pathlib import Path

import pytest
import torch
from interrupted_runs import CPU, RUN, SEEDS, Importance, interrupted, resumed, same
from tiny_cohorts import SCENARIOS, Killed, cohort, furthest, killed_in, watched

from threefold.engine import Checkpoint
from threefold.errors import ThreefoldError


@pytest.fixture(scope="module")
def undisturbed():
    return watched("split", "class", SEEDS, **RUN)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "cohort.pt"


# going on


@pytest.mark.parametrize("task", [1, 2])
def test_a_resumed_run_ends_where_an_undisturbed_one_ends(path, undisturbed, task):
    interrupted(path, task)
    tasks = []
    again = resumed(path, report=lambda progress: tasks.append(progress.task))
    assert set(tasks) == set(range(task, 3))  # finished tasks are not trained again
    same(again, undisturbed)


def test_a_run_may_be_interrupted_again_and_again(path, undisturbed):
    for task in (0, 1, 1, 2, 2):
        interrupted(path, task)
    same(resumed(path), undisturbed)


def test_a_task_that_is_not_finished_leaves_no_trace(path, undisturbed):
    with pytest.raises(Killed):
        cohort("split", "class", SEEDS, checkpoint=path, report=killed_in(1, step=12 + 10), **RUN)
    same(resumed(path), undisturbed)


@pytest.mark.parametrize("kind", ["split", "permuted"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_offline_resumes_too(path, kind, scenario):
    run = {"method": "offline", "iters": 5}
    with pytest.raises(Killed):
        cohort(kind, scenario, SEEDS, checkpoint=path, report=killed_in(2), **run)
    same(watched(kind, scenario, SEEDS, checkpoint=path, **run), watched(kind, scenario, SEEDS, **run))


def test_what_a_method_remembers_is_kept(path):
    run = {"method": Importance()}
    interrupted(path, 2, **run)
    held = watched("split", "class", SEEDS, **(RUN | run))
    same(resumed(path, **run), held)
    assert furthest(held.weights[-1], watched("split", "class", SEEDS, **RUN).weights[-1]) > 1e-4


def test_a_checkpoint_file_is_whole_and_alone(path):
    interrupted(path)
    assert os.listdir(path.parent) == ["cohort.pt"]
    Checkpoint(path).discard()
    Checkpoint(path).discard()  # no complaint about what is gone
    assert not path.parent.exists()  # nor the folder, once it is empty
    assert Checkpoint(path).load(CPU) is None


# no place to write


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file" / "cohort.pt"
    with pytest.raises(ThreefoldError, match="cannot be written") as info:
        cohort("split", "class", SEEDS, checkpoint=path, iters=2)
    assert str(path) in str(info.value)
    assert os.listdir(tmp_path) == ["file"]


def full_disk(error):
    def save(state, file):
        file.write_bytes(b"the first bytes")
        raise error

    return save


FULL = {
    "torch says": RuntimeError("PytorchStreamWriter failed writing file data/1: file write failed"),
    "the system says": OSError(errno.ENOSPC, "No space left on device"),
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL)
def test_a_full_disk_leaves_the_last_checkpoint_and_nothing_else(path, undisturbed, monkeypatch, error):
    interrupted(path, 1)
    whole = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full_disk(error))
        with pytest.raises(ThreefoldError, match="cannot be written") as info:
            resumed(path)
    assert str(path) in str(info.value)
    assert str(error) in str(info.value)
    assert os.listdir(path.parent) == ["cohort.pt"]
    assert path.read_bytes() == whole
    same(resumed(path), undisturbed)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_late_leaves_the_last_checkpoint_too(path, monkeypatch, call):
    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    interrupted(path, 1)
    whole = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), fail)
        with pytest.raises(ThreefoldError, match="Input/output error"):
            resumed(path)
    assert os.listdir(path.parent) == ["cohort.pt"]
    assert path.read_bytes() == whole


def test_a_batch_larger_than_a_task_is_refused_before_anything_is_written(path):
    with pytest.raises(ThreefoldError, match=r"batch must be at most .* got 500"):
        cohort("split", "class", SEEDS, checkpoint=path, batch=500)
    assert not path.parent.exists()
