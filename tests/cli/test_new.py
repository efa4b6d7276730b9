"""What `threefold new` writes runs as it is, and its test passes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_lab import Ended, contents, refusal

Cli = Callable[..., Ended]
SHORT = ["--tasks", "2", "--iters", "6", "--batch", "16", "--device", "cpu", "--seeds", "2", "--scenario", "task"]


def _written(kind: str, cli: Cli) -> list[str]:
    said = cli("new", kind, f"my_{kind}")
    assert said.status == 0
    assert said.out.startswith(f"my_{kind}.py and test_my_{kind}.py are written. Try: threefold run ")
    return [f"my_{kind}.py", f"test_my_{kind}.py"]


def test_what_is_written_passes_its_own_test_and_the_linter(cli: Cli, lab: Path) -> None:
    files = [name for kind in ("method", "network", "stream") for name in _written(kind, cli)]
    subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=E,F,W", "--line-length=120", *files], check=True
    )
    subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", "--isolated", "--line-length=120", *files], check=True
    )
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("method", ["run", "split", "--plugin", "mine.py", "--method", "mine:strength=0.5", "--hidden", "8"]),
        ("network", ["run", "split", "--network", "mine.py:Mine", "--method", "ewc:strength=1"]),
    ],
)
def test_the_command_line_takes_it(kind: str, words: list[str], cli: Cli, lab: Path) -> None:
    sys.modules.pop("mine", None)
    assert cli("new", kind, "mine").status == 0
    assert cli(*words, "--data", "tiny.npz", *SHORT).status == 0
    sys.modules.pop("mine", None)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["methods", "mine"], "kind 'methods' is not known; did you mean 'method'?"),
        (["method", "my method"], "name must be letters, digits and _, a letter first, got 'my method'."),
        (["method", "class"], "name must be letters, digits and _, a letter first, got 'class'."),
        (["method", "../mine"], "name must be letters, digits and _, a letter first, got '../mine'."),
        (["method", "tiny"], "file 'tiny.py' is there already; use another name."),
        (["method", "ewc"], "name is 'ewc', which is a method of threefold; use another name."),
        (["stream", "torch"], "name is 'torch', which is an installed module; use another name."),
        (["network", "json"], "name is 'json', which is an installed module; use another name."),
        (["method", "dangling"], "file 'dangling.py' is there already; use another name."),
        (["method", "x" * 300], "cannot be written (File name too long)"),
        (["method", "x" * 250], "cannot be written (File name too long)"),  # the test's name is longer
        (["method", "other"], "file 'test_other.py' is there already; use another name."),
    ],
)
def test_nothing_is_written_over_and_no_name_is_odd(words: list[str], sentence: str, cli: Cli, lab: Path) -> None:
    for name in ("tiny.py", "test_other.py"):
        (lab / name).write_text("mine")
    (lab / "dangling.py").symlink_to("gone")
    before = contents(lab)
    assert sentence in refusal(cli("new", *words))
    assert contents(lab) == before
