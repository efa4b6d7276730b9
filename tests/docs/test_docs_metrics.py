"""docs/metrics.md: every metric is there, each example is what its own arithmetic and the code make of it."""

import ast
import operator
import re
from collections.abc import Callable

import numpy as np
import pytest
from doc_pages import DOCS, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from threefold.report.metric_table import INTRANSIGENCE, OF_CURVES
from threefold.results import Curve
from threefold.results.metrics import METRICS, average_anytime_accuracy, intransigence, measure
from threefold.scenarios import SCENARIOS, Outputs

PAGE = "metrics.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")
HEADER = ("metric", "short", "formula", "range", "example", "is")
DO: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
ROWS = {row[1]: dict(zip(HEADER, row, strict=True)) for row in rows(PAGE, *HEADER)}
NAMES = {metric.short: metric.name for metric in METRICS}


def arithmetic(text: str) -> float:
    """What `(60 + 70) / 2` comes to."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(int() | float() as number):
                return number
            case ast.BinOp(left, operation, right):
                return DO[type(operation)](value(left), value(right))
        raise AssertionError(f"{text!r} is no arithmetic")

    return value(ast.parse(text, mode="eval").body)


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def table(*header: str) -> np.ndarray:
    return np.array([list(map(number, row)) for row in rows(PAGE, *header)])


@pytest.fixture(scope="module")
def example() -> tuple[list[float], list[list[float]], Curve]:
    """The page's accuracies before training and after each task, and its curve."""
    of_tasks = table("after task", "on task 1", "on task 2", "on task 3")
    assert of_tasks[:, 0].tolist() == [0, 1, 2, 3]
    points = table("in task", "step", "steps so far", "on task 1", "on task 2", "on task 3")
    task = points[:, 0].astype(int)
    curve = Curve(task - 1, points[:, 1].astype(int), task, points[:, 3:])
    assert curve.total.tolist() == points[:, 2].tolist()
    assert points[0, 3:].tolist() == of_tasks[0, 1:].tolist()
    ends = [points[points[:, 0] == end][-1, 3:].tolist() for end in (1, 2, 3)]
    assert ends == of_tasks[1:, 1:].tolist()
    return of_tasks[0, 1:].tolist(), of_tasks[1:, 1:].tolist(), curve


def test_every_metric_is_on_the_page() -> None:
    assert {short: row["metric"] for short, row in ROWS.items()} == {
        **{metric.short: metric.title for metric in METRICS},
        INTRANSIGENCE[0]: "Intransigence",
    }
    of_curves = TEXT.index("## From tests during training")
    for short, name in NAMES.items():
        assert (TEXT.index(f"| {short} |") > of_curves) == (name in OF_CURVES), "under the tests that it comes from"
        assert re.search(rf"^- .*\*\*{re.escape(short)}\*\*", TEXT, re.MULTILINE), f"{short} is not explained"


@pytest.mark.parametrize("short", ROWS)
def test_each_example_is_its_arithmetic(short: str) -> None:
    row = ROWS[short]
    assert f"{arithmetic(row['example'].strip('`')):.2f}" == f"{number(row['is']):.2f}"


@pytest.mark.parametrize("short", NAMES)
def test_each_example_is_what_the_code_finds(short: str, example: tuple[list[float], list[list[float]], Curve]) -> None:
    by_hand = arithmetic(ROWS[short]["example"].strip("`"))
    assert measure(*example)[NAMES[short]] == pytest.approx(by_hand, abs=1e-9)


def test_the_example_of_intransigence(example: tuple[list[float], list[list[float]], Curve]) -> None:
    offline = re.search(r"Offline learned the same tasks to (\d+), (\d+) and (\d+)", TEXT)
    assert offline
    joint = np.diag(list(map(float, offline.groups())))
    by_hand = arithmetic(ROWS[INTRANSIGENCE[0]]["example"].strip("`"))
    assert intransigence(example[1], joint) == pytest.approx(by_hand, abs=1e-9)


