"""Datasets of the user's own, from arrays and from .npz files: what is taken, and every way to be wrong."""

import os
import pickle
import resource
import sys
import zipfile

import numpy as np
import pytest
import torch

from threefold.data import Dataset, joined, load
from threefold.errors import ThreefoldError


def sound(**changes):
    arrays = {
        "train_x": np.linspace(-1, 1, 60, dtype=np.float32).reshape(6, 2, 5),
        "train_y": np.array([0, 1, 2, 0, 1, 2]),
        "test_x": np.linspace(0, 2, 30, dtype=np.float32).reshape(3, 2, 5),
        "test_y": np.array([2, 1, 0]),
    }
    return {**arrays, **changes}


def with_value(value):
    x = sound()["train_x"].astype(np.float64)
    x[4, 1, 2] = value
    return x


TRAIN = sound()["train_x"]

WRONG = {
    "inputs of one dimension": ({"train_x": np.zeros(6)}, r"train_x has shape \(6,\); it must have at least two dim"),
    "inputs of no dimension": ({"test_x": np.array(1.0)}, r"test_x has shape \(\); it must have at least two dim"),
    "labels of two dimensions": (
        {"train_y": np.eye(6, dtype=int)},
        r"train_y has shape \(6, 6\); labels must have one",
    ),
    "fewer labels": ({"train_y": np.array([0, 1, 2])}, "train_x has 6 samples but train_y has 3 labels"),
    "more test labels": ({"test_y": np.array([0, 1, 2, 2])}, "test_x has 3 samples but test_y has 4 labels"),
    "shapes that differ": (
        {"test_x": np.zeros((3, 10), np.float32)},
        r"test_x has samples of shape \(10,\); they must have train_x's shape, \(2, 5\)",
    ),
    "float labels": ({"train_y": np.array([0.0, 1, 2, 0, 1, 2])}, "train_y has dtype float64; labels must be integers"),
    "boolean labels": ({"test_y": np.array([True, False, True])}, "test_y has dtype bool; labels must be integers"),
    "text labels": ({"test_y": np.array(["a", "b", "c"])}, "test_y has dtype <U1; labels must be integers"),
    "labels from 1": (
        {"train_y": np.array([1, 2, 3, 1, 2, 3]), "test_y": np.array([1, 2, 3])},
        "hold 3 different labels up to 3 but not 0; labels must be 0…C−1 with none left out",
    ),
    "a negative label": (
        {"train_y": np.array([0, 1, 2, 0, 1, -1])},
        "train_y holds the label -1; labels must be 0…C−1",
    ),
    "a gap in the labels": (
        {"train_y": np.array([0, 1, 3, 0, 1, 3]), "test_y": np.array([0, 1, 3])},
        "hold 3 different labels up to 3 but not 2",
    ),
    "an enormous label": (
        {"train_y": np.array([0, 1, 2, 0, 1, 10**18])},
        "train_y holds the label 1000000000000000000",
    ),
    "a label beyond int64": (
        {"test_y": np.array([0, 1, 2**64 - 1], dtype=np.uint64)},
        "test_y holds the label 18446744073709551615",
    ),
    "no training samples": ({"train_y": np.array([0, 1, 0, 0, 1, 0])}, "train_y has no training samples of class 2"),
    "no test samples": ({"test_y": np.array([2, 2, 0])}, "test_y has no test samples of class 1"),
    "NaN": (
        {"train_x": with_value(np.nan)},
        "train_x holds a value that is NaN, .* in sample 4; every value must be fin",
    ),
    "infinity": ({"train_x": with_value(-np.inf)}, "train_x holds a value that is NaN, infinite .* in sample 4"),
    "too large": ({"train_x": with_value(1e300)}, "train_x holds .* too large for float32 in sample 4"),
    "no samples": ({"train_x": np.zeros((0, 2, 5))}, r"train_x has shape \(0, 2, 5\) and is empty"),
    "no features": ({"test_x": np.zeros((3, 0))}, r"test_x has shape \(3, 0\) and is empty"),
    "no labels": ({"test_y": np.zeros(0, int)}, "test_y is empty"),
    "integer inputs": (
        {"train_x": TRAIN.astype(np.int64)},
        r"train_x has dtype int64; it must be uint8 \(divided by 255",
    ),
    "boolean inputs": ({"train_x": TRAIN > 0}, "train_x has dtype bool; it must be uint8"),
    "complex inputs": ({"test_x": np.zeros((3, 2, 5), complex)}, "test_x has dtype complex128"),
    "bytes to train and floats to test": (
        {"train_x": TRAIN.astype(np.uint8)},
        r"test_x has dtype float32 but train_x has uint8; both must be uint8 \(divided by 255\), or both floating",
    ),
    "floats to train and bytes to test": (
        {"test_x": np.zeros((3, 2, 5), np.uint8)},
        "test_x has dtype uint8 but train_x has float32; both must be uint8",
    ),
    "text inputs": ({"test_x": np.full((3, 2, 5), "a")}, "test_x has dtype <U1"),
}

