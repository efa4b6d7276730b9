"""Progress notes that are damaged, hostile or not files: reported as unreadable, without effect on anything else."""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_sections import a_table
from watch_lab import ask, asked, events, keep, names, watching

DAMAGED = [  # more of it in tests/experiments/test_lock.py
    bytes(range(256)),
    b'{"cohorts": "\xff\xfe"}',
    b"[" * 100_000,
    b'{"cohorts":' * 100_000,
    b'{"cohorts": {"spl',
    b"[1, 2]",
    b'{"process": ' + b"9" * 5000 + b"}",
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    keep(path, a_table(methods=["none"], seeds=2))
    keep(path, a_table("table5", "permuted-mnist", methods=["none"], seeds=2), results=False)
    (tmp_path / "some.db.checkpoints").mkdir()
    return path


def note(store: Path, number: int) -> Path:
    return Path(f"{store}.checkpoints") / f"{number:032x}.lock"


def test_damaged_notes_are_told_to_be_unreadable_and_harm_nothing_else(store: Path) -> None:
    """Of a live process; what a killed one left is passed over."""
    for number, text in enumerate(DAMAGED):
        note(store, number).write_bytes(text)
        note(store, 100 + number).write_bytes(text)
    with ExitStack() as stack:
        for number in range(len(DAMAGED)):
            fcntl.flock(stack.enter_context(note(store, number).open("rb")), fcntl.LOCK_EX)  # as a live process does
        with watching(store) as address, asked(address, "/events") as stream:
            assert "now" in names(events(stream, 2))
            for _ in range(3):
                status, _, page = ask(address)
                assert status == 200
                assert page.count("progress note cannot be read") == len(DAMAGED)
                assert '<section id="e0"' in page


def test_what_is_no_file_is_passed_over(store: Path, tmp_path: Path) -> None:
    """A pipe would be read for ever, and all requests would wait for it."""
    os.mkfifo(note(store, 1))
    note(store, 2).mkdir()
    note(store, 3).symlink_to("/dev/zero")
    note(store, 4).symlink_to(tmp_path / "nowhere")
    with watching(store) as address:
        assert ask(address)[0] == 200
