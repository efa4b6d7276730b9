"""Packages are pinned by hash, and `make test` says so before it installs anything."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)(?: ; [^\\]*)?")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file: str) -> dict[str, list[str]]:
    """The pinned packages, by name, each with its sums."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        pin, *sums = line.split(" --hash=")
        matched = PIN.fullmatch(pin.strip())
        assert matched, line
        found[canonical(matched[1])] = [each.strip() for each in sums]
    return found


def test_every_package_is_pinned_by_sums_but_pytorch() -> None:
    packages, torch = locked("requirements.lock"), locked("requirements-torch.lock")
    assert set(torch) == {"torch"}
    for name, sums in packages.items():
        assert sums, name
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in sums), name
        assert len(set(sums)) == len(sums), name
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [each for some in project["optional-dependencies"].values() for each in some]
    for wanted in (*project["dependencies"], *extras, "hatchling", "editables", "setuptools"):
        name = canonical(re.split(r"[\[><=; ]", wanted)[0])
        assert name in {*packages, *torch, "threefold"}, name
    assert "--require-hashes -r requirements.lock" in (ROOT / "Makefile").read_text()


def test_make_says_that_it_will_install_a_browser_before_it_does(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / "programs"
    for folder in (programs, tmp_path / ".venv" / "bin"):
        folder.mkdir(parents=True)
    for name in ("requirements.lock", "requirements-torch.lock", "pyproject.toml", ".venv/.installed"):
        (tmp_path / name).touch()
    tools = {name: tmp_path / ".venv/bin" / name for name in ("ruff", "mypy", "pytest")}
    for place in (*tools.values(), programs / "apt-get"):
        place.write_text(f"#!/bin/sh\necho {place.name} $1 >&2\n")
        place.chmod(0o755)
    for name in ("sh", "touch", "cat"):
        (programs / name).symlink_to(shutil.which(name) or "")
    environment = {"PATH": str(programs), "HOME": os.environ.get("HOME", "/")}

    def make() -> list[str]:
        words = [shutil.which("make") or "make", "test"]
        ended = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stdout
        return ended.stdout.splitlines()

    lines = make()
    assert lines[0].startswith("make test: installing Debian's chromium")
    assert lines[1:3] == ["apt-get -qq", "apt-get -qq"]
    (programs / "chromium").symlink_to(programs / "sh")
    assert not [line for line in make() if "apt-get" in line or "chromium" in line]
