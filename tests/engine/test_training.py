"""The central test: a stack learns what separate networks learn in a plain loop, in every scenario."""

import pytest
from plain_network import train_plain
from tiny_cohorts import SCENARIOS, STREAMS, cohort, furthest, of, watched

SEEDS, LR = [4, 1, 7], [1e-2, 3e-3, 1e-2]
BATCH = 16
CLOSE = 2e-5  # float32 against float64: weights of size 0.1 to 1 after 24 steps of up to 0.01 each
WHERE = pytest.mark.parametrize(("kind", "scenario"), [(k, s) for k in STREAMS for s in SCENARIOS])


def apart(seen, stream, scenario, lr=LR, seeds=SEEDS):
    """The weights of every replica after every task, trained alone from the same start on the same batches."""
    for replica, seed in enumerate(seeds):
        batches = []
        for number in range(stream.tasks):
            indices, tasks = (t[replica].tolist() for t in seen.of_task(number))
            batches.append(list(zip(indices, tasks, strict=True)))
        start = of(seen.weights[0], replica)
        plain = train_plain(start, stream.data, stream.sequence(seed), scenario, lr[replica], batches)
        for number, weights in enumerate(plain):
            yield replica, number, weights


@pytest.mark.parametrize("method", ["none", "offline"])
@WHERE
def test_a_stack_learns_what_plain_networks_learn(kind, scenario, method):
    seen = watched(kind, scenario, SEEDS, method=method, lr=LR)
    for replica, number, weights in apart(seen, STREAMS[kind], scenario):
        assert furthest(of(seen.weights[number + 1], replica), weights) < CLOSE
        assert furthest(of(seen.weights[number], replica), weights) > 200 * CLOSE  # every task moved them


@pytest.mark.parametrize(("kind", "scenario", "seeds"), [("permuted", "hidden", SEEDS), ("split", "class", [5])])
def test_so_do_a_shared_output_layer_and_a_single_replica(kind, scenario, seeds):
    """Table B.1's second column without its gates has Domain-IL's output layer."""
    seen = watched(kind, scenario, seeds, lr=LR[: len(seeds)])
    for replica, number, weights in apart(seen, STREAMS[kind], scenario, LR, seeds):
        assert furthest(of(seen.weights[number + 1], replica), weights) < CLOSE


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_other_units_do_not_learn(scenario):
    """Task-IL: a head keeps its first weights until its task comes; Class-IL: so do the units of classes to come."""
    weights = watched("split", scenario, SEEDS).weights
    for number in range(3):
        for name in ("output.weighted.weight", "output.shift.bias"):
            before, after = weights[0][name], weights[number + 1][name]
            come, current = slice(2 * (number + 1), None), slice(2 * number, 2 * (number + 1))
            assert (before[:, come] == after[:, come]).all()
            assert (before[:, current] != after[:, current]).any()


# what the two baselines get to see


def steps(kind, scenario, method, iters=12):
    """(the seed's tasks, newest task, the (index, task) pairs of each step) for every replica."""
    seen = watched(kind, scenario, SEEDS, method=method, iters=iters, batch=BATCH)
    assert len(seen.batches) == 3 * iters
    for newest in range(3):
        indices, tasks = seen.of_task(newest)
        for replica, seed in enumerate(SEEDS):
            rows = zip(indices[replica].tolist(), tasks[replica].tolist(), strict=True)
            yield STREAMS[kind].sequence(seed), newest, [list(zip(*row, strict=True)) for row in rows]


def in_passes(rows, size):
    """No sample comes twice in a pass; the passes that are whole."""
    whole = size // BATCH
    for start in range(0, len(rows), whole):
        one_pass = [pair for row in rows[start : start + whole] for pair in row]
        assert len(set(one_pass)) == len(one_pass)
        if len(one_pass) == whole * BATCH:
            yield one_pass


@WHERE
def test_none_sees_the_current_task_alone_in_passes(kind, scenario):
    labels = STREAMS[kind].data.train_y.tolist()
    for sequence, newest, rows in steps(kind, scenario, "none"):
        assert {task for row in rows for _, task in row} == {newest}
        assert {labels[index] for row in rows for index, _ in row} <= set(sequence[newest].classes)
        assert list(in_passes(rows, len(sequence[newest].train)))


@WHERE
def test_offline_sees_all_tasks_so_far(kind, scenario):
    """In Task-IL every batch is shared equally; elsewhere tasks come as often as they have data."""
    labels, uneven = STREAMS[kind].data.train_y.tolist(), 0
    for sequence, newest, rows in steps(kind, scenario, "offline"):
        for row in rows:
            assert all(labels[index] in sequence[task].classes for index, task in row)
            counts = [sum(task == number for _, task in row) for number in range(newest + 1)]
            assert sum(counts) == BATCH
            assert scenario != "task" or max(counts) - min(counts) <= 1
            uneven += max(counts) - min(counts) > 1
        if scenario != "task":
            for one_pass in in_passes(rows, sum(len(task.train) for task in sequence[: newest + 1])):
                for number in range(newest + 1):
                    missed = len(sequence[number].train) - sum(task == number for _, task in one_pass)
                    assert 0 <= missed < BATCH
    assert (uneven > 0) == (scenario != "task")  # chance decides a batch's shares


# what is reported


def test_reports_count_up_to_the_last_step_with_the_accuracy_so_far():
    reports = []
    measured = cohort("split", "class", [1, 2], iters=12, report=reports.append)
    assert [(r.step, r.task) for r in reports] == [(10, 0), (12, 0), (22, 1), (24, 1), (34, 2), (36, 2)]
    assert {(r.steps, r.tasks) for r in reports} == {(36, 3)}
    averages = [None, *(measured.matrix[:, seen - 1, :seen].mean().item() for seen in (1, 2))]
    for report in reports:
        assert report.accuracy == pytest.approx(averages[report.task])
    assert set(measured.seconds) == {"train", "consolidate", "evaluate"}
    assert measured.seconds["train"] > 0 < measured.seconds["evaluate"]
