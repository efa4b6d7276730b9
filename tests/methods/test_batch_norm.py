"""Batch norm in a stack against a plain module that PyTorch trains by itself, in float64."""

import pytest
import torch
from every_method import Leaving, left
from plain_network import competing
from tiny_cohorts import cohort, copied, of, same_bits, tiny_images, watched
from tiny_stack import TinyStack, near
from torch import nn

from threefold.engine import stack as engine_stack
from threefold.methods import Setting
from threefold.networks import find_network
from threefold.scenarios import Outputs, find
from threefold.streams import Split

SEEDS, STEPS = [4, 1], 3


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    """Tasks have few samples here."""
    monkeypatch.setattr(engine_stack, "SAMPLES", 32)


@pytest.fixture(scope="module")
def stream():
    return Split(tiny_images(base=16, dtype=torch.float64), 3)


class Rows(nn.Module):
    """Batch norm without convolutions: all replicas are mapped."""

    def __init__(self, setting):
        super().__init__()
        self.body, self.norm = nn.Linear(setting.inputs, 6), nn.BatchNorm1d(6, momentum=0.3)
        self.output = nn.Linear(6, setting.units)

    def forward(self, x):
        return self.output(torch.relu(self.norm(self.body(x.flatten(1)))))


NETWORKS = {"cnn": "cnn:channels=4-6,norm=batch", "resnet18": "resnet18:width=2", "rows": Rows}
EVERY = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


def plain(network, stream, params, buffers):
    """The module by itself, with these values."""
    setting = Setting(Outputs(find("class"), stream.tasks, 2), (3, 8, 8), 8, find_network(network))
    net = setting.network.build(setting)
    net.load_state_dict({**params, **buffers})
    return net


def active(logits, seen):
    """The logits of the classes seen; the others cannot win."""
    return logits[:, competing("class", 0, seen, 2)]


def targets(stream, seed, indices, labels):
    """The units of samples: classes in the order of their tasks."""
    order = [c for task in stream.sequence(seed) for c in task.classes]
    return torch.tensor([order.index(int(labels[i])) for i in indices])


def run(stream, network, seeds=SEEDS, **also):
    settings = {"iters": STEPS, "batch": 8, "lr": "sgd:lr=0.1,momentum=0.9", "network": network}
    return watched(stream, "class", seeds, **settings | also)


@EVERY
def test_running_statistics_are_those_of_a_module_trained_by_itself(network, stream):
    seen, data = run(stream, network), stream.data
    for replica, seed in enumerate(SEEDS):
        net = plain(network, stream, of(seen.weights[0], replica), of(seen.buffers[0], replica))
        start = copied(dict(net.named_buffers()))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for task in range(3):
            indices, _ = seen.of_task(task)
            for row in indices[replica]:
                optimizer.zero_grad()
                logits = active(net.train()(data.train_x[row]), task + 1)
                wanted = targets(stream, seed, row, data.train_y)
                nn.functional.cross_entropy(logits, wanted).backward()
                optimizer.step()
            assert near(of(seen.weights[task + 1], replica), dict(net.named_parameters()))
            statistics = dict(net.named_buffers())
            assert near(of(seen.buffers[task + 1], replica), statistics)
            counts = [value for name, value in statistics.items() if name.endswith("tracked")]
            assert {int(count) for count in counts} == {STEPS * (task + 1)}
            assert all((start[n] != value).any() for n, value in statistics.items())


@EVERY
def test_at_test_time_the_running_statistics_count(network, stream):
    seen, data = run(stream, network), stream.data
    for replica, seed in enumerate(SEEDS):
        for task in range(3):
            net = plain(
                network, stream, of(seen.weights[task + 1], replica), of(seen.buffers[task + 1], replica)
            ).eval()
            for number, tested in enumerate(stream.sequence(seed)[: task + 1]):
                right = targets(stream, seed, tested.test, data.test_y)
                found = active(net(data.test_x[tested.test]), task + 1).argmax(-1)
                assert seen.measured.matrix[replica, task, number] == 100 * float((found == right).double().mean())


