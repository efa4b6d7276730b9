"""What a part keeps to look at later comes back from the store as it was."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_cells import small_split
from torch import Tensor

import threefold
from threefold import Part
from threefold.experiments import Section
from threefold.export import to_tensorboard
from threefold.report import render, save_figures

KEPT = {  # by dtype: values that the others could not hold
    torch.float32: [0.1, -1e30],
    torch.float64: [0.1, 1e300],
    torch.float16: [0.5, -2.0],
    torch.int64: [2**40, -1],
    torch.bool: [True, False],
    torch.uint8: [255, 7],
}


class Keeper(Part):
    """Keeps a pair of numbers of each type, and "dreams" that are no images."""

    name = "keeper"

    def keep(self, stack, memory) -> dict[str, Tensor]:
        replicas = len(stack.seeds)
        kept = {str(dtype): torch.tensor([pair] * replicas, dtype=dtype) for dtype, pair in KEPT.items()}
        half = torch.full((replicas, 2), 0.1, dtype=torch.bfloat16)
        return kept | {"bfloat16": half, "dreams": torch.ones(replicas, 1, 16)}


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    asked = {"scenario": "class", "method": Keeper(), "seeds": 2, "iters": 2, "hidden": 4, "batch": 8, "device": "cpu"}
    first, again = (threefold.run(small_split(), store="kept.db", **asked) for _ in range(2))
    assert [record.created for record in again.records] == [record.created for record in first.records]
    return again


def test_numbers_of_every_type_come_back(result) -> None:
    for dtype, pair in KEPT.items():
        found = result.kept(str(dtype))
        assert str(found.dtype) == str(dtype).removeprefix("torch.")
        assert found.shape == (2, 2, 2)  # seeds, tasks, the pair
        assert (found == np.array(pair, found.dtype)).all()
    assert result.kept("bfloat16").dtype == np.float32
    assert (result.kept("bfloat16") == torch.tensor(0.1, dtype=torch.bfloat16).item()).all()


def test_dreams_that_are_no_images_are_not_drawn(result) -> None:
    section = Section("mine", "Mine", "table", [result])
    assert '<img class="dreams"' not in render([section], "html")
    assert not [path for path in save_figures([section], "drawn", ["svg"]) if "dreams" in path.name]
    assert to_tensorboard(result.records, Path("board")) == 2
