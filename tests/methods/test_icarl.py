"""iCaRL's loss against equations 15 and 16, and the data it is trained on (section A.4.1)."""

import math

import pytest
import torch
from plain_network import competing, gradient, logits
from tiny_cohorts import copied, of
from tiny_stack import CLOSE, TinyStack, near

BATCH = 13


def at_task(method, task, kind="split"):
    """A cohort in the middle of a task, and the copy of its networks from the end of the task before."""
    tiny = TinyStack(kind, "class", method, batch=BATCH).reach(task - 1)
    tiny.train()
    teacher = copied(tiny.params["classifier"])
    tiny.finish()
    tiny.begin(task)
    tiny.train(2)
    return tiny, teacher, *next(tiny.draws(1))


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def by_hand(tiny, params, teacher, x, y, temperature):
    """−Σ_c ȳ_c log p_c + (1 − ȳ_c) log(1 − p_c), averaged over samples: one class of one sample at a time."""
    old = competing("class", 0, tiny.task, tiny.classes)
    so_far = competing("class", 0, tiny.task + 1, tiny.classes)
    total = 0
    for row, unit in zip(x, y.tolist(), strict=True):
        scores, before = logits(params, row), logits(teacher, row).tolist()
        for c in so_far:
            wanted = sigmoid(before[c] / temperature) if c in old else float(c == unit)
            chance = 1 / (1 + torch.exp(-scores[c]))
            total = total - (wanted * torch.log(chance) + (1 - wanted) * torch.log(1 - chance))
    return total / len(y)


@pytest.mark.parametrize("kind", ["split", "permuted"])
@pytest.mark.parametrize(("task", "temperature"), [(1, 1), (2, 1), (2, 2)])
def test_the_loss_is_the_equation(kind, task, temperature):
    """The temperature is that of the targets; what is matched to them has none."""
    method = "icarl:budget=30" if temperature == 1 else f"icarl:budget=30,temperature={temperature}"
    tiny, teacher, batch, drawn = at_task(method, task, kind)
    loss, grads = tiny.gradients(batch, drawn)
    mixed = 0
    for replica in range(3):
        x, y = batch.x[replica], batch.y[replica]
        expected, slopes = gradient(
            lambda p, replica=replica, x=x, y=y: by_hand(tiny, p, of(teacher, replica), x, y, temperature),
            of(tiny.params["classifier"], replica),
        )
        assert abs(loss[replica] - expected) < CLOSE
        assert near(of(grads["classifier"], replica), slopes)
        mixed += int((batch.task[replica] < task).sum())
    assert mixed > 0  # stored samples were among them: their targets are soft on their own class too


def test_the_first_task_is_binary_classification():
    tiny = TinyStack("split", "class", "icarl:budget=30", batch=BATCH)
    tiny.train(2)
    batch, drawn = next(tiny.draws(1))
    loss, _ = tiny.gradients(batch, drawn)
    for replica in range(3):
        params = of(tiny.params["classifier"], replica)
        expected = by_hand(tiny, params, params, batch.x[replica], batch.y[replica], 1)
        assert abs(loss[replica] - expected) < CLOSE


def test_temperatures_may_differ_in_a_cohort():
    temperatures = [0.5, 1, 4]
    tiny, teacher, batch, drawn = at_task([f"icarl:budget=30,temperature={t}" for t in temperatures], 2)
    loss, _ = tiny.gradients(batch, drawn)
    for replica, temperature in enumerate(temperatures):
        params = of(tiny.params["classifier"], replica)
        expected = by_hand(tiny, params, of(teacher, replica), batch.x[replica], batch.y[replica], temperature)
        assert abs(loss[replica] - expected) < CLOSE


def test_units_of_classes_to_come_do_not_learn():
    tiny = TinyStack("split", "class", "icarl:budget=30")
    first = copied(tiny.params["classifier"])
    tiny.reach(1)
    tiny.train()
    for name in ("output.weighted.weight", "output.shift.bias"):
        assert torch.equal(tiny.params["classifier"][name][:, 4:], first[name][:, 4:])
        assert (tiny.params["classifier"][name][:, :4] != first[name][:, :4]).any()


@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_the_pool_is_the_tasks_data_and_all_that_is_stored(kind):
    """In one pass every sample comes once, as one of its own task, but for the last that make no whole batch."""
    batch = 5
    tiny = TinyStack(kind, "class", ["icarl:budget=30", "icarl:budget=12", "icarl:budget=50"], batch=batch).reach(2)
    drawn = tiny.sampler(60).current
    for replica, sequence in enumerate(tiny.sequences):
        own = of(tiny.memory("icarl"), replica)
        pool = {(2, index) for index in sequence[2].train.tolist()}
        for place, count in enumerate(own["count"].tolist()):
            pool |= {(place // tiny.classes, index) for index in own["stored"][place, :count].tolist()}
        assert len(pool) == len(sequence[2].train) + int(own["count"].sum())
        whole = len(pool) // batch
        assert 10 < whole < 60
        pairs = list(
            zip(drawn.task[replica].flatten().tolist(), drawn.indices[replica].flatten().tolist(), strict=True)
        )
        assert set(pairs) <= pool
        one_pass = pairs[: whole * batch]
        assert len(set(one_pass)) == len(one_pass) > len(pool) - batch
        assert {task for task, _ in one_pass} == {0, 1, 2}


def test_it_needs_no_replay_of_its_own():
    tiny = TinyStack("split", "class", "icarl:budget=30").reach(1)
    _, drawn = next(tiny.draws(1))
    assert not drawn
