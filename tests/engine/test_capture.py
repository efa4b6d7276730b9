"""When a step is captured, and what is compiled: the logic around CUDA graphs, with a stand-in for them."""

from contextlib import contextmanager
from importlib import import_module

import pytest
import torch
from tiny_cohorts import PROTOCOLS

from threefold.engine import Training, steps, train
from threefold.engine.program import Program
from threefold.methods import ICaRL, Method, parse
from threefold.scenarios import find

engine = import_module("threefold.engine.train")


class StandIn:
    """A graph that replays the Python code it was captured from."""

    def __init__(self):
        self.replays = 0


@pytest.fixture
def graphs(monkeypatch):
    """Captures as (task, step's code); replays call the step."""
    captured = []

    @contextmanager
    def capture(graph, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        yield

    class Watched(steps.Captured):
        def take(self, step):
            before = self.graph
            super().take(step)
            if self.graph is not before:
                captured.append((self.stack.task, step, type(self.stack.program)))

    def replay(self):
        self.replays += 1
        if self.replays > 1:  # the capture itself has taken the first one here
            self.step()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", StandIn)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(StandIn, "replay", replay, raising=False)

    def steps_for(stack, in_company):
        taker = Watched(stack)
        StandIn.step = lambda self: taker._step()
        return taker

    monkeypatch.setattr(engine, "steps_for", steps_for)
    return captured


def outcome(method, iters=6):
    chosen = parse(method)
    return train(PROTOCOLS["split"], find("class"), [chosen] * 2, [1, 2], [1e-2] * 2, Training(iters, 16, 8))


METHOD_NAMES = ["none", "ewc:strength=50", "si:strength=2", "lwf", "dgr", "icarl:budget=30", "er:budget=30"]


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_captured_steps_are_the_steps(method, graphs, monkeypatch):
    captured = outcome(method)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "steps_for", lambda stack, in_company: steps.Eager(stack))
        plain = outcome(method)
    assert torch.equal(captured.matrix, plain.matrix)
    assert all(step == steps.WARM_UP for _, step, _ in graphs)


def test_one_graph_serves_all_tasks_but_the_first(graphs):
    outcome("none")
    assert [task for task, _, _ in graphs] == [0, 1]


@pytest.mark.parametrize("method", ["icarl:budget=30", "er:budget=30,use=both", "a-gem:budget=30"])
def test_stored_data_may_change_their_shape_and_no_step_is_captured_anew(method, graphs):
    outcome(method)
    assert [task for task, _, _ in graphs] == [0, 1]


class Hoarder(ICaRL):
    """A method from elsewhere, whose steps may read whatever it stores."""

    name = "hoarder"

    def loss(self, learner, batch):
        stored = learner.memory[self.name].get("stored")
        return super().loss(learner, batch) + (0 if stored is None else 1e-6 * stored.float().mean())


def test_a_memory_that_changes_its_shape_is_captured_anew(graphs):
    method = Method(Hoarder(budget=30))
    train(PROTOCOLS["split"], find("class"), [method] * 2, [1, 2], [1e-2] * 2, Training(6, 16, 8))
    assert [task for task, _, _ in graphs] == [0, 1, 2]


@pytest.mark.parametrize(("worth", "program"), [(0, Program), (10**15, type(None))])
def test_what_is_ahead_decides_what_is_compiled(worth, program, graphs, monkeypatch):
    monkeypatch.setattr(steps, "WORTH", worth)
    made = []

    class Eager(Program):
        def __init__(self):
            super().__init__(backend="eager")
            made.append(self)

    monkeypatch.setattr(steps, "Program", Eager)
    compiled = outcome("ewc:strength=50")
    kinds = [kind for _, _, kind in graphs]
    assert kinds == [type(None), Eager if program is Program else type(None)]  # the first task has no past
    with monkeypatch.context() as patch:
        patch.setattr(engine, "steps_for", lambda stack, in_company: steps.Eager(stack))
        plain = outcome("ewc:strength=50")
    assert torch.equal(compiled.matrix, plain.matrix)  # rounding moves no sample of these
    assert not any(each.broken for each in made)
