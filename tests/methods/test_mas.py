"""MAS against a loop over samples, in float64 (Aljundi et al. 2018)."""

import pytest
import torch
from plain_losses import classified
from plain_network import competing, gradient, logits
from test_fisher_layers import NETWORKS, reached
from tiny_cohorts import copied, furthest, of
from tiny_stack import SCENARIOS, TinyStack, near
from torch.func import functional_call

from threefold.methods import MAS

STRENGTHS = [0.1, 3.0, 50.0]


def sensitivity(tiny, replica):
    """The mean size of each sample's gradient of the squared length of the logits that compete."""
    params, own = of(tiny.params["classifier"], replica), tiny.sequences[replica][tiny.task].train.tolist()
    units, gates = competing(tiny.scenario, tiny.task, tiny.task + 1, tiny.classes), tiny.gates(replica, tiny.task)
    mean = {name: torch.zeros_like(p) for name, p in params.items()}
    for index in own:
        x = tiny.inputs(replica, index, tiny.task)
        _, slopes = gradient(lambda p, x=x: sum(logits(p, x, gates)[unit] ** 2 for unit in units), params)
        mean = {name: m + slopes[name].abs() / len(own) for name, m in mean.items()}
    return mean


@pytest.mark.parametrize(("scenario", "also"), [*((s, "") for s in SCENARIOS), ("task", "+xdg:share=0.3")])
def test_it_is_the_mean_size_of_each_samples_gradient(scenario, also):
    tiny = TinyStack("few", scenario, [f"mas:strength={s}{also}" for s in STRENGTHS])
    importance = [{}, {}, {}]
    for task in range(2):
        tiny.train()
        for replica in range(3):
            found = sensitivity(tiny, replica)
            importance[replica] = {n: importance[replica].get(n, 0) + f for n, f in found.items()}
        anchor = copied(tiny.params["classifier"])
        tiny.finish()
        tiny.begin(task + 1)
    tiny.train(2)  # away from the anchor
    batch, drawn = next(tiny.draws(1))
    loss, grads = tiny.gradients(batch, drawn)
    for replica, strength in enumerate(STRENGTHS):
        assert near(of(tiny.memory("mas")["importance"], replica), importance[replica])
        assert furthest(of(tiny.memory("mas")["anchor"], replica), of(anchor, replica)) == 0

        def total(p, replica=replica, strength=strength):
            plain = classified(tiny, replica, p, batch.x[replica], batch.y[replica], batch.task[replica])
            held = [(importance[replica][n] * (p[n] - anchor[n][replica]) ** 2).sum() for n in p]
            return plain + strength * sum(held)

        expected, slopes = gradient(total, of(tiny.params["classifier"], replica))
        assert abs(loss[replica] - expected) < 1e-9 * max(1, abs(expected))
        assert near(of(grads["classifier"], replica), slopes)


def test_the_first_task_has_no_penalty():
    ours, plain = (TinyStack("few", "class", method) for method in ("mas:strength=1000", "none"))
    for tiny in (ours, plain):
        tiny.train()
    assert furthest(ours.params, plain.params) == 0
    for tiny in (ours, plain):
        tiny.reach(1)
        tiny.train()
    assert furthest(ours.params, plain.params) > 1e-3


@pytest.mark.parametrize("network", ["cnn with group norm", "tokens", "odd layers", "branches"])
def test_it_is_that_for_any_layer(network):
    """One sample after the other, in eval mode."""
    tiny = reached(NETWORKS[network])
    part, stack = MAS(), tiny.stack
    with torch.no_grad():
        found = part.consolidate(stack, {}, 1)["importance"]
    net = stack.setting.network.build(stack.setting).eval()
    for replica in range(2):
        params, own = of(tiny.params["classifier"], replica), tiny.sequences[replica][1].train.tolist()
        mean = {name: torch.zeros_like(p) for name, p in params.items()}
        for index in own:
            x = tiny.stream.data.train_x[index][None]
            _, slopes = gradient(lambda p, x=x, net=net: (functional_call(net, p, (x,))[0, :4] ** 2).sum(), params)
            mean = {name: m + slopes[name].abs() / len(own) for name, m in mean.items()}
        assert near(of(found, replica), mean, 1e-9)
