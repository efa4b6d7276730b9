"""Current and replayed samples go through the classifier in one pass."""

import pytest
from tiny_stack import TinyStack

from threefold.networks import MLP

PASSES = {  # method, scenario: samples in each pass through the classifier at a step of the second task (batch of 12)
    ("none", "class"): [12],
    ("lwf", "class"): [12, 12],  # the teacher's, and one that serves as current and as replayed
    ("lwf", "task"): [12, 12],
    ("lwf+xdg:share=0.5", "task"): [12, 24],  # gates differ by task, so the same inputs are not the same
    ("dgr", "domain"): [12, 24],
    ("dgr-distill", "class"): [12, 24],
    ("er:budget=30", "class"): [24],
    ("lwf+er:budget=30", "class"): [12, 24],  # current inputs, which LwF replays, and stored ones
    ("a-gem:budget=30", "class"): [12, 12],  # the reference gradient is another one
}


@pytest.mark.parametrize(("case", "passes"), PASSES.items(), ids=lambda x: "-".join(x) if isinstance(x, tuple) else "")
def test_a_step_sends_each_sample_through_the_classifier_once(case, passes, monkeypatch):
    method, scenario = case
    tiny = TinyStack("split", scenario, method).reach(1)
    batch, drawn = next(tiny.draws(1))
    tiny.gradients(batch, drawn)  # the first step finds out what the hooks do
    seen, forward = [], MLP.forward

    def counted(self, x):
        seen.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(MLP, "forward", counted)
    tiny.gradients(batch, drawn)
    assert sorted(seen) == sorted(passes)
