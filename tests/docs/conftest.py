from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from doc_pages import Desk, blobs, desk, fetchable
from method_page import PAGE, written

from threefold import Dataset


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk at which the whole page was followed, with a small stand-in for MNIST."""
    with desk(tmp_path_factory.mktemp("method")) as place:
        fetchable("mnist", place.patch)
        place.follow(PAGE)
        yield place


@pytest.fixture(scope="session")
def mine() -> Any:
    """The classes that the page's reader wrote; nothing else of the page was run."""
    scope: dict[str, Any] = {"__name__": "my_methods"}
    for code in written().values():
        exec(code, scope)
    return SimpleNamespace(**scope)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return blobs(0.25, samples=200)
