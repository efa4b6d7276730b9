"""docs/pretraining.md: its code and commands run as they stand, and what it says of the results is so."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from doc_pages import Desk, blocks, desk

import threefold
from threefold.networks.weights import load_weights

PAGE = "pretraining.md"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("pretraining")) as place:
        place.follow(PAGE)
        yield place


@pytest.fixture(scope="module")
def specs(followed: Desk) -> list[dict[str, Any]]:
    with threefold.Store(followed.folder / "threefold.db", readonly=True) as store:
        return [record.spec for record in store.all()]


def printed(followed: Desk, piece: str) -> str:
    """What the block that holds this piece printed."""
    (found,) = [followed.printed[block.line] for block in blocks(PAGE) if piece in block.code]
    return found


def test_the_command_and_python_pretrain_the_same_networks(followed: Desk) -> None:
    one, other = (torch.load(followed.folder / name, weights_only=True) for name in ("conv.pt", "again.pt"))
    assert one.keys() == other.keys()
    assert {"state", "seeds", "accuracy", "classes", "network", "spec", "environment"} <= one.keys()
    assert all(torch.equal(value, other["state"][name]) for name, value in one["state"].items())
    accuracies = followed.namespace["pretrained"].accuracy.per_seed
    assert list(accuracies) == one["accuracy"] == other["accuracy"]
    shown = printed(followed, "threefold pretrain known.npz")
    assert [line.split(":")[0] for line in shown.splitlines()] == ["seed 1", "seed 2", "seed 3", "conv.pt"]
    assert min(accuracies) > 30, "they have learned something: one in ten would be chance"


def test_every_run_is_kept_with_what_it_depends_on(followed: Desk, specs: list[dict[str, Any]]) -> None:
    init = load_weights(str(followed.folder / "conv.pt")).sum
    kinds = Counter(
        (spec["network"].get("init") == init, "features" in spec["stream"], "augment" in spec["training"])
        for spec in specs
    )
    features = 3 * 2 * 3 + 3 + 3 + 3  # three scenarios; another seed's network; each seed's own; a function
    assert kinds == {(True, False, False): 6, (False, True, False): features, (False, False, True): 3}
    assert len({spec["stream"]["features"] for spec in specs if "features" in spec["stream"]}) == 4


def test_the_file_and_python_train_nothing_again(followed: Desk, specs: list[dict[str, Any]]) -> None:
    assert all(record.spec in specs for record in followed.namespace["result"].records)
    assert printed(followed, "threefold experiment photos.toml")
    assert followed.namespace["mine"].shape == (16 * 3 * 3,)
