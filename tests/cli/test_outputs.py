"""Output files and standard output when the disk is full, names are odd or a writer fails."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_rows import good_file, written
from tiny_lab import SETTINGS, Ended, Terminal, contents

from threefold.methods import METHODS, Part
from threefold.methods.registry import Entry
from threefold.results import Store

Cli = Callable[..., Ended]
EVIL = "\x1b]0;owned\x07[/b]\u202e"
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "2", "--scenario", "class", "--seeds", "1", *SETTINGS]


@pytest.fixture
def lab(lab: Path, cli: Cli) -> Path:
    """With some.db, a store of somebody's runs."""
    lines = good_file()
    lines[0]["experiments"] = {"mine": lines[0]["experiments"]["mine"]}
    assert cli("merge", "some.db", written(lines, lab / "some.jsonl")).status == 0
    return lab


@pytest.mark.parametrize("words", [["-o", "made.md", "--format", "markdown"], ["--figures", "drawn"]], ids=" ".join)
def test_an_earlier_report_outlives_a_full_disk(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("threefold.report.figures.FORMATS", ("svg",))
    assert cli("report", "--store", "some.db", *words).status == 0
    before = contents(lab)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ended = cli("report", "--store", "some.db", *words)
    assert (ended.status, ended.out) == (2, "")
    assert "cannot be written (No space left on device); give a place" in ended.err
    assert contents(lab) == before


def test_markup_in_the_path_of_a_store_is_a_path(lab: Path, cli: Cli) -> None:
    Path("[").mkdir()
    toml = "stream = 'split'\ndata = 'tiny.npz'\ntasks = 2\nseeds = 1\n[training]\niters = 2\nhidden = 4\nbatch = 8\n"
    Path("mine.toml").write_text(f"{toml}[[methods]]\nmethod = 'none'\n")
    ended = cli("experiment", "mine.toml", "--device", "cpu", "--store", "[/b].db")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.endswith("threefold report --store '[/b].db' --format html -o report.html\n")
    for words in (["status"], ["report"], [*RUN], ["export", "csv", "-"]):
        assert cli(*words, "--store", "[/b].db").status == 0
    assert "store '[/x].db' does not exist" in cli("status", "--store", "[/x].db").err


def test_names_from_files_reach_no_terminal_as_commands(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = good_file()
    asked = lines[0]["experiments"].pop("mine")
    lines[0]["experiments"] = {EVIL: asked | {"title": EVIL, "command": EVIL, "notes": {EVIL: EVIL}}}
    assert cli("merge", "evil.db", written(lines, lab / "evil.jsonl")).status == 0
    with Store("evil.db") as store:
        store.remember(f"bad{EVIL}", {})

    class Evil(Part):
        name = EVIL

    rows = json.dumps(good_file()).replace("another", "another\\u001b]0;owned\\u0007")
    assert cli("merge", "evil.db", written(json.loads(rows), lab / "more.jsonl")).status == 0
    monkeypatch.setitem(METHODS, EVIL, Entry(EVIL, EVIL, EVIL, EVIL, Evil))
    said = [cli("status", "--store", "evil.db").out, cli("list", "methods").out]
    said += [cli("report", "--store", "evil.db").out, cli("report", "--store", "evil.db").err]
    said += [cli("status", "--store", f"{EVIL}.db").err, cli("experiment", f"{EVIL}.toml").err, cli(EVIL).err]
    for text in said:
        assert "owned" in text
        assert not any(c in text for c in "\x1b\x07\u202e")
    for words in (["report", "--format", "markdown"], ["report", "--format", "csv"], ["export", "csv", "-"]):
        with pytest.MonkeyPatch.context() as patch:
            terminal = Terminal(patch, "stdout")
            assert cli(*words, "--store", "evil.db").status == 0
        shown = terminal.text()
        assert "owned" in shown
        assert not any(c in shown for c in "\x1b\x07\u202e")


def test_a_bad_experiment_stops_nothing_else(lab: Path, cli: Cli) -> None:
    """As a store of an earlier time may hold one."""
    with Store("some.db") as store:
        store.remember("x", 5)  # type: ignore[arg-type]
    bad = "x: cannot be read (it is 5; it must be a table)"
    status = cli("status", "--store", "some.db")
    assert status.status == 0
    assert bad in status.out
    assert status.out.startswith("mine: 14 of 16 runs done, 2 left")
    report = cli("report", "--store", "some.db", "--format", "csv")
    assert report.status == 0
    assert report.err.startswith(f"threefold: experiment {bad}")
    assert report.out.count("\n") == 1 + 7  # the names, the cells that have runs; the one refused has runs after all
    Path("x.toml").write_text(
        "stream = 'split'\ndata = 'tiny.npz'\ntasks = 2\nseeds = 1\n[training]\niters = 2\nhidden = 4\nbatch = 8\n"
        "[[methods]]\nmethod = 'none'\n"
    )
    assert cli("experiment", "x.toml", "--device", "cpu", "--store", "some.db").status == 0
    assert "x: 3 of 3 runs done" in cli("status", "--store", "some.db").out
