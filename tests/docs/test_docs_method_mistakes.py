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
from method_page import PAGE, QUICK, REPLICAS, STEPS, TASKS, written
from torch.nn.functional import dropout

import threefold
from threefold import Dataset, Part, Split
from threefold.methods import only_active, per_replica

# mistakes: the page quotes what each leads to


def with_hook(name: str, hook: Any) -> type[Part]:
    """The anchor with one hook done wrong."""

    class Wrong(sys.modules["my_methods"].Anchor):  # type: ignore[misc, name-defined]
        pass

    setattr(Wrong, name, hook)
    Wrong.name = "wrong"
    return Wrong


def penalty(self: Any, params: Any, memory: Any) -> Any:
    return sys.modules["my_methods"].Anchor.penalty(self, params, memory)


def in_a_loss(function: Any) -> Any:
    """A loss that is a function of the logits, the active units and the batch."""

    def loss(self: Any, learner: Any, batch: Any) -> Any:
        return function(learner.logits(batch.x, batch.task), learner.now.active[batch.task], batch)

    return "loss", loss


def scaled(tensors: Any, name: str) -> Any:
    for tensor in tensors.values():
        getattr(tensor, name)(0.9)


MISTAKES: dict[str, list[Any]] = {
    "`loss.item()`, `float(loss)`": [
        ("penalty", lambda self, params, memory: penalty(self, params, memory).item()),
        ("penalty", lambda self, params, memory: float(penalty(self, params, memory).detach())),
    ],
    "`if self.strength > 0:`, `max(a, b)`": [
        ("penalty", lambda self, params, memory: penalty(self, params, memory) if self.strength > 0 else None),
        ("penalty", lambda self, params, memory: max(penalty(self, params, memory), torch.tensor(0.0))),
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
    "`p.mul_(0.9)` for a parameter, in a loss": [("penalty", lambda self, params, memory: scaled(params, "mul_"))],
    "`memory[n].add_(1)` in a loss": [("penalty", lambda self, params, memory: scaled(memory, "add_"))],
    "`self.count = 1`": [("penalty", lambda self, params, memory: setattr(self, "count", 1))],
    "a Python number in the memory": [
        ("begin", lambda self, setting, seed, params: {"count": 0}),
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
@pytest.mark.usefixtures("mine")
def test_mistakes_lead_to_what_the_page_quotes(small: Dataset, mistake: str) -> None:
    (got,) = [row[1] for row in rows(PAGE, "you write", "you get", "write instead") if row[0] == mistake]
    (quoted,) = code_in(got)
    for wrong in MISTAKES[mistake]:
        part = with_hook(*wrong)
        with pytest.raises(
            (RuntimeError, TypeError, ValueError, threefold.ThreefoldError), match=re.escape(quoted)
        ) as caught:
            threefold.run(Split(small), method=part(), **QUICK)
        told = isinstance(caught.value, threefold.ThreefoldError) or getattr(caught.value, "__notes__", [""])[-1]
        assert told is True or re.match(r"In (<lambda>|\w+) of wrong; what often goes wrong there is listed", told)


def test_mistakes_that_make_no_noise_are_as_the_page_says(mine: Any, small: Dataset) -> None:
    plain = threefold.run(Split(small), **QUICK)

    def ran(name: str, hook: Any) -> Any:
        return threefold.run(Split(small), method=with_hook(name, hook)(strength=100), **QUICK)

    def sliced(self: Any, stack: Any, memory: Any, task: int) -> Any:
        ends = {n: p[:, 1:] for n, p in stack.params["classifier"].items()}
        return {"ends": ends, "copies": {n: p.clone() for n, p in ends.items()}}

    def held_at(which: str) -> Any:
        def penalty(self: Any, params: Any, memory: Any) -> Any:
            return self.strength * sum(((p[1:] - memory[which][n]) ** 2).sum() for n, p in params.items())

        part = with_hook("consolidate", sliced)
        part.penalty = penalty  # type: ignore[method-assign]
        return threefold.run(Split(small), method=part(strength=100), **QUICK).matrix  # type: ignore[call-arg]

    assert not np.array_equal(held_at("copies"), plain.matrix)
    assert np.array_equal(held_at("ends"), held_at("copies")), "a memory of parameters does not change with them"

    def entropy(logits: Any, active: Any, batch: Any) -> Any:
        masked = only_active(logits, active)
        return -(torch.softmax(masked, -1) * torch.log_softmax(masked, -1)).sum()

    assert ran(*in_a_loss(entropy)).diverged == [1, 2]

    found = []

    def forgetful(self: Any, params: Any, memory: Any) -> Any:
        found.append("extra" in memory)
        memory["extra"] = torch.tensor(1.0)

    ran("penalty", forgetful)
    assert len(found) == (TASKS - 1) * STEPS
    assert not any(found)


@pytest.mark.usefixtures("mine")
def test_what_a_memory_keeps_of_the_parameters_does_not_move_with_them(small: Dataset) -> None:
    def copied(self: Any, stack: Any, memory: Any, task: int) -> Any:
        return {n: p.clone() for n, p in stack.params["classifier"].items()}

    methods = (sys.modules["my_methods"].Anchor, with_hook("consolidate", copied))
    as_they_are, by_hand = (threefold.run(Split(small), method=part(strength=100), **QUICK) for part in methods)
    assert np.array_equal(as_they_are.matrix, by_hand.matrix)
    assert not np.array_equal(as_they_are.matrix, threefold.run(Split(small), **QUICK).matrix)


@pytest.mark.usefixtures("mine")
def test_numbers_of_replicas_multiply_stacked_tensors(small: Dataset) -> None:
    def scaled(self: Any, stack: Any, memory: Any, task: int) -> Any:
        return {n: per_replica(self.strength, p) * p for n, p in stack.params["classifier"].items()}

    assert threefold.run(Split(small), method=with_hook("consolidate", scaled)(), **QUICK).diverged == []


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
