"""The central test: a cohort learns what separate networks learn in a plain loop, in every scenario."""

import pytest
from plain_loop import plain_net, train_plain
from tiny_cohorts import PROTOCOLS, furthest, watched

from threefold.scenarios import find

SEEDS = [4, 1, 7]
LR = [1e-2, 3e-3, 1e-2]
CLOSE = 2e-5  # float32 against float64: weights of size 0.1 to 1 after 24 steps of up to 0.01 each


def apart(seen, protocol, scenario, lr=LR, seeds=SEEDS):
    """The weights of every replica after every task, trained alone from the same start on the same batches."""
    for replica, seed in enumerate(seeds):
        batches = []
        for number in range(protocol.tasks):
            indices, tasks = (t[replica].tolist() for t in seen.of_task(number))
            batches.append(list(zip(indices, tasks, strict=True)))
        net = plain_net(seen.weights[0], replica)
        plain = train_plain(net, protocol.data, protocol.sequence(seed), scenario, lr[replica], batches)
        for number, weights in enumerate(plain):
            yield replica, number, weights


def own(weights, replica):
    return {name: p[replica] for name, p in weights.items()}


@pytest.mark.parametrize("method", ["none", "offline"])
@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_a_cohort_learns_what_plain_networks_learn(kind, scenario, method):
    seen = watched(kind, scenario, SEEDS, method=method, lr=LR)
    for replica, number, weights in apart(seen, PROTOCOLS[kind], scenario):
        assert furthest(own(seen.weights[number + 1], replica), weights) < CLOSE
        assert furthest(own(seen.weights[number], replica), weights) > 200 * CLOSE  # every task moved them


def test_with_the_task_used_in_the_hidden_layers_the_outputs_are_shared():
    """Table B.1's second column without its gates: Domain-IL's output layer."""
    seen = watched("permuted", find("task").using_task_in("hidden"), SEEDS, lr=LR)
    for replica, number, weights in apart(seen, PROTOCOLS["permuted"], "domain"):
        assert furthest(own(seen.weights[number + 1], replica), weights) < CLOSE


def test_one_replica_is_a_cohort_too():
    seen = watched("split", "class", [5], lr=[1e-2])
    for _, number, weights in apart(seen, PROTOCOLS["split"], "class", [1e-2], [5]):
        assert furthest(own(seen.weights[number + 1], 0), weights) < CLOSE


def test_other_units_do_not_learn():
    """Task-IL: a head keeps its first weights until its task comes; Class-IL: so do the units of classes to come."""
    for scenario in ("task", "class"):
        seen = watched("split", scenario, SEEDS)
        for number in range(3):
            for name in ("output.weighted.weight", "output.shift.bias"):
                before, after = seen.weights[0][name], seen.weights[number + 1][name]
                come = slice(2 * (number + 1), None)
                assert (before[:, come] == after[:, come]).all()
                current = slice(2 * number, 2 * (number + 1))
                assert (before[:, current] != after[:, current]).any()
