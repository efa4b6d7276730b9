"""`experiment`, `report` and `status` on different stores: what they show, and what they refuse."""

import json
import os
import platform
import re
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from experiment_lab import Command, alter, beside, count, locks, rows, server, stuck_in_the_third
from small_lab import EXPERIMENT, RUNS, SPEC
from tiny_lab import SETTINGS, Ended, contents, refusal

from threefold.results import Store, database

Cli = Callable[..., Ended]

EWC, SEED = "json_extract(record, '$.spec.method.name') = 'ewc'", "json_extract(record, '$.spec.seed')"


@pytest.fixture
def lab(lab: Path, small_experiment: Path) -> Path:
    shutil.copytree(small_experiment, lab, dirs_exist_ok=True)
    return lab


# bad input writes nothing


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["experiment", "absent.toml"], "experiment 'absent.toml' cannot be read"),
        (["experiment", "tiny.npz"], "experiment 'tiny.npz' cannot be read"),
        (["experiment"], "file is missing"),
        (["experiment", "tiny.toml", "--only", "ewk"], "only 'ewk' is not known; did you mean 'ewc'?"),
        (["experiment", "tiny.toml", "--seeds", "0"], "seeds is '0'"),
        (["experiment", "tiny.toml", "--seeds", ""], "seeds is ''"),
        (
            ["experiment", "tiny.toml", "--iters", "0"],
            "iters must be a whole number of iterations, at least 1, got '0'",
        ),
        (
            ["experiment", "tiny.toml", "--iters", "-1"],
            "iters must be a whole number of iterations, at least 1, got '-1'",
        ),
        (["experiment", "tiny.toml", "--device", "gpu"], "device 'gpu' is not known; did you mean 'cpu'?"),
        (["experiment", "large.toml"], "batch must be at most 80, got 100: the smallest task has 80 training samples"),
        (["experiment", "nodata.toml"], "absent.npz"),
        (["experiment", "tiny.toml", "--store", "no/such.db"], "store 'no/such.db' cannot be created"),
        (["reproduce", "table6"], "experiment 'table6' is not known; did you mean 'table"),
        (["reproduce"], "name is missing"),
        (["reproduce", "table4", "--time-limit", "soon"], "time-limit must be a valid number, got 'soon'"),
        (["reproduce", "table4", "--time-limit"], "time-limit has no value; use --time-limit VALUE"),
        (["reproduce", "table4", "--quick=3"], "quick takes no value; use --quick alone"),
        (["report"], "store 'threefold.db' does not exist"),
        (["status"], "store 'threefold.db' does not exist"),
        (["report", "--store", "a.db", "--format", "latx"], "format 'latx' is not known; did you mean 'latex'?"),
        (["report", "--store", "empty.db"], "store 'empty.db' holds no results of an experiment"),
        (["report", "--store", "a.db", "-o", "no/such/file"], "'no/such/file' cannot be written (No such"),
        (["report", "--store", "a.db", "-o", "."], "file '.' is a folder; give a file."),
        (["report", "--store", "a.db", "--figures", "drawn", "-o", "no/such"], "'no/such' cannot be written (No such"),
        (["report", "--store", "a.db", "--figures", "tiny.toml"], "'tiny.toml'"),
        (["merge", "b.db", "absent.db"], "store 'absent.db' does not exist"),
        (["merge", "b.db", "tiny.toml"], "store 'tiny.toml' is not a database"),
        (["merge", "b.db", "a.db", "absent.db"], "store 'absent.db' does not exist"),
        (["merge", "tiny.toml", "a.db"], "store 'tiny.toml' is not a database"),
        (["merge", "b.db"], "sources is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_writes_nothing(lab: Path, cli: Cli, words: list[str], named: str) -> None:
    (lab / "large.toml").write_text(SPEC.replace("batch = 16", "batch = 100"))
    (lab / "nodata.toml").write_text(SPEC.replace("tiny.npz", "absent.npz"))
    Store(lab / "empty.db").close()
    before = contents(lab)
    assert named in refusal(cli(*words))
    assert contents(lab) == before


# stores that cannot be used


@pytest.mark.parametrize(
    "words", [EXPERIMENT, ["report", "--store"], ["status", "--store"], ["merge", "b.db"]], ids=str
)
@pytest.mark.parametrize(("version", "age"), [(99, "newer"), (0, "older")])
def test_a_store_of_another_format(lab: Path, cli: Cli, words: list[str], version: int, age: str) -> None:
    alter(lab / "a.db", f"PRAGMA user_version = {version}")
    before = contents(lab)
    assert f"store 'a.db' has format {version}, {age} than" in refusal(cli(*words, "a.db"))
    assert contents(lab) == before


def test_a_read_only_store_is_refused_for_writing_before_any_training(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "a.db").chmod(0o444)
    no_root = SimpleNamespace(access=lambda path, mode: Path(path).stat().st_mode & 0o200 != 0, W_OK=os.W_OK)
    monkeypatch.setattr(database, "os", no_root)
    before = contents(lab)
    for words in ([*EXPERIMENT, "a.db", "--seeds", "3"], ["merge", "a.db", "a.db"]):
        assert "is read-only; give another file." in refusal(cli(*words))
    assert contents(lab) == before
    assert cli("status", "--store", "a.db") == (0, f"tiny: {RUNS} of {RUNS} runs done\n", "")
    assert cli("report", "--store", "a.db", "--format", "csv").status == 0
    assert contents(lab) == before


def test_a_full_disk_loses_nothing_and_the_same_command_goes_on(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, opened = rows(lab / "a.db"), database.sqlite3.connect

    class Full(sqlite3.Connection):
        """No room for another run."""

        def execute(self, statement: str, *rest: object) -> sqlite3.Cursor:
            if statement.startswith("INSERT INTO runs"):
                super().execute(f"PRAGMA max_page_count = {self.execute('PRAGMA page_count').fetchone()[0]}")
                for _ in range(40):  # what room there is on the pages that exist
                    super().execute("INSERT INTO experiments VALUES (hex(randomblob(9)), hex(randomblob(2000)))")
            return super().execute(statement, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(database.sqlite3, "connect", lambda *a, **k: opened(*a, factory=Full, **k))
        said = refusal(cli(*EXPERIMENT, "a.db", "--seeds", "3"))
    assert "store 'a.db' cannot grow: the disk is full; make room and run the same command again" in said
    assert rows(lab / "a.db") == before
    assert locks(lab / "a.db") == set()
    assert cli(*EXPERIMENT, "a.db", "--seeds", "3").status == 0
    assert count(lab / "a.db") == 27
    assert set(before) < set(rows(lab / "a.db"))


def test_a_file_where_checkpoints_should_be_is_one_sentence(lab: Path, cli: Cli) -> None:
    (lab / "b.db.checkpoints").write_text("mine")
    assert "b.db.checkpoints" in refusal(cli(*EXPERIMENT, "b.db"))
    assert (lab / "b.db.checkpoints").read_text() == "mine"


# status


def test_status_counts_what_is_done_and_what_is_left(lab: Path, cli: Cli) -> None:
    alter(
        lab / "a.db",
        f"DELETE FROM runs WHERE {EWC} AND {SEED} = 2",
    )
    said = cli("status", "--store", "a.db")
    assert re.fullmatch(
        r"tiny: 12 of 18 runs done, 6 left, about 0:00:\d\d: threefold experiment tiny\.toml --device cpu[^\n]*\n",
        said.out,
    )
    alter(lab / "a.db", "DELETE FROM runs")
    assert ": 0 of 18 runs done, 18 left, time not known yet: threefold" in cli("status", "--store", "a.db").out
    alter(lab / "a.db", "DELETE FROM experiments")
    assert cli("status", "--store", "a.db") == (0, "a.db: no experiment was asked for yet\n", "")


def test_the_time_left_is_what_others_took(lab: Path, cli: Cli) -> None:
    alter(
        lab / "a.db",
        f"DELETE FROM runs WHERE {EWC} AND {SEED} = 2",
        """UPDATE runs SET record = json_set(record, '$.environment', json('{"cohort": 2}'), '$.timings',
        json('{"cohort_train": 15, "cohort_evaluate": 5}'))""",
    )
    assert "6 left, about 0:01:00: " in cli("status", "--store", "a.db").out


@pytest.fixture(scope="module")
def _server() -> Iterator[None]:
    with server():
        yield


@pytest.mark.usefixtures("_server")
def test_status_shows_what_a_live_process_trains(lab: Path, cli: Cli) -> None:
    with Command(lab, *EXPERIMENT, "b.db", hook=stuck_in_the_third) as command:
        command.wait_until(lambda: (lab / "stuck").exists())
        (name,) = locks(lab / "b.db")
        lines = cli("status", "--store", "b.db").out.splitlines()
        assert lines[0].startswith("tiny: 4 of 18 runs done, 14 left")
        where = f"(process {command.process.pid} on {platform.node()})"
        assert re.fullmatch(rf"running: split-tiny [^(]* ×\d {re.escape(where)}", lines[1])
        progress = {"step": 9, "steps": 18, "task": 1, "tasks": 3, "accuracy": None}
        said = {"process": 7, "machine": "m", "cohorts": {"a": {"title": "x ×2", "time": 1.0, "progress": progress}}}
        (lab / "b.db.checkpoints" / name).write_text(json.dumps(said))  # as if it had had the time to say so
        lines = cli("status", "--store", "b.db").out.splitlines()
        assert lines[1:] == ["running: x ×2, task 2 of 3, 50% (process 7 on m)"]
        (lab / "b.db.checkpoints" / name).write_text("[" * 100_000)
        lines = cli("status", "--store", "b.db").out.splitlines()
        assert lines[1:] == ["running: a cohort whose progress note cannot be read (another process)"]
        command.kill()
    assert len(locks(lab / "b.db")) == 1, "the file outlives the lock"
    assert len(cli("status", "--store", "b.db").out.splitlines()) == 1
    assert cli(*EXPERIMENT, "b.db").status == 0
    assert beside(lab / "b.db") == []


@pytest.mark.usefixtures("_server")
def test_a_process_leaves_word_of_its_cohort(lab: Path, cli: Cli) -> None:
    (lab / "tiny.toml").write_text(SPEC.replace("iters = 6", "iters = 5000"))
    with Command(lab, *EXPERIMENT, "b.db", "--only", "none,class") as command:
        command.wait_until(lambda: ", task " in cli("status", "--store", "b.db").out if locks(lab / "b.db") else False)
        said = cli("status", "--store", "b.db").out.splitlines()[1]
        assert re.fullmatch(
            rf"running: split-tiny Class-IL none ×2, task \d of 3, \d+% \(process {command.process.pid} on .*\)", said
        )
        command.send(signal.SIGINT)
        assert command.ended().status == 3
    assert "running" not in cli("status", "--store", "b.db").out


# report


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "csv", "html"])
def test_a_report_in_every_format(lab: Path, cli: Cli, form: str) -> None:
    shown = cli("report", "--store", "a.db", "--format", form)
    assert (shown.status, shown.err) == (0, "")
    assert len(shown.out) > 200
    assert "EWC" in shown.out or "ewc" in shown.out
    assert cli("report", "--store", "a.db", "--format", form, "-o", "made.txt") == (0, "", "")
    assert len((lab / "made.txt").read_text(encoding="utf-8")) > 200
    assert beside(lab / "a.db") == []
    before = contents(lab)
    assert cli("report", "--store", "a.db", "--format", form, "-o", "-").out.strip() == shown.out.strip()
    assert contents(lab) == before


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("a.db", "is the store itself; give another file."),
        ("link.csv", "is the store itself; give another file."),
        ("other.csv", "is there already, and no earlier output of this kind; give a name that is not in use."),
        ("tiny.toml", "is there already, and no earlier output of this kind; give a name that is not in use."),
        ("tiny.npz", "is there already, and no earlier output of this kind; give a name that is not in use."),
        ("notes.csv", "is there already, and no earlier output of this kind; give a name that is not in use."),
    ],
)
def test_a_report_is_not_written_over_anything_else(lab: Path, cli: Cli, file: str, why: str) -> None:
    Path("link.csv").symlink_to("a.db")
    shutil.copy("a.db", "other.csv")
    Path("notes.csv").write_text("experiment,mine\n")
    before = contents(lab)
    words = ["report", "--store", "a.db", "--format", "csv", "--figures", "drawn", "-o"]
    assert refusal(cli(*words, file)).startswith(f"threefold: file '{file}' {why}")
    assert contents(lab) == before


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "csv", "html"])
@pytest.mark.parametrize("name", ["made", "/dev/null"])
def test_an_earlier_report_is_replaced_whatever_its_name(lab: Path, cli: Cli, form: str, name: str) -> None:
    for _ in range(2):
        assert cli("report", "--store", "a.db", "--format", form, "-o", name) == (0, "", "")
    if name == "made":
        other = "csv" if form != "csv" else "latex"
        assert "no earlier output of this kind" in refusal(
            cli("report", "--store", "a.db", "--format", other, "-o", name)
        )