WRONG_IN_PYTHON = {
    "a list": ({"train_x": [[0.0, 1.0]]}, "train_x is of type list; it must be a numpy array or a torch tensor"),
    "objects": ({"train_x": TRAIN.astype(object)}, "train_x has dtype object"),
    "a boolean tensor": (
        {"test_y": torch.tensor([True, False, True])},
        "test_y has dtype bool; labels must be integers",
    ),
    "a tensor of bytes and an array of floats": (
        {"train_x": torch.zeros(6, 2, 5, dtype=torch.uint8)},
        "test_x has dtype float32 but train_x has uint8; both must be uint8",
    ),
    "NaN in a tensor": ({"train_x": torch.from_numpy(with_value(np.nan))}, "in sample 4"),
}


def table(rows):
    return pytest.mark.parametrize(("changes", "message"), rows.values(), ids=rows.keys())


@table({**WRONG, **WRONG_IN_PYTHON})
def test_wrong_arrays(changes, message):
    with pytest.raises(ThreefoldError, match=message) as raised:
        Dataset.from_arrays(**sound(**changes))
    assert str(raised.value).endswith(".")
    assert "\n" not in str(raised.value)


@table(WRONG)
def test_wrong_arrays_in_a_file(tmp_path, changes, message):
    file = tmp_path / "own.npz"
    np.savez(file, **sound(**changes))
    with pytest.raises(ThreefoldError, match=f"data file '{file}': .*{message}"):
        load(file)


def test_floats_are_taken_as_they_are():
    data = Dataset.from_arrays(**sound(), name="own")
    assert (data.name, data.classes, data.shape) == ("own", 3, (2, 5))
    assert data.train_x.dtype == data.test_x.dtype == torch.float32
    assert data.train_y.dtype == data.test_y.dtype == torch.int64
    assert torch.equal(data.train_x, torch.from_numpy(TRAIN))
    assert data.test_y.tolist() == [2, 1, 0]
    assert repr(data) == "Dataset('own', 6 + 3 samples of 2×5, 3 classes)"


def test_bytes_become_shares_of_255():
    x = np.arange(256, dtype=np.uint8).reshape(256, 1)
    y = np.zeros(256, np.uint8)
    data = Dataset.from_arrays(x, y, x, y)
    assert data.classes == 1
    assert torch.equal(data.train_x, torch.arange(256.0).reshape(256, 1) / 255)


def test_the_users_arrays_may_change_afterwards():
    given = sound()
    data = Dataset.from_arrays(**given)
    before = data.train_x.clone()
    given["train_x"][:] = 0
    given["train_y"][:] = 0
    assert torch.equal(data.train_x, before)
    assert data.classes == 3


FORMS = {
    "float64": sound(train_x=TRAIN.astype(np.float64)),
    "Fortran order": sound(train_x=np.asfortranarray(TRAIN)),
    "every second of twice as many": sound(train_x=np.repeat(TRAIN, 2, axis=0)[::2]),
    "big-endian": sound(train_x=TRAIN.astype(">f4"), train_y=sound()["train_y"].astype(">i2")),
    "uint8 labels": sound(test_y=np.array([2, 1, 0], np.uint8)),
    "tensors": {field: torch.from_numpy(array) for field, array in sound().items()},
    "a tensor that is a view": sound(train_x=torch.from_numpy(TRAIN.transpose(2, 0, 1).copy()).permute(1, 2, 0)),
    "a tensor with a gradient": sound(train_x=torch.from_numpy(TRAIN).requires_grad_()),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_the_fingerprint_is_of_the_values(form):
    assert Dataset.from_arrays(**form).fingerprint == Dataset.from_arrays(**sound()).fingerprint


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray, lambda x: x[:, ::-1][:, ::-1]])
def test_the_fingerprint_of_bytes_is_that_of_the_same_floats(layout):
    x = np.arange(60, dtype=np.uint8).reshape(6, 2, 5)
    floats = x.astype(np.float32) / np.float32(255)
    packed = Dataset.from_arrays(**sound(train_x=layout(x), test_x=torch.from_numpy(x[:3])))
    assert packed.train_x.is_contiguous()
    plain = Dataset.from_arrays(**sound(train_x=floats, test_x=floats[:3].astype(np.float64)), name="else")
    assert packed.fingerprint == plain.fingerprint


def test_bfloat16_is_read():
    x = torch.from_numpy(TRAIN).bfloat16()
    assert torch.equal(Dataset.from_arrays(**sound(train_x=x)).train_x, x.float())


def test_another_value_label_or_shape_is_another_fingerprint():
    changed = [
        sound(train_x=with_value(0.5)),
        sound(test_y=np.array([0, 1, 2])),
        sound(train_x=TRAIN.reshape(6, 10), test_x=sound()["test_x"].reshape(3, 10)),
        sound(),
    ]
    prints = [Dataset.from_arrays(**arrays).fingerprint for arrays in changed]
    assert len(set(prints)) == 4
    assert all(len(text) == 64 and set(text) <= set("0123456789abcdef") for text in prints)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file(tmp_path, save):
    save(tmp_path / "own.npz", extra=np.zeros(2), **sound())
    for path in (tmp_path / "own.npz", str(tmp_path / "own.npz")):
        data = load(path)
        assert data.name == "own"
        assert data.fingerprint == Dataset.from_arrays(**sound()).fingerprint


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("an array was unpickled",))


