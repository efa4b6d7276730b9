import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from two_nodes import TROUBLE, Nodes

from threefold.cluster import connected


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ray reads it once in a process."""
    file = tmp_path_factory.mktemp("secret") / "token"
    file.write_text("0123456789abcdef" * 4)
    return file


@pytest.fixture(scope="module")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trouble") / "which"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, token: Path, trouble: Path) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv(TROUBLE, str(trouble))
        patch.setenv("THREEFOLD_DATA", str(tmp_path_factory.mktemp("data")))
        here = Path(__file__).parent  # a method of one's own must be there on every node
        patch.setenv("PYTHONPATH", f"{here}{os.pathsep}{here.parent / 'cli'}", prepend=os.pathsep)
        nodes = Nodes()
        with connected(nodes.address, "cpu"):  # all tests are one job of Ray's, so that workers start once
            yield nodes
        nodes.stop()


@pytest.fixture
def nodes(started: Nodes, trouble: Path) -> Nodes:
    """Two nodes that live and are idle, and no trouble yet."""
    trouble.unlink(missing_ok=True)
    started.complete()
    started.wait_until_idle()
    return started
