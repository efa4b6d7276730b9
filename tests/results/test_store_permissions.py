"""A store or folder without write permission. As root ignores permissions, tests switch to another user."""

import os
import tempfile
from pathlib import Path

import pytest
from sample_runs import a_run

from threefold.results import Store


@pytest.fixture
def open_folder():
    """A folder that others can reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def as_nobody(task):
    """What `task` returns when it may not write everywhere: root steps down, in a child, so that it binds root too."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            os.write(write, str(task()).encode())
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o644, 0o555), (0o444, 0o777)])
def test_a_store_we_may_not_write(open_folder, file_mode, folder_mode):
    path = open_folder / "threefold.db"
    with Store(path) as store:
        store.add([a_run(1), a_run(2)])
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)

    def add():
        with Store(path) as store:
            store.add([a_run(3)])

    def count():
        with Store(path, readonly=True) as store:
            return len(list(store.all()))

    place = open_folder if file_mode & 0o200 else path
    expected = f"ThreefoldError: store '{path}' cannot be written: '{place}' is read-only; give another file."
    assert as_nobody(add) == expected
    assert as_nobody(count) == "2"
    assert os.listdir(open_folder) == ["threefold.db"]


def test_a_store_that_was_left_open_and_that_we_may_not_write(open_folder):
    path = open_folder / "threefold.db"
    with Store(path) as store:
        store.add([a_run(1)])
        open_folder.chmod(0o555)
        for place in open_folder.iterdir():
            place.chmod(0o444)

        def count():
            with Store(path, readonly=True) as reader:
                return len(list(reader.all()))

        assert as_nobody(count) == "1"


@pytest.mark.parametrize("readonly", [False, True])
def test_a_store_in_a_folder_we_may_not_enter(open_folder, readonly):
    path = open_folder / "closed" / "threefold.db"
    path.parent.mkdir()
    Store(path).close()
    path.parent.chmod(0o600)
    expected = f"ThreefoldError: store '{path}' cannot be reached: Permission denied; give another file."
    assert as_nobody(lambda: Store(path, readonly=readonly)) == expected
    path.parent.chmod(0o700)
