from pathlib import Path

import pytest
from tiny_lab import write_npz

import threefold.data.sources
from threefold.data.download import SourceFailed


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
