"""At most eight of our frames lie between the command and a training step."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_lab import SETTINGS, Ended, write_npz

import threefold
from threefold.methods import EWC

SOURCE = Path(threefold.__file__).parent
MOST = 8


def test_at_most_eight_frames_lead_from_the_command_to_the_step(
    cli: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[list[str]] = []
    penalty = EWC.penalty

    def watched(self: EWC, learner: object) -> object:
        frames = [frame.f_code for frame, _ in traceback.walk_stack(sys._getframe())]
        stacks.append([code.co_qualname for code in reversed(frames) if SOURCE in Path(code.co_filename).parents])
        return penalty(self, learner)

    monkeypatch.setattr(EWC, "penalty", watched)
    data = write_npz(tmp_path / "tiny.npz")
    words = ("split", "--data", data, "--tasks", "2", "--scenario", "class", "--method", "ewc", "--seeds", "2")
    ended = cli("run", *words, *SETTINGS, "--store", tmp_path / "a.db")
    assert (ended.status, ended.err) == (0, "")
    assert stacks
    for stack in stacks:
        assert stack[0] == "main"
        assert stack.index("TrainingStep.take") <= MOST, stack
