"""A store for each test, and the results of uninterrupted training."""

from pathlib import Path

import pytest
from small_cells import train

from threefold.experiments import Result


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def folder(store: Path) -> Path:
    return Path(f"{store}.checkpoints")


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    return train(None, room=4)
