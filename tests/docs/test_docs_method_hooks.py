"""docs/your-own-method.md: what it says of hooks, numbers and scenarios."""

import inspect
import re
from collections import Counter
from typing import Any

import pytest
import torch
from doc_pages import DOCS, code_in, rows
from method_page import PAGE, QUICK, REPLICAS, STEPS, TASKS

import threefold
from threefold import Dataset, Part, Permuted, Split, XdG, hyper
from threefold.methods import METHODS, Noise, Replay, classification

# what the page says of hooks, numbers and scenarios


class Spy(Part):
    """Answers in every hook, and keeps what it saw: the hook, and the shape of its hyperparameter."""

    name = "spy"
    number: float = hyper("does nothing", 1.0, gt=0)

    def note(self, hook: str) -> None:
        SEEN.append((self.name, hook, tuple(self.number.shape) if isinstance(self.number, torch.Tensor) else None))

    def refuse(self, setting):
        self.note("refuse")

    def networks(self, setting):
        self.note("networks")
        return {}

    def size(self, setting):
        self.note("size")
        return 0

    def start(self, setting, seed, params):
        self.note("start")
        return {"count": torch.tensor(0)}

    def begin(self, setting, task, memory):
        self.note("begin")
        return {}

    def data(self, tasks, task, memory):
        self.note("data")
        return [(task, tasks[task].train)]

    def draws(self, setting, task, memory, steps, source):
        self.note("draws")
        return {f"{self.name} noise": Noise((3,))}

    def gates(self, learner, task):
        self.note("gates")
        return [torch.ones(8), torch.ones(8)]

    def loss(self, learner, batch):
        self.note("loss")
        return classification(learner, batch.x, batch.y, batch.task)

    def replay(self, learner, batch):
        self.note("replay")
        return Replay(batch.x, batch.y, batch.task)

    def replay_loss(self, learner, replay):
        self.note("replay_loss")
        return learner.logits(replay.x, replay.task).sum()

    def penalty(self, learner):
        self.note("penalty")
        return self.number * 0

    def side_loss(self, learner, batch, replay):
        self.note("side_loss")

    def adjust(self, learner, gradient):
        self.note("adjust")
        return gradient

    def after_step(self, learner, step):
        self.note("after_step")
        return {"count": learner.memory[self.name]["count"] + 1}

    def consolidate(self, stack, memory, task):
        self.note("consolidate")
        return memory

    def keep(self, stack, memory):
        self.note("keep")
        return {}

    def scores(self, learner, x, task):
        self.note("scores")
        return learner.logits(x, task)


class OtherSpy(Spy):
    name = "other"


SEEN: list[tuple[str, str, tuple[int, ...] | None]] = []
TIMES = {  # what the page's second column means, in calls
    "before training": None,
    "before the first task": REPLICAS,
    "before each task": TASKS * REPLICAS,
    "before each task but the first": (TASKS - 1) * REPLICAS,
    "at each step": TASKS * STEPS,
    "at each step with something replayed": TASKS * STEPS,
    "after each step": TASKS * STEPS,
    "after each task": TASKS,
    "at test time": None,
    "at each step and at test time": None,
}


@pytest.fixture(scope="module")
def seen(small: Dataset) -> list[tuple[str, str, tuple[int, ...] | None]]:
    SEEN.clear()
    threefold.run(Split(small), method=Spy() + OtherSpy(), **QUICK)
    return list(SEEN)


