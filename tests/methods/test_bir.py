"""BI-R against sums over samples, classes and latent variables, in float64: each of its parts on, off, and together."""

import math
from dataclasses import replace

import pytest
import torch
from plain_losses import (
    BATCH,
    agrees,
    at_task,
    classified,
    distilled,
    hard_targets,
    mlp,
    soft_targets,
)
from plain_network import features
from tiny_cohorts import of, tiny_data
from tiny_stack import TinyStack
from torch.nn.functional import binary_cross_entropy

from covering import covering, rest_in_full
from threefold.methods.bir import LATENT
from threefold.streams import Split

WAYS = [
    "",
    "feedback=false",
    "conditional=false",
    "gating=0",
    "distil=false",
    "feedback=false,conditional=false,gating=0,distil=false",
    "gating=0.6,temperature=3",
]
SCENARIOS = ["task", "domain", "class", "all"]
CASES = [(scenario, given, task) for scenario in SCENARIOS for given in WAYS for task in (1, 2)]
UNITS = {"task": 6, "domain": 2, "class": 6, "all": 6}


def gates(tiny, replica, chances, task):
    """Factors of the decoder's two hidden layers for each sample: by its class, or by its task."""
    tables = [table[replica] for table in tiny.memory("bi-r")["gates"]]
    if tiny.scenario == "domain":
        return [torch.stack([table[t] for t in task]) for table in tables]
    mixed = [[sum(p * table[unit] for unit, p in own.items()) for own in chances] for table in tables]
    return [torch.stack(rows) for rows in mixed]


def decoded(net, z, factors, prefix="decoder."):
    for layer, factor in zip(("layers.0", "layers.1"), factors, strict=True):
        weight, bias = net[f"{prefix}{layer}.weighted.weight"], net[f"{prefix}{layer}.shift.bias"]
        z = torch.clamp((z @ weight.T + bias) * factor, min=0)
    return mlp(net, z, f"{prefix}output")


def log_normal(z, mean, log_variance):
    """Σ log N(z; μ, σ²), constants and all."""
    variance = torch.exp(log_variance)
    return (-0.5 * torch.log(2 * math.pi * variance) - (z - mean) ** 2 / (2 * variance)).sum()


def generative(tiny, replica, params, x, chances, task, noise, given, binary=True):
    """Reconstruction and latent term of each sample, divided by the number of pixels, averaged."""
    net, x = params["generator"], x.flatten(1)
    h = features(params["classifier"], x)
    if "feedback=false" in given:
        h = torch.clamp(mlp(net, x, "encoder.layers.0", "encoder.layers.1"), min=0)
    mean = mlp(net, h, "mean")
    log_variance = h @ net["log_variance.weight"].T  # without a bias
    z = mean + torch.exp(0.5 * log_variance) * noise
    out = decoded(net, z, gates(tiny, replica, chances, task))
    losses = []
    for i, own in enumerate(chances):
        recon = (
            binary_cross_entropy(torch.sigmoid(out[i]), x[i], reduction="sum")
            if binary
            else ((x[i] - out[i]) ** 2).sum() / 2
        )
        if "conditional=false" in given:
            sigma2 = torch.exp(log_variance[i])
            latent = -0.5 * (1 + torch.log(sigma2) - mean[i] ** 2 - sigma2).sum()
        else:
            each = [
                math.log(p) + log_normal(z[i], net["modes.mean.numbers"][u], net["modes.log_variance.numbers"][u])
                for u, p in own.items()
                if p > 0
            ]
            latent = log_normal(z[i], mean[i], log_variance[i]) - torch.logsumexp(torch.stack(each), 0)
        losses.append((recon + latent) / x.shape[1])
    return torch.stack(losses).mean()


def past_classes(tiny, uniform, step):
    """The unit and the task of each replayed sample, by a number in [0, 1)."""
    found = []
    for i, u in enumerate(uniform.tolist()):
        task = (step * BATCH + i) % tiny.task
        if tiny.scenario in ("class", "all"):
            unit = int(u * tiny.task * 2)
            task = unit // 2
        else:
            unit = int(u * 2) + (2 * task if tiny.scenario == "task" else 0)
        found.append((unit, task))
    return found