@EVERY
def test_one_that_was_stopped_goes_on_with_its_statistics(network, stream, tmp_path):
    whole = run(stream, network, checkpoint=Leaving(tmp_path / "cohort.pt"))
    (tmp_path / "cohort.pt").write_bytes(left(tmp_path, 1).read_bytes())
    again = run(stream, network, checkpoint=tmp_path / "cohort.pt")
    assert len(again.buffers) == 2
    assert same_bits((again.buffers, again.weights), (whole.buffers[2:], whole.weights[2:]))


@EVERY
def test_statistics_that_are_not_finite_are_divergence(network, stream):
    """Training does not look at them, so weights and loss stay as they are."""

    def spoil(stack):
        if stack.task == 1:
            name = next(name for name in stack.buffers if name.endswith("running_mean"))
            stack.buffers[name][1, 0] = torch.nan

    seen = run(stream, network, [3, 1, 2], prepare=spoil)
    assert seen.measured.diverged_at == [None, 1, None]
    assert all(p.isfinite().all() for p in seen.weights[-1].values())
    assert cohort(stream, "class", [3, 1, 2], network=network, batch=8, iters=STEPS).diverged_at == [None] * 3


# the copy that teaches


@pytest.mark.parametrize("method", ["lwf", "lwf:temperature=1"])
@EVERY
def test_a_teacher_computes_with_the_statistics_of_its_own_time(network, method, stream):
    """As at test time: neither with the batch's, nor with those that the network has by now."""
    tiny = TinyStack(stream, "class", method, seeds=SEEDS, network=network, batch=8)
    tiny.train()
    params, buffers = copied(tiny.params["classifier"]), copied(tiny.stack.buffers)
    tiny.finish()
    tiny.begin(1)
    tiny.train(3)
    batch, drawn = next(tiny.draws(1))
    replay = tiny.replay(batch, drawn)
    temperature = 1.0 if "=" in method else 2.0
    for replica in range(2):
        net = plain(network, stream, of(params, replica), of(buffers, replica))
        with torch.no_grad():
            wanted = torch.softmax(active(net.eval()(batch.x[replica]), 1) / temperature, -1)
            other = torch.softmax(active(net.train()(batch.x[replica]), 1) / temperature, -1)
        assert near(replay.y[replica][:, :2], wanted)
        assert (replay.y[replica][:, 2:] == 0).all()
        assert not near(other, wanted, 1e-3)
    teacher = tiny.memory(tiny.stack.template[0].name)["teacher"]
    assert teacher.keys() == params.keys() | buffers.keys()


def test_evaluating_and_consolidating_moves_no_statistic(stream):
    tiny = TinyStack(
        stream, "class", "ewc:strength=1+er:budget=12,use=both", seeds=SEEDS, network=NETWORKS["cnn"], batch=8
    )
    tiny.train()
    before = copied(tiny.stack.buffers)
    tiny.finish()
    assert same_bits(before, tiny.stack.buffers)


@pytest.mark.parametrize("method", ["er:budget=12", "a-gem:budget=12"])
def test_stored_samples_are_in_the_statistics_where_they_are_in_the_loss(method, stream):
    """ER sends current and stored samples through at once; the gradient that A-GEM compares with is no step."""
    tiny = TinyStack(stream, "class", method, seeds=SEEDS, network=Rows, batch=8).reach(1)
    batch, drawn = next(tiny.draws(1))
    params, buffers = copied(tiny.params["classifier"]), copied(tiny.stack.buffers)
    with torch.no_grad():
        tiny.step.take(batch, drawn)
    (stored,) = (value for value in drawn.values() if hasattr(value, "x"))
    for replica in range(2):
        net = plain(Rows, stream, of(params, replica), of(buffers, replica)).train()
        x = batch.x[replica] if method.startswith("a-gem") else torch.cat([batch.x[replica], stored.x[replica]])
        net(x)
        assert near(of(tiny.stack.buffers, replica), dict(net.named_buffers()))
