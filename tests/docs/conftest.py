import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from doc_pages import DOCS, Desk, blobs, desk, fetchable
from method_page import PAGE, written

from threefold import Dataset


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk at which the whole page was followed, with a small stand-in for MNIST."""
    with desk(tmp_path_factory.mktemp("method")) as place:
        fetchable("mnist", place.patch)
        place.follow(PAGE)
        yield place


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The script that writes the generated pages."""
    sys.path.insert(0, str(DOCS))  # as it is where a script of that folder runs
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
