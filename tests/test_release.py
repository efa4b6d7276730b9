"""A release can be made: the wheel and the sdist hold what is needed, and what they install runs."""

import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import threefold

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def test_the_version_is_said_in_one_place(built: Path) -> None:
    names = sorted(path.name for path in built.iterdir())
    version = threefold.__version__
    assert names == [f"threefold-{version}-py3-none-any.whl", f"threefold-{version}.tar.gz"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_what_the_wheel_installs_runs_without_the_source(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    code = "import threefold; from threefold.experiments.spec import paper_experiment; print(threefold.__file__);"
    code += "print(paper_experiment('table4').title); from threefold.report import html"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    where, title = ran.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path)
    assert title.startswith("Table 4")


def test_the_sdist_has_the_source_and_the_pages_and_nothing_that_git_ignores(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"src/threefold/__init__.py", "README.md", "LICENSE", "CHANGELOG.md", "docs/metrics.md"} <= names
    assert not [name for name in names if name.startswith((".venv", ".vendor", ".data", ".site"))]


def test_a_source_tree_that_is_not_installed_knows_its_version(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src" / "threefold", tmp_path / "src" / "threefold", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    code = "import sys; sys.path.insert(0, 'src'); import importlib.metadata as m\n"
    code += (
        "def gone(name): raise m.PackageNotFoundError\nm.version = gone\nimport threefold; print(threefold.__version__)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == threefold.__version__


def test_windows_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "tracebacklimit", 1000, raising=False)
    with pytest.raises(ImportError, match=r"^threefold runs on Linux and macOS; on Windows run it in WSL, .*\.$"):
        runpy.run_path(str(ROOT / "src" / "threefold" / "__init__.py"))


def test_every_name_that_is_offered_is_there() -> None:
    assert [name for name in threefold.__all__ if not hasattr(threefold, name)] == []
