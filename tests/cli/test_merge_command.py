"""`merge`: results of several machines in one store."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_lab import alter, beside, rows
from small_lab import EXPERIMENT
from tiny_lab import Ended, contents, refusal

Cli = Callable[..., Ended]


@pytest.fixture
def lab(lab: Path, small_experiment: Path) -> Path:
    shutil.copytree(small_experiment, lab, dirs_exist_ok=True)
    return lab


def test_merge_gathers_what_several_machines_trained(lab: Path, cli: Cli) -> None:
    for store, seeds in (("one.db", "1"), ("two.db", "2")):
        assert cli(*EXPERIMENT, store, "--seeds", seeds).status == 0
    assert cli(*EXPERIMENT, "two.db", "--seeds", "2").status == 0
    sources = {name: (lab / name).read_bytes() for name in ("one.db", "two.db")}
    assert cli("merge", "all.db", "one.db", "two.db") == (0, "all.db: 18 runs added, 9 were there already.\n", "")
    assert {name: (lab / name).read_bytes() for name in sources} == sources
    assert beside(lab / "all.db") == beside(lab / "one.db") == []
    assert [row[0] for row in rows(lab / "all.db")] == [row[0] for row in rows(lab / "a.db")]
    assert cli("status", "--store", "all.db").out == "tiny: 18 of 18 runs done\n"
    before = rows(lab / "all.db")
    assert cli("merge", "all.db", "two.db", "one.db").out == "all.db: 0 runs added, 27 were there already.\n"
    assert rows(lab / "all.db") == before
    assert cli("merge", "all.db", "all.db").out == "all.db: 0 runs added, 18 were there already.\n"


def test_merged_seeds_are_reported_together(lab: Path, cli: Cli) -> None:
    """One machine trained seeds 1 to 2, another seeds 3 to 4: the report has four."""
    assert cli(*EXPERIMENT, "b.db", "--seeds", "3-4").status == 0
    for destination, source in (("a.db", "b.db"), ("b.db", "a.db")):
        shutil.copy(destination, "dest.db")
        assert cli("merge", "dest.db", source).out == "dest.db: 18 runs added, 0 were there already.\n"
        assert cli("status", "--store", "dest.db").out == "tiny: 36 of 36 runs done\n"
    assert cli("merge", "new.db", "a.db", "b.db").status == 0
    assert cli("status", "--store", "new.db").out == "tiny: 36 of 36 runs done\n"


def test_conflicting_results_are_shown_and_refused(lab: Path, cli: Cli) -> None:
    shutil.copy("a.db", "other.db")
    alter(lab / "other.db", "UPDATE runs SET record = json_set(record, '$.matrix[2][2]', 12.5) WHERE id = 4")
    assert cli(*EXPERIMENT, "b.db", "--seeds", "3-3").status == 0
    before = contents(lab)
    for words in (["a.db", "b.db", "other.db"], ["new.db", "b.db", "a.db", "other.db"], ["other.db", "b.db", "a.db"]):
        said = refusal(cli("merge", *words))
        assert re.search(r"run \w{12} \((none|ewc), (task|domain|class), seed \d\) has two results: ", said)
        assert ": its accuracy on task 3 after task 3 is " in said
        shown = re.findall(r"([\d.]+) in '(\w+\.db)' \(20\d\d-", said)
        assert sorted(name for _, name in shown) == ["a.db", "other.db"]
        assert shown[0][0] != shown[1][0]
        assert "nothing was merged" in said
        assert contents(lab) == before
        spare = "'a.db' or without 'other.db'" if words[0] == "new.db" else f"'{words[-1]}'"
        assert said.endswith(f"; merge without {spare}.\n")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("'$.matrix[2][0]', 12.5", "its accuracy on task 1 after task 3 is "),
        ("'$.initial[1]', 12.5", "its accuracy on task 2 before any training is "),
        (
            "'$.status', 'diverged', '$.diverged_at', 2, '$.matrix[2]', json('[null, null, null]')",
            "its status is finished in 'a.db' ",
        ),
    ],
)
def test_a_conflict_names_what_differs(lab: Path, cli: Cli, change: str, named: str) -> None:
    shutil.copy("a.db", "other.db")
    alter(lab / "other.db", f"UPDATE runs SET record = json_set(record, {change}) WHERE id = 4")
    said = refusal(cli("merge", "a.db", "other.db"))
    assert named in said
    assert (" and 12.5000 in 'other.db' " if "12.5" in change else " and diverged in 'other.db' ") in said


def test_results_that_differ_in_a_late_digit_are_told_apart(lab: Path, cli: Cli) -> None:
    shutil.copy("a.db", "other.db")
    for name, accuracy in (("a.db", "12.5"), ("other.db", "12.500000001")):
        alter(lab / name, f"UPDATE runs SET record = json_set(record, '$.matrix[2][0]', {accuracy}) WHERE id = 4")
    said = refusal(cli("merge", "a.db", "other.db"))
    assert " is 12.5 in 'a.db' " in said
    assert " and 12.500000001 in 'other.db' " in said


def test_where_and_when_is_no_conflict(lab: Path, cli: Cli) -> None:
    shutil.copy("a.db", "other.db")
    changes = "'$.created', '2020-01-01T00:00:00+00:00', '$.environment', json('{}'), '$.timings', json('{}')"
    alter(lab / "other.db", f"UPDATE runs SET record = json_set(record, {changes})")
    assert cli("merge", "a.db", "other.db").out == "a.db: 0 runs added, 18 were there already.\n"
