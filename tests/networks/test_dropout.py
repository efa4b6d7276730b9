"""Dropout from addressed randomness: its values, and which units are dropped in which network at which step."""

import pytest
import torch
from scipy import stats
from tiny_cohorts import EVEN, of, same_bits, watched
from torch import nn
from torch.func import vmap

from threefold.engine.mapping import OneByOne
from threefold.methods.learner import STEP
from threefold.networks import drawing, uniform, with_addressed_dropout
from threefold.networks.dropout import Dropout
from threefold.randomness import generator

MANY = 20_000


def key(number):
    return torch.tensor(number)


def keys_of(seeds, task=0):
    return [generator(seed, "dropout", task).initial_seed() & 0x7FFFFFFF for seed in seeds]


def lowbias32(x):
    """The mixing function in plain integers."""
    x &= 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % 2**32
    x = ((x ^ (x >> 15)) * 0x846CA68B) % 2**32
    return x ^ (x >> 16)


# the numbers


@pytest.mark.parametrize("number", [0, 1, 0x7FFFFFFF, 0x7FFFFFFF + 5000 * STEP])
def test_they_are_the_hash_of_key_call_and_place(number):
    for call in (0, 1, 7):
        found = uniform(key(number), call, [3, 5]).flatten().tolist()
        mixed = [lowbias32(place + call * 0x9E3779B1) ^ lowbias32(number) for place in range(15)]
        assert found == [(lowbias32(value) >> 8) / 2**24 for value in mixed]


@pytest.mark.parametrize("number", keys_of([1, 2, 3]))
def test_they_are_uniform(number):
    found = uniform(key(number), 0, [MANY]).double().numpy()
    assert found.min() >= 0
    assert found.max() < 1
    assert abs(found.mean() - 0.5) < 4 / (12 * MANY) ** 0.5
    assert stats.kstest(found, "uniform").pvalue > 1e-4


def apart(one, other):
    """Are two rows of numbers independent, as far as their correlation and their common small values tell?"""
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 4.5 / MANY**0.5
    both = float(((one < 0.2) & (other < 0.2)).double().mean())
    assert abs(both - 0.04) < 4.5 * (0.04 * 0.96 / MANY) ** 0.5


def test_neighbouring_places_replicas_steps_layers_and_tasks_are_independent():
    one, other = keys_of([1, 2])
    numbers = uniform(key(one), 0, [MANY + 1])
    apart(numbers[:-1], numbers[1:])
    rest = {
        "a replica": uniform(key(other), 0, [MANY]),
        "the next step": uniform(key(one + STEP), 0, [MANY]),
        "the next layer": uniform(key(one), 1, [MANY]),
        "the next task": uniform(key(*keys_of([1], task=1)), 0, [MANY]),
    }
    for found in rest.values():
        apart(numbers[:-1], found)


# the layer


def sent(share, x, *, channels=False, number=5, calls=0):
    with drawing(key(number), calls):
        return Dropout(share, channels=channels).train()(x)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_share_falls_out_and_the_rest_is_scaled_up(share):
    found = sent(share, torch.full((100, 200), 3.0))
    kept = found != 0
    assert abs(float(kept.double().mean()) - (1 - share)) < 4 * (share * (1 - share) / MANY) ** 0.5
    assert torch.allclose(found[kept], torch.tensor(3 / (1 - share)))


def test_nothing_and_everything_are_shares_too():
    x = torch.rand(4, 5) + 1
    assert torch.equal(sent(0.0, x), x)
    assert torch.equal(sent(1.0, x), torch.zeros(4, 5))


def test_whole_channels_fall_out():
    found = sent(0.5, torch.ones(50, 40, 3, 2), channels=True)
    per_channel = found.flatten(2)
    assert ((per_channel == 0).all(-1) | (per_channel == 2).all(-1)).all()
    assert 0.45 < float((per_channel[..., 0] == 0).double().mean()) < 0.55


def test_each_call_of_a_step_draws_anew_and_in_order():
    layer, x = Dropout(0.5, channels=False).train(), torch.ones(1000)
    with drawing(key(5)) as drawn:
        first, second = layer(x), layer(x)
        assert drawn.calls == 2
    assert not torch.equal(first, second)
    assert torch.equal(second, sent(0.5, x, calls=1))


