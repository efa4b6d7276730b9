"""The data folder: files found, damaged files renamed, and killed or concurrent processes."""

import gzip
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_mirror
from tiny_mirror import CONTENTS, HASTY, entry

from threefold import data
from threefold.data import cache, catalog
from threefold.data.sources import obtain
from threefold.errors import ThreefoldError

IMAGES = "train-images-idx3-ubyte"


def fill(folder: Path, packed: bool = False, files: dict[str, bytes] = CONTENTS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)


def start(root: Path, *urls: str, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, tiny_mirror.__file__, str(root), *urls]
    return subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE)


@pytest.fixture
def tiny(monkeypatch, tmp_path, mirror):
    """The tiny dataset as one of the known ones, with THREEFOLD_DATA in an empty folder."""
    known = {"tiny": entry(mirror.url("good")), "other": entry(name="other", seed=2)}
    monkeypatch.setattr(catalog, "CATALOG", known)
    monkeypatch.setattr(cache, "CATALOG", known)
    monkeypatch.setattr(data, "CATALOG", known)
    monkeypatch.setenv("THREEFOLD_DATA", str(tmp_path))
    return known["tiny"]


def test_where_the_folder_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("THREEFOLD_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.home() == tmp_path / ".cache" / "threefold"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache.home() == tmp_path / ".cache" / "threefold"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache.home() == tmp_path / "caches" / "threefold"
    monkeypatch.setenv("THREEFOLD_DATA", "~/sets")
    assert cache.home() == tmp_path / "sets"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("below", ["", "tiny"])
def test_files_of_the_users_own_are_used_where_they_lie(tiny, tmp_path, mirror, packed, below):
    fill(tmp_path / below, packed)
    assert data.fetch("tiny") == tmp_path / below
    loaded = data.load("tiny")
    assert (loaded.classes, loaded.shape, len(loaded.train_y), len(loaded.test_y)) == (4, (6, 6), 40, 8)
    assert mirror.asked == []
    assert sorted(os.listdir(tmp_path / below)) == sorted(name + ".gz" * packed for name in CONTENTS)


def test_the_fingerprint_does_not_depend_on_the_source(tiny, tmp_path):
    downloaded = data.load("tiny").fingerprint
    for path in (tmp_path / "tiny").iterdir():
        path.unlink()
    fill(tmp_path, packed=True)
    assert data.load("tiny").fingerprint == downloaded


def test_a_damaged_file_is_named_set_aside_and_fetched_again(tiny, tmp_path, mirror, remarks):
    fill(tmp_path / "tiny")
    bad = tmp_path / "tiny" / IMAGES
    for count, aside in enumerate((f"{IMAGES}.damaged", f"{IMAGES}.2.damaged")):
        damage = bytes([count]) + CONTENTS[IMAGES][1:-1]
        bad.write_bytes(damage)
        data.load("tiny", report=remarks)
        assert bad.read_bytes() == CONTENTS[IMAGES]
        assert (bad.parent / aside).read_bytes() == damage
        assert (
            f"damaged data: file '{bad}' (has {len(damage)} bytes, not {len(damage) + 1}; set aside as {aside})"
            in remarks.texts
        )
    assert mirror.asked == [f"/good/{IMAGES}.gz"] * 2


def test_without_a_report_damage_is_logged(tiny, tmp_path, caplog):
    fill(tmp_path, packed=True)
    (tmp_path / f"{IMAGES}.gz").write_bytes(b"\x1f\x8bnonsense")
    with caplog.at_level(logging.WARNING):
        data.load("tiny")
    assert f"'{tmp_path / IMAGES}.gz' (is a damaged gzip file; set aside as {IMAGES}.gz.damaged)" in caplog.text


def test_a_damaged_file_beside_a_good_one_needs_no_fetch(tiny, tmp_path, mirror):
    fill(tmp_path / "tiny", packed=True)
    (tmp_path / "tiny" / IMAGES).write_bytes(b"damaged")
    data.load("tiny")
    assert mirror.asked == []
    assert (tmp_path / "tiny" / f"{IMAGES}.damaged").exists()


def test_damage_is_named_when_nothing_can_replace_it(tmp_path):
    fill(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).write_bytes(b"")
    with pytest.raises(ThreefoldError) as raised:
        obtain(entry(), root=tmp_path)
    assert f"{IMAGES}' (has 0 bytes, not 1456; set aside as {IMAGES}.damaged)" in str(raised.value)
    assert f"(without {IMAGES})" in str(raised.value)


def test_sound_files_of_another_dataset_are_left_alone(tiny, tmp_path, mirror):
    others = tiny_mirror.contents(seed=2)
    fill(tmp_path, files=others)
    assert data.fetch("tiny") == tmp_path
    assert len(mirror.asked) == 2  # the labels are the same in both and were found
    assert {name: (tmp_path / name).read_bytes() for name in others} == others
    assert not list(tmp_path.rglob("*.damaged"))


def test_a_pipe_among_the_files_is_not_waited_for(tiny, tmp_path, mirror):
    fill(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).unlink()
    os.mkfifo(tmp_path / "tiny" / IMAGES)
    assert data.check("tiny")[0].state == "damaged: cannot be read (it is a pipe or device, not a file)"
    assert data.load("tiny").shape == (6, 6)
    assert (tmp_path / "tiny" / f"{IMAGES}.damaged").is_fifo()


def test_check_says_what_is_there_and_changes_nothing(tiny, tmp_path, mirror):
    folder = tmp_path / "tiny"
    assert data.check("tiny") == [(folder / name, "missing") for name in CONTENTS]
    fill(folder)
    assert data.check("tiny") == [(folder / name, "good") for name in CONTENTS]
    (folder / IMAGES).write_bytes(b"short")
    (folder / f"{IMAGES}.gz").mkdir()
    before = sorted(os.listdir(folder))
    assert data.check("tiny")[:3] == [
        (folder / IMAGES, "damaged: has 5 bytes, not 1456"),
        (folder / f"{IMAGES}.gz", "damaged: cannot be read (it is a folder)"),
        (folder / "train-labels-idx1-ubyte", "good"),
    ]
    assert sorted(os.listdir(folder)) == before
    assert mirror.asked == []


@pytest.mark.parametrize("function", [data.load, data.fetch, data.check])
def test_an_unknown_name_gets_the_nearest_known_one(function):
    with pytest.raises(ThreefoldError, match="dataset 'minst' is not known; did you mean 'mnist'"):
        function("minst")


def test_a_folder_that_cannot_be_written_is_refused_before_any_download(tmp_path, mirror):
    (tmp_path / "file").touch()
    root = tmp_path / "file" / "below"
    with pytest.raises(ThreefoldError) as raised:
        obtain(entry(mirror.url("good")), root=root)
    assert str(raised.value).startswith(
        f"data folder '{root}/tiny' cannot be written (Not a directory); set THREEFOLD_"
    )
    assert mirror.asked == []


def test_a_folder_that_cannot_be_written_still_names_the_damage(tmp_path, mirror, monkeypatch):
    fill(tmp_path / "tiny")
    (tmp_path / "tiny" / IMAGES).write_bytes(b"")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)  # root may write anywhere, so a read-only folder has to be played
    with pytest.raises(
        ThreefoldError, match=rf"\(Permission denied\), and its file '{IMAGES}' is damaged \(has 0 bytes"
    ):
        obtain(entry(mirror.url("good")), root=tmp_path)
    assert mirror.asked == []


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, mirror, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ThreefoldError, match=r"cannot be written \(No space left on device\)"):
        obtain(entry(mirror.url("good")), root=tmp_path)
    assert os.listdir(tmp_path / "tiny") == [".lock"]


