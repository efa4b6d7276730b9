"""Passes through the data: replicas whose tasks differ in size take their own number of steps."""

import pytest
import torch
from every_method import Leaving, left
from plain_network import train_plain
from test_independence import everything
from test_training import CLOSE
from tiny_cohorts import EVEN, STREAMS, furthest, of, replicas, same_bits, same_measured, training_of, watched

from covering import covering, rest_in_full
from threefold.engine import train
from threefold.engine.train import Lengths
from threefold.methods import replay
from threefold.networks import VAE

SEEDS = [4, 1, 7]
METHODS = ["none", "offline", "ewc:strength=50", "si:strength=2", "er:budget=96", "a-gem:budget=96", "icarl:budget=96"]
OPTIMIZERS = {
    "adam": {},
    "sgd": {"lr": "sgd:lr=0.1,momentum=0.9", "schedule": "cosine"},
    "fresh adamw": {"lr": "adamw:lr=0.01,reset=true", "schedule": "step"},
}


CASES = [(method, optimizer) for method in METHODS for optimizer in OPTIMIZERS]


def passed(seeds, scenario="class", epochs=1, **also):
    run = {"hidden": 16, "batch": 16, "epochs": epochs}
    return watched(EVEN["split"], scenario, seeds, **run | also)


def sizes(stream, seed):
    return [len(task.train) for task in stream.sequence(seed)]


