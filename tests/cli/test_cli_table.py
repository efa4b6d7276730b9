"""`threefold run` without `--json`: a table, the reasons for its dashes, and how to run it in full."""

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_lab import SETTINGS, Ended, Terminal, arrays, with_option

import threefold
from threefold.cli.run import typed
from threefold.experiments import Request

Cli = Callable[..., Ended]
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "2", *SETTINGS]


pytestmark = pytest.mark.usefixtures("picky")


def shown(ended: Ended) -> list[str]:
    assert (ended.status, ended.err) == (0, "")
    return ended.out.splitlines()


def row(lines: list[str], name: str) -> list[str]:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    (found,) = [cells for first, *cells in rows if first == name]
    return found


class Planned(Exception):
    """What a command would have run."""

    def __init__(self, request: Request) -> None:
        self.cells, self.seeds = [asked.cell for asked in request.asked], request.asked[0].seeds


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Callable[[str], Planned]:
    """Parse a command, as far as what it would train."""

    def planned(requests: Sequence[Request], *_: object, **__: object) -> None:
        (request,) = requests
        raise Planned(request)

    def call(command: str) -> Planned:
        program, *words = shlex.split(command)
        assert program == "threefold"
        with monkeypatch.context() as patch:
            patch.setattr("threefold.experiments.train_requests", planned)
            with pytest.raises(Planned) as caught:
                cli(*words)
        return caught.value

    return call


def test_a_table_with_dashes_and_their_reasons(lab: Path, cli: Cli) -> None:
    lines = shown(cli(*RUN, "--method", "none", "--method", "picky", "--seeds", "2"))
    assert lines[0].startswith("split-tiny: average accuracy over all tasks, per cent (mean ± SEM of 2 seeds)")
    number = r"\d+\.\d\d ± \d+\.\d\d"
    assert len(row(lines, "None")) == 3, "nothing is published of these data"
    for cell in row(lines, "None"):
        assert re.fullmatch(number, cell)
    picky = row(lines, "Picky One")
    assert re.fullmatch(number, picky[0])
    assert picky[1:] == ["–"] * 2
    for title in ("Domain-IL", "Class-IL"):
        assert f"– Picky One in {title}: Picky must be told the task [always]; in {title} it is not." in lines


def test_numbers_are_those_of_the_json(lab: Path, cli: Cli) -> None:
    words = [*RUN, "--scenario", "domain", "--seeds", "3"]
    lines = shown(cli(*words))
    accuracy = json.loads(cli(*words, "--json").out)["results"][0]["accuracy"]
    assert row(lines, "None") == [f"{accuracy['mean']:.2f} ± {accuracy['sem']:.2f}"]


@pytest.fixture
def small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small data that go by MNIST's name."""
    made = threefold.Dataset.from_arrays(**arrays(classes=10, train=400), name="mnist")
    monkeypatch.setattr("threefold.experiments.request.load", lambda name, report: made)


@pytest.mark.parametrize(("columns", "narrow"), [(80, True), (120, False)])
@pytest.mark.usefixtures("small_mnist")
def test_a_table_fits_the_terminal(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int, narrow: bool
) -> None:
    """At 80 columns, too, every number and every name is there."""
    terminal = Terminal(monkeypatch, "stdout", columns)
    words = ["run", "split-mnist", *SETTINGS, "--method", "none", "--method", "offline", "--seeds", "2"]
    assert cli(*words).status == 0
    lines = [line.rstrip() for line in terminal.text().splitlines()]
    table = [line for line in lines if line.startswith(("┃", "│"))]
    assert max(map(len, table)) <= columns
    assert not any("…" in line for line in table)
    assert (len(row(lines, "None")), len(row(lines, "Offline"))) == ((3, 3) if narrow else (6, 6))


def test_one_seed_has_no_standard_error(lab: Path, cli: Cli) -> None:
    lines = shown(cli(*RUN, "--scenario", "class", "--seeds", "1"))
    assert "SEM of 1 seed)" in " ".join(" ".join(lines).split())
    assert re.fullmatch(r"\d+\.\d\d", row(lines, "None")[0])


@pytest.mark.parametrize(("epochs", "told"), [("1", "1 epoch"), ("2", "2 epochs")])
def test_a_length_is_told_in_words(lab: Path, cli: Cli, epochs: str, told: str) -> None:
    words = [*RUN, "--scenario", "class", "--seeds", "1"]
    place = words.index("--iters")
    assert cli(*words[:place], "--epochs", epochs, *words[place + 2 :]).status == 0
    assert f"split-tiny, {told}\n" in cli("report", "--format", "markdown").out


def test_variants_of_one_method_have_rows_of_their_own(lab: Path, cli: Cli) -> None:
    asked = ["--method", "picky", "--method", "picky:strength=2"]
    lines = shown(cli(*RUN, "--scenario", "task", *asked, "--seeds", "1"))
    assert row(lines, "Picky One")
    assert row(lines, "Picky One (strength=2)")


