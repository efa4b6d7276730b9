"""What a cohort reports while it trains."""

import pytest
from tiny_cohorts import cohort


def test_reports_count_up_to_the_last_step_with_the_accuracy_so_far():
    reports = []
    outcome = cohort("split", "class", [1, 2], iters=12, report=reports.append)
    assert [(r.step, r.task) for r in reports] == [(10, 0), (12, 0), (22, 1), (24, 1), (34, 2), (36, 2)]
    assert {(r.steps, r.tasks) for r in reports} == {(36, 3)}
    averages = [None]
    for seen in (1, 2):
        values = [outcome.matrix[replica, seen - 1, task].item() for replica in (0, 1) for task in range(seen)]
        averages.append(sum(values) / len(values))
    for report in reports:
        assert report.accuracy == pytest.approx(averages[report.task])


def test_every_kind_of_work_is_timed():
    seconds = cohort("split", "class", [1, 2]).seconds
    assert set(seconds) == {"train", "consolidate", "evaluate"}
    assert seconds["train"] > 0
    assert seconds["evaluate"] > 0