def test_figures(lab: Path, cli: Cli) -> None:
    ended = cli("report", "--store", "a.db", "--figures", "drawn")
    assert (ended.status, ended.err) == (0, "")
    files = [lab / line for line in ended.out.splitlines()]
    assert {path.suffix for path in files} == {".svg", ".pdf", ".png"}
    assert all(path.stat().st_size > 500 for path in files)
    assert sorted(files) == sorted((lab / "drawn").iterdir())
    assert cli("report", "--store", "a.db", "--figures", "drawn") == ended
    for path in files[:3]:
        path.write_text("<svg>mine</svg>")
        before = contents(lab)
        assert f"file '{path.relative_to(lab)}' is there already" in refusal(
            cli("report", "--store", "a.db", "--figures", "drawn")
        )
        assert contents(lab) == before
        path.unlink()


def test_what_run_trained_is_one_section_for_each_stream(lab: Path, cli: Cli) -> None:
    words = ["run", "split", "--data", "tiny.npz", "--tasks", "3", *SETTINGS, "--store", "r.db", "--scenario"]
    assert cli(*words, "class", "--method", "none", "--seeds", "2").status == 0
    assert cli(*words, "class", "--method", "ewc:strength=5", "--seeds", "2").status == 0
    assert cli(*words, "task", "--method", "xdg", "--method", "none", "--seeds", "3").status == 0
    assert cli("status", "--store", "r.db").out == "run split-tiny, 6 iterations: 10 of 10 runs done\n"
    assert cli(*words, "class", "--method", "none", "--seeds", "4").status == 0
    assert cli("status", "--store", "r.db").out == "run split-tiny, 6 iterations: 12 of 12 runs done\n"
    table = cli("report", "--store", "r.db", "--format", "csv").out
    assert len(re.findall("xdg|XdG", table)) >= 1
    assert cli(*EXPERIMENT, "r.db").status == 0
    assert len(cli("status", "--store", "r.db").out.splitlines()) == 2


def test_the_report_of_a_stopped_experiment_shows_what_there_is(lab: Path, cli: Cli) -> None:
    alter(lab / "a.db", f"DELETE FROM runs WHERE {EWC} AND json_extract(record, '$.spec.scenario.name') != 'class'")
    for form in ("terminal", "markdown", "latex", "csv", "html"):
        assert cli("report", "--store", "a.db", "--format", form).status == 0
