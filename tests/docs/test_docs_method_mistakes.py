"""docs/your-own-method.md: the mistakes it lists, and what each leads to."""

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doc_pages import code_in, rows
from method_page import PAGE, QUICK, REPLICAS, TASKS, written
from torch.nn.functional import dropout

import threefold
from threefold import Dataset, Part, Split
from threefold.methods import Samples, only_active, per_replica

# mistakes: the page quotes what each leads to


def anchored(self: Any, learner: Any) -> Any:
    """What the anchor's penalty is."""
    anchor = learner.memory[self.name]["anchor"]
    return self.strength * sum(((p - anchor[n]) ** 2).sum() for n, p in learner.params.items())


def with_hook(anchor: type[Part], name: str, hook: Any) -> type[Part]:
    """The anchor with one hook done wrong."""

    class Wrong(anchor):  # type: ignore[misc, valid-type]
        pass

    setattr(Wrong, name, hook)
    Wrong.name = "wrong"
    return Wrong


def in_a_loss(function: Any) -> Any:
    """A loss that is a function of the logits, the active units and the batch."""

    def loss(self: Any, learner: Any, batch: Any) -> Any:
        return function(learner.logits(batch.x, batch.task), learner.now.active[batch.task], batch)

    return "loss", loss


def scaled(tensors: Any, name: str) -> Any:
    for tensor in tensors.values():
        getattr(tensor, name)(0.9)


def assigned(self: Any, learner: Any) -> Any:
    learner.memory[self.name]["sum"] = torch.tensor(1.0)


MISTAKES: dict[str, list[Any]] = {
    "`loss.item()`, `float(loss)`": [
        ("penalty", lambda self, learner: anchored(self, learner).item()),
        ("penalty", lambda self, learner: float(anchored(self, learner).detach())),
    ],
    "`if self.strength > 0:`, `max(a, b)`": [
        ("penalty", lambda self, learner: anchored(self, learner) if self.strength > 0 else None),
        ("penalty", lambda self, learner: max(anchored(self, learner), torch.tensor(0.0))),
    ],
    "`logits[active]`": [in_a_loss(lambda logits, active, batch: logits[active].sum())],
    "`torch.nonzero(…)`, `logits[batch.y > 0]`": [
        in_a_loss(lambda logits, active, batch: logits.sum() * torch.nonzero(batch.y).sum()),
        in_a_loss(lambda logits, active, batch: logits[batch.y > 0].sum()),
    ],
    "`torch.randn(…)`, `dropout`": [
        in_a_loss(lambda logits, active, batch: (logits + torch.randn(logits.shape)).sum()),
        in_a_loss(lambda logits, active, batch: dropout(logits).sum()),
    ],
    "`p.mul_(0.9)` for a parameter, in a loss": [
        ("loss", lambda self, learner, batch: scaled(learner.params, "mul_")),
    ],
    '`memory["sum"].add_(1)` in a loss': [
        ("loss", lambda self, learner, batch: scaled(learner.memory[self.name]["anchor"], "add_")),
    ],
    '`memory["sum"] = …` in a hook of a step': [("penalty", assigned)],
    "`self.count = 1`": [("penalty", lambda self, learner: setattr(self, "count", 1))],
    "an entry from `after_step` that `start` did not make": [
        ("after_step", lambda self, learner, step: {"count": learner.now.step}),
    ],
    "a Python number in the memory": [
        ("start", lambda self, setting, seed, params: {"count": 0}),
        ("consolidate", lambda self, stack, memory, task: {"count": task}),
    ],
    "`consolidate` without a `return`": [("consolidate", lambda self, stack, memory, task: None)],
    "`self.strength * p` in `consolidate`": [
        ("consolidate", lambda self, stack, memory, task: {
            n: self.strength * p for n, p in stack.params["classifier"].items()})
    ],
}  # fmt: skip


