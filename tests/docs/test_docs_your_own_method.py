"""docs/your-own-method.md: its code, its methods' worth, its refusals."""

import ast
import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, Desk, blobs
from method_page import LINES, PAGE, QUICK, SEEDS, printed, written

import threefold
from threefold import Dataset, Part, Result, Split, ThreefoldError, XdG, hyper
from threefold.methods import METHODS, Replay

# the page's code


def test_both_methods_run_in_every_scenario_with_twenty_seeds(followed: Desk) -> None:
    lines = [line.split() for line in printed(followed, "for scenario in").splitlines()]
    methods = ("none", "anchor", "dark-replay")
    assert [line[:2] for line in lines] == [[s, m] for s in ("task", "domain", "class") for m in methods]
    assert all(0 < float(mean) <= 100 and float(sem) > 0 for _, _, mean, sem in lines)
    last: Result = followed.namespace["result"]
    assert last.matrix.shape == (SEEDS, 5, 5)


def test_the_composition_runs_with_twenty_seeds(followed: Desk) -> None:
    both: Result = followed.namespace["both"]
    assert both.cell.method.name == "dark-replay+xdg"
    assert both.matrix.shape == (SEEDS, 5, 5)
    assert both.diverged == []


@pytest.mark.parametrize("name", ["Anchor", "DarkReplay"])
def test_a_method_is_short_names_no_scenario_and_loops_over_no_seeds(name: str) -> None:
    code = written()[name]
    tree = ast.parse(code)
    counted = set(range(1, code.count("\n") + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            counted -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))  # type: ignore[operator]
    lines = [code.splitlines()[number - 1] for number in sorted(counted)]
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= LINES
    assert not re.search(r"(task|domain|class)[-_ ]il\b|scenario|task_known|seeds", code, re.IGNORECASE)
    assert not any(isinstance(node, ast.For | ast.While) for node in ast.walk(tree))


def test_neither_method_is_one_of_ours(followed: Desk, mine: Any) -> None:
    import threefold.methods.registry as registry

    text = inspect.getsource(registry)
    for part in (mine.Anchor, mine.DarkReplay):
        assert part.__name__ not in text
        assert METHODS[part.name].part is part, "lab.py registered it"


def test_a_grid_is_one_cohort_and_gives_what_single_runs_give(followed: Desk, mine: Any) -> None:
    names = followed.namespace
    assert names["by_strength"].shape == (4,)
    alone = threefold.run(
        names["protocol"], scenario="domain", method=mine.Anchor(strength=1.0), seeds="1-5", store=None, device="cpu"
    )
    place = names["grid"].index((1.0, 1))
    together = names["outcome"].matrix[place : place + 5].numpy()
    assert np.abs(together - alone.matrix).max() < 5  # in per cent; float rounding can flip a sample or two of eighty
    assert names["by_strength"][2].item() == pytest.approx(alone.accuracy.mean, abs=1)
    assert not np.allclose(names["by_strength"], names["by_strength"][0], atol=1)


def test_the_command_line_knows_registered_methods(followed: Desk, mine: Any) -> None:
    listed, _, ran = printed(followed, "python lab.py list").partition("split-mnist")
    for part in (mine.Anchor, mine.DarkReplay):
        assert part.name in listed
        assert METHODS[part.name].title in ran
    assert "α" in listed, "what its hyperparameter means"
    named = threefold.run("split-mnist", scenario="task", method="dark-replay:budget=500", seeds=1, store=None)
    assert named.cell.method.parts[0].budget == 500  # type: ignore[attr-defined]


# what the methods are worth, on a problem small enough to try


@pytest.fixture(scope="module")
def problem() -> dict[str, Any]:
    data = blobs(0.4)
    return {"protocol": Split(data), "seeds": SEEDS, "store": None, "iters": 40, "lr": 1e-2, "hidden": 32, "batch": 32}


def test_dark_replay_forgets_less_than_plain_training_and_than_replay_of_labels(
    mine: Any, problem: dict[str, Any]
) -> None:
    """One stored sample of each class: its logits say more than its label."""

    def accuracy(method: Any) -> Any:
        return np.array(threefold.run(**problem, scenario="class", method=method).accuracy.per_seed)

    ours, labels = accuracy(mine.DarkReplay(budget=10)), accuracy(mine.DarkReplay(budget=10, strength=0))
    assert (ours - accuracy("none")).mean() > 40  # in per cent
    gain = ours - labels
    assert gain.mean() > 4 * gain.std(ddof=1) / math.sqrt(SEEDS)


def test_anchored_networks_forget_less_than_plain_training(mine: Any, problem: dict[str, Any]) -> None:
    plain = threefold.run(**problem, scenario="domain")
    anchored = threefold.run(**problem, scenario="domain", method=mine.Anchor())
    assert anchored.accuracy.mean > plain.accuracy.mean + 8
    assert anchored.metrics["forgetting"].mean < plain.metrics["forgetting"].mean - 8


# refusals


def test_refusals_are_sentences_before_training(followed: Desk, mine: Any, small: Dataset) -> None:
    binary = followed.namespace["BinaryReplay"]
    with pytest.raises(ThreefoldError, match=r"^binary-replay rounds values to 0 or 1, but the data have others;"):
        threefold.run(Split(small), method=binary(), **QUICK)
    x = small.train_x.clamp(0, 1)
    images = Dataset.from_arrays(x, small.train_y, x, small.train_y)
    assert threefold.run(Split(images), method=binary(budget=50), **QUICK).diverged == []
    with pytest.raises(ThreefoldError, match="budget of binary-replay is 5; right would be 10 or more"):
        threefold.run(Split(images), method=binary(budget=5), **QUICK)
    with pytest.raises(ThreefoldError, match=r"^XdG chooses its gates by the task.*; in Domain-IL it is not.$"):
        threefold.run(Split(small), method=mine.DarkReplay() + XdG(), **QUICK | {"scenario": "domain"})


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

        def penalty(self, params, memory):
            values.append((self.layers, self.how, self.twice, self.most))

    values: list[Any] = []
    assert Worded.per_replica() == ["strength"]
    threefold.run(Split(small), method=Worded(), **QUICK)
    assert set(values) == {(1, "so", False, None)}


def test_parts_that_replay_share_the_weight_of_replay(small: Dataset) -> None:
    class Echo(Part):
        name = "echo"
        weight: float = hyper("of its loss", 10.0)

        def recall(self, learner, batch, drawn):
            return Replay(*batch)

        def replay_loss(self, learner, replay):
            return self.weight * (learner.logits(replay.x, replay.task) ** 2).mean()

    class Second(Echo):
        name = "second"

    def matrix(method: Any) -> Any:
        return threefold.run(Split(small), method=method, **QUICK | {"iters": 20}).matrix

    alone = matrix(Echo())
    assert np.abs(matrix(Echo() + Second()) - alone).max() < 5  # float rounding can flip a sample
    assert np.abs(matrix(Echo(weight=20)) - alone).max() > 5, "what a sum would be"
