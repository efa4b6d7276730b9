"""The version of this package, and of the numbers that it computes."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _version() -> str:
    try:
        return version("threefold")
    except PackageNotFoundError:  # run from a source tree that was not installed
        project = Path(__file__).parents[2] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


VERSION = _version()

NUMERICS = 1
"""Part of every run's key. Raise it when a change is meant to alter results, and regenerate the frozen rows of
tests/learning: earlier stored runs stay, and none is mistaken for a new one."""
