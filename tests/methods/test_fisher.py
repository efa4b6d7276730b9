"""The Fisher diagonal against its definition: one sample, one label, one call of autograd at a time (section A.2.1)."""

import pytest
import torch
from plain_network import competing, gradient, log_chance, logits, target
from tiny_cohorts import copied, furthest, of, tiny_data
from tiny_stack import TinyStack, near
from torch import nn

from threefold.engine import stack as engine_stack
from threefold.engine.device_data import DeviceData
from threefold.methods.fisher import fisher_diagonal
from threefold.randomness import generator
from threefold.streams import Split

LABELS = ["predicted", "true", "sampled", "expected"]


@torch.no_grad()
def found(tiny, labels, samples=None):
    return fisher_diagonal(tiny.stack, tiny.task, labels, samples)


def squares(params, loss):
    return {name: grad**2 for name, grad in gradient(loss, params)[1].items()}


def of_one_sample(tiny, replica, index, labels, uniform, gate_on):
    """The squared gradient of log p(label), or its expectation over the labels."""
    task, params = tiny.task, of(tiny.params["classifier"], replica)
    x, gates = tiny.inputs(replica, index, task), tiny.gates(replica, task)
    units = competing(tiny.scenario, task, task + 1, tiny.classes)

    def at(unit):
        return squares(params, lambda p: log_chance(logits(p, x, gates, gate_on), units)[unit])

    chance = {unit: float(torch.exp(c)) for unit, c in log_chance(logits(params, x, gates, gate_on), units).items()}
    if labels == "expected":
        every = [(chance[unit], at(unit)) for unit in units]
        return {name: sum(p * square[name] for p, square in every) for name in params}
    if labels == "predicted":
        return at(max(units, key=chance.get))
    if labels == "true":
        return at(target(tiny.scenario, task, tiny.label(replica, index, task), tiny.classes))
    below = 0.0
    for unit in units[:-1]:
        below += chance[unit]
        if uniform < below:
            return at(unit)
    return at(units[-1])


def by_loop(tiny, replica, labels, indices=None, gate_on="activation"):
    """The average over a task's training data, one sample after the other."""
    if indices is None:
        indices = tiny.sequences[replica][tiny.task].train
    uniform = torch.rand(len(indices), generator=generator(tiny.seeds[replica], "fisher labels", tiny.task)).tolist()
    each = [of_one_sample(tiny, replica, i, labels, u, gate_on) for i, u in zip(indices.tolist(), uniform, strict=True)]
    return {name: sum(one[name] for one in each) / len(each) for name in each[0]}


def agrees(tiny, labels, **also):
    before = copied(tiny.params)
    fisher = found(tiny, labels)
    assert furthest(tiny.params, before) == 0
    for replica in range(len(tiny.seeds)):
        expected = by_loop(tiny, replica, labels, **also)
        assert near(of(fisher, replica), expected)
        assert fisher.keys() == tiny.params["classifier"].keys()
        assert any((square > 0).any() for square in expected.values())
        for name, square in expected.items():  # of units that are inactive or gated there is none, not a little
            assert (fisher[name][replica][square == 0] == 0).all()


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
def test_it_is_the_average_of_squared_gradients(scenario, labels):
    tiny = TinyStack("few", scenario, "none").reach(1)
    sizes = {len(tasks[1].train) for tasks in tiny.sequences}
    assert len(sizes) == 3  # so that two replicas are padded, and padding must not count
    agrees(tiny, labels)


@pytest.mark.parametrize("labels", LABELS)
def test_it_is_so_on_permuted_pixels(labels):
    tiny = TinyStack("permuted", "class", "none", seeds=[5]).reach(1)
    few = tiny.sequences[0][1].train[:20]
    tiny.stack.own_samples = lambda label=None: [few]
    fisher = of(found(tiny, labels), 0)
    assert near(fisher, by_loop(tiny, 0, labels, few))


@pytest.mark.parametrize("gate_on", ["activation", "input"])
@pytest.mark.parametrize("scenario", ["task", "hidden"])
def test_it_is_that_of_the_gated_network(scenario, gate_on):
    tiny = TinyStack("few", scenario, f"xdg:share=0.5,gate_on={gate_on}").reach(1)
    agrees(tiny, "predicted", gate_on=gate_on)
    agrees(tiny, "expected", gate_on=gate_on)


@pytest.mark.parametrize("labels", LABELS)
def test_it_does_not_depend_on_how_the_data_are_cut_into_pieces(labels, monkeypatch):
    tiny = TinyStack("few", "class", "none").reach(1)
    whole = found(tiny, labels)
    monkeypatch.setattr(engine_stack, "SAMPLES", 7)
    assert len(list(tiny.stack.training_data())) > 3
    assert near(found(tiny, labels), whole)


def recorded(tiny, monkeypatch, labels, samples):
    """The Fisher diagonal and, for each replica, the indices that it was made from."""
    used = [[] for _ in tiny.seeds]
    data = tiny.stack.training_data

    def training_data(chosen=None):
        for batch, weight in data(chosen):
            for replica in range(len(tiny.seeds)):
                used[replica] += batch.indices[replica][weight[replica] > 0].tolist()
            yield batch, weight

    with monkeypatch.context() as patch:
        patch.setattr(tiny.stack, "training_data", training_data)
        return found(tiny, labels, samples), used


