"""What there is: lists, help, version, the state of data, and the bench."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from tiny_lab import Ended

import threefold
from threefold import bench
from threefold.bench.floor import Floor
from threefold.bench.steps import Cost, Timing
from threefold.cli import run
from threefold.data.catalog import CATALOG
from threefold.methods import METHODS, Part, hyper
from threefold.methods.part import Setting
from threefold.methods.registry import Entry

Cli = Callable[..., Ended]


class Listed(Part):
    """A method with everything a list can show [and/or more]."""

    name = "listed"
    strength: float = hyper("how strong it is", gt=0)
    temperature: float = hyper("how hot it is", 2.0, gt=0)
    budget: int | None = hyper("how many it keeps; all if not given", per_replica=False, ge=1)

    def refuse(self, setting: Setting) -> str | None:
        return None if setting.outputs.scenario.task_known else "it must be told the task."


def words_of(ended: Ended) -> str:
    """What was printed, without the frames and line breaks of a table."""
    assert (ended.status, ended.err) == (0, "")
    return " ".join(re.sub(r"[^\x00-\x7f·–…−θλγξ]", " ", ended.out).split())


def test_methods_show_hyperparameters_and_where_they_work(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Entry("listed", "Listed", "Tests", "A method with everything a list can show [and/or more].", Listed)
    known = {name: METHODS[name] for name in ("none", "offline")} | {"listed": entry}
    monkeypatch.setattr("threefold.methods.METHODS", known)
    ended = cli("list", "methods")
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in ended.out.splitlines()]
    cells = [" ".join(filter(None, column)) for column in zip(*[row for row in rows if len(row) == 5], strict=True)]
    names, strategies, meanings, hyperparameters, where = cells
    assert names == "method none offline listed"
    assert strategies == "strategy Baselines Baselines Tests"
    assert "Joint training on the data of all tasks so far" in meanings
    assert "[and/or more]" in meanings
    assert "strength: how strong it is (must be given)" in hyperparameters
    assert "temperature: how hot it is (default: 2.0)" in hyperparameters
    assert "budget: how many it keeps; all if not given (default: none)" in hyperparameters
    assert where.count("Task-IL: yes") == 3
    assert where.count("Class-IL: yes") == 2
    assert "Class-IL: it must be told the task." in where


def test_every_method_is_listed(cli: Cli) -> None:
    listed = words_of(cli("list", "methods"))
    for name in METHODS:
        assert f" {name} " in listed


def test_streams_show_the_papers_settings(cli: Cli) -> None:
    listed = words_of(cli("list", "streams"))
    assert re.search(r"split the classes .* 5 2000 0.001 400 128", listed)
    assert re.search(r"permuted every task .* 10 5000 0.0001 1000 128", listed)


def test_networks_optimisers_and_schedules_show_what_they_are_told(cli: Cli) -> None:
    listed = words_of(cli("list", "networks"))
    for name, value in (("mlp", "depth: hidden layers (default: 2)"), ("cnn", "(default: 16-32-64-128-256)")):
        assert f" {name} " in listed
        assert value in listed
    assert re.search(r"norm: normalisation after each convolution .*none.*group.*batch", listed)
    assert re.search(r"resnet18 The reduced ResNet-18 .* width: .*default: 20", listed)
    listed = words_of(cli("list", "optimizers"))
    for name in ("adam", "adamw", "sgd", "betas", "momentum", "nesterov", "weight_decay", "reset"):
        assert name in listed
    assert "(default: 0.9-0.999)" in listed
    listed = words_of(cli("list", "schedules"))
    assert re.search(r"constant The same .* cosine From .* step The learning rate .*at: shares .*0.5-0.75", listed)
    assert re.search(r"factor: what the rate is multiplied with there .*default: 0.1", listed)


def test_scenarios_show_what_is_asked(cli: Cli) -> None:
    listed = words_of(cli("list", "scenarios"))
    assert "class Class-IL solve tasks so far and infer the task" in listed
    assert "task Task-IL" in listed
    assert "domain Domain-IL" in listed


def test_version(cli: Cli) -> None:
    assert cli("--version") == Ended(0, f"threefold {version('threefold')}\n", "")
    assert threefold.__version__ == version("threefold")


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["list", "--help"], ["data", "--help"], ["bench", "--help"]]
)
def test_help(cli: Cli, words: list[str]) -> None:
    ended = cli(*words)
    assert (ended.status, ended.err) == (0, "")
    assert "Usage: " in ended.out


def test_every_option_of_run_has_a_meaning(cli: Cli) -> None:
    shown = words_of(cli("run", "--help"))
    options = set(re.findall(r"--[a-z-]+", shown))
    assert options >= {"--scenario", "--method", "--seeds", "--tasks", "--iters", "--hidden", "--lr", "--batch"}
    assert options >= {"--data", "--device", "--precision", "--store", "--json", "--task-id-in"}
    for parameter in inspect.signature(run.run).parameters.values():
        assert parameter.annotation.__metadata__[0].help, parameter.name


@pytest.mark.parametrize("words", [[], ["data"]], ids=["threefold", "threefold data"])
def test_nothing_asked_shows_help_and_no_empty_error(cli: Cli, words: list[str]) -> None:
    ended = cli(*words)
    assert (ended.status, ended.err) == (2, "")
    assert "Usage: " in ended.out


def test_the_command_line_itself_does_not_import_torch() -> None:
    """Help is quick as far as this package goes; `import threefold`, which runs first, is left out here."""
    source = Path(threefold.__file__).parent
    code = (
        "import sys, types\n"
        f"package = types.ModuleType('threefold'); package.__path__ = [{str(source)!r}]\n"
        "sys.modules['threefold'] = package\n"
        "import threefold.cli.app\n"
        "print([name for name in ('torch', 'numpy', 'scipy', 'pydantic_core') if name in sys.modules])\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "torch" not in answer.stdout
    assert "scipy" not in answer.stdout


def test_output_that_a_terminal_cannot_show_is_no_error() -> None:
    code = "import sys; sys.argv = ['threefold', 'list', 'methods']; from threefold.cli import main; main()"
    environment = {"PYTHONIOENCODING": "ascii:strict", "PATH": ""}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=60)
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert b"online-ewc" in answer.stdout
    assert b"?" in answer.stdout, "where there was a Greek letter"


def test_check_tells_the_state_of_every_file(lab: Path, cli: Cli) -> None:
    data = lab.parent / "data" / "mnist"
    data.mkdir()
    (data / "t10k-labels-idx1-ubyte").write_bytes(b"damaged")
    ended = cli("data", "check", "mnist")
    assert (ended.status, ended.err) == (1, "")
    assert ended.out.splitlines() == [
        f"{data}/train-images-idx3-ubyte: missing",
        f"{data}/train-labels-idx1-ubyte: missing",
        f"{data}/t10k-images-idx3-ubyte: missing",
        f"{data}/t10k-labels-idx1-ubyte: damaged: has 7 bytes, not 10008",
    ]
    assert [path.name for path in data.iterdir()] == ["t10k-labels-idx1-ubyte"]  # it changes nothing


def test_check_without_a_name_looks_at_all(lab: Path, cli: Cli) -> None:
    ended = cli("data", "check")
    assert ended.status == 1
    assert len(ended.out.splitlines()) == sum(len(known.files) for known in CATALOG.values())


def test_check_of_whole_data_succeeds(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    good = threefold.data.FileState(lab / "some-file", "good")
    monkeypatch.setattr(threefold.data, "check", lambda name: [good])
    assert cli("data", "check", "mnist") == Ended(0, f"{lab}/some-file: good\n", "")


def test_fetch_says_where_it_is(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threefold.data, "fetch", lambda name, report: lab / name)
    ended = cli("data", "fetch")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines() == [f"{name}: verified in {lab}/{name}" for name in threefold.data.names()]


def test_bench_shows_ratios(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(device: str, rounds: int) -> Iterator[Timing]:
        assert (device, rounds) == ("cpu", 3)
        yield Timing("split", 20, cohort=6.0, alone=24.0, products=5.0)

    def costs(device: str, kind: object, rounds: int) -> Iterator[Cost]:
        assert (device, rounds) == ("cpu", 3)
        yield Cost("dgr", "Class-IL", step=15.0, none=6.0, floor=Floor(products=4.0, memory=5.0))

    monkeypatch.setattr(bench, "bench", measured)
    monkeypatch.setattr(bench, "bench_methods", costs)
    shown = words_of(cli("bench", "--device", "cpu", "--rounds", "3"))
    assert "split 20 6.00 24.00 5.00 0.25 1.20" in shown
    assert "dgr Class-IL 15.00 2.50 4.00 5.00 3.00" in shown


def test_methods_show_the_papers_values(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threefold.methods.METHODS", {"ewc": METHODS["ewc"]})
    rows = [re.split("[│┃]", line)[1:-1] for line in cli("list", "methods").out.splitlines()]
    shown = " ".join(row[3].strip() for row in rows if len(row) == 5)
    assert "split: task 1e+07, domain 1e+06, class 1e+08; permuted: task 500, domain 500, class 1" in shown
