"""`active=all`, all output units active from the start: on the command line, in files, in Python and in reports."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_lab import SETTINGS, Ended, refusal

import threefold
from threefold import Split
from threefold.results import Store

Cli = Callable[..., Ended]
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "2", *SETTINGS, "--seeds", "2"]
ASKED = ["--active", "all", "--method", "none", "--method", "icarl:budget=8"]
FILE = """
stream = "split"
data = "tiny.npz"
tasks = 2
seeds = 2
training = { iters = 6, hidden = 8, batch = 16, active = "all" }
methods = [{ method = "none" }, { method = "icarl", with = { budget = 8 } }]
"""


def test_it_is_asked_for_in_three_ways_and_shown(lab: Path, cli: Cli) -> None:
    shown = cli(*RUN, *ASKED)
    assert shown.out.startswith("split-tiny, all units active in Class-IL: average accuracy"), shown
    with Store("threefold.db") as store:
        ours = {record.key: record.spec for record in store.all()}
    actives = {
        (spec["method"]["name"], spec["scenario"]["name"]): spec["scenario"].get("active") for spec in ours.values()
    }
    assert actives == {
        ("none", "task"): None,
        ("none", "domain"): None,
        ("none", "class"): "all",
        ("icarl", "class"): None,
    }
    (lab / "mine.toml").write_text(FILE)
    cli("experiment", "mine.toml", "--device", "cpu")
    threefold.run(
        Split(threefold.load("tiny.npz"), 2),
        **{"scenario": "class", "iters": 6, "hidden": 8, "batch": 16, "device": "cpu", "seeds": 2, "active": "all"},
    )
    with Store("threefold.db") as store:
        assert {record.key for record in store.all()} == set(ours), "nothing was trained anew"
    for format_ in ("markdown", "html"):
        assert "all units active in Class-IL" in cli("report", "--format", format_).out


def test_in_one_table_both_are_told_apart(lab: Path, cli: Cli) -> None:
    for words in ([], ["--active", "all"]):
        cli(*RUN, "--scenario", "class", *words)
    text = cli("report", "--format", "markdown").out
    assert "None (active=all)" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--active", "some"], "active 'some' is not known; known: all, seen."),
        (
            ["--active", "all", "--scenario", "task"],
            "active is 'all', but in Task-IL no units of other tasks compete; it is for Class-IL only.",
        ),
    ],
)
def test_what_cannot_be_is_refused(lab: Path, cli: Cli, words: list[str], sentence: str) -> None:
    assert sentence in refusal(cli(*RUN, *words))
    (lab / "mine.toml").write_text(FILE.replace("seeds = 2", 'seeds = 2\nscenarios = ["task"]'))
    assert "active is 'all', but in Task-IL" in refusal(cli("experiment", "mine.toml"))
    assert not (lab / "threefold.db").exists()