@pytest.mark.parametrize("labels", ["predicted", "sampled"])
def test_fisher_samples_are_that_many_of_the_task(monkeypatch, labels):
    tiny = TinyStack("few", "class", "none").reach(1)
    fisher, used = recorded(tiny, monkeypatch, labels, 9)
    for replica, indices in enumerate(used):
        own = set(tiny.sequences[replica][1].train.tolist())
        assert len(indices) == len(set(indices)) == 9
        assert set(indices) < own
        assert near(of(fisher, replica), by_loop(tiny, replica, labels, torch.tensor(indices)))
    _, again = recorded(TinyStack("few", "class", "none").reach(1), monkeypatch, labels, 9)
    assert again == used
    _, later = recorded(tiny.reach(2), monkeypatch, labels, 9)
    assert {len(set(indices)) for indices in later} == {9}


def test_more_fisher_samples_than_a_task_has_are_all_of_them(monkeypatch):
    tiny = TinyStack("few", "class", "none").reach(1)
    sizes = [len(tasks[1].train) for tasks in tiny.sequences]
    between = sorted(sizes)[1]  # one task is smaller, one larger
    _, used = recorded(tiny, monkeypatch, "predicted", between)
    assert [len(set(indices)) for indices in used] == [min(size, between) for size in sizes]
    everything, used = recorded(tiny, monkeypatch, "predicted", 10_000)
    assert [len(set(indices)) for indices in used] == sizes
    assert near(everything, found(tiny, "predicted"))


GIVEN = [(f",labels={name},fisher_samples=11", name, 11) for name in LABELS]


@pytest.mark.parametrize(("given", "labels", "samples"), [*GIVEN, ("", "predicted", None)])
def test_the_hyperparameters_reach_it(given, labels, samples):
    """EWC's first precision is the Fisher diagonal with these labels and this many samples; or with the defaults."""
    tiny = TinyStack("few", "class", f"ewc:strength=1{given}")
    tiny.train()
    fisher, other = found(tiny, labels, samples), found(tiny, labels, None if samples else 11)
    tiny.finish()
    assert near(tiny.memory("ewc")["precision"], fisher)
    assert not near(tiny.memory("ewc")["precision"], other, 1e-3)


def test_sampled_labels_are_drawn_from_the_model():
    """Sixty-four networks with the same weights and data but labels of their own: on average, the expectation."""
    seeds = range(64)
    tiny = TinyStack(Split(tiny_data(classes=4, base=10, dtype=torch.float64), 1), "domain", "none", seeds=seeds)
    for p in tiny.params["classifier"].values():
        p.copy_(p[:1].expand_as(p) * 2)
    sampled, expected = found(tiny, "sampled"), found(tiny, "expected")
    for name, every in sampled.items():
        exact = expected[name][0]
        assert near({name: expected[name]}, {name: exact.expand_as(every)})
        error = every.std(0) / 8
        z = ((every.mean(0) - exact) / error)[error > 1e-9]
        assert z.abs().max() < 5
        assert z.square().mean() < 1.8  # about 1; the entries of a row go together
        assert (every[0] != every[1]).any()


def test_only_the_finished_task_is_asked_for(monkeypatch):
    tiny = TinyStack("few", "class", "ewc:strength=1").reach(2)
    tiny.train()
    gather, asked = DeviceData.train, []
    monkeypatch.setattr(DeviceData, "train", lambda self, i, t: asked.append((i, t)) or gather(self, i, t))
    tiny.finish()
    assert asked
    for indices, task in asked:
        assert (task == 2).all()
        for replica, row in enumerate(indices):
            own = tiny.sequences[replica][2].train.tolist()
            assert set(row.tolist()) <= {*own, 0}  # padding is sample 0 with no weight


class PlainFeatures(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))))


class PlainMLP(nn.Module):
    def __init__(self, inputs, hidden, units):
        super().__init__()
        self.features, self.output = PlainFeatures(inputs, hidden), nn.Linear(hidden, units)

    def forward(self, x):
        return self.output(self.features(x.flatten(1)))


def plain_mlp(setting):
    """A user's classifier, of PyTorch's own layers: the paper's under other names."""
    return PlainMLP(setting.inputs, 8, setting.units)


OURS = {"features.first": "features.layers.0", "features.second": "features.layers.1", "output": "output"}


@pytest.mark.parametrize("labels", LABELS)
def test_layers_of_pytorch_have_the_fisher_information_of_ours(labels):
    plain, ours = TinyStack("few", "class", "none", network=plain_mlp), TinyStack("few", "class", "none")
    for mine, its in OURS.items():
        for own, kind in (("weight", "weighted.weight"), ("bias", "shift.bias")):
            plain.params["classifier"][f"{mine}.{own}"].copy_(ours.params["classifier"][f"{its}.{kind}"])
    fisher, wanted = found(plain, labels), found(ours, labels)
    assert len(fisher) == len(wanted) == 6
    for mine, its in OURS.items():
        assert torch.allclose(fisher[f"{mine}.weight"], wanted[f"{its}.weighted.weight"], rtol=1e-9, atol=0)
        assert torch.allclose(fisher[f"{mine}.bias"], wanted[f"{its}.shift.bias"], rtol=1e-9, atol=0)
        assert wanted[f"{its}.shift.bias"].abs().max() > 0
