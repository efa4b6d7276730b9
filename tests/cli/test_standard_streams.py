"""Standard streams that are closed, full, or closed early by their reader: one sentence, or silence."""

import os
import subprocess
import sys
from collections.abc import Iterator
from io import BufferedWriter, TextIOWrapper
from pathlib import Path

import pytest
from experiment_lab import count
from tiny_lab import SETTINGS, Ended, write_npz

from threefold.cli.standard_streams import Descriptor
from threefold.errors import ThreefoldError

PROGRAM = Path(sys.executable).parent / "threefold"
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "2", "--seeds", "1", "--scenario", "class", *SETTINGS]


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    write_npz(tmp_path / "tiny.npz")
    return tmp_path


def shell(lab: Path, redirected: str, *words: str) -> Ended:
    """The command with its streams redirected by a shell."""
    script = f'"$0" "$@" {redirected}'
    ended = subprocess.run(["bash", "-c", script, str(PROGRAM), *words], cwd=lab, capture_output=True, text=True)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_without_standard_error_it_trains_all_the_same(lab: Path) -> None:
    ended = shell(lab, "2>&-", *RUN, "--json")
    assert ended.status == 0
    assert '"per_seed"' in ended.out
    assert count(lab / "threefold.db") == 1


def test_without_standard_output_nothing_is_trained(lab: Path) -> None:
    sentence = "threefold: standard output is closed; redirect it to a file or to /dev/null.\n"
    assert shell(lab, ">&-", *RUN) == Ended(2, "", sentence)
    assert shell(lab, ">&- 2>&- <&-", *RUN) == Ended(2, "", ""), "nobody can be told, but the status tells"
    assert [path.name for path in lab.iterdir()] == ["tiny.npz"]


def test_who_has_read_enough_is_not_told_of_an_error(lab: Path) -> None:
    ended = shell(lab, '| { read -r line; echo "$line"; }; exit "${PIPESTATUS[0]}"', "list", "methods")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.count("\n") == 1


def test_a_full_disk_is_a_sentence_and_the_runs_are_kept(lab: Path) -> None:
    full = Ended(
        2,
        "",
        "threefold: standard output cannot be written (No space left on device); redirect it to a place with space.\n",
    )
    assert shell(lab, "> /dev/full", *RUN) == full
    assert count(lab / "threefold.db") == 1
    assert shell(lab, "> /dev/full", "export", "csv", "-") == full
    assert shell(lab, "> /dev/full", "report", "--format", "markdown") == full


@pytest.fixture
def closed_pipe() -> Iterator[int]:
    """A descriptor that nobody reads from."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_writing_to_nobody_never_fails(closed_pipe: int) -> None:
    """Else `threefold experiment … 2>&1 | head` would end the training with the first warning."""
    stream = TextIOWrapper(BufferedWriter(Descriptor(closed_pipe)))
    for _ in range(3):
        print("x" * 100_000, file=stream, flush=True)


def test_a_full_disk_is_told_once() -> None:
    with open("/dev/full", "wb") as full:
        stream = TextIOWrapper(BufferedWriter(Descriptor(full.fileno())))
        with pytest.raises(ThreefoldError, match="cannot be written"):
            print("one", file=stream, flush=True)
        print("two", file=stream, flush=True)  # at the end of the process, when everything is flushed again
