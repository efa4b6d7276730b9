"""Plug-ins: the code and commands of docs/plugins.md, run as written."""

import csv
import os
import re
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from tiny_lab import Ended, refusal

import threefold
from threefold.cli import plugins
from threefold.methods import METHODS
from threefold.results import Store
from threefold.results.metrics import METRICS
from threefold.results.metrics import REGISTERED as MEASURED

Cli = Callable[..., Ended]
PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")


@pytest.fixture
def page(lab: Path) -> list[list[str]]:
    """The page's file in the working directory, and its commands."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (lab / "my_lab.py").write_text(code)
    return [line.split()[1:] for line in re.findall(r"^    (threefold .*)$", PAGE, re.MULTILINE)]


def test_the_page_works_as_it_stands(cli: Cli, page: list[list[str]]) -> None:
    run, report, methods = page
    assert cli(*run, "--device", "cpu", "--scenario", "class").status == 0
    shown = cli(*report)
    assert "Shrink (strength=0.1)" in shown.out
    assert re.search(r"\bnew\b", shown.out)
    listed = cli(*methods)
    assert "Every weight is pulled" in listed.out
    with Store("threefold.db", readonly=True) as store:
        (first, *_) = store.all()
    assert first.metrics["newest"] == first.matrix[-1][-1]


def test_reports_need_no_plugin_for_names_and_numbers(cli: Cli, page: list[list[str]], lab: Path) -> None:
    assert cli(*page[0], "--device", "cpu", "--scenario", "class").status == 0
    for name in ("shrink",):
        del METHODS[name]
    del MEASURED["newest"]
    METRICS[:] = [metric for metric in METRICS if metric.name != "newest"]
    assert "shrink (strength=0.1)" in cli("report").out
    assert cli("export", "csv", "all.csv").status == 0
    with (lab / "all.csv").open(newline="") as opened:
        assert {row["method"] for row in csv.DictReader(opened)} == {"shrink"}


def test_what_is_registered_has_the_key_of_its_code(cli: Cli, page: list[list[str]], lab: Path) -> None:
    run = [*page[0], "--device", "cpu", "--scenario", "class"]
    named = run[run.index("--network") + 1]
    assert cli(*run).status == 0
    again = [word if word != named else "my_lab.py:Small" for word in run]
    assert cli(*again).status == 0
    with Store("threefold.db", readonly=True) as store:
        assert len(list(store.all())) == 5


def test_streams_are_registered(cli: Cli, lab: Path) -> None:
    (lab / "mine.py").write_text(
        "import threefold\nclass Halves(threefold.Split):\n    pass\nthreefold.register_stream('halves', Halves)\n"
    )
    words = ["--data", "tiny.npz", "--tasks", "2", "--hidden", "8", "--iters", "5", "--batch", "16", "--device", "cpu"]
    assert cli("run", "halves", "--plugin", "mine.py", *words, "--scenario", "class", "--seeds", "2").status == 0
    assert "halves" in cli("list", "streams", "--plugin", "mine.py").out


@pytest.mark.parametrize(
    ("register", "sentence"),
    [
        (lambda: threefold.register_network("mlp", object), "name of a network is 'mlp', which threefold has already"),
        (lambda: threefold.register_network("a:b", object), "name of a network must be a letter, then letters"),
        (lambda: threefold.register_network("mine", 3), "network must be a class or function"),
        (lambda: threefold.register_stream("split", object), "name of a stream is 'split', which threefold has"),
        (lambda: threefold.register_stream("mine", None), "stream must be a subclass of Stream or a function"),
        (lambda: threefold.register_dataset("mnist", object), "name of a dataset is 'mnist', which threefold has"),
        (lambda: threefold.register_dataset("mine", "x.npz"), "dataset must be given as a function that reads it"),
        (
            lambda: threefold.register_metric("forgetting", "x", "X", "x", lambda *_: 0.0),
            "name of a metric is 'forgetting', which threefold has already",
        ),
        (lambda: threefold.register(threefold.Part, None, "X"), "strategy must be text, got None."),
        (lambda: threefold.register(threefold.Part, "X", 3), "title must be text, got 3."),
        (lambda: threefold.register_metric("mine", None, "X", "x", max), "short must be text, got None."),
        (
            lambda: threefold.register_metric("mine", "x", "X", "x", 3),
            "measured must be a function that gives a number",
        ),
        (
            lambda: threefold.register_metric("mine", "ACC", "X", "x", lambda *_: 0.0),
            "short is 'ACC', which another metric has",
        ),
    ],
)
def test_what_cannot_be_registered_is_a_sentence(register: Callable[[], None], sentence: str) -> None:
    with pytest.raises(threefold.ThreefoldError, match=re.escape(sentence)):
        register()


def test_a_dataset_that_is_read_as_something_else_is_refused(cli: Cli, lab: Path) -> None:
    (lab / "mine.py").write_text("import threefold\nthreefold.register_dataset('odd', list)\n")
    said = refusal(cli("run", "split-odd", "--plugin", "mine.py", "--seeds", "1"))
    assert "dataset 'odd' must be read as a Dataset, got a list." in said


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (None, "plugin 'mine.py' names a file that is not there"),
        ("1 / 0", "plugin 'mine.py' cannot be imported (ZeroDivisionError: division by zero)."),
        (
            "open('gone.csv')",
            "'mine.py' cannot be imported (FileNotFoundError: [Errno 2] No such file",
        ),
        ("import sys\nsys.exit(0)", "a method, network, stream or plug-in of your own called sys.exit; take that out."),
        ("import threefold\nthreefold.register_network('mlp', object)", "which threefold has already"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_a_sentence(cli: Cli, lab: Path, code: str | None, sentence: str) -> None:
    if code:
        (lab / "mine.py").write_text(code)
    assert sentence in refusal(cli("list", "networks", "--plugin", "mine.py"))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("1 / 0", "cannot be computed (ZeroDivisionError: division by zero)."),
        ("'many'", "cannot be computed (ValueError: could not convert string to float: 'many')."),
        ("None", "cannot be computed (TypeError: float() argument"),
        ("10**400", "cannot be computed (OverflowError: int too large to convert to float)."),
        ("float('inf')", "must be a finite number, or NaN where there is none, got inf."),
        ("seen[1].fill(0)", "cannot be computed (ValueError: assignment destination is read-only)."),
    ],
)
def test_a_metric_that_is_none_is_a_sentence_and_the_runs_are_kept(
    cli: Cli, lab: Path, function: str, told: str
) -> None:
    code = f"import threefold\nthreefold.register_metric('mine', 'm', 'M', 'm', lambda *seen: {function})\n"
    (lab / "mine.py").write_text(code)
    sizes = ["--tasks", "2", "--hidden", "8", "--iters", "2", "--batch", "16", "--device", "cpu", "--seeds", "2"]
    run = ["run", "split", "--data", "tiny.npz", "--scenario", "class", *sizes]
    assert f"metric 'mine' {told}" in refusal(cli(*run, "--plugin", "mine.py"))
    del MEASURED["mine"], METRICS[-1]
    assert "2 of 2 runs done" in cli("status").out


def test_a_dataset_that_cannot_be_read_is_a_sentence(cli: Cli, lab: Path) -> None:
    (lab / "mine.py").write_text("import threefold\nthreefold.register_dataset('odd', lambda: 1 / 0)\n")
    said = refusal(cli("run", "split-odd", "--plugin", "mine.py", "--seeds", "1"))
    assert "dataset 'odd' cannot be read (ZeroDivisionError: division by zero)." in said


@pytest.mark.parametrize("name", ["json", "torch", "tensorboard", "threefold", "__main__"])
def test_a_plugin_takes_no_place_of_an_installed_module(cli: Cli, lab: Path, name: str) -> None:
    before = sys.modules.get(name)
    (lab / f"{name}.py").write_text("x = 1\n")
    said = refusal(cli("list", "networks", "--plugin", f"{name}.py"))
    assert f"plugin '{name}.py' has the name of an installed module, which it would replace; rename it." in said
    assert sys.modules.get(name) is before


def test_code_that_is_no_file_is_refused_without_waiting(cli: Cli, lab: Path) -> None:
    os.mkfifo(lab / "mine.py")
    os.symlink("/dev/zero", lab / "endless.py")
    for words in (["list", "networks", "--plugin"], ["run", "split-mnist", "--network"]):
        for name in ("mine.py", "endless.py"):
            assert "it is a pipe or device, not a file" in refusal(cli(*words, name))


def test_a_stream_that_ends_the_process_is_a_sentence(cli: Cli, lab: Path) -> None:
    (lab / "mine.py").write_text("import sys\ndef ends(data, seed):\n    sys.exit(0)\n")
    assert "called sys.exit; take that out." in refusal(cli("run", "mine.py:ends", "--data", "tiny.npz"))


def test_installed_plugins_are_imported_by_every_command(
    cli: Cli, page: list[list[str]], lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(lab))
    installed = EntryPoint("my_lab", "my_lab", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [installed] if group == plugins.GROUP else [])
    assert "shrink" in cli("list", "methods").out
    broken = EntryPoint("gone", "no_such_module_of_mine", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [broken])
    assert "plug-in 'gone' of an installed package cannot be imported" in refusal(cli("list", "methods"))