@pytest.mark.parametrize(("scenario", "given", "task"), rest_in_full(CASES, covering(CASES, 2)))
def test_what_it_minimises(scenario, given, task):
    tiny, copies, batch, drawn = at_task(f"bi-r:{given}" if given else "bi-r", scenario, task)
    temperature = 3.0 if "temperature" in given else 2.0

    def total(replica, params):
        earlier, teacher = of(copies["generator"], replica), of(copies["classifier"], replica)
        x, y = batch.x[replica], batch.y[replica].tolist()
        drawn_classes = past_classes(tiny, drawn["bi-r class"][replica], 0)
        tasks = [each for _, each in drawn_classes]
        z = drawn["bi-r dreamt"][replica]
        if "conditional=false" not in given:
            mean, log_variance = earlier["modes.mean.numbers"], earlier["modes.log_variance.numbers"]
            rows = [
                mean[u] + torch.exp(0.5 * log_variance[u]) * row for (u, _), row in zip(drawn_classes, z, strict=True)
            ]
            z = torch.stack(rows)
        factors = gates(tiny, replica, [{unit: 1.0} for unit, _ in drawn_classes], tasks)
        again = torch.sigmoid(decoded(earlier, z, factors))
        net = params["classifier"]
        current = classified(tiny, replica, net, x, y, [task] * BATCH)
        if "distil=false" in given:
            hard = hard_targets(tiny, replica, teacher, again, tasks)
            past, chances = classified(tiny, replica, net, again, hard, tasks), [{unit: 1.0} for unit in hard]
        else:
            chances = soft_targets(tiny, replica, teacher, again, tasks, temperature)
            past = distilled(tiny, replica, net, again, chances, tasks, temperature, "sum") / temperature**2
        real = [{unit: 1.0} for unit in y]
        current = current + generative(
            tiny, replica, params, x, real, [task] * BATCH, drawn["bi-r noise"][replica], given
        )
        past = past + generative(
            tiny, replica, params, again, chances, tasks, drawn["bi-r noise of replay"][replica], given
        )
        return current / (task + 1) + past * task / (task + 1)

    agrees(tiny, batch, drawn, total)


def test_features_are_reconstructed_by_squares():
    """What is not in [0, 1]: replayed as it is decoded, and half the squared error."""
    data = tiny_data(dtype=torch.float64).normalized()
    stream = Split(replace(data, train_x=data.train_x.double(), test_x=data.test_x.double()), 3)
    tiny = TinyStack(stream, "class", "bi-r", batch=BATCH)
    assert not tiny.stack.setting.unit_interval
    batch, drawn = next(tiny.draws(1))

    def total(replica, params):
        x, y = batch.x[replica], batch.y[replica].tolist()
        current = classified(tiny, replica, params["classifier"], x, y, [0] * BATCH)
        real, noise = [{unit: 1.0} for unit in y], drawn["bi-r noise"][replica]
        return current + generative(tiny, replica, params, x, real, [0] * BATCH, noise, "", binary=False)

    agrees(tiny, batch, drawn, total)
    tiny.reach(1)
    batch, drawn = next(tiny.draws(1))
    again = tiny.replay(batch, drawn).x
    assert again.min() < 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_past_class_comes_as_often(scenario):
    tiny = TinyStack("split", scenario, "bi-r", batch=BATCH).reach(2)
    counts = {}
    for step, (batch, drawn) in enumerate(tiny.draws(60)):
        task = tiny.replay(batch, drawn).task
        for replica in range(3):
            pairs = past_classes(tiny, drawn["bi-r class"][replica], step)
            assert task[replica].tolist() == [each for _, each in pairs]
            for pair in pairs:
                counts[pair] = counts.get(pair, 0) + 1
    assert len(counts) == 4
    for count in counts.values():  # binomial
        assert abs(count - 60 * 3 * BATCH / 4) < 5.5 * (60 * 3 * BATCH / 4) ** 0.5


def test_gates_are_bernoulli_for_each_class_or_task_and_never_change():
    tiny = TinyStack("split", "class", ["bi-r:gating=0.3", "bi-r:gating=0", "bi-r:gating=0.9"], hidden=400)
    tables = [table.clone() for table in tiny.memory("bi-r")["gates"]]
    for table in tables:
        assert table.shape == (3, 6, 400)
        assert set(table.unique().tolist()) == {0.0, 1.0}
        for replica, share in enumerate((0.3, 0.0, 0.9)):
            silenced = float(1 - table[replica].mean())
            assert abs(silenced - share) < 5 * math.sqrt(share * (1 - share) / 2400) + 1e-9
        assert not torch.equal(table[0, 0], table[0, 1])
    assert not torch.equal(tables[0], tables[1])
    assert TinyStack("split", "domain", "bi-r").memory("bi-r")["gates"][0].shape == (3, 3, 8)
    tiny.train(2)
    tiny.finish()
    assert all(torch.equal(a, b) for a, b in zip(tables, tiny.memory("bi-r")["gates"], strict=True))


def test_modes_begin_as_standard_normal_numbers():
    tiny = TinyStack("split", "class", "bi-r", seeds=range(20))
    for name in ("mean", "log_variance"):
        numbers = tiny.params["generator"][f"modes.{name}.numbers"]
        assert numbers.shape == (20, 6, LATENT)
        assert abs(float(numbers.mean())) < 5 / 12000**0.5
        assert abs(float(numbers.var()) - 1) < 5 * (2 / 12000) ** 0.5
    assert "log_variance.bias" not in tiny.params["generator"]


def test_feedback_is_no_encoder_of_its_own():
    with_it, without = (TinyStack("split", "class", m).params["generator"] for m in ("bi-r", "bi-r:feedback=false"))
    assert {name.partition(".")[0] for name in without} - {name.partition(".")[0] for name in with_it} == {"encoder"}
