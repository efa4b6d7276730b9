from pathlib import Path

import pytest
from tiny_mirror import Mirror, serving

from threefold.data import Dataset, load


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def mirror():
    with serving() as running:
        assert isinstance(running, Mirror)
        yield running


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    """The real one, fetched through the product into the per-user cache."""
    return load("mnist")


@pytest.fixture
def remarks():
    """A report that keeps what was said: `remarks.texts` the remarks, `remarks.progress` the rest."""

    class Heard:
        def __init__(self) -> None:
            self.texts: list[str] = []
            self.progress: list[tuple[str, int, int | None]] = []

        def __call__(self, text: str, done: int, total: int | None) -> None:
            if total == 0:
                self.texts.append(text)
            else:
                self.progress.append((text, done, total))

    return Heard()


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Puts a shell script on the PATH, which holds nothing else but the shell's own tools."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("sh", "cp", "tar", "gzip", "mkdir", "sleep", "echo"):
        found = next(path for base in ("/usr/bin", "/bin") if (path := Path(base, tool)).exists())
        (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))

    def write(name: str, text: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)

    return write
