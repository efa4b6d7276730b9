"""Progress goes to stderr where that is a terminal, and nowhere else."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_lab import Ended, Terminal

from threefold import Dataset, Method, Split, ThreefoldError
from threefold.engine import Progress
from threefold.experiments import Cell, Cohort, Run, Settings
from threefold.experiments.progress import LINES, Bars, fetching
from threefold.scenarios import SCENARIOS

Cli = Callable[..., Ended]
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "2", "--hidden", "8", "--batch", "16", "--device", "cpu"]
RUN += ["--scenario", "class", "--method", "none", "--method", "offline", "--seeds", "3"]


def test_on_a_terminal_there_are_bars_with_speed_tasks_and_accuracy(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(monkeypatch)
    ended = cli(*RUN, "--iters", "250", "--json")
    assert ended.status == 0
    assert len(json.loads(ended.out)["results"]) == 2
    shown = terminal.text()
    assert re.search(r"all \S+ 0/2", shown)
    assert re.search(r"Class-IL none ×3 \S* *\d+/500 task 1/2 · \d+ steps/s", shown)
    assert re.search(r"task 2/2 · \d+ steps/s · \d+\.\d% so far", shown)
    assert re.search(r"Class-IL offline ×3 \S* *\d+/500", shown)
    assert re.search(r"split-tiny Class-IL none: \d+\.\d\d ± \d+\.\d\d\r?\n", shown)


def test_each_cohort_in_training_has_a_line_of_its_own_and_many_are_counted() -> None:
    x, y = np.zeros((20, 2, 2), np.float32), np.arange(20) % 4
    split = Split(Dataset.from_arrays(x, y, x, y), tasks=2)
    cell = Cell.of(split, SCENARIOS["class"], Method(), Settings.checked(device="cpu"))
    bars = Bars(2)
    cohorts = [Cohort((Run(cell, seed), Run(cell, seed + 100))) for seed in range(LINES + 2)]
    for cohort in cohorts:
        bars.cohort(cohort)
    for cohort in cohorts[:2] + cohorts[-1:]:
        bars.progress(Progress(step=30, steps=40, task=1, tasks=2, accuracy=55.5), cohort)
    whole, first, second, third, *_ = lines = bars.bars.tasks
    assert len(lines) == 1 + LINES
    assert whole.fields["note"] == "2 more in training"
    for line in (first, second):
        assert re.fullmatch(r"task 2/2.* · 55\.5% so far", line.fields["note"])
        assert (line.description, line.completed, line.total) == ("Class-IL none ×2", 30, 40)
    assert (third.fields["note"], third.completed) == ("", 0)
    for cohort in cohorts[1:3]:
        bars.ended(cohort)
    assert len(bars.bars.tasks) == 1 + LINES, "those without a line have one now"
    assert whole.fields["note"] == ""
    for cohort in cohorts:
        bars.ended(cohort)
    assert bars.bars.tasks == [whole]


def test_what_is_in_the_store_is_not_shown_as_training(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cli(*RUN, "--iters", "5", "--json")
    terminal = Terminal(monkeypatch)
    assert cli(*RUN, "--iters", "5", "--json").out == first.out
    shown = terminal.text()
    assert "steps/s" not in shown
    assert "split-tiny Class-IL offline:" in shown


def test_an_error_after_bars_is_still_one_sentence(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    assert cli(*RUN, "--store", "no/s.db")[:2] == (2, "")
    assert terminal.text().splitlines()[-1].startswith("threefold: store 'no/s.db' cannot be created")


@pytest.mark.parametrize("forced", ["", "1"], ids=["plain", "FORCE_COLOR"])
def test_without_a_terminal_there_is_nothing(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, forced: str) -> None:
    """A log file gets no bars, also not where a CI service asks for colours."""
    monkeypatch.setenv("FORCE_COLOR", forced)
    ended = cli(*RUN, "--iters", "20", "--json")
    assert (ended.status, ended.err) == (0, "")
    assert "\x1b" not in ended.out


def test_downloads_have_bars_and_remarks_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with fetching() as report:
        report("https://mirror/[/train].gz", 0, None)
        report("https://mirror/[/train].gz", 500, 1000)
        report("https://mirror/ (answered 404)", 0, 0)
        report("https://mirror/[/train].gz", 1000, 1000)
    shown = terminal.text()
    assert re.search(r"https://mirror/\[/train\]\.gz \S+ *1\.0/1\.0 kB", shown)
    assert "https://mirror/ (answered 404)\r\n" in shown


def test_elsewhere_only_damaged_data_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with fetching() as report:
        report("https://mirror/train.gz", 500, 1000)
        report("https://mirror/ (answered 404)", 0, 0)
        report("damaged data: file '/data/[x]' (has 1 bytes, not 2; set aside as [x].damaged)", 0, 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "threefold: damaged data: file '/data/[x]' (has 1 bytes, not 2; set aside as [x].damaged)\n"
    )


def test_fetching_that_fails_leaves_the_telling_to_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fetch() -> None:
        with fetching() as report:
            report("damaged data: file 'x'", 0, 0)
            raise ThreefoldError("it could not be obtained")

    with pytest.raises(ThreefoldError):
        fetch()
    assert capsys.readouterr().err == ""