def test_the_page_lists_the_mistakes_that_are_tried_here() -> None:
    assert [row[0] for row in rows(PAGE, "you write", "you get", "write instead")] == list(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_lead_to_what_the_page_quotes(small: Dataset, mine: Any, mistake: str) -> None:
    (got,) = [row[1] for row in rows(PAGE, "you write", "you get", "write instead") if row[0] == mistake]
    (quoted,) = code_in(got)
    for wrong in MISTAKES[mistake]:
        part = with_hook(mine.Anchor, *wrong)
        with pytest.raises(
            (RuntimeError, TypeError, ValueError, threefold.ThreefoldError), match=re.escape(quoted)
        ) as caught:
            threefold.run(Split(small), method=part(), **QUICK)
        told = isinstance(caught.value, threefold.ThreefoldError) or getattr(caught.value, "__notes__", [""])[-1]
        assert told is True or re.match(r"In (<lambda>|\w+) of wrong; what often goes wrong there is listed", told)


def test_mistakes_that_make_no_noise_are_as_the_page_says(mine: Any, small: Dataset) -> None:
    plain = threefold.run(Split(small), **QUICK)

    def ran(name: str, hook: Any) -> Any:
        return threefold.run(Split(small), method=with_hook(mine.Anchor, name, hook)(strength=0), **QUICK)  # type: ignore[call-arg]

    def entropy(logits: Any, active: Any, batch: Any) -> Any:
        masked = only_active(logits, active)
        return -(torch.softmax(masked, -1) * torch.log_softmax(masked, -1)).sum()

    assert ran(*in_a_loss(entropy)).diverged == [1, 2]

    def moved(self: Any, learner: Any, gradient: Any) -> Any:
        scaled(learner.params, "mul_")
        return gradient

    assert not np.array_equal(ran("adjust", moved).matrix, plain.matrix)
    assert np.array_equal(ran("adjust", lambda self, learner, gradient: gradient).matrix, plain.matrix)


def test_samples_drawn_before_the_steps_are_those_of_a_moment_ago(small: Dataset) -> None:
    found = []

    class Late(Part):
        name = "late"

        def start(self, setting, seed, params):
            return {"newest": torch.tensor(0)}

        def draws(self, setting, task, memory, steps, source):
            found.append(int(memory["newest"]))
            return {"late": Samples(memory["newest"].expand(steps, setting.batch), torch.tensor(task))}

        def after_step(self, learner, step):
            return {"newest": step.batch.indices[0]}

    threefold.run(Split(small), method=Late(), **QUICK)
    assert len(found) == TASKS * REPLICAS, "once for a task, not for each step"
    assert found[:REPLICAS] == [0] * REPLICAS


def test_what_a_memory_keeps_of_the_parameters_does_not_move_with_them(small: Dataset, mine: Any) -> None:
    def copied(self: Any, stack: Any, memory: Any, task: int) -> Any:
        return {"anchor": {n: p.clone() for n, p in stack.params["classifier"].items()}}

    methods = (mine.Anchor, with_hook(mine.Anchor, "consolidate", copied))
    as_they_are, by_hand = (threefold.run(Split(small), method=part(strength=100), **QUICK) for part in methods)  # type: ignore[call-arg]
    assert np.array_equal(as_they_are.matrix, by_hand.matrix)
    assert not np.array_equal(as_they_are.matrix, threefold.run(Split(small), **QUICK).matrix)


def test_numbers_of_replicas_multiply_stacked_tensors(small: Dataset, mine: Any) -> None:
    def shaped(self: Any, stack: Any, memory: Any, task: int) -> Any:
        return {"anchor": {n: per_replica(self.strength, p) * p for n, p in stack.params["classifier"].items()}}

    part = with_hook(mine.Anchor, "consolidate", shaped)
    assert threefold.run(Split(small), method=part(), **QUICK).diverged == []


class Bench:
    """A module of the reader's, edited again and again, and a store."""

    def __init__(self, folder: Path, data: Dataset, patch: pytest.MonkeyPatch) -> None:
        self.file, self.store, self.data, self.patch = folder / "edited.py", folder / "kept.db", data, patch
        patch.setattr(sys, "dont_write_bytecode", True)

    def run(self, code: str, name: str) -> Any:
        """Results of the class of this name; the code is read as by a new process."""
        self.file.write_text(code, encoding="utf-8")
        spec = spec_from_file_location("edited", self.file)
        assert spec
        assert spec.loader
        module = module_from_spec(spec)
        self.patch.setitem(sys.modules, "edited", module)
        spec.loader.exec_module(module)
        part = getattr(module, name)(strength=100)
        return threefold.run(Split(self.data), method=part, **QUICK | {"store": self.store}).matrix

    @property
    def runs(self) -> int:
        with threefold.Store(self.store, readonly=True) as store:
            return len(list(store.all()))


def test_a_store_knows_a_methods_code(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, code = Bench(tmp_path, small, monkeypatch), written()["Anchor"]
    first = bench.run(code, "Anchor")
    assert bench.runs == REPLICAS
    edited = bench.run(code.replace("return self.strength", "return 0 * self.strength"), "Anchor")
    assert bench.runs == 2 * REPLICAS
    assert not np.array_equal(edited, first)
    assert np.array_equal(bench.run(f"import math\n\n{code}", "Anchor"), first)
    assert bench.runs == 2 * REPLICAS, "with the old class the old results are back"


def test_a_store_knows_the_code_that_a_method_inherits(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heir = '\n\nclass Heir(Anchor):\n    """An anchor."""\n\n    name = "heir"\n'
    bench, code = Bench(tmp_path, small, monkeypatch), written()["Anchor"] + heir
    bench.run(code, "Heir")
    bench.run(code.replace("return self.strength", "return 0 * self.strength"), "Heir")
    assert bench.runs == 2 * REPLICAS