def test_the_weights_of_the_points(example: tuple[list[float], list[list[float]], Curve]) -> None:
    found = re.search(r"the weights\s+are `([\d, ]+)`", TEXT)
    assert found
    weights = [int(weight) for weight in found[1].split(",")]
    curve = example[2]
    so_far = [curve.accuracy[n, : task + 1].mean() for n, task in enumerate(curve.task)]
    by_hand = sum(w * value for w, value in zip(weights, so_far, strict=True)) / sum(weights)
    assert average_anytime_accuracy(curve) == pytest.approx(by_hand)


def test_one_point_at_the_end_of_each_task_gives_the_average_incremental_accuracy(
    example: tuple[list[float], list[list[float]], Curve],
) -> None:
    """As the page says of tasks of equal length."""
    tasks = np.arange(3)
    found = measure(example[0], example[1], Curve(tasks, np.full(3, 4), tasks + 1, np.array(example[1])))
    assert found["average_anytime_accuracy"] == pytest.approx(found["average_incremental_accuracy"])


per_cent = st.floats(0, 100)


@settings(deadline=None)
@given(st.data())
def test_each_stays_in_its_range(data: st.DataObject) -> None:
    tasks = data.draw(st.integers(2, 4))
    row = st.lists(per_cent, min_size=tasks, max_size=tasks)
    matrix, joint = (data.draw(st.lists(row, min_size=tasks, max_size=tasks)) for _ in range(2))
    points = [(task, step) for task in range(tasks) for step in (2, 5, 9)]
    task, step = np.array(points).T
    accuracy = np.array(data.draw(st.lists(row, min_size=len(points), max_size=len(points))))
    found = measure(data.draw(row), matrix, Curve(task, step, task + 1, accuracy))
    named = {short: found[name] for short, name in NAMES.items()} | {"I": intransigence(matrix, joint)}
    for short, value in named.items():
        low, _, high = ROWS[short]["range"].partition(" to ")
        most = 9.0 if high == "the steps of a task" else number(high)
        assert number(low) - 1e-9 <= value <= most + 1e-9, short


def test_what_counts_tasks_not_yet_seen(example: tuple[list[float], list[list[float]], Curve]) -> None:
    """Other accuracies on tasks that have not come: who notices?"""
    before, matrix, curve = example
    unseen = np.triu(np.ones((3, 3), dtype=bool), 1)
    changed = np.where(unseen, 99.0, matrix)
    to_come = np.arange(3) > curve.task[:, None]
    other = Curve(curve.task, curve.step, curve.seen, np.where(to_come, 1.0, curve.accuracy))
    found, now = measure(before, matrix, curve), measure([1.0, 2.0, 3.0], changed.tolist(), other)
    noticed = {short for short, name in NAMES.items() if found[name] != now[name]}
    counts = dict(rows(PAGE, "counts tasks not yet seen", "metrics"))
    shorts = {answer: {s for s in ROWS if re.search(rf"(?<![\w-]){s}\b", text)} for answer, text in counts.items()}
    assert noticed == {"F", "FWT"} == shorts["yes"]
    assert shorts["no"] == ROWS.keys() - shorts["yes"]


def test_how_each_scenario_tests_a_task_that_has_not_come() -> None:
    """Its chance is one in the number of units that compete."""
    named = [row[0] for row in rows(PAGE, "scenario", "how task j is tested before it has come", "chance")]
    assert named == [scenario.title for scenario in SCENARIOS.values()]
    for name, compete in {"task": [2, 2, 2], "domain": [2, 2, 2], "class": [2, 4, 6]}.items():
        outputs = Outputs(SCENARIOS[name], 3, 2)
        assert [int(outputs.at_test(task, 0).sum()) for task in range(3)] == compete
    assert int(Outputs(SCENARIOS["class"], 3, 2).at_test(0, 2).sum()) == 4, "one that has come: among all so far"
