"""The git revision in a row: that of threefold's own source, or none, read without running hooks or filters."""

import os
import subprocess
from pathlib import Path

import pytest

from threefold import revision as module
from threefold.revision import revision

PROGRAMS = ("core.fsmonitor", "core.hooksPath", "filter.own.clean", "filter.own.process", "remote.origin.uploadpack")


def git(top: Path, *words: str) -> str:
    """git as a user runs it, whatever the machine's own settings are."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    as_somebody = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    command = ["git", *as_somebody, "-C", str(top), *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def commit(top: Path, *paths: str) -> str:
    """A repository with these files in it; the answer is its revision."""
    git(top, "init", "--quiet")
    git(top, "add", "--force", *paths)
    git(top, "commit", "--quiet", "--message", "All of it")
    return git(top, "rev-parse", "--short=12", "HEAD")


def package(folder: Path) -> Path:
    """A package that looks like ours."""
    made = folder / "threefold"
    (made / "engine").mkdir(parents=True)
    (made / "__init__.py").write_text("")
    (made / "engine" / "train.py").write_text("steps = 1\n")
    return made


@pytest.fixture(autouse=True)
def _not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THREEFOLD_REVISION", raising=False)


def test_a_checkout_has_the_revision_of_its_commit(tmp_path: Path) -> None:
    for layout in ("src", "."):
        top = tmp_path / f"with {layout}"
        ours = package(top / layout)
        (top / "notes.txt").write_text("mine")
        name = commit(top, ".")
        assert revision(ours) == name
        (top / "notes.txt").write_text("changed, but not threefold's source")
        assert revision(ours) == name
        (ours / "engine" / "train.py").write_text("steps = 2\n")
        assert revision(ours) == f"{name}-dirty"
        git(top, "checkout", "--quiet", "--", ".")
        (ours / "engine" / "train.py").unlink()
        assert revision(ours) == f"{name}-dirty"


def test_this_very_source_is_a_checkout_or_not_one() -> None:
    top = Path(module.__file__).parent.parent.parent
    name = git(top, "rev-parse", "--short=12", "HEAD") if (top / ".git").exists() else None
    assert revision() in (name, f"{name}-dirty")


def test_installed_inside_another_repository_it_has_none(tmp_path: Path) -> None:
    ours = package(tmp_path / ".venv" / "lib" / "python3.11" / "site-packages")
    (tmp_path / "thesis.tex").write_text("")
    commit(tmp_path, "thesis.tex")
    assert revision(ours) is None


def test_copied_untracked_into_another_repository_it_has_none(tmp_path: Path) -> None:
    ours = package(tmp_path / "src")
    (tmp_path / "thesis.tex").write_text("")
    commit(tmp_path, "thesis.tex")
    assert revision(ours) is None


def test_a_damaged_repository_is_not_mistaken_for_the_one_around_it(tmp_path: Path) -> None:
    ours = package(tmp_path / "inner" / "src")
    commit(tmp_path, "inner")
    (tmp_path / "inner" / ".git").mkdir()
    assert revision(ours) is None


def test_a_hook_that_trains_does_not_lead_to_its_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = package(tmp_path / "ours" / "src")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    name = commit(tmp_path / "ours", ".")
    commit(tmp_path / "other", "file")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))  # as git sets it for its hooks
    assert revision(ours) == name


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "objects to fetch"])
def test_a_hostile_repository_runs_nothing(tmp_path: Path, missing: bool) -> None:
    ours, ran = package(tmp_path / "src"), tmp_path / "ran"
    (tmp_path / ".gitattributes").write_text("* filter=own\n")
    name = commit(tmp_path, "src", ".gitattributes")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for program in (tmp_path / "program", hooks / "post-index-change", hooks / "pre-commit"):
        program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
        program.chmod(0o700)
    for setting in PROGRAMS:
        git(tmp_path, "config", setting, str(hooks if setting == "core.hooksPath" else tmp_path / "program"))
    git(tmp_path, "config", "remote.origin.url", str(tmp_path))
    git(tmp_path, "config", "remote.origin.promisor", "true")
    git(tmp_path, "config", "extensions.partialClone", "origin")
    os.utime(ours / "__init__.py", (0, 0))  # so that git would look at its content
    if missing:
        tree = git(tmp_path, "rev-parse", "HEAD:src")
        (tmp_path / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    assert revision(ours) == (None if missing else name)
    assert not ran.exists()
    subprocess.run(["git", "-C", str(tmp_path), "status"], capture_output=True)
    assert ran.exists(), "an ordinary command of git runs it"


def test_what_is_told_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREEFOLD_REVISION", "v1-of-a-container")
    assert revision() == "v1-of-a-container"


def test_without_git_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = package(tmp_path / "src")
    commit(tmp_path, ".")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision(ours) is None
