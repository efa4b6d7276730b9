"""The metrics, against numbers worked by hand and plain loops over their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threefold.results.metrics import METRICS, average_accuracy, forgetting, forward_transfer, intransigence, measure

# Three tasks. Task 1: 90, then 70, then 60. Task 2: 20 unseen, then 80, then 85. Task 3: 10, 30 unseen, then 95.
MATRIX = [[90.0, 20.0, 10.0], [70.0, 80.0, 30.0], [60.0, 85.0, 95.0]]
INITIAL = [11.0, 12.0, 13.0]


NO_CURVE = {"average_anytime_accuracy", "minimum_accuracy", "worst_case_accuracy", "gap_depth", "gap_recovery"}


def of_matrix(found):
    """Without the metrics of a curve, which are not numbers where there is none."""
    assert all(math.isnan(found[name]) for name in NO_CURVE)
    return {name: value for name, value in found.items() if name not in NO_CURVE}


def test_by_hand():
    assert of_matrix(measure(INITIAL, MATRIX)) == {
        "average_accuracy": 80.0,  # (60 + 85 + 95) / 3
        "learning_accuracy": pytest.approx(265 / 3),  # (90 + 80 + 95) / 3
        "forgetting": 12.5,  # ((90 − 60) + (80 − 85)) / 2
        "backward_transfer": -12.5,  # ((60 − 90) + (85 − 80)) / 2
        "forward_transfer": 12.5,  # ((20 − 12) + (30 − 13)) / 2
        "average_incremental_accuracy": pytest.approx((90 + 75 + 80) / 3),
    }


def test_forgetting_counts_the_best_even_before_the_task_was_trained():
    """Chaudhry's maximum runs over all l < T; this is where forgetting is not minus backward transfer."""
    matrix = [[50.0, 99.0, 0.0], [50.0, 80.0, 0.0], [50.0, 79.0, 90.0]]
    assert measure([0.0] * 3, matrix)["forgetting"] == 10.0  # (0 + 99 − 79) / 2
    assert measure([0.0] * 3, matrix)["backward_transfer"] == -0.5  # (0 + 79 − 80) / 2


def test_every_metric_has_a_name_for_tables():
    assert list(measure(INITIAL, MATRIX)) == [metric.name for metric in METRICS]
    assert len({metric.short for metric in METRICS}) == len({metric.title for metric in METRICS}) == len(METRICS)


def test_one_task_has_no_forgetting_and_no_transfer():
    found = measure([10.0], [[97.0]])
    assert found["average_accuracy"] == found["learning_accuracy"] == 97.0
    assert all(math.isnan(found[name]) for name in ("forgetting", "backward_transfer", "forward_transfer"))


def test_a_diverged_run_has_no_metric_that_needs_the_missing_rows():
    nothing = [math.nan] * 3
    found = measure(INITIAL, [MATRIX[0], MATRIX[1], nothing])
    assert found.pop("forward_transfer") == 12.5  # needs rows 1 and 2 only
    assert all(math.isnan(value) for value in found.values())


accuracies = st.floats(0, 100)


@st.composite
def runs(draw):
    tasks = draw(st.integers(2, 6))
    row = st.lists(accuracies, min_size=tasks, max_size=tasks)
    return draw(row), draw(st.lists(row, min_size=tasks, max_size=tasks))


@settings(deadline=None)
@given(runs())
def test_the_definitions_as_loops(run):
    initial, r = run
    tasks = len(initial)
    last = tasks - 1
    expected = {
        "average_accuracy": sum(r[last][j] for j in range(tasks)) / tasks,
        "learning_accuracy": sum(r[j][j] for j in range(tasks)) / tasks,
        "forgetting": sum(max(r[l][j] for l in range(last)) - r[last][j] for j in range(last)) / last,  # noqa: E741
        "backward_transfer": sum(r[last][j] - r[j][j] for j in range(last)) / last,
        "forward_transfer": sum(r[j - 1][j] - initial[j] for j in range(1, tasks)) / last,
        "average_incremental_accuracy": sum(sum(r[i][: i + 1]) / (i + 1) for i in range(tasks)) / tasks,
    }
    assert of_matrix(measure(initial, r)) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None)
@given(runs())
def test_forgetting_is_at_least_what_was_lost_since_learning(run):
    found = measure(*run)
    assert found["forgetting"] >= -found["backward_transfer"] - 1e-9


@pytest.mark.parametrize("matrix", [[], [[]], [1.0, 2.0], [[1.0, 2.0]], np.zeros((2, 2, 2))])
def test_a_matrix_that_is_not_square_is_refused(matrix):
    with pytest.raises(ValueError, match="a row and a column for each task"):
        average_accuracy(matrix)
    with pytest.raises(ValueError, match="a row and a column for each task"):
        forgetting(matrix)


def test_a_baseline_of_another_length_is_refused():
    with pytest.raises(ValueError, match="3 tasks"):
        forward_transfer([1.0, 2.0], MATRIX)


def test_intransigence_is_what_joint_training_learns_better():
    joint = [[92.0, 0.0], [0.0, 98.0]]
    assert intransigence([[90.0, 20.0], [70.0, 80.0]], joint) == 10.0  # ((92 − 90) + (98 − 80)) / 2
