"""Accuracy against a loop over single test samples."""

import pytest
import torch
from plain_network import accuracy_plain
from tiny_cohorts import SCENARIOS, STREAMS, cohort, of, same_measured, watched

from threefold.engine import stack

SEEDS = [2, 9, 4]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_accuracies_are_counted_over_every_test_sample(kind, scenario):
    """Before training, after each task, on each task, also those to come."""
    stream = STREAMS[kind]
    seen = watched(kind, scenario, SEEDS, iters=15)
    sizes = {tuple(len(task.test) for task in stream.sequence(seed)) for seed in SEEDS}
    assert kind == "permuted" or len(sizes) == len(SEEDS)
    measured = torch.cat([seen.measured.initial.unsqueeze(1), seen.measured.matrix], 1)
    assert measured.shape == (3, 4, 3)
    for replica, seed in enumerate(SEEDS):
        tasks = stream.sequence(seed)
        for learned in range(4):
            weights = of(seen.weights[learned], replica)
            expected = accuracy_plain(weights, stream.data, tasks, scenario, learned)
            assert measured[replica, learned].tolist() == pytest.approx(expected, abs=1e-9)
    assert (measured[:, -1] - measured[:, 0]).abs().max() > 10  # something was learned, so there was something to count


def test_test_sets_gathered_in_pieces_are_counted_whole(monkeypatch):
    whole = cohort("split", "class", SEEDS)
    monkeypatch.setattr(stack, "SAMPLES", 7)
    assert same_measured(whole, cohort("split", "class", SEEDS))


def test_learning_is_seen_where_it_should_be():
    """None in the three scenarios: the newest task is learned; in Class-IL nothing older is left, as in the paper."""
    for scenario in SCENARIOS:
        matrix = cohort("split", scenario, SEEDS, iters=60).matrix
        assert torch.diagonal(matrix, dim1=1, dim2=2).mean() > 85
        if scenario == "class":
            assert matrix[:, 2, :2].max() < 20
