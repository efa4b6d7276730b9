import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import settings
from tiny_lab import Ended

from threefold.cli import main
from threefold.cli.stopping import SIGNALS
from threefold.cluster import SETTINGS

os.environ.setdefault("OMP_NUM_THREADS", "1")  # so that processes that tests start have one thread, too
os.environ.update(SETTINGS)  # Ray reads them once in a process, whichever test imports it first

settings.register_profile("threefold", deadline=None)  # on a busy machine a moment may take a second
settings.load_profile("threefold")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run what is marked full too: the rest of products of axes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        left = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small gain nothing from a second thread, and on a busy machine wait for it fifty times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The command line, in this process: a new one would spend seconds on importing torch."""

    def call(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["threefold", *map(str, words)])
        capsys.readouterr()
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return call