def write_bad(kind, file):
    np.savez(file, **sound())
    whole = file.read_bytes()
    match kind:
        case "text":
            file.write_text("train_x,train_y\n")
        case "empty":
            file.write_bytes(b"")
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "bit":
            place = whole.index(TRAIN.tobytes()) + 3
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        case "npy":
            with file.open("wb") as stream:
                np.save(stream, TRAIN)
        case "pickle":
            file.write_bytes(pickle.dumps(Bomb()))
        case "objects":
            np.savez(file, **sound(train_y=np.array([Bomb()] * 6, dtype=object)))
        case "lacking":
            np.savez(file, train_x=TRAIN, train_y=TRAIN, labels=TRAIN)
        case "nothing":
            with zipfile.ZipFile(file, "w"):
                pass
        case "header":
            with zipfile.ZipFile(file, "w") as archive:
                for field in sound():
                    archive.writestr(f"{field}.npy", b"\x93NUMPY\x01\x00\x76\x00nonsense")
        case "huge":
            header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000, 8), }"
            with zipfile.ZipFile(file, "w") as archive:
                for field in sound():
                    archive.writestr(
                        f"{field}.npy", b"\x93NUMPY\x01\x00" + bytes([len(header) + 1, 0]) + header + b"\n"
                    )
        case "folder":
            file.unlink()
            file.mkdir()
        case "absent":
            file.unlink()


@pytest.mark.parametrize(
    ("kind", "message"),
    {
        "text": "is not a zip archive, or is cut short",
        "empty": "is not a zip archive, or is cut short",
        "cut": "is not a zip archive, or is cut short",
        "npy": "is not a zip archive, or is cut short",
        "pickle": "is not a zip archive, or is cut short",
        "bit": "is damaged and cannot be read",
        "header": "is damaged and cannot be read",
        "huge": "is damaged and cannot be read",
        "objects": "holds Python objects, which are never loaded",
        "lacking": "lacks test_x, test_y; it has train_x, train_y, labels, and must have",
        "nothing": "lacks train_x, train_y, test_x, test_y; it has no arrays",
        "folder": "is not a file",
        "absent": "does not exist",
    }.items(),
)
def test_files_that_are_no_good(tmp_path, kind, message):
    file = tmp_path / "own.npz"
    write_bad(kind, file)
    with pytest.raises(ThreefoldError, match=f"data file '{file}'.*{message}"):
        load(file)


def test_a_path_that_is_no_npz(tmp_path):
    with pytest.raises(
        ThreefoldError, match=r"data file '.*own\.csv' does not end in \.npz; give an \.npz file or one of"
    ):
        load(tmp_path / "own.csv")


def test_datasets_that_do_not_fit_into_memory_joined_are_refused(monkeypatch):
    """Each is loaded once; a few letters on the command line may ask for terabytes."""
    data = Dataset.from_arrays(**sound())
    module = sys.modules["threefold.data.joined"]  # the package's attribute of that name is the function
    monkeypatch.setattr(module, "memory_limit", lambda: 10 * 4 * 10 * (6 + 3))
    assert joined([data] * 10).classes == 30
    with pytest.raises(
        ThreefoldError, match=r"^data of 11 datasets joined must fit into memory: they need .* are free"
    ):
        joined([data] * 11)


def test_data_that_do_not_fit_into_memory_are_refused_unread(tmp_path, monkeypatch):
    """A zip bomb: a few kilobytes that unpack to gigabytes."""
    file = tmp_path / "bomb.npz"
    np.savez_compressed(file, **sound(train_x=np.zeros((250_000, 100), np.float32)))
    assert file.stat().st_size < 200_000
    monkeypatch.setattr("threefold.data.npz.memory_limit", lambda: 224_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ThreefoldError, match=r"needs 225 MB of memory, and 224 MB are free; give a smaller file"):
        load(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_file_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    for name in ("pipe.npz", "zero.npz"):
        with pytest.raises(ThreefoldError, match=r"is not a file; give an \.npz file"):
            load(tmp_path / name)


def test_a_user_who_is_not_known_is_told():
    with pytest.raises(ThreefoldError, match=r"'~nosuch/x\.npz' begins with a user's folder that is not known"):
        load("~nosuch/x.npz")


def test_the_name_of_a_file_is_shown_without_what_a_terminal_would_obey(tmp_path):
    name = "\x1b]0;owned\x07\udcff.npz"
    np.savez(tmp_path / "own.npz", **sound())
    (tmp_path / "own.npz").rename(tmp_path / name)
    assert load(tmp_path / name).name == "\ufffd]0;owned\ufffd?"
