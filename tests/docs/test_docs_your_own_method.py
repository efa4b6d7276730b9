"""docs/your-own-method.md: its code runs as it stands, its two methods work, and what it says of the hooks is so."""

import ast
import inspect
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doc_pages import DOCS, Desk, blobs, blocks, code_in, desk, fetchable, rows
from torch.nn.functional import dropout

import threefold
from threefold import Dataset, Part, Permuted, Result, Split, ThreefoldError, XdG, hyper
from threefold.methods import METHODS, Noise, Replay, classification, only_active, per_replica

PAGE = "your-own-method.md"
LINES = 30  # a new method takes no more
SEEDS = 20
QUICK = {"scenario": "class", "seeds": 2, "store": None, "iters": 3, "hidden": 8, "batch": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk at which the whole page was followed, with a small stand-in for MNIST."""
    with desk(tmp_path_factory.mktemp("method")) as place:
        fetchable("mnist", place.patch)
        place.follow(PAGE)
        yield place


@pytest.fixture(scope="module")
def mine(followed: Desk) -> Any:
    """The module that the page's reader wrote."""
    return sys.modules["my_methods"]


@pytest.fixture(scope="module")
def small() -> Dataset:
    return blobs(0.25, samples=200)


def written() -> dict[str, str]:
    """The code of each class of my_methods.py, with all that its block holds besides."""
    code = [block.code for block in blocks(PAGE) if block.code.startswith("# my_methods.py")]
    return {re.search(r"class (\w+)", each)[1]: each for each in code}  # type: ignore[index]


def printed(followed: Desk, piece: str) -> str:
    """What the block that holds this piece printed."""
    (found,) = [followed.printed[block.line] for block in blocks(PAGE) if piece in block.code]
    return found


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

    def begin(self, setting, seed, params):
        self.note("begin")
        return {"count": torch.tensor(0)}

    def pool(self, tasks, task, memory):
        self.note("pool")
        return [(task, tasks[task].train)]

    def draws(self, setting, seed, task, memory, steps):
        self.note("draws")
        return {f"{self.name} noise": Noise((3,))}

    def gates(self, memory, task):
        self.note("gates")
        return [torch.ones(8), torch.ones(8)]

    def loss(self, learner, batch):
        self.note("loss")
        return classification(learner, *batch)

    def recall(self, learner, batch, drawn):
        self.note("recall")
        return Replay(*batch)

    def replay_loss(self, learner, replay):
        self.note("replay_loss")
        return learner.logits(replay.x, replay.task).sum()

    def penalty(self, params, memory):
        self.note("penalty")
        return self.number * 0

    def side_loss(self, learner, batch, replay, drawn):
        self.note("side_loss")

    def adjust(self, grads, learner, drawn):
        self.note("adjust")
        return grads

    def observe(self, memory, before, after, grads):
        self.note("observe")

    def consolidate(self, stack, memory, task):
        self.note("consolidate")
        return memory

    def keepsakes(self, stack, memory):
        self.note("keepsakes")
        return {}

    def scores(self, learner, x, task):
        self.note("scores")
        return learner.logits(x, task)


class OtherSpy(Spy):
    name = "other"


class LeashSpy(Part):
    """Apart from the others, as an adjusted gradient must be whole and has no leash."""

    name = "spy"
    number: float = hyper("a number", 0.0)
    note = Spy.note

    def leash(self, memory):
        self.note("leash")

    def path(self, memory):
        self.note("path")


class OtherLeashSpy(LeashSpy):
    name = "other"


SEEN: list[tuple[str, str, tuple[int, ...] | None]] = []
TASKS, STEPS, REPLICAS = 5, QUICK["iters"], QUICK["seeds"]
TIMES = {  # what the page's second column means, in calls
    "before training": None,
    "before the first task": REPLICAS,
    "before each task": TASKS * REPLICAS,
    "at each step": TASKS * STEPS,
    "at each step from the second task on": (TASKS - 1) * STEPS,
    "at each step with something recalled": (TASKS - 1) * STEPS,
    "after each step": TASKS * STEPS,
    "after each task": TASKS,
    "at test time": None,
    "at each step and at test time": None,
}


@pytest.fixture(scope="module")
def seen(small: Dataset) -> list[tuple[str, str, tuple[int, ...] | None]]:
    SEEN.clear()
    threefold.run(Split(small), method=Spy() + OtherSpy(), **QUICK)
    threefold.run(Split(small), method=LeashSpy() + OtherLeashSpy(), **QUICK)
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
    for name, (_, runs) in listed.items():
        assert calls[name] > 0
        assert TIMES[runs] in (None, calls[name]), name


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
            names |= {"label": torch.tensor(0), "scores": torch.zeros(2 * learner.outputs.classes_per_task)}
            answers.extend(eval(expression, names) for expression in expressions)

    for scenario in ("task", "domain", "class"):
        threefold.run(Split(small), method=Asker(), **QUICK | {"scenario": scenario})
    assert not any(answer is None for answer in answers)


def test_the_fourth_setting_needs_no_code(mine: Any, small: Dataset) -> None:
    """Table B.1: the task is given to the hidden layers only."""
    for method in (mine.Anchor() + XdG(share=0.5), mine.DarkReplay() + XdG(share=0.5)):
        result = threefold.run(Split(small), method=method, task_id_in="hidden", **QUICK | {"scenario": "task"})
        assert result.diverged == []


def test_permuted_data_and_other_numbers_of_tasks_need_no_code(mine: Any, small: Dataset) -> None:
    for scenario in ("task", "domain", "class"):
        for method in (mine.Anchor(), mine.DarkReplay(budget=100)):
            result = threefold.run(Permuted(small, 3), method=method, **QUICK | {"scenario": scenario})
            assert result.matrix.shape == (2, 3, 3)
            assert result.diverged == []


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
    "a Python number in the memory": [("begin", lambda self, setting, seed, params: {"count": 0})],
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
        with pytest.raises((RuntimeError, TypeError, ValueError), match=re.escape(quoted)):
            threefold.run(Split(small), method=part(), **QUICK)


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
