"""docs/your-own-method.md: its code runs, its methods reduce forgetting, its refusals are as described."""

import ast
import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, Desk, blobs
from method_page import PAGE, QUICK, SEEDS, printed, written

import threefold
from threefold import Dataset, Part, Result, Split, ThreefoldError, XdG, hyper
from threefold.methods import METHODS, Replay, registry

# the page's code


def test_the_first_part_runs_in_every_scenario_with_twenty_seeds(followed: Desk) -> None:
    lines = [line.split() for line in printed(followed, "for scenario in").splitlines()]
    assert [line[:2] for line in lines] == [[s, m] for s in ("task", "domain", "class") for m in ("none", "anchor")]
    assert all(0 < float(mean) <= 100 and float(sem) > 0 for _, _, mean, sem in lines)
    both: Result = followed.namespace["both"]
    assert both.cell.method.name == "anchor+xdg"
    assert both.matrix.shape == (SEEDS, 5, 5)
    assert both.diverged == []


def test_the_other_parts_run_too_alone_and_combined(followed: Desk) -> None:
    lines = [line.split() for line in printed(followed, "for method in (MyMAS()").splitlines()]
    assert [line[0] for line in lines] == ["my-mas", "my-der-pp", "my-mas+dropout", "my-der-pp+xdg"]
    assert all(0 < float(mean) <= 100 and float(sem) > 0 for _, mean, sem in lines)


@pytest.mark.parametrize(("name", "most"), [("Anchor", 15), ("MyMAS", 22), ("MyDERpp", 40), ("Dropout", 22)])
def test_a_method_is_short_names_no_scenario_and_loops_over_no_seeds(name: str, most: int) -> None:
    code = written()[name]
    tree = ast.parse(code)
    counted = set(range(1, code.count("\n") + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            counted -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))  # type: ignore[operator]
    lines = [code.splitlines()[number - 1] for number in sorted(counted)]
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= most
    assert not re.search(r"(task|domain|class)[-_ ]il\b|scenario|task_known|seeds", code, re.IGNORECASE)
    loops = [ast.unparse(node.iter) for node in ast.walk(tree) if isinstance(node, ast.For)]
    assert set(loops) <= {"stack.training_data()", "torch.arange(weight.shape[1]).split(16)", "fresh.items()"}


@pytest.mark.usefixtures("followed")
def test_no_method_of_the_page_is_one_of_ours() -> None:
    text = inspect.getsource(registry)
    assert not any(name in text for name in written())
    registered = [METHODS[name].part for name in ("anchor", "my-der-pp")]
    assert [part.__module__ for part in registered if part] == ["my_methods", "more_methods"], "by lab.py"


def test_a_grid_is_one_stack_and_gives_what_single_runs_give(followed: Desk, mine: Any) -> None:
    names = followed.namespace
    assert names["by_strength"].shape == (4,)
    alone = threefold.run(
        names["stream"], scenario="domain", method=mine.Anchor(strength=1.0), seeds="1-5", store=None, device="cpu"
    )
    place = names["grid"].index((1.0, 1))
    together = names["measured"].matrix[place : place + 5].numpy()
    assert np.abs(together - alone.matrix).max() < 5  # in per cent; widths are no multiples of 16, so bits may differ
    assert names["by_strength"][2].item() == pytest.approx(alone.accuracy.mean, abs=1)
    assert not np.allclose(names["by_strength"], names["by_strength"][0], atol=1)


def test_the_command_line_knows_registered_methods(followed: Desk, mine: Any) -> None:
    listed, _, ran = printed(followed, "python lab.py list").partition("split-mnist")
    for part in (mine.Anchor, mine.MyDERpp):
        assert part.name in listed
        assert METHODS[part.name].title in ran
    assert "α" in listed, "what its hyperparameter means"
    named = threefold.run("split-mnist", scenario="task", method="my-der-pp:budget=500", seeds=1, store=None)
    assert named.cell.method.parts[0].budget == 500  # type: ignore[attr-defined]


# what the methods are worth, on a problem small enough to try


