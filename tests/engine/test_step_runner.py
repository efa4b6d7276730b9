"""When a step is captured, and what is compiled: the logic around CUDA graphs, with a stand-in for them."""

from contextlib import contextmanager

import pytest
import torch
from tiny_cohorts import cohort, same_bits, same_measured, watched
from torch.utils._pytree import tree_leaves

from threefold.engine import sampling, step_runner
from threefold.engine.compile import CompiledFunction
from threefold.engine.step_runner import WARM_UP, Captured, Eager
from threefold.methods import ICaRL, Part


class Running(Captured):
    """Captures Python code: a replay takes the step, if all that it works on lies where it lay."""

    def places(self):
        tensors = self.sampler.current, self.sampler.samples, self.sampler._noise
        return [leaf.data_ptr() for leaf in tree_leaves(tensors)], self.step.addresses()


@pytest.fixture
def captured(monkeypatch):
    """Trains with captured steps; `captured.graphs` has the task and step of each capture, and was it compiled?"""

    class Graph:
        def __init__(self):
            self.runner, self.places = None, None

        def replay(self):
            if self.places is None:  # the capture itself has taken the first one here
                self.places = self.runner.places()
                return
            assert self.runner.places() == self.places
            self.runner.step.take(*self.runner.sampler.at(self.runner.step.stack.now.step))

    @contextmanager
    def capture(graph, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        yield

    class Watched(Running):
        def take(self, step):
            before = self.graph
            super().take(step)
            if self.graph is not before:
                graphs.append((self.step.stack.task, step, self.step.compiled is not None))

        def _capture(self):
            super()._capture()
            self.graph.runner = self

    graphs = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)

    def train(method, worth=None, iters=6, **also):
        run = {"method": method, "iters": iters, "runner": lambda stack, several: Watched(stack, worth=worth)}
        return watched("split", "class", [1, 2], **run | also)

    train.graphs = graphs
    return train


class Steps(Part):
    """Counts the steps of each sample, in its memory."""

    name = "steps"

    def start(self, setting, seed, params):
        return {"seen": torch.zeros(300)}

    def after_step(self, learner, step):
        return {"seen": learner.memory[self.name]["seen"].index_add(0, step.batch.indices, torch.ones(16))}

    def penalty(self, learner):
        return learner.memory[self.name]["seen"].mean() * sum((p**2).sum() for p in learner.params.values())


METHODS = ["none", "ewc:strength=50", "si:strength=2", "lwf", "dgr", "icarl:budget=30", "er:budget=30", Steps()]


@pytest.mark.parametrize("chunk", [5000, 4])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_captured_steps_are_the_steps(method, chunk, captured, monkeypatch):
    """Also where a task is drawn in chunks: they replace each other in the same tensors."""
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", chunk)
    monkeypatch.setattr(sampling, "NOISE_AT_ONCE", 5)
    found = captured(method, iters=10)
    plain = watched("split", "class", [1, 2], method=method, iters=10, runner=lambda stack, several: Eager(stack))
    assert same_measured(found.measured, plain.measured)
    assert same_bits(found.states, plain.states)
    assert all(step == WARM_UP for _, step, _ in captured.graphs)


GRAPHS = {"none": [0], "icarl:budget=30": [0, 1], "er:budget=30,use=both": [0, 1], "a-gem:budget=30": [0, 1]}


@pytest.mark.parametrize(("method", "tasks"), [*GRAPHS.items(), (Steps(), [0])], ids=str)
def test_one_graph_serves_all_tasks_with_a_past(method, tasks, captured):
    """And the first, where nothing is remembered from it. Stored data that no step reads may change their shape."""
    captured(method)
    assert [task for task, _, _ in captured.graphs] == tasks


class Hoarder(ICaRL):
    """Its steps read whatever it stores."""

    name = "hoarder"

    def loss(self, learner, batch):
        stored = learner.memory[self.name].get("stored")
        return super().loss(learner, batch) + (0 if stored is None else 1e-6 * stored.float().mean())


def test_a_memory_that_changes_its_shape_is_captured_anew(captured):
    captured(Hoarder(budget=30))
    assert [task for task, _, _ in captured.graphs] == [0, 1, 2]


@pytest.mark.parametrize(("worth", "compiled"), [(0, True), (10**15, False)])
def test_what_is_ahead_decides_what_is_compiled(worth, compiled, captured, monkeypatch):
    made = []

    def eagerly():
        made.append(CompiledFunction(backend="eager"))
        return made[-1]

    monkeypatch.setattr(step_runner, "CompiledFunction", eagerly)
    found = captured("ewc:strength=50", worth)
    assert [kind for _, _, kind in captured.graphs] == [False, compiled]  # the first task has no past
    assert same_measured(found.measured, cohort("split", "class", [1, 2], method="ewc:strength=50", iters=6))
    assert not any(each.broken for each in made)
