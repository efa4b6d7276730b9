"""docs/fairness.md: its commands run as they stand, and its numbers are those of the code."""

import json
import re
from collections.abc import Iterator

import numpy as np
import pytest
from doc_pages import DOCS, Desk, blocks, code_in, desk, fetchable, rows

from threefold.data import Dataset
from threefold.experiments import Cell, Settings
from threefold.experiments.costs import costs
from threefold.methods import parse
from threefold.report.metric_table import COSTS, columns
from threefold.results import summarize
from threefold.scenarios import SCENARIOS
from threefold.streams import Split

PAGE = "fairness.md"
PAPER: dict[str, object] = {"iters": 2000, "hidden": 400, "batch": 128, "lr": 0.001}
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("fairness")) as place:
        fetchable("mnist", place.patch)
        place.follow(PAGE)
        yield place


def stored(method: str, **settings: object) -> Cell:
    """A cell on split MNIST in Class-IL as in the paper, without its data."""
    x, y = np.zeros((20, 28, 28), np.uint8), np.arange(20) % 10
    split = Split(Dataset.from_arrays(x, y, x, y, name="mnist"))
    made = Cell.of(split, SCENARIOS["class"], parse(method), Settings.checked(device="cpu", **(PAPER | settings)))
    return Cell.of_description(json.loads(json.dumps(made.described())))


def test_the_commands_give_what_the_page_says(followed: Desk) -> None:
    (block,) = blocks(PAGE)
    shown = followed.printed[block.line]
    assert all(short in shown for short, _ in COSTS.values())
    named = re.search(r"The figure is `(.*?)`", TEXT)
    assert named
    assert (followed.folder / named[1]).is_file(), [*followed.folder.glob("figures/*")]
    assert r"\textbf" in (followed.folder / "costs.tex").read_text()


def test_the_table() -> None:
    known = columns()
    for method, *shown in rows(PAGE, "`--method`", "params", "memory", "FLOPs"):
        found = costs(stored(*code_in(method)))
        each = (("params", found.parameters), ("memory", found.memory), ("flops", found.flops))
        assert shown == [known[name].text(summarize([value])) for name, value in each], method


def test_shares_and_sizes_in_the_text() -> None:
    share = re.search(r"(\d+)% of EWC's operations here, and half of them in a single epoch", TEXT)
    assert share
    ewc, plain = (costs(stored(method)).flops for method in ("ewc", "none"))
    assert round(100 * (ewc - plain) / ewc) == pytest.approx(float(share[1]), abs=1)
    ewc, plain = (costs(stored(method, epochs=1, iters=None)).flops for method in ("ewc", "none"))
    assert (ewc - plain) / ewc == pytest.approx(0.5, abs=0.01)
    images = re.search(r"4 MB of weights, which would be ([\d,]+) images", TEXT)
    assert images
    assert costs(stored("dgr")).memory / 784 == pytest.approx(float(images[1].replace(",", "")), rel=0.03)


def test_each_column_is_explained() -> None:
    for short, _ in COSTS.values():
        assert f"- **{short}**: " in TEXT
