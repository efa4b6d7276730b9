"""Progress notes that are damaged, hostile or no files at all: told to be unreadable, and nothing else suffers."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_sections import a_table
from watch_lab import ask, asked, events, keep, names, watching

NOTE = {"cohort": "a", "step": 3, "steps": 9, "task": 0, "tasks": 2, "accuracy": 50.0, "process": 7, "machine": "m"}
DAMAGED = {
    "binary": bytes(range(256)),
    "not UTF-8": b'{"cohort": "\xff\xfe"}',
    "nested lists": b"[" * 100_000,
    "nested tables": b'{"a":' * 100_000,
    "half a note": b'{"cohort": "spl',
    "a list": b"[1, 2]",
    "a number": b"1e999",
    "text where a time is": json.dumps(NOTE | {"time": "noon"}).encode(),
    "a list where a step is": json.dumps(NOTE | {"time": 1.0, "step": [1]}).encode(),
    "a table where a task is": json.dumps(NOTE | {"time": 1.0, "task": {}}).encode(),
    "true where a step is": json.dumps(NOTE | {"time": 1.0, "step": True}).encode(),
    "no number": json.dumps(NOTE | {"time": float("nan"), "accuracy": float("nan")}).encode(),
    "infinite": json.dumps(NOTE | {"time": float("inf")}).encode(),
    "after the end of time": json.dumps(NOTE | {"time": 1e300}).encode(),
    "before its beginning": json.dumps(NOTE | {"time": -1e15}).encode(),
    "huge": json.dumps(NOTE | {"time": 1.0, "step": 10**300}).encode(),
    "of 5,000 digits": b'{"time": 1.0, "step": ' + b"9" * 5000 + b"}",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "some.db"
    keep(path, a_table(methods=["none"], seeds=2))
    keep(path, a_table("table5", "permuted-mnist", methods=["none"], seeds=2), results=False)
    (tmp_path / "some.db.checkpoints").mkdir()
    return path


def note(store: Path, number: int) -> Path:
    return Path(f"{store}.checkpoints") / f"{number:032x}.lock"


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def hold(path: Path, stack: ExitStack) -> None:
    """As a live process does."""
    file = stack.enter_context(path.open("rb"))
    fcntl.flock(file, fcntl.LOCK_EX)


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_note_is_told_to_be_unreadable(store: Path, text: bytes, held: ExitStack) -> None:
    note(store, 1).write_bytes(text)
    note(store, 2).write_bytes(text)
    hold(note(store, 1), held)  # the other is what a killed process left
    with watching(store) as address:
        for _ in range(2):
            status, _, page = ask(address)
            assert status == 200
            assert "progress note cannot be read" in page
            assert '<section id="e0"' in page


def test_many_of_them_do_no_more_harm_than_one(store: Path, held: ExitStack) -> None:
    for number, text in enumerate(DAMAGED.values()):
        note(store, number).write_bytes(text)
        hold(note(store, number), held)
    with watching(store) as address, asked(address, "/events") as stream:
        assert "now" in names(events(stream, 2))
        for _ in range(10):
            assert ask(address)[0] == 200


def test_what_is_no_file_is_passed_over(store: Path, tmp_path: Path) -> None:
    """A pipe would be read for ever, and all requests would wait for it."""
    os.mkfifo(note(store, 1))
    note(store, 2).mkdir()
    note(store, 3).symlink_to("/dev/zero")
    note(store, 4).symlink_to(tmp_path / "nowhere")
    with watching(store) as address:
        assert ask(address)[0] == 200
