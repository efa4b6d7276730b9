"""Files that commands write: whole or not at all, and over nothing but an earlier one of their kind."""

import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from threefold.errors import ThreefoldError
from threefold.results import Store
from threefold.results.output import PART, begins_with, check_output, contains, replacing, write_output

OURS = begins_with("ours")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def killed_while_writing(file: Path) -> None:
    """A process that dies with half of its output written."""
    child = os.fork()
    if child == 0:
        with replacing(file, OURS) as stream:
            stream.write(b"ours: half")
            stream.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def fails_while_writing(file: Path, error: Exception) -> None:
    with replacing(file, OURS) as stream:
        stream.write(b"ours: half")
        raise error


@pytest.mark.parametrize("name", ["a.csv", "a[1]*?.csv", "with space", "ü😀.md", "-"])
def test_a_killed_writer_tears_nothing_and_the_next_one_tidies_up(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(b"ours: before")
    other = f".{name}.b.0a1b2c3d{PART}"  # another file's
    (tmp_path / other).touch()
    for _ in range(2):
        killed_while_writing(file)
    assert file.read_bytes() == b"ours: before"
    assert len(names(tmp_path)) == 3
    write_output(file, b"ours: after", OURS)
    assert file.read_bytes() == b"ours: after"
    assert names(tmp_path) == {name, other}


def test_writers_at_once_leave_each_other_alone(tmp_path):
    file = tmp_path / "a.csv"
    with replacing(file, OURS) as first:
        first.write(b"ours: first")
        write_output(file, b"ours: second", OURS)
        assert file.read_bytes() == b"ours: second"
    assert file.read_bytes() == b"ours: first"
    assert names(tmp_path) == {"a.csv"}


def test_an_error_leaves_what_was_there(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b"ours: before")
    for error, told in ((OSError(28, "No space left on device"), ThreefoldError), (KeyError("x"), KeyError)):
        with pytest.raises(told):
            fails_while_writing(file, error)
        assert file.read_bytes() == b"ours: before"
        assert names(tmp_path) == {"a.csv"}


def test_a_link_stays_one_and_a_file_has_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        (tmp_path / "link").symlink_to("target")
        write_output(tmp_path / "link", b"ours", OURS)
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"ours"
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o640


@pytest.mark.parametrize("content", [b"theirs", b"our", b" ours", b"\0" * 100])
def test_what_is_not_ours_is_not_replaced(tmp_path, content):
    file = tmp_path / "notes.txt"
    file.write_bytes(content)
    with pytest.raises(ThreefoldError, match=r"'.*notes.txt' is there already, and no earlier output of this kind"):
        write_output(file, b"ours", OURS)
    assert file.read_bytes() == content
    assert names(tmp_path) == {"notes.txt"}


def test_marks_may_be_anywhere_where_that_is_asked(tmp_path):
    (tmp_path / "a").write_bytes(b"\x89PNG Software\0threefold")
    check_output(tmp_path / "a", contains(b"Software\0threefold"))
    with pytest.raises(ThreefoldError, match="no earlier output"):
        check_output(tmp_path / "a", contains(b"Software\0other"))


def test_an_empty_file_may_be_replaced_but_not_the_file_of_an_open_store(tmp_path):
    file = tmp_path / "empty"
    file.touch()
    check_output(file, OURS)
    (tmp_path / "empty-wal").write_bytes(b"rows")
    with pytest.raises(ThreefoldError, match="no earlier output of this kind"):
        check_output(file, OURS)


def test_a_store_is_never_replaced(tmp_path):
    mine, other = tmp_path / "mine.db", tmp_path / "other.db"
    for path in (mine, other):
        Store(path).close()
    (tmp_path / "hard").hardlink_to(mine)
    (tmp_path / "soft").symlink_to(mine)
    for name in ("mine.db", "hard", "soft"):
        with pytest.raises(ThreefoldError, match="is the store itself"):
            check_output(tmp_path / name, lambda file: True, mine)
    with pytest.raises(ThreefoldError, match="no earlier output"):
        check_output(other, OURS, mine)


def test_a_file_that_its_owner_protected_is_not_replaced(tmp_path, monkeypatch):
    file = tmp_path / "a.csv"
    file.write_bytes(b"ours")
    file.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).stat().st_mode & 0o200 != 0)  # as if not root
    with pytest.raises(ThreefoldError, match=r"cannot be written \(it is read-only\)"):
        write_output(file, b"ours: after", OURS)
    assert file.read_bytes() == b"ours"


def test_links_in_a_circle_are_a_sentence(tmp_path):
    loop = tmp_path / "loop.txt"
    loop.symlink_to("loop.txt")
    with pytest.raises(ThreefoldError, match=r"cannot be written \(Too many levels of symbolic links"):
        write_output(loop, b"new", begins_with("new"))
    assert loop.is_symlink()


def test_pipes_and_devices(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ThreefoldError, match=r"pipe' cannot be written \(No such device"):  # nobody reads
        write_output(pipe, b"ours", OURS)
    got, content = [], bytes(range(256)) * 1000  # more than a pipe holds
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    while True:
        try:
            write_output(pipe, content, OURS)
            break
        except ThreefoldError:  # the reader is not there yet
            assert reader.is_alive()
    reader.join()
    assert got == [content]
    write_output(Path("/dev/null"), content, OURS)
    with pytest.raises(ThreefoldError, match=r"'/dev/full' cannot be written \(No space left on device\)"):
        write_output(Path("/dev/full"), content, OURS)
    with pytest.raises(ThreefoldError, match="is a device or pipe; give a file"):
        check_output(pipe, OURS)
