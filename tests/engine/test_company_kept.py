"""Companies that are killed, resumed and done: nothing is lost, nothing is written twice, nothing stays."""

import gc
import weakref
from importlib import import_module

import pytest
import torch
from company_lab import TRAINING, alone, crew, generative, same, stored, together
from torch.utils._pytree import tree_leaves

from threefold.engine import Checkpoint
from threefold.methods import EWC

COMPANIES = {
    "a lent generator": [crew("class", "dgr"), crew("task", "dgr-distill"), crew("hidden", "dgr+xdg:share=0.5")],
    "views": [
        stored("class", "both"),
        stored("class", "training"),
        stored("class", "execution", more=[EWC(strength=9)]),
        crew("class", EWC(strength=9), seeds=[1, 2], lr=[1e-2] * 2),
    ],
    "views on what is lent": [
        crew("task", "dgr"),
        crew("class", "dgr+er:budget=30,use=execution"),
        crew("class", "dgr"),
    ],
}


class Killed(Exception):
    pass


def killed_in(task):
    def report(progress):
        if progress.task == task:
            raise Killed

    return report


@pytest.mark.parametrize("kind", COMPANIES)
def test_killed_after_each_task_it_goes_on_bit_for_bit(kind, tmp_path):
    crews, path = COMPANIES[kind], tmp_path / "cohort.pt"
    undisturbed = alone(crews)
    for task in (1, 2):
        with pytest.raises(Killed):
            together(crews, checkpoint=Checkpoint(path), report=killed_in(task))
        assert Checkpoint(path).load(torch.device("cpu"))["finished"] == task
    same(together(crews, checkpoint=Checkpoint(path)), undisturbed)


def test_a_checkpoint_holds_everything_once(tmp_path):
    """What views remember as the stack they look at does is not written for each of them."""
    path = tmp_path / "cohort.pt"
    with pytest.raises(Killed):
        together(COMPANIES["views"], checkpoint=Checkpoint(path), report=killed_in(1))
    state = Checkpoint(path).load(torch.device("cpu"))["company"]
    assert [list(each["memory"]) for each in state["trained"]] == [["er"], ["ewc"]]
    assert [list(memory) for memory in state["judged"]] == [[], [], ["er"], []]
    with pytest.raises(Killed):
        together(COMPANIES["a lent generator"], checkpoint=Checkpoint(tmp_path / "b.pt"), report=killed_in(1))
    state = Checkpoint(tmp_path / "b.pt").load(torch.device("cpu"))["company"]
    assert [list(each["params"]) for each in state["trained"]] == [["classifier", "generator"], *[["classifier"]] * 2]


def test_a_checkpoint_of_an_older_format_is_set_aside(tmp_path, monkeypatch):
    crews, path = COMPANIES["a lent generator"], tmp_path / "cohort.pt"
    with monkeypatch.context() as patch:
        patch.setattr(import_module("threefold.engine.checkpoint"), "FORMAT", 3)
        with pytest.raises(Killed):
            together(crews, checkpoint=Checkpoint(path), report=killed_in(2))
    checkpoint, tasks = Checkpoint(path), []
    same(together(crews, checkpoint=checkpoint, report=lambda progress: tasks.append(progress.task)), alone(crews))
    assert checkpoint.set_aside == tmp_path / "cohort.damaged"
    assert min(tasks) == 0, "it began anew"


def test_what_was_loaded_is_let_go(tmp_path):
    """On a GPU it would take memory, three times the weights, for the rest of training."""
    crews, held = COMPANIES["a lent generator"], []

    class Watched(Checkpoint):
        def load(self, *given):
            state = super().load(*given)
            if state:
                optimizers = [each["optimizer"] for each in state["company"]["trained"]]
                held.extend(weakref.ref(leaf) for leaf in tree_leaves(optimizers))
            return state

    with pytest.raises(Killed):
        together(crews, checkpoint=Watched(tmp_path / "c.pt"), report=killed_in(1))
    left = []

    def still(progress):
        left.append([ref for ref in held if ref() is not None])

    together(crews, checkpoint=Watched(tmp_path / "c.pt"), report=still)
    assert held
    assert left[0] == []


LONE = {method: [crew("class", method)] for method in ("none", "ewc:strength=50", "er:budget=30,use=execution")}


@pytest.mark.parametrize("crews", (COMPANIES | LONE).values(), ids=COMPANIES | LONE)
def test_what_was_trained_leaves_no_memory_behind(crews, stacks):
    """No cycle of references: gigabytes must not wait for a collector that comes when it likes."""
    gc.collect()
    gc.disable()
    try:
        together(crews)
        refs = [weakref.ref(stack) for stack in stacks]
        stacks.clear()
        assert len(refs) >= min(3, len(crews))
        assert not any(ref() for ref in refs)
    finally:
        gc.enable()


def test_progress_of_several_crews_has_no_average():
    said = []
    together(generative(["class"]), report=said.append)
    assert {progress.accuracy for progress in said} == {None}
    assert [(said[-1].step, said[-1].steps)] == [(3 * TRAINING.iters,) * 2]