def test_it_is_off_in_eval_mode_and_where_nothing_is_drawn():
    layer, x = Dropout(0.5, channels=False), torch.ones(1000)
    with drawing(key(5)):
        assert torch.equal(layer.eval()(x), x)
    assert torch.equal(layer.train()(x), x)


def test_mapped_over_replicas_each_has_its_own():
    layer, keys, x = Dropout(0.3, channels=False).train(), torch.tensor(keys_of([4, 9, 2])), torch.rand(3, 6, 7)

    def one(number, x):
        with drawing(number):
            return layer(x)

    found = vmap(one)(keys, x)
    for replica in range(3):
        assert torch.equal(found[replica], sent(0.3, x[replica], number=int(keys[replica])))


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d])
def test_pytorchs_layers_are_replaced_wherever_they_are(kind):
    inner = nn.Sequential(nn.Linear(2, 2), kind(0.3))
    net = with_addressed_dropout(nn.Sequential(inner, kind(0.6)))
    mine = [module for module in net.modules() if isinstance(module, Dropout)]
    assert [layer.share for layer in mine] == [0.3, 0.6]
    assert {layer.channels for layer in mine} == {kind is not nn.Dropout}
    assert not any(isinstance(module, kind) for module in net.modules())


# in training


class Leaky(nn.Module):
    """Two dropouts."""

    def __init__(self, setting):
        super().__init__()
        self.body, self.one = nn.Linear(setting.inputs, 16), nn.Dropout(0.5)
        self.more, self.two = nn.Linear(16, 16), nn.Dropout(0.25)
        self.output = nn.Linear(16, setting.units)

    def forward(self, x):
        h = self.one(torch.relu(self.body(x.flatten(1))))
        return self.output(self.two(torch.relu(self.more(h))))


def trained(seeds, **also):
    return watched(EVEN["split"], "class", seeds, network=Leaky, **{"iters": 3, "batch": 16} | also)


@pytest.mark.parametrize("method", ["none", "lwf", "er:budget=48"])
def test_a_replica_alone_drops_what_it_drops_in_a_stack(method):
    alone, stack = trained([4], method=method), trained([9, 2, 4], method=method)
    assert same_bits(of(alone.states, 0), of(stack.states, 2))


def test_what_falls_out_in_training_is_what_seed_task_and_step_say(monkeypatch):
    """One network, with a plain loop: the masks of each step from its key."""
    seen, forward = [], Dropout.forward

    def noted(self, x):
        out = forward(self, x)
        if self.training:
            seen.append((self.share, x.clone(), out.clone()))
        return out

    monkeypatch.setattr(Dropout, "forward", noted)
    monkeypatch.setattr("threefold.engine.stack.mapped", _one_by_one)
    trained([4, 7])
    calls = [each for each in seen if each[1].dim() == 2 and len(each[1]) == 16]
    assert len(calls) == 2 * 2 * 3 * 3  # layers, replicas, steps, tasks
    place = 0
    for task in range(3):
        keys = keys_of([4, 7], task)
        for step in range(3):
            for number in keys:
                for call, share in enumerate((0.5, 0.25)):
                    found, x, out = calls[place]
                    kept = uniform(key(number + step * STEP), call, list(x.shape)) >= share
                    assert found == share
                    assert torch.equal(out, torch.where(kept, x / (1 - share), 0))
                    place += 1


def _one_by_one(function, axes, *args):
    return OneByOne(2, torch.device("cpu"))(function, axes, *args)


def test_nothing_falls_out_at_test_time(monkeypatch):
    modes, forward = [], Dropout.forward
    monkeypatch.setattr(Dropout, "forward", lambda self, x: modes.append(self.training) or forward(self, x))
    monkeypatch.setattr("threefold.engine.step.TrainingStep.take", lambda self, batch, drawn: None)
    measured = trained([4]).measured
    assert modes
    assert not any(modes)
    assert measured.matrix.isfinite().all()
