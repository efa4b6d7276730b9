"""Every method, stopped after any task: the same call goes on and ends bit for bit where an undisturbed one ends."""

from pathlib import Path

import numpy as np
import pytest
from small_cells import measured

import threefold
from threefold import Dataset, Split
from threefold.engine import Checkpoint
from threefold.experiments import Cell, Settings
from threefold.methods import METHODS, parse
from threefold.scenarios import SCENARIOS

QUICK = {"iters": 5, "hidden": 8, "batch": 16, "device": "cpu"}


class Killed(BaseException):
    """Stands in for the end of the process."""


@pytest.fixture(scope="module")
def split() -> Split:
    source = np.random.default_rng(0)
    y = np.arange(360) % 6
    x = (source.random((360, 4, 4)) / 2 + (np.arange(16).reshape(4, 4) % 6 == y[:, None, None]) / 2).astype(np.float32)
    return Split(Dataset.from_arrays(x[:240], y[:240], x[240:], y[240:], name="small"), tasks=3)


def usable(split: Split, method: str) -> str:
    """The hardest scenario that a method can be used in."""
    settings = Settings.checked(**QUICK)
    for scenario in ("class", "domain", "task"):
        if not Cell.of(split, SCENARIOS[scenario], parse(method), settings).refusal():
            return scenario
    raise AssertionError(f"{method} works nowhere")


@pytest.mark.parametrize("method", [*METHODS, "ewc+lwf", "xdg+si"])
def test_stopped_after_each_task_it_goes_on(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    asked = {"scenario": usable(split, method), "method": method, "seeds": 2} | QUICK
    undisturbed = threefold.run(split, store=None, **asked)
    save, saved = Checkpoint.save, []

    def save_and_die(checkpoint: Checkpoint, state: dict[str, object]) -> None:
        save(checkpoint, state)
        saved.append(state["finished"])
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_die)
        for _ in range(2):
            with pytest.raises(Killed):
                threefold.run(split, store=tmp_path / "runs.db", **asked)
        assert saved == [1, 2]
        again = threefold.run(split, store=tmp_path / "runs.db", **asked)
    assert again.to_json() == undisturbed.to_json()
    assert measured(again) == measured(undisturbed)
    assert list((tmp_path / "runs.db.checkpoints").glob("*")) == []
