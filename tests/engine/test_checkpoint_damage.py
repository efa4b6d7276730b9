"""A damaged checkpoint is renamed and never used; an intact one that cannot be read now is kept."""

import errno
import os
import pickle
import re
import zipfile
from functools import partial
from io import BytesIO
from pathlib import Path
from zlib import crc32

import pytest
import torch
from interrupted_runs import CPU, RUN, SEEDS, Importance, interrupted, resumed, same
from tiny_cohorts import same_bits, watched
from torch.utils._pytree import tree_map_only

from threefold.engine import Checkpoint, Evaluation, checkpoint
from threefold.errors import ThreefoldError


@pytest.fixture(scope="module")
def undisturbed():
    return watched("split", "class", SEEDS, **RUN)


@pytest.fixture(scope="module")
def half_way(tmp_path_factory):
    """What a run leaves that is interrupted in its third task."""
    path = tmp_path_factory.mktemp("interrupted") / "cohort.pt"
    interrupted(path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "cohort.pt"


@pytest.fixture
def begun(path, half_way):
    """The same, at its own place."""
    path.parent.mkdir()
    path.write_bytes(half_way)
    return path


# damage


def flipped(content, path):
    """One bit of one weight, in the middle of the tensor's bytes in the file."""
    weights = Checkpoint(path).load(CPU)["stacks"]["trained"][0]["params"]["classifier"][
        "features.layers.0.weighted.weight"
    ]
    where = content.index(weights.numpy().tobytes()) + weights.numel() * 2
    return content[:where] + bytes([content[where] ^ 0x40]) + content[where + 1 :]


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
def test_a_damaged_checkpoint_is_set_aside_and_never_used(begun, undisturbed, damage):
    begun.write_bytes(damage(begun.read_bytes(), begun))
    set_aside(begun, undisturbed)


@pytest.mark.parametrize("content", [{"stack": {}}, [1, 2]], ids=["no format", "a list"])
def test_a_file_that_is_no_checkpoint_is_set_aside(path, undisturbed, content):
    path.parent.mkdir()
    torch.save(content, path)
    set_aside(path, undisturbed)


def test_a_checkpoint_of_another_format_is_set_aside(path, undisturbed, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", -1)
        interrupted(path)
    set_aside(path, undisturbed)


def test_a_checkpoint_never_runs_code(path, undisturbed, monkeypatch):
    Checkpoint(path).save({"stack": Evil()})
    monkeypatch.chdir(path.parent)
    set_aside(path, undisturbed)
    assert not Path("evil-was-here").exists()


class Billion:
    """10¹² bytes, in a line."""

    def __reduce__(self):
        return bytearray, (10**12,)


def test_a_sealed_file_that_is_more_in_memory_than_on_the_disk_is_not_loaded(path, monkeypatch):
    Checkpoint(path).save({"stack": Billion()})
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was loaded"))
        assert Checkpoint(path).load(CPU) is None
    assert path.with_suffix(".damaged").exists()
    torch.save({"stack": torch.zeros(1 << 20)}, buffer := BytesIO())
    packed = BytesIO()
    with zipfile.ZipFile(buffer) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for record in archive.infolist():
            out.writestr(record.filename, archive.read(record))
    sealed(path, packed.getvalue())
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", lambda *_, **__: pytest.fail("it was loaded"))
        assert Checkpoint(path).load(CPU) is None


def test_a_damaged_file_that_cannot_be_set_aside_is_a_sentence(path, monkeypatch):
    def fail(*args):
        raise OSError(errno.EROFS, "Read-only file system")

    path.parent.mkdir()
    path.write_bytes(b"garbage")
    monkeypatch.setattr(Path, "replace", fail)
    for read in (Checkpoint(path).content, lambda: Checkpoint(path).load(CPU)):
        with pytest.raises(ThreefoldError, match=r"is damaged, and cannot be set aside \(.*Read-only file system\)"):
            read()
    assert path.read_bytes() == b"garbage"


def test_where_a_damaged_file_went_is_said(path):
    path.parent.mkdir()
    path.write_bytes(b"garbage")
    subject = Checkpoint(path)
    assert subject.load(CPU) is None
    assert subject.set_aside == path.with_suffix(".damaged")
    assert subject.set_aside.read_bytes() == b"garbage"
    assert not path.exists()


def sealed(path, content):
    """Any bytes, with the right seal."""
    subject = Checkpoint(path)
    subject.keep(content + subject._seal(crc32(content)))


UNPACKABLE = {
    "nothing": b"",
    "text": b"hello",
    "a pickle of a list": pickle.dumps([1, 2]),
    "a pickle of a function": pickle.dumps(os.getcwd),
    "half a pickle": pickle.dumps({"finished": 1, "stacks": list(range(1000))})[:900],
    "brackets": b"(" * 100_000,
    "an archive of something else": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("content", UNPACKABLE.values(), ids=UNPACKABLE)
def test_sealed_bytes_that_are_no_state_are_set_aside(path, undisturbed, content):
    sealed(path, content)
    set_aside(path, undisturbed)


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


def first_stack(state, **changes):
    trained = state["stacks"]["trained"]
    return state | {"stacks": state["stacks"] | {"trained": [trained[0] | changes]}}


def first_measured(state, **changes):
    return state | {"measured": [state["measured"][0] | changes]}


def shorter(tree):
    return tree_map_only(torch.Tensor, lambda leaf: leaf[..., :-1].clone() if leaf.ndim > 1 else leaf, tree)


WRONG = {
    "empty": lambda state: {},
    "a list": lambda state: [state],
    "a tensor": lambda state: torch.zeros(3),
    **{f"without {name}": partial(without, name=name) for name in ("stacks", "measured", "finished", "seconds")},
    **{
        f"{name} is {value!r}": partial(lambda state, name, value: state | {name: value}, name=name, value=value)
        for name, value in [
            ("finished", 0),
            ("finished", 3),
            ("finished", -1),
            ("finished", 1.0),
            ("finished", None),
            ("seconds", {}),
            ("seconds", {"train": "long", "consolidate": 0.0, "evaluate": 0.0}),
            ("measured", []),
            ("measured", {}),
            ("stacks", {}),
            ("stacks", {"trained": [], "evaluated": []}),
            ("stacks", 7),
        ]
    },
    "two stacks": lambda state: state | {"stacks": state["stacks"] | {"trained": state["stacks"]["trained"] * 2}},
    "other shapes": lambda state: first_stack(state, params=shorter(state["stacks"]["trained"][0]["params"])),
    "other numbers": lambda state: first_stack(
        state, params=tree_map_only(torch.Tensor, torch.Tensor.double, state["stacks"]["trained"][0]["params"])
    ),
    "no tensors": lambda state: first_stack(
        state, params=tree_map_only(torch.Tensor, lambda leaf: 1, state["stacks"]["trained"][0]["params"])
    ),
    "another optimizer": lambda state: first_stack(state, optimizer={"means": []}),
    "no memory": lambda state: first_stack(state, memory=None),
    "another method's memory": lambda state: first_stack(state, memory={"ewc": {}}),
    "other replicas": lambda state: first_measured(state, initial=state["measured"][0]["initial"][:2]),
    "something kept of too few tasks": lambda state: first_measured(state, kept=[]),
    "something kept that is no tensor": lambda state: first_measured(state, kept=[{"dreams": 3}] * 2),
    "no accuracies": lambda state: first_measured(state, matrix=None),
    "too few divergences": lambda state: first_measured(state, diverged_at=[None]),
    "measured something else": lambda state: state | {"measured": [{"initial": 3}]},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_sealed_state_that_does_not_fit_is_set_aside(begun, undisturbed, wrong):
    Checkpoint(begun).save(wrong(Checkpoint(begun).load(CPU)))
    set_aside(begun, undisturbed)


TESTED = {"evaluation": Evaluation(5, training=True)}


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """What a run leaves that is interrupted and was tested during training, and the same run undisturbed."""
    path = tmp_path_factory.mktemp("tested") / "cohort.pt"
    interrupted(path, **TESTED)
    return path.read_bytes(), watched("split", "class", SEEDS, **RUN, **TESTED).measured


WRONG_CURVES = {
    "no curves": {"curves": {}},
    "no points": {"points": []},
    "curves that are a list": {"curves": [3]},
    "points that are a number": {"points": 7},
    "points of two numbers": {"points": [[0, 0]] * 7},
    "points of text": {"points": [["0", 0, 1]] * 7},
    "another number of points": {"points": [[0, 0, 1]]},
    "other replicas": {"curves": lambda curves: {name: each[:, :2] for name, each in curves.items()}},
    "other tasks": {"curves": lambda curves: curves | {"accuracy": curves["accuracy"][..., :2]}},
    "no loss": {"curves": lambda curves: without(curves, "loss")},
    "curves of whole numbers": {"curves": lambda curves: curves | {"accuracy": curves["accuracy"].long()}},
}


@pytest.mark.parametrize("wrong", WRONG_CURVES.values(), ids=WRONG_CURVES)
def test_tests_during_training_that_do_not_fit_are_set_aside(path, tested, wrong):
    content, undisturbed = tested
    path.parent.mkdir()
    path.write_bytes(content)
    state = Checkpoint(path).load(CPU)
    assert len(state["measured"][0]["points"]) == 7
    changes = {name: value(state["measured"][0][name]) if callable(value) else value for name, value in wrong.items()}
    Checkpoint(path).save(first_measured(state, **changes))
    again = resumed(path, **TESTED).measured
    assert path.with_suffix(".damaged").exists()
    assert again.points == undisturbed.points
    assert same_bits(again.curves, undisturbed.curves)


def test_curves_that_nobody_asked_for_are_set_aside(begun, undisturbed):
    state = Checkpoint(begun).load(CPU)
    Checkpoint(begun).save(first_measured(state, points=[[0, 0, 1]], curves={"accuracy": torch.zeros(1, 3, 3)}))
    set_aside(begun, undisturbed)


@pytest.mark.parametrize("memory", [{"anchor": torch.zeros(2, 3)}, {"anchor": 1.5}, {"anchor": torch.zeros(())}, 7])
def test_a_memory_without_a_row_for_each_replica_is_set_aside(path, memory):
    run = {"method": Importance()}
    interrupted(path, **run)
    state = Checkpoint(path).load(CPU)
    Checkpoint(path).save(first_stack(state, memory={"importance": memory}))
    assert resumed(path, **run).measured is not None
    assert path.with_suffix(".damaged").exists()


def test_the_checkpoint_of_another_cohort_is_set_aside(path, undisturbed):
    """Even if it would fit: its networks had other seeds."""
    other = path.with_name("other.pt")
    interrupted(other, seeds=[7, 8, 9])
    other.rename(path)
    set_aside(path, undisturbed)


# no damage

NO_DAMAGE = {
    "no memory": MemoryError(),
    "no memory, says PyTorch": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 b"
    ),
    "no memory on the GPU": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the manual."),
    "a broken disk": OSError(errno.EIO, "Input/output error"),
}


@pytest.mark.parametrize("where", ["torch.load", "torch.Tensor.to"])
@pytest.mark.parametrize("error", NO_DAMAGE.values(), ids=NO_DAMAGE)
def test_a_good_checkpoint_that_cannot_be_loaded_now_stays(begun, undisturbed, monkeypatch, where, error):
    def fail(*args, **kwargs):
        raise error

    whole = begun.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(where, fail)
        with pytest.raises(ThreefoldError) as info:
            Checkpoint(begun).load(CPU)
    sentence = rf"checkpoint '{begun}' cannot be loaded now \([^\n)]+\); it was not touched; [^\n]*\."
    assert re.fullmatch(sentence, str(info.value))
    assert os.listdir(begun.parent) == ["cohort.pt"]
    assert begun.read_bytes() == whole
    same(resumed(begun), undisturbed)


def test_a_disk_that_fails_while_the_sum_is_taken_is_no_damage(begun, monkeypatch):
    def fail(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint, "_sum", fail)
    for read in (Checkpoint(begun).content, lambda: Checkpoint(begun).load(CPU)):
        with pytest.raises(ThreefoldError, match=r"Input/output error"):
            read()
    assert os.listdir(begun.parent) == ["cohort.pt"]


def test_a_whole_file_is_handed_over_and_a_damaged_one_set_aside(path):
    assert Checkpoint(path).content() is None
    interrupted(path)
    whole = path.read_bytes()
    assert Checkpoint(path).content() == whole
    path.write_bytes(whole[:-1])
    subject = Checkpoint(path)
    assert subject.content() is None
    assert subject.set_aside == path.with_suffix(".damaged")