def own_steps(stream, seed, epochs, batch=16):
    return [epochs * (size // batch) for size in sizes(stream, seed)]


def test_tasks_differ_in_size_here():
    for stream in (EVEN["split"], STREAMS["split"]):
        each = [own_steps(stream, seed, 1) for seed in SEEDS]
        assert sum(len(set(own)) > 1 for own in zip(*each, strict=True)) > 1


@pytest.mark.parametrize(
    ("iters", "epochs", "samples", "steps"), [(7, None, 100, 7), (None, 1, 100, 6), (None, 3, 31, 3)]
)
def test_steps_are_whole_batches_of_each_pass(iters, epochs, samples, steps):
    assert training_of(iters=iters, epochs=epochs).steps(samples) == steps


def agree(places, **run):
    """Is each of these replicas what it is alone?"""
    stack = passed(SEEDS, **run)
    for replica in places:
        alone = passed([SEEDS[replica]], **run)
        assert same_bits(everything(alone, 0)[1:], everything(stack, replica)[1:])
        for task in range(3):
            mine, its = alone.of_task(task)[0][0], stack.of_task(task)[0][replica]
            assert torch.equal(mine, its[: len(mine)])


@pytest.mark.parametrize(("method", "optimizer"), rest_in_full(CASES, covering(CASES, 1)))
def test_a_replica_alone_is_itself_beside_others_that_take_longer_or_shorter(method, optimizer):
    agree([0, 1] if method == "none" else [0], method=method, **OPTIMIZERS[optimizer])


@pytest.mark.parametrize("method", ["offline", "er:budget=96", "lwf:replayed_for=every", "xdg:share=0.5"])
def test_so_it_is_where_tasks_have_heads_or_gates_of_their_own(method):
    agree([0], scenario="task", method=method)


def test_so_are_generators(monkeypatch):
    """Two methods: the second is lent the first one's. With 112 latent variables all widths are multiples of 16."""
    monkeypatch.setattr(replay, "LATENT", 112)
    monkeypatch.setattr(VAE.__init__, "__defaults__", (112,))
    agree([0, 2], method="dgr")
    training = training_of(hidden=16, epochs=1)
    both = train(EVEN["split"], [replicas("class", m, SEEDS) for m in ("dgr", "dgr-distill")], training)
    for method, measured in zip(("dgr", "dgr-distill"), both, strict=True):
        assert same_measured(measured, passed(SEEDS, method=method).measured)


@pytest.mark.parametrize("epochs", [1, 2])
def test_each_takes_its_own_number_of_steps(epochs):
    """Against a plain network that takes no more."""
    stream, rates = STREAMS["split"], [1e-2, 3e-3, 1e-2]
    seen = watched(stream, "class", SEEDS, lr=rates, epochs=epochs)
    for replica, seed in enumerate(SEEDS):
        batches = []
        for task, steps in enumerate(own_steps(stream, seed, epochs)):
            indices, tasks = (t[replica].tolist() for t in seen.of_task(task))
            batches.append(list(zip(indices, tasks, strict=True))[:steps])
        start = of(seen.weights[0], replica)
        plain = train_plain(start, stream.data, stream.sequence(seed), "class", rates[replica], batches)
        for task, weights in enumerate(plain):
            assert furthest(of(seen.weights[task + 1], replica), weights) < CLOSE
    longest = [max(own_steps(stream, seed, epochs)[task] for seed in SEEDS) for task in range(3)]
    assert len(seen.losses) == sum(longest)


@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_one_pass_sees_no_sample_twice(kind):
    stream = STREAMS[kind]
    seen = watched(stream, "class", SEEDS, epochs=1)
    for replica, seed in enumerate(SEEDS):
        for task, steps in enumerate(own_steps(stream, seed, 1)):
            used = seen.of_task(task)[0][replica, :steps].flatten().tolist()
            assert len(used) == len(set(used)) == 16 * steps
            assert set(used) <= set(stream.sequence(seed)[task].train.tolist())
            assert len(stream.sequence(seed)[task].train) - len(used) < 16


def test_each_of_several_passes_has_an_order_of_its_own():
    stream = STREAMS["split"]
    indices = watched(stream, "class", SEEDS, epochs=3).of_task(1)[0]
    for replica, seed in enumerate(SEEDS):
        one = own_steps(stream, seed, 1)[1]
        passes = [indices[replica, one * n : one * (n + 1)].flatten().tolist() for n in range(3)]
        assert all(len(set(each)) == 16 * one for each in passes)
        assert passes[0] != passes[1] != passes[2]


def test_stored_data_of_a_part_make_a_pass_longer():
    """Offline: of all tasks so far."""
    seen, stream = passed([4], method="offline"), EVEN["split"]
    expected = [sum(sizes(stream, 4)[: task + 1]) // 16 for task in range(3)]
    assert [sum(current == task for current, *_ in seen.batches) for task in range(3)] == expected


@pytest.mark.parametrize("method", ["none", "si:strength=2", "er:budget=96", "icarl:budget=96"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(method, tmp_path):
    also = {"method": method, **OPTIMIZERS["sgd"]}
    whole = passed(SEEDS, checkpoint=Leaving(tmp_path / "cohort.pt"), **also)
    (tmp_path / "cohort.pt").write_bytes(left(tmp_path, 2).read_bytes())
    again = passed(SEEDS, checkpoint=tmp_path / "cohort.pt", **also)
    assert len(again.states) == 1
    assert same_measured(again.measured, whole.measured)
    assert same_bits(again.states[-1], whole.states[-1])


def test_reports_count_planned_steps_up_to_all_of_them():
    reports = []
    watched(STREAMS["split"], "class", SEEDS, epochs=2, report=reports.append)
    longest = [max(own_steps(STREAMS["split"], seed, 2)[task] for seed in SEEDS) for task in range(3)]
    assert {r.steps for r in reports} == {sum(longest)}
    counted = [r.step for r in reports]
    assert counted == sorted(counted)
    assert counted[-1] == sum(longest)


class Standing:
    """A stack of three numbers that every step adds 1 to."""

    device = torch.device("cpu")

    def __init__(self):
        self.value = torch.zeros(3)

    def rows(self, which):
        return self.value[which]

    def put_rows(self, which, rows):
        self.value[which] = rows


@pytest.mark.parametrize("steps", [[3, 5, 2], [4, 4, 4], [1, 1, 6], [5, 1, 5]])
def test_what_comes_after_the_end_is_as_if_it_had_never_been(steps):
    stack = Standing()
    lengths = Lengths(stack, steps)
    for step in range(lengths.longest):
        stack.value += 1
        lengths.taken(step + 1)
    lengths.restore()
    assert stack.value.tolist() == steps
