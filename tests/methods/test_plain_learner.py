"""Whole runs against a plain loop over one network: tasks of unequal sizes, and streams without task boundaries."""

from unittest.mock import patch

import pytest
import torch
from plain_learner import Course, Network, Step
from tiny_cohorts import of, tiny_data, watched
from tiny_stack import SCENARIOS, SEEDS, near

from covering import covering, rest_in_full
from threefold.engine.step import TrainingStep
from threefold.methods import Batch, parse
from threefold.streams import Split
from threefold.streams.boundaries import find_boundaries

ITERS, BATCH, HIDDEN, LR = 10, 12, 20, 1e-2  # so many units that no two class means are the same
UNEQUAL = {"by number": [5, 2, 2], "by label": [[3, 1], [0, 2, 4, 5], [8, 7, 6]]}
METHODS = [
    "none",
    "offline",
    "xdg:share=0.5",
    "ewc:strength=50",
    "online-ewc:strength=50,decay=0.8",
    "si:strength=2",
    "lwf",
    "dgr",
    "dgr-distill",
    "icarl:budget=31",
    "er:budget=31",
    "er:budget=31,use=both",
    "a-gem:budget=31,selection=herding",
]
WITHOUT_ENDS = [
    *("none", "offline", "xdg:share=0.5", "si:strength=2", "lwf", "icarl:budget=31,selection=reservoir"),
    *("er:budget=31,selection=reservoir", "a-gem:budget=31,selection=reservoir"),
]
BOUNDARIES = {"blurred:width=4,every=5": 5, "none:every=4": 4}


def usable(method, scenario):
    return not (("xdg" in method and scenario != "task") or ("icarl" in method and scenario != "class"))


CASES = [(s, m, name) for s in SCENARIOS for m in METHODS if usable(m, s) for name in UNEQUAL]
NEVER_ENDING = [(s, m, name) for s in SCENARIOS for m in WITHOUT_ENDS if usable(m, s) for name in BOUNDARIES]


def stream_of(classes, boundaries="sharp"):
    stream = Split(tiny_data(classes=9, dtype=torch.float64), classes=classes)
    stream.boundaries = find_boundaries(boundaries)
    return stream


def recorded(stream, scenario, method):
    """A cohort that was watched, and of each replica what came at each step."""
    steps, take = [[] for _ in SEEDS], TrainingStep.take

    def watched_take(self, batch, drawn):
        for replica, its in enumerate(steps):
            names = {}
            for name, value in drawn.items():
                own = (value.indices[replica], value.task[replica]) if isinstance(value, Batch) else value[replica]
                names[name.split()[-1]] = tuple(o.clone() for o in own) if isinstance(own, tuple) else own.clone()
            tasks = batch.task[replica].expand(BATCH).clone()
            its.append(Step(self.stack.task, batch.indices[replica].clone(), tasks, names))
        take(self, batch, drawn)

    with patch.object(TrainingStep, "take", watched_take):
        seen = watched(stream, scenario, SEEDS, method=method, iters=ITERS, batch=BATCH, hidden=HIDDEN, lr=LR)
    return seen, steps


def followed(stream, scenario, method, seen, steps, replica, clock=None):
    """The same by plain loops: weights after each task, accuracies, and what is stored."""
    (part,) = parse(method).parts or [None]
    numbers = part.model_dump() if part else {}
    chances = stream.boundaries.chances([ITERS] * 3, 0, 3 * ITERS) if clock else None
    course = Course(stream.data, list(stream.sequence(SEEDS[replica])), scenario, LR, clock, chances)
    first = of(seen.states[0], replica)
    gates = first[1]["xdg"]["gates"] if "xdg" in method else None
    network = Network(course, first[0]["classifier"], part.name if part else "none", numbers, gates)
    for number, came in enumerate(steps[replica], 1):
        network.step(came)
        if number % ITERS == 0:
            if not clock or number % clock:  # where the clock has just struck it was consolidated
                if clock:
                    network.earlier = int((chances[:number] > 0).any(0).sum())
                network.consolidate()
            network.generator = of(seen.states[number // ITERS][1], replica).get(network.method, {}).get("generator")
            yield network, network.accuracies()


def agree(stream, scenario, method, clock=None):
    seen, steps = recorded(stream, scenario, method)
    for replica in range(len(SEEDS)):
        rows = followed(stream, scenario, method, seen, steps, replica, clock)
        for task, (network, accuracies) in enumerate(rows):
            params, memory = of(seen.states[task + 1], replica)
            assert near(params["classifier"], network.params, 1e-8), task
            assert seen.measured.matrix[replica, task].tolist() == pytest.approx(accuracies)
            for part in memory.values():
                if "count" in part:
                    pairs = zip(part["stored"], part["count"].tolist(), strict=True)
                    assert [row[:n].tolist() for row, n in pairs] == network.held
                if "reservoir" in part:
                    held = list(zip(part["reservoir"].tolist(), part["of_task"].tolist(), strict=True))
                    assert held[: len(network.reservoir)] == network.reservoir
                    assert int(part["come"]) == network.come == (task + 1) * ITERS * BATCH
    return seen, steps


@pytest.mark.parametrize(("scenario", "method", "classes"), rest_in_full(CASES, covering(CASES, 2)))
def test_tasks_of_unequal_sizes_are_learned_as_by_a_plain_loop(scenario, method, classes):
    agree(stream_of(UNEQUAL[classes]), scenario, method)


@pytest.mark.parametrize(("scenario", "method", "boundaries"), rest_in_full(NEVER_ENDING, covering(NEVER_ENDING, 2)))
def test_without_ends_of_tasks_methods_learn_as_by_a_plain_loop(scenario, method, boundaries):
    """Consolidated by the clock alone, and before each test."""
    stream = stream_of([2, 3, 4], boundaries)
    seen, steps = agree(stream, scenario, method, BOUNDARIES[boundaries])
    for replica, seed in enumerate(SEEDS):
        tasks = stream.sequence(seed)
        chances = stream.boundaries.chances([ITERS] * 3, 0, 3 * ITERS)
        for number, came in enumerate(steps[replica]):
            for index, task in zip(came.indices.tolist(), came.tasks.tolist(), strict=True):
                assert index in tasks[task].train
                assert method == "offline" or chances[number, task] > 0
    assert len(seen.states) == 4