@pytest.mark.usefixtures("small_mnist")
def test_what_was_shortened_and_a_command_that_runs_it_in_full(
    lab: Path, cli: Cli, plan: Callable[[str], Planned]
) -> None:
    words = ["run", "split-mnist", "--tasks", "2", *SETTINGS, "--lr", "0.01", "--scenario", "task"]
    words += ["--scenario", "class", "--method", "none", "--method", "picky:strength=2.5", "--seeds", "5-7"]
    lines = shown(cli(*words))
    assert sum(line.count("(paper's") for line in lines) == 2, (
        "None's, in both scenarios: the learning rate differs, too"
    )
    assert [each["published"] for each in json.loads(cli(*words, "--json").out)["results"]] == [None] * 3
    note = next(line for line in lines if line.startswith("This was shortened"))
    match = re.fullmatch(
        r"This was shortened: 6 of 2000 iterations per task, 2 of 5 tasks, 8 of 400 units per layer, 3 of 20 seeds\."
        r" In full: (threefold run .*)",
        note,
    )
    assert match
    short, full = plan(shlex.join(["threefold", *words])), plan(match[1])
    assert list(full.seeds) == list(range(1, 21))
    assert [cell.name for cell in full.cells] == [cell.name for cell in short.cells]
    for mine, theirs in zip(short.cells, full.cells, strict=True):
        expected = mine.spec()
        expected["training"]["iters"] = 2000
        expected["network"]["hyperparameters"]["width"] = 400
        expected["stream"]["tasks"] = 5
        assert theirs.spec() == expected
        assert theirs.cuts() == []


def test_data_of_ones_own_have_no_length_but_their_own(lab: Path, cli: Cli) -> None:
    out = cli(*RUN, "--scenario", "class", "--seeds", "2").out
    assert "split-tiny: average accuracy" in out
    assert "shortened" not in out
    assert "published" not in out


@pytest.mark.usefixtures("small_mnist")
def test_the_full_command_uses_the_task_where_it_was_used(lab: Path, cli: Cli, plan: Callable[[str], Planned]) -> None:
    words = ["run", "permuted-mnist", *SETTINGS, "--method", "xdg", "--scenario", "task", "--task-id-in", "hidden"]
    lines = shown(cli(*words, "--seeds", "2"))
    assert row(lines, "None")[1] == "90.41 ± 0.32", "as Table B.1 has it"
    assert "Task-IL, task in hidden layers" in lines[2]
    note = next(line for line in lines if line.startswith("This was shortened"))
    command = note.partition("In full: ")[2]
    assert command == (
        "threefold run permuted-mnist --scenario task --method xdg --batch 16 --task-id-in hidden --seeds 20"
    )
    (cell,) = plan(command).cells
    assert (cell.task_id_in, cell.training.iters, cell.stream.title) == ("hidden", 5000, "permuted-mnist")


@pytest.mark.usefixtures("small_mnist")
def test_only_what_was_cut_is_said_to_be(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threefold.Split, "defaults", replace(threefold.Split.defaults, iters=6, hidden=8))
    words = ["run", "split-mnist", *SETTINGS, "--scenario", "class", "--seeds"]
    assert "shortened: 2 of 20 seeds. In full" in cli(*words, "2").out
    assert "shortened" not in cli(*words, "20").out
    assert "shortened: 5 of 6 iterations per task. In full" in cli(*with_option(words, "--iters", "5"), "20").out
    longer = cli(*with_option(words, "--iters", "7"), "2").out
    assert "shortened: 2 of 20 seeds. In full" in longer
    assert "--iters 7" in longer, "what was longer than the paper's stays so"


def test_scenarios_may_be_named_one_after_the_other(lab: Path, cli: Cli, plan: Callable[[str], Planned]) -> None:
    told = plan(shlex.join(["threefold", *RUN, "--scenario", "class", "--scenario", "task"]))
    assert [cell.scenario.name for cell in told.cells] == ["task", "class"]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/usr/bin/threefold", "run", "split", "--store", "own.db", "--seeds", "2"], "threefold run split --seeds 2"),
        (["threefold", "run", "split", "--store=own.db"], "threefold run split"),
        (["lab.py", "run", "split", "--data", "my own.npz"], "python lab.py run split --data 'my own.npz'"),
    ],
)
def test_a_command_is_remembered_without_its_store_and_with_its_program(words: list[str], command: str) -> None:
    """Whoever shows it knows the store, and names it once; a method of one's own is known to one's own program."""
    assert typed(words) == command


@pytest.mark.usefixtures("small_mnist")
def test_gates_in_the_hidden_layers_have_one_name_in_the_table_and_in_the_report(lab: Path, cli: Cli) -> None:
    words = ["run", "permuted-mnist", "--tasks", "2", *SETTINGS, "--scenario", "task", "--task-id-in", "hidden"]
    lines = shown(cli(*words, "--method", "ewc+xdg", "--seeds", "1"))
    assert row(lines, "EWC")
    (cells,) = csv.DictReader(io.StringIO(cli("report", "--format", "csv").out))
    assert (cells["method"], cells["scenario"], cells["written"]) == (
        "EWC",
        "Task-IL, task in hidden layers",
        "ewc+xdg",
    )
    assert "Task-IL, task in hidden layers" in lines[2]