@pytest.fixture(scope="module")
def accuracy() -> Any:
    data = blobs(0.4)
    problem = {
        "stream": Split(data),
        "seeds": SEEDS,
        "store": None,
        "iters": 40,
        "lr": 1e-2,
        "hidden": 32,
        "batch": 32,
    }

    def per_seed(method: Any, scenario: str) -> Any:
        return np.array(threefold.run(**problem, scenario=scenario, method=method).accuracy.per_seed)

    return per_seed


def clearly(gain: Any) -> bool:
    return bool(gain.mean() > 4 * gain.std(ddof=1) / math.sqrt(SEEDS))


def test_der_forgets_less_than_plain_training_and_than_replay_of_labels(mine: Any, accuracy: Any) -> None:
    """Few stored samples: their logits say more than their labels."""
    ours, labels = (accuracy(mine.MyDERpp(budget=20, **given), "class") for given in ({}, {"alpha": 0, "beta": 1}))
    assert (ours - accuracy("none", "class")).mean() > 40  # in per cent
    assert clearly(ours - labels)


@pytest.mark.parametrize("name", ["Anchor", "MyMAS"])
def test_networks_that_are_held_forget_less_than_plain_training(name: str, mine: Any, accuracy: Any) -> None:
    gain = accuracy(getattr(mine, name)(), "domain") - accuracy("none", "domain")
    assert gain.mean() > 5
    assert clearly(gain)


# refusals


def test_refusals_are_sentences_before_training(followed: Desk, mine: Any, small: Dataset) -> None:
    negatives = followed.namespace["Negatives"]
    with pytest.raises(ThreefoldError, match=r"^negatives turns 0 into 1, so all inputs must be in \[0, 1\]"):
        threefold.run(Split(small), method=negatives(), **QUICK)
    x = small.train_x.clamp(0, 1)
    images = Dataset.from_arrays(x, small.train_y, x, small.train_y)
    assert threefold.run(Split(images), method=negatives(), **QUICK).diverged == []
    with pytest.raises(ThreefoldError, match=r"^XdG chooses its gates by the task.*; in Domain-IL it is not.$"):
        threefold.run(Split(small), method=mine.Anchor() + XdG(), **QUICK | {"scenario": "domain"})


def test_a_hyperparameter_without_a_default_must_be_given(small: Dataset) -> None:
    class Bare(Part):
        name = "bare"
        strength: float = hyper("does nothing", gt=0)

    assert threefold.run(Split(small), method=Bare(strength=1), **QUICK).diverged == []
    with pytest.raises(ThreefoldError, match="strength of bare was not given"):
        threefold.run(Split(small), method=Bare(), **QUICK)


def test_a_value_that_does_not_fit_is_the_sentence_of_the_page(mine: Any) -> None:
    with pytest.raises(ThreefoldError) as caught:
        mine.Anchor(strength=-1)
    assert f"`{caught.value}`" in (DOCS / PAGE).read_text(encoding="utf-8")


def test_only_numbers_differ_between_replicas_and_optional_ones_may_be_left_out(small: Dataset) -> None:
    class Worded(Part):
        name = "worded"
        strength: float = hyper("may differ", 1.0)
        layers: int = hyper("may not", 1, per_replica=False)
        how: str = hyper("does nothing", "so")
        twice: bool = hyper("does nothing", False)
        most: int | None = hyper("does nothing", ge=1)

        def penalty(self, learner):
            values.append((self.layers, self.how, self.twice, self.most))

    values: list[Any] = []
    assert Worded().per_replica() == ["strength"]
    threefold.run(Split(small), method=Worded(), **QUICK)
    assert set(values) == {(1, "so", False, None)}


def test_parts_that_replay_share_the_weight_of_replay(small: Dataset) -> None:
    class Echo(Part):
        name = "echo"
        weight: float = hyper("of its loss", 10.0)

        def replay(self, learner, batch):
            return Replay(batch.x, batch.y, batch.task)

        def replay_loss(self, learner, replay):
            return self.weight * (learner.logits(replay.x, replay.task) ** 2).mean()

    class Second(Echo):
        name = "second"

    def matrix(method: Any) -> Any:
        return threefold.run(Split(small), method=method, **QUICK | {"iters": 20}).matrix

    alone = matrix(Echo())
    assert np.abs(matrix(Echo() + Second()) - alone).max() < 5  # float rounding can flip a sample
    assert np.abs(matrix(Echo(weight=20)) - alone).max() > 5, "what a sum would be"
