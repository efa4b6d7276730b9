"""Kill it anywhere: the same call goes on, and ends bit for bit where an undisturbed run ends."""

import errno
import io
import os
from pathlib import Path

import pytest
import torch
from tiny_cohorts import SCENARIOS, Killed, cohort, furthest, killed_in, same_bits, same_measured, watched

from threefold.engine import Checkpoint, checkpoint
from threefold.errors import ThreefoldError
from threefold.methods import Part

SEEDS = [3, 1, 2]
RUN = {"lr": [1e-2, 3e-3, 1e-2], "iters": 12}
CPU = torch.device("cpu")


def same(one, other):
    assert same_measured(one.measured, other.measured)
    assert same_bits(one.states[-1], other.states[-1])


@pytest.fixture(scope="module")
def undisturbed():
    return watched("split", "class", SEEDS, **RUN)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "cohort.pt"


def interrupted(path, task=2, **also):
    with pytest.raises(Killed):
        cohort("split", "class", SEEDS, checkpoint=path, report=killed_in(task), **(RUN | also))


def resumed(path, **also):
    return watched("split", "class", SEEDS, checkpoint=path, **(RUN | also))


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


class Importance(Part):
    """For this test: a sum that every step writes, an anchor that is consolidated, a penalty made of both."""

    name = "importance"

    def start(self, setting, seed, params):
        return {
            "sum": {name: torch.zeros_like(p) for name, p in params.items()},
            "anchor": {name: p.clone() for name, p in params.items()},
        }

    def after_step(self, learner, step):
        memory = learner.memory[self.name]
        moved = {n: step.gradient[n] * (p - step.before[n]) for n, p in learner.params.items()}
        return {"sum": {n: memory["sum"][n] - moved[n] for n in moved}}

    def penalty(self, learner):
        memory = learner.memory[self.name]
        return sum((memory["sum"][n].abs() * (p - memory["anchor"][n]) ** 2).sum() for n, p in learner.params.items())

    def consolidate(self, stack, memory, task):
        return memory | {"anchor": stack.params["classifier"]}


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


# damage


def flipped(content, path):
    """One bit of one weight, in the middle of the tensor's bytes in the file."""
    weights = Checkpoint(path).load(CPU)["stacks"]["trained"][0]["params"]["classifier"][
        "features.layers.0.weighted.weight"
    ]
    where = content.index(weights.numpy().tobytes()) + weights.numel() * 2
    return content[:where] + bytes([content[where] ^ 0x40]) + content[where + 1 :]


def pickled(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil-was-here"),))


DAMAGE = {
    "empty": lambda content, path: b"",
    "cut in half": lambda content, path: content[: len(content) // 2],
    "last byte missing": lambda content, path: content[:-1],
    "garbage": lambda content, path: bytes(range(256)) * 20,
    "garbage of the same length": lambda content, path: b"\n" * len(content),
    "a hole of zeros": lambda content, path: (
        content[: len(content) // 3] + bytes(200) + content[len(content) // 3 + 200 :]
    ),
    "one bit flipped": flipped,
    "no checkpoint": lambda content, path: pickled({"stack": {}}),
    "a list": lambda content, path: pickled([1, 2]),
}


def set_aside(path, undisturbed):
    """The damaged file is set aside, and a run begins anew and ends as it should."""
    damaged = path.read_bytes()
    tasks = []
    again = resumed(path, report=lambda progress: tasks.append(progress.task))
    assert set(tasks) == {0, 1, 2}
    same(again, undisturbed)
    assert path.with_suffix(".damaged").read_bytes() == damaged


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_set_aside_and_never_used(path, undisturbed, damage):
    interrupted(path)
    path.write_bytes(damage(path.read_bytes(), path))
    set_aside(path, undisturbed)


def test_so_is_one_of_another_format(path, undisturbed, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", -1)
        interrupted(path)
    set_aside(path, undisturbed)


def test_a_checkpoint_never_runs_code(path, undisturbed, monkeypatch):
    Checkpoint(path).save({"stack": Evil()})
    monkeypatch.chdir(path.parent)
    set_aside(path, undisturbed)
    assert not Path("evil-was-here").exists()


def test_where_a_damaged_file_went_is_said(path):
    path.parent.mkdir()
    path.write_bytes(b"garbage")
    subject = Checkpoint(path)
    assert subject.load(CPU) is None
    assert subject.set_aside == path.with_suffix(".damaged")
    assert subject.set_aside.read_bytes() == b"garbage"
    assert not path.exists()


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
