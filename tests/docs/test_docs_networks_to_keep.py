"""docs/networks-to-keep.md: its code and command run as they stand, and what it says of the networks is so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from doc_pages import Desk, desk, fetchable, rows

import threefold
from threefold.methods import LwF
from threefold.scenarios import SCENARIOS

PAGE = "networks-to-keep.md"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("kept")) as place:
        fetchable("mnist", place.patch)
        place.follow(PAGE)
        yield place


def test_the_command_and_python_keep_the_same_ten_networks(followed: Desk) -> None:
    told = "".join(followed.printed.values())
    assert told.count("keeps 10 networks, ") == 1, "and Python trains nothing again"
    assert len(list(Path(followed.folder / "threefold.db.networks").glob("*/after-?.pt"))) == 10


def test_one_network_predicts_and_names_classes(followed: Desk) -> None:
    names = followed.namespace
    net, test = names["net"], names["test"]
    known = {label for classes in net.classes[:2] for label in classes}
    assert set(net.predict(test.images).tolist()) <= known
    assert set(test.labels.tolist()) == set(net.classes[0])
    right = (net.predict(test.images) == test.labels).double().mean()
    assert 100 * right == pytest.approx(names["result"].matrix[0, 1, 0])
    assert net.classifier(test.images).shape == (len(test.labels), 10)


def test_exemplars_are_of_the_first_two_tasks(followed: Desk) -> None:
    stored, data = followed.namespace["stored"], followed.namespace["result"].cell.stream.data
    assert set(stored.tasks.tolist()) == {1, 2}
    assert torch.equal(data.train_y[stored.indices], stored.labels)
    assert torch.equal(data.train_x[stored.indices].view_as(stored.images), stored.images)


def test_the_file_alone_predicts_as_the_result(followed: Desk) -> None:
    names = followed.namespace
    result, x = names["result"], names["test"].images
    assert any(torch.equal(names["again"](x), result.network(seed)(x)) for seed in result.seeds)


def test_every_scenario_has_its_row(followed: Desk) -> None:
    said = {title: "task" in use for title, use, _ in rows(PAGE, "scenario", "`predict`", "gives")}
    assert said == {scenario.title: scenario.task_known for scenario in SCENARIOS.values()}


def test_methods_with_copies_have_larger_files(followed: Desk) -> None:
    result = followed.namespace["result"]
    sizes = []
    for method in ("none", LwF()):
        asked = {"scenario": "class", "method": method, "seeds": 1, "iters": 2, "keep": True}
        (record,) = threefold.run(result.cell.stream, **asked).records
        sizes.append(sum(file.stat().st_size for file in Path("threefold.db.networks", record.key).iterdir()))
    assert sizes[1] > 1.3 * sizes[0]
