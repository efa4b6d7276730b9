"""What a part keeps for later inspection is read back from the store unchanged."""

import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_cells import small_split
from tiny_cohorts import tiny_images
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


@pytest.fixture
def in_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Section:
    """Dreams and stored samples of images in colour."""
    monkeypatch.chdir(tmp_path)
    asked = {"iters": 2, "batch": 8, "device": "cpu", "network": "cnn:channels=4", "seeds": 2, "scenario": "class"}
    stream = threefold.Split(tiny_images(), 3)
    results = [threefold.run(stream, method=method, **asked) for method in ("dgr", "er:budget=30", "none")]
    return Section("mine", "Mine", "table", results)


def test_dreams_and_stored_samples_are_shown_in_colour(in_colour: Section) -> None:
    page = render([in_colour], "html")
    shown = re.findall(r'<img class="(dreams|exemplars)" src="data:image/png;base64,([^"]+)"', page)
    assert [kind for kind, _ in shown] == ["dreams", "exemplars"]
    for (kind, encoded), result in zip(shown, in_colour.results[:2], strict=True):
        picture = Image.open(BytesIO(b64decode(encoded)))
        assert (picture.mode, picture.size) == ("RGB", (8 * 9 - 1, 3 * 9 - 1))
        kept = result.kept(kind)[0].reshape(3, 8, 3, 8, 8)
        pixels = np.asarray(picture)
        for task, image in np.ndindex(3, 8):
            cut = pixels[9 * task : 9 * task + 8, 9 * image : 9 * image + 8]
            assert (cut == np.moveaxis(kept[task, image], 0, -1)).all()
    stored = in_colour.results[1].kept("exemplars")[0]
    real = (tiny_images().train_x * 255).round().to(torch.uint8).numpy()
    assert all((real == image).all((1, 2, 3)).any() for image in stored[0])
    drawn = [path.name for path in save_figures([in_colour], "drawn", ["svg"])]
    assert [name for name in drawn if "dreams" in name or "exemplars" in name] == [
        "mine-split-tiny-images-dreams.svg",
        "mine-split-tiny-images-exemplars.svg",
    ]
    assert to_tensorboard([record for result in in_colour.results for record in result.records], Path("board")) == 6


def test_dreams_that_are_no_images_are_not_drawn(result) -> None:
    section = Section("mine", "Mine", "table", [result])
    assert '<img class="dreams"' not in render([section], "html")
    assert not [path for path in save_figures([section], "drawn", ["svg"]) if "dreams" in path.name]
    assert to_tensorboard(result.records, Path("board")) == 2