def test_killed_while_downloading(tmp_path, mirror):
    process = start(tmp_path, mirror.url("hang"))
    assert mirror.hanging.wait(20)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert os.listdir(tmp_path / "tiny") == [".lock"]
    obtain(entry(mirror.url("good")), root=tmp_path, patience=HASTY)
    assert sorted(os.listdir(tmp_path / "tiny")) == sorted([".lock", *CONTENTS])


def test_killed_while_storing(tmp_path, mirror):
    """The worst moment: the file is written, under its temporary name, and not yet in place."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, signal\npathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    process = start(tmp_path, mirror.url("good"), PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    left = set(os.listdir(tmp_path / "tiny")) - {".lock"}
    assert [name.endswith(".part") for name in left] == [True]
    mirror.asked.clear()
    obtain(entry(mirror.url("good")), root=tmp_path, patience=HASTY)
    assert len(mirror.asked) == 4
    assert sorted(os.listdir(tmp_path / "tiny")) == sorted([".lock", *CONTENTS])


def test_two_processes_at_once(tmp_path, mirror):
    fill(tmp_path / "tiny", files={IMAGES: b"damaged, and both will see it"})
    processes = [start(tmp_path, mirror.url("slow")) for _ in range(2)]
    assert [process.communicate()[1].count(b"Traceback") for process in processes] == [0, 0]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(os.listdir(tmp_path / "tiny")) == sorted([".lock", f"{IMAGES}.damaged", *CONTENTS])
    assert {name: (tmp_path / "tiny" / name).read_bytes() for name in CONTENTS} == CONTENTS
    assert len(mirror.asked) == 4  # the second waited and found them


def test_a_lock_held_for_too_long_is_passed_over(tmp_path, remarks):
    kept = cache.Cache(tmp_path, entry())
    with kept.writing(kept.survey(), remarks), kept.writing(kept.survey(), remarks, patience=0.2):
        file = kept.entry.files[0]
        assert kept.put(file, CONTENTS[IMAGES]) == tmp_path / "tiny" / IMAGES
    assert ("another process is fetching tiny", 0, None) in remarks.progress