def test_the_table_of_hooks_is_complete_and_says_when_they_run(seen: list[tuple[str, str, Any]]) -> None:
    table = rows(PAGE, "hook", "runs", "is for", "example")
    listed = {signature.partition("(")[0]: (signature, runs) for (signature,), runs in
              ((code_in(hook), runs) for hook, runs, _, _ in table)}  # fmt: skip
    offered = {
        name: f"{name}({', '.join(list(inspect.signature(value).parameters)[1:])})"
        for name, value in vars(Part).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert {name: signature for name, (signature, _) in listed.items()} == offered
    calls = Counter(hook for part, hook, _ in seen if part == "spy")
    text = " ".join((DOCS / PAGE).read_text(encoding="utf-8").split())
    once_more = re.search(r"When a task begins, ([^.]+) are called once more", text)
    assert once_more
    for name, (_, runs) in listed.items():
        more = TASKS if name in code_in(once_more[1]) else 0
        assert calls[name] > 0
        assert TIMES[runs] is None or TIMES[runs] + more == calls[name], name


def test_the_examples_of_the_table_define_their_hooks() -> None:
    titles = {entry.title: entry.part for entry in METHODS.values()}
    for hook, _, _, example in rows(PAGE, "hook", "runs", "is for", "example"):
        name = code_in(hook)[0].partition("(")[0]
        if example:
            assert getattr(titles[example], name) is not getattr(Part, name), example


def test_numbers_are_what_the_page_says(seen: list[tuple[str, str, Any]]) -> None:
    shapes = {"a Python number": None, "a tensor without dimensions": (), "a tensor of one number": (REPLICAS,)}
    said = {}
    for hooks, what in rows(PAGE, "in", "a number that may differ is"):
        (kind,) = [shape for words, shape in shapes.items() if what.startswith(words)]
        said |= dict.fromkeys(code_in(hooks), kind)
    found: dict[str, set[Any]] = {}
    for _, hook, shape in seen:
        found.setdefault(hook, set()).add(shape)
    del found["networks"]  # for all replicas alike
    assert found == {hook: {kind} for hook, kind in said.items()}


def test_of_several_parts_the_first_answer_counts_where_the_page_says_so(seen: list[tuple[str, str, Any]]) -> None:
    text = " ".join((DOCS / PAGE).read_text(encoding="utf-8").split())
    first = re.search(r"the first answer counts for ([^.]+)\.", text)
    assert first
    asked = {part: {hook for who, hook, _ in seen if who == part} for part in ("spy", "other")}
    assert asked["spy"] - asked["other"] == set(code_in(first[1]))


def test_what_parts_are_made_of_is_where_the_page_says() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    listed = re.search(r"`threefold\.methods` has what parts are made of:(.+?)\n\n", text, re.DOTALL)
    assert listed
    assert set(code_in(listed[1])) <= set(threefold.methods.__all__)


def test_every_question_about_the_scenario_has_its_answer(small: Dataset) -> None:
    expressions = [code for _, answer in rows(PAGE, "question", "answer") for code in code_in(answer)]
    assert len(expressions) >= 8
    answers = []

    class Asker(Part):
        name = "asker"

        def loss(self, learner, batch):
            names = {"learner": learner, "outputs": learner.outputs, "task": batch.task, "batch": batch}
            names |= {"t": 1, "scores": torch.zeros(learner.outputs.size(0) + learner.outputs.size(1))}
            answers.extend(eval(expression, names) is not None for expression in expressions)

    for scenario in ("task", "domain", "class"):
        threefold.run(Split(small), method=Asker(), **QUICK | {"scenario": scenario})
    assert len(answers) >= 3 * len(expressions)
    assert all(answers)


def test_the_fourth_setting_needs_no_code(mine: Any, small: Dataset) -> None:
    """Table B.1: the task is given to the hidden layers only."""
    for method in (mine.Anchor() + XdG(share=0.5), mine.MyDERpp() + XdG(share=0.5)):
        result = threefold.run(Split(small), method=method, task_id_in="hidden", **QUICK | {"scenario": "task"})
        assert result.diverged == []


def test_permuted_data_and_other_numbers_of_tasks_need_no_code(mine: Any, small: Dataset) -> None:
    for scenario in ("task", "domain", "class"):
        for method in (mine.Anchor(), mine.MyMAS(), mine.MyDERpp(budget=100), mine.Dropout()):
            result = threefold.run(Permuted(small, 3), method=method, **QUICK | {"scenario": scenario})
            assert result.matrix.shape == (2, 3, 3)
            assert result.diverged == []
