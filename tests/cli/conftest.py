import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_lab import trained
from tiny_lab import write_npz

import threefold.data.sources
from threefold.data import REGISTERED as DATASETS
from threefold.data.download import SourceFailed
from threefold.methods import METHODS, Part, hyper
from threefold.methods.part import Setting
from threefold.methods.registry import Entry
from threefold.networks.spec import REGISTERED as NETWORKS
from threefold.results.metrics import METRICS
from threefold.results.metrics import REGISTERED as MEASURED
from threefold.streams.find import REGISTERED as STREAMS


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with tiny.npz, an empty data folder, and no way to fetch anything."""

    def no_network(url: str, *_: object) -> bytes:
        raise SourceFailed("no network")

    work = tmp_path / "work"
    for folder in (work, tmp_path / "data", tmp_path / "programs"):
        folder.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("THREEFOLD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setattr(threefold.data.sources, "download", no_network)
    write_npz(work / "tiny.npz")
    return work


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What a test registers is gone after it."""
    known = [(each, dict(each)) for each in (METHODS, NETWORKS, DATASETS, MEASURED, STREAMS)]
    metrics = list(METRICS)
    yield
    for name in ("my_lab", "mine"):
        sys.modules.pop(name, None)
    for registry, before in known:
        registry.clear()  # type: ignore[attr-defined]
        registry.update(before)  # type: ignore[attr-defined]
    METRICS[:] = metrics


@pytest.fixture(scope="session")
def small_experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small experiment, its data and its store; to be copied, not changed."""
    return trained(tmp_path_factory.mktemp("small"))


@pytest.fixture
def place(small_experiment: Path, lab: Path) -> Path:
    """The small experiment's folder, to be changed."""
    for path in small_experiment.iterdir():
        if path.is_file():
            shutil.copy(path, lab)
    return lab


class Picky(Part):
    """A method that needs to be told the task."""

    name = "picky"
    strength: float = hyper("does nothing", 1.0, gt=0)

    def refuse(self, setting: Setting) -> str | None:
        if setting.outputs.scenario.task_known:
            return None
        return f"Picky must be told the task [always]; in {setting.outputs.scenario.title} it is not."


@pytest.fixture
def picky(monkeypatch: pytest.MonkeyPatch) -> None:
    """That method is known."""
    monkeypatch.setitem(METHODS, "picky", Entry("picky", "Picky One", "Tests", "", Picky))
