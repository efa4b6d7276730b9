"""The metrics of accuracy during training, against numbers worked by hand and plain loops over their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import a_run

from threefold.results import Curve, pack
from threefold.results.metrics import gaps, measure

# Three tasks of four steps. Task 1 falls from 90 to 40 and comes back to 80 in the second task; in the third both
# earlier tasks fall for good.
POINTS = [(0, 0), (0, 2), (0, 4), (1, 1), (1, 2), (1, 4), (2, 1), (2, 4)]
TASK_1 = [50.0, 80, 90, 40, 60, 80, 70, 60]
TASK_2 = [50.0, 50, 50, 60, 80, 84, 82, 70]
TASK_3 = [50.0, 50, 50, 50, 50, 50, 90, 96]
MATRIX = [[90.0, 50, 50], [80, 84, 50], [60, 70, 96]]
INITIAL = [50.0, 50, 50]


def curve_of(points, accuracy, seen=None):
    seen = [task + 1 for task, _ in points] if seen is None else seen
    table = np.array([[*point, come] for point, come in zip(points, seen, strict=True)], dtype=np.int64)
    accuracy = np.array(accuracy, dtype=float)
    return Curve.of({"points": pack(table), "accuracy": pack(accuracy)}, accuracy.shape[1])


def by_hand():
    return curve_of(POINTS, np.transpose([TASK_1, TASK_2, TASK_3]))


def test_by_hand():
    found = measure(INITIAL, MATRIX, by_hand())
    anytime = 2 * 80 + 2 * 90 + (40 + 60) / 2 + (60 + 80) / 2 + 2 * (80 + 84) / 2 + (70 + 82 + 90) / 3
    anytime += 3 * (60 + 70 + 96) / 3
    assert found["average_anytime_accuracy"] == pytest.approx(anytime / 12)  # each value counts for its steps
    assert found["minimum_accuracy"] == 55  # (40 + 70) / 2: task 2 counts from the third task on
    assert found["worst_case_accuracy"] == pytest.approx(96 / 3 + 2 / 3 * 55)
    # the first switch: from 90 to 40 and back to 80; the second only forgets, from 82 to 65
    assert found["gap_depth"] == (40 + 0) / 2
    assert found["gap_recovery"] == (4 + 0) / 2  # 40 + 0.9 · 40 = 76 is reached at step 4


def test_a_gap_is_what_is_made_up():
    first, second = gaps(by_hand())
    assert (first.before, first.lowest, first.after, first.at, first.recovered) == (90, 40, 80, 1, 4)
    assert (second.before, second.lowest, second.after, second.depth, second.recovered) == (82, 65, 65, 0, 0)


def test_learning_more_of_earlier_tasks_is_no_gap():
    curve = curve_of([(0, 2), (1, 1), (1, 2)], [[50.0, 50], [60, 50], [70, 90]])
    assert [(gap.depth, gap.recovered) for gap in gaps(curve)] == [(0, 0)]


def test_how_dense_points_are_makes_no_difference_to_the_average():
    """A hundred points of one value after a switch weigh as much as their steps, not more."""
    few = curve_of([(0, 100), (0, 200)], [[40.0], [80.0]])
    many = curve_of([(0, step) for step in [*range(1, 101), 200]], [[40.0]] * 100 + [[80.0]])
    found = [measure([0.0], [[80.0]], curve)["average_anytime_accuracy"] for curve in (few, many)]
    assert found == [60.0, 60.0]


def test_where_no_task_ends_only_the_average_is_defined():
    """Tasks count from when they come: two of three at the first point."""
    curve = curve_of([(0, 5), (0, 10)], [[30.0, 60, 90], [60, 60, 60]], seen=[2, 3])
    found = measure([0.0] * 3, [[50.0] * 3] * 3, curve)
    assert found["average_anytime_accuracy"] == (5 * 45 + 5 * 60) / 10
    assert all(math.isnan(found[name]) for name in ("minimum_accuracy", "worst_case_accuracy", "gap_depth"))


def test_where_no_task_ends_no_row_is_of_a_task_just_learned():
    """Nor is the curve read as if it were, should its points look so."""
    found = measure(INITIAL, MATRIX, by_hand(), ends=False)
    defined = {name: value for name, value in found.items() if not math.isnan(value)}
    assert defined == {
        "average_accuracy": pytest.approx(226 / 3),
        "average_anytime_accuracy": measure(INITIAL, MATRIX, by_hand())["average_anytime_accuracy"],
    }


def test_a_run_knows_by_its_spec_whether_its_tasks_end():
    blurred = {"name": "split-mnist", "tasks": 3, "boundaries": {"name": "blurred", "hyperparameters": {}}}
    sharp = {name: value for name, value in blurred.items() if name != "boundaries"}
    for stream, ends in ((sharp, True), (blurred, False)):
        run = a_run(1, spec={"stream": stream, "seed": 1}, matrix=MATRIX, initial=INITIAL)
        assert math.isnan(run.metrics["forgetting"]) != ends
        assert run.metrics["average_accuracy"] == pytest.approx(226 / 3)


def test_one_task_alone():
    curve = curve_of([(0, 0), (0, 2), (0, 4)], [[50.0], [90], [80]])
    found = measure([50.0], [[80.0]], curve)
    assert (found["worst_case_accuracy"], found["average_anytime_accuracy"]) == (80, 85)
    assert all(math.isnan(found[name]) for name in ("minimum_accuracy", "gap_depth", "gap_recovery"))


def test_a_run_that_diverged_has_none():
    nothing = [math.nan] * 3
    found = measure(INITIAL, [MATRIX[0], nothing, nothing], by_hand())
    assert all(math.isnan(value) for value in found.values())


def test_points_at_which_nothing_was_found_do_not_count():
    """A run that takes fewer steps than others of its stack has none beyond its own."""
    points = [*POINTS[:3], (0, 6), *POINTS[3:]]
    rows = np.transpose([TASK_1, TASK_2, TASK_3])
    longer = np.insert(rows, 3, np.nan, axis=0)
    plain, beyond = measure(INITIAL, MATRIX, by_hand()), measure(INITIAL, MATRIX, curve_of(points, longer))
    assert beyond == plain


def test_without_points_there_is_no_number():
    empty = Curve(*(np.zeros(0, dtype=np.int64),) * 3, np.zeros((0, 3)))
    assert math.isnan(measure(INITIAL, MATRIX, empty)["average_anytime_accuracy"])


@st.composite
def curves(draw):
    """The points of some tasks, whatever steps they are at."""
    tasks = draw(st.integers(2, 4))
    points, rows = [(0, 0)], []
    for task in range(tasks):
        steps = draw(st.lists(st.integers(1, 30), min_size=1, max_size=5, unique=True))
        points += [(task, step) for step in sorted(steps)]
    for _ in points:
        rows.append(draw(st.lists(st.floats(0, 100), min_size=tasks, max_size=tasks)))
    return tasks, points, rows


@settings(deadline=None)
@given(curves())
def test_the_definitions_as_loops(drawn):
    tasks, points, rows = drawn
    final = [row for (task, _), row in zip(points, rows, strict=True) if task == tasks - 1][-1]
    found = measure([0.0] * tasks, [final] * tasks, curve_of(points, rows))

    lowest = []
    for task in range(tasks - 1):
        lowest.append(min(row[task] for (now, _), row in zip(points, rows, strict=True) if now > task))
    minimum = sum(lowest) / len(lowest)
    assert found["minimum_accuracy"] == pytest.approx(minimum, abs=1e-9)
    assert found["worst_case_accuracy"] == pytest.approx(final[-1] / tasks + (1 - 1 / tasks) * minimum, abs=1e-9)

    every_step, past = [], 0
    for task in range(tasks):
        own = [(step, row) for (now, step), row in zip(points, rows, strict=True) if now == task]
        for step in range(1, own[-1][0] + 1):
            row = next(row for at, row in own if at >= step)
            every_step.append(sum(row[: task + 1]) / (task + 1))
        past += own[-1][0]
    assert len(every_step) == past
    assert found["average_anytime_accuracy"] == pytest.approx(sum(every_step) / past, abs=1e-9)

    depths, times = [], []
    for task in range(1, tasks):
        before = [row for (now, _), row in zip(points, rows, strict=True) if now == task - 1][-1]
        own = [(step, row) for (now, step), row in zip(points, rows, strict=True) if now == task]
        path = [(step, sum(row[:task]) / task) for step, row in [(0, before), *own]]
        low = min(value for _, value in path)
        depth = min(path[0][1], path[-1][1]) - low
        at = next(place for place, (_, value) in enumerate(path) if value == low)
        depths.append(depth)
        times.append(next(step for step, value in path[at:] if value >= low + 0.9 * depth) if depth > 0 else 0)
    assert found["gap_depth"] == pytest.approx(sum(depths) / len(depths), abs=1e-9)
    if all(depth == 0 or depth > 1e-6 for depth in depths):  # else rounding decides
        assert found["gap_recovery"] == pytest.approx(sum(times) / len(times))


@pytest.mark.parametrize(
    ("points", "seen", "why"),
    [
        ([(0, 2), (0, 1)], [1, 1], "not in order"),
        ([(0, 1), (3, 1)], [1, 3], "none of these tasks"),
        ([(0, 1), (0, 2)], [0, 1], "have seen no task"),
        ([(0, 1), (0, 2)], [1, 4], "more than there are"),
    ],
)
def test_points_that_cannot_be_are_refused(points, seen, why):
    with pytest.raises(ValueError, match=why):
        curve_of(points, [[50.0] * 3] * 2, seen)


def test_a_curve_that_skips_a_task_breaks_nothing():
    """From elsewhere anything may come that is in order."""
    curve = curve_of([(1, 1), (2, 3)], [[50.0, 60, 70], [40, 60, 70]])
    assert math.isfinite(measure(INITIAL, MATRIX, curve)["gap_depth"])
