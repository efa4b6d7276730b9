import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tiny_lab import Ended, write_npz

import threefold.data.sources
from threefold.cli import main
from threefold.data.download import SourceFailed


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Nets this small gain nothing from a second thread, and lose much where other processes want its core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The command line, in this process: a new one would spend seconds on importing torch."""

    def call(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["threefold", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return call
