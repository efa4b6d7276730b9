"""A replica's draws are its own: who trains beside it changes nothing but the last bits of its sums."""

import pytest
import torch
from tiny_cohorts import PROTOCOLS, furthest, watched

SEEDS = [11, 3, 20, 7, 5]
# Stacks of different height are multiplied in different order: weights of size 0.1 to 1 after 60 steps in float32.
CLOSE = 2e-5
LONG = {"iters": 20}


def own(seen, replica):
    """All that is drawn for one replica: class orders, first weights, batches."""
    weights = {name: p[replica].tolist() for name, p in seen.weights[0].items()}
    batches = [(indices[replica].tolist(), tasks[replica].tolist()) for indices, tasks in seen.batches]
    return seen.orders[replica], weights, batches


@pytest.fixture(scope="module", params=["split", "permuted"])
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=["none", "offline"])
def method(request):
    return request.param


@pytest.fixture(scope="module")
def together(kind, method):
    return watched(kind, "class", SEEDS, method=method, **LONG)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_seed_alone_draws_and_learns_as_in_a_cohort_of_five(kind, method, together, place):
    alone = watched(kind, "class", [SEEDS[place]], method=method, **LONG)
    assert own(alone, 0) == own(together, place)
    in_company = {name: p[place] for name, p in together.weights[-1].items()}
    by_itself = {name: p[0] for name, p in alone.weights[-1].items()}
    assert furthest(in_company, by_itself) < CLOSE
    sizes = torch.tensor([len(task.test) for task in PROTOCOLS[kind].sequence(SEEDS[place])])
    difference = (together.outcome.matrix[place] - alone.outcome.matrix[0]).abs()
    assert (difference <= 100 / sizes + 1e-9).all()  # at most one sample decided otherwise
    assert torch.equal(together.outcome.initial[place], alone.outcome.initial[0])


def test_adding_and_reordering_replicas_changes_no_draw(kind, method, together):
    others = [5, 99, 11, 42, 7, 3, 20]
    larger = watched(kind, "class", others, method=method, **LONG)
    for place, seed in enumerate(SEEDS):
        there = others.index(seed)
        assert own(larger, there) == own(together, place)
        ours, theirs = ({n: p[i] for n, p in s.weights[-1].items()} for s, i in ((together, place), (larger, there)))
        assert furthest(ours, theirs) < CLOSE


def test_replicas_of_a_cohort_draw_apart(together):
    for part in (0, 1, 2):
        draws = [own(together, replica)[part] for replica in range(5)]
        if together.orders[0][0] == together.orders[0][1] and part == 0:
            continue  # permuted: every task has all classes
        assert all(draws[i] != draws[j] for i in range(5) for j in range(i))


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
def test_the_scenario_changes_neither_classes_nor_batches(kind, scenario):
    draws = [watched(kind, s, SEEDS[:2], iters=5) for s in (scenario, "class")]
    assert draws[0].orders == draws[1].orders
    assert all(torch.equal(a[0], b[0]) for a, b in zip(draws[0].batches, draws[1].batches, strict=True))


def test_the_global_generator_has_no_say(kind):
    state = torch.get_rng_state()
    try:
        torch.manual_seed(1)
        one = watched(kind, "domain", SEEDS[:2], iters=5)
        torch.manual_seed(2)
        other = watched(kind, "domain", SEEDS[:2], iters=5)
    finally:
        torch.set_rng_state(state)
    assert own(one, 0) == own(other, 0)
    assert furthest(one.weights[-1], other.weights[-1]) == 0
