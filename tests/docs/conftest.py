import sys
from collections.abc import Iterator
from typing import Any

import pytest
from doc_pages import Desk, blobs, desk, fetchable
from method_page import PAGE

from threefold import Dataset


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk at which the whole page was followed, with a small stand-in for MNIST."""
    with desk(tmp_path_factory.mktemp("method")) as place:
        fetchable("mnist", place.patch)
        place.follow(PAGE)
        yield place


@pytest.fixture(scope="module")
def mine(followed: Desk) -> Any:
    """The module that the page's reader wrote."""
    return sys.modules["my_methods"]


@pytest.fixture(scope="module")
def small() -> Dataset:
    return blobs(0.25, samples=200)
