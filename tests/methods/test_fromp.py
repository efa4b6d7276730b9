"""FROMP against plain loops over samples, output units and parameters, in float64 (Pan et al. 2020)."""

from math import ceil

import numpy as np
import pytest
import torch
from plain_losses import classified
from plain_network import competing, gradient, logits
from tiny_cohorts import of
from tiny_stack import STREAMS, TinyStack, near

from threefold.errors import ThreefoldError
from threefold.experiments import Settings
from threefold.experiments.cell import Cell
from threefold.methods import function_kernel, parse
from threefold.scenarios import SCENARIOS as KNOWN

WHERE = pytest.mark.parametrize("scenario", ["task", "domain", "class", "all", "hidden"])
BUDGET, BATCH, PRIOR = 4, 12, 0.05
METHOD = f"fromp:strength={{}},budget={BUDGET},prior={PRIOR}"


def stack(scenario, strength=3.0, **also):
    method = METHOD.format(strength) + ("+xdg:share=0.3" if scenario == "hidden" else "")
    return TinyStack("few", scenario, method, batch=BATCH, hidden=6, **also)


def chances(tiny, replica, params, x, task, seen):
    """The softmax over the units that compete for a sample, by unit."""
    scores = logits(params, x, tiny.gates(replica, task))
    units = competing(tiny.scenario, task, seen, tiny.classes)
    return dict(zip(units, torch.softmax(scores[units], 0), strict=True))


def flat_gradient(function, params):
    _, slopes = gradient(function, params)
    return np.concatenate([slopes[name].numpy().ravel() for name in params])


class Plain:
    """One network's memory, kept by loops: what is held of each past task, and the Fisher information."""

    def __init__(self):
        self.fisher, self.stored = 0.0, []

    def finish(self, tiny, replica, params, task):
        """The task is over, with these weights."""
        seen, own = task + 1, tiny.sequences[replica][task].train.tolist()
        for index in own:
            x = tiny.inputs(replica, index, task)
            units = competing(tiny.scenario, task, seen, tiny.classes)
            p = chances(tiny, replica, params, x, task, seen)
            rows = []
            for unit in units:  # the gradient of the logit

                def logit(params, unit=unit, x=x):
                    return logits(params, x, tiny.gates(replica, task))[unit]

                rows.append(flat_gradient(logit, params))
            jacobian, p = np.stack(rows), np.array([float(p[unit]) for unit in units])
            middle = np.diag(p) - np.outer(p, p)
            self.fisher = self.fisher + np.einsum("id,ij,jd->d", jacobian, middle, jacobian)
        for label in range(tiny.classes):
            mine = [index for index in own if tiny.label(replica, index, task) == label]
            scores = []
            for index in mine:
                p = chances(tiny, replica, params, tiny.inputs(replica, index, task), task, seen)
                scores.append(sum(float(each * (1 - each)) for each in p.values()))
            best = sorted(range(len(mine)), key=lambda place: -scores[place])[:BUDGET]
            self.stored.append([mine[place] for place in best])
        self.held = []
        for past in range(seen):
            points = [index for place in self.stored[past * 2 : past * 2 + 2] for index in place]
            units = competing(tiny.scenario, past, seen, tiny.classes)
            then = [chances(tiny, replica, params, tiny.inputs(replica, i, past), past, seen) for i in points]
            inverse = {}
            for unit in units:
                slopes = []
                for index in points:
                    x = tiny.inputs(replica, index, past)

                    def chance(params, x=x, unit=unit, past=past):
                        return chances(tiny, replica, params, x, past, seen)[unit]

                    slopes.append(flat_gradient(chance, params))
                slopes = np.stack(slopes)
                kernel = slopes @ np.diag(1 / (self.fisher + PRIOR)) @ slopes.T
                inverse[unit] = np.linalg.inv(kernel + 1e-6 * np.eye(len(points)))
            self.held.append((points, then, inverse))


def subset(tiny, replica, order, past, task):
    """The places, among a past task's points, of those with the largest numbers."""
    here = order[replica].reshape(-1)[past * 2 * BUDGET : (past + 1) * 2 * BUDGET].tolist()
    some = min(ceil(BATCH / task), 2 * BUDGET)
    return sorted(range(2 * BUDGET), key=lambda place: -here[place])[:some]


@WHERE
def test_its_memory_and_its_steps(scenario):
    """Scores, Fisher information, kernels; then the gradient of a step: the one that is held to a norm of 1."""
    tiny, plain = stack(scenario), [Plain() for _ in range(3)]
    for task in range(3):
        if task:
            batch, drawn = next(tiny.draws(1))
            _, grads = tiny.gradients(batch, drawn)
            for replica in range(3):
                params = of(tiny.params["classifier"], replica)

                def loss(params, replica=replica, batch=batch):
                    return classified(tiny, replica, params, batch.x[replica], batch.y[replica], [tiny.task] * BATCH)

                _, slopes = gradient(loss, params)
                total = np.concatenate([slopes[name].numpy().ravel() for name in params])
                for past, (points, then, inverse) in enumerate(plain[replica].held):
                    some = subset(tiny, replica, drawn["fromp order"], past, task)
                    for unit, matrix in inverse.items():
                        jacobian, change = [], []
                        for place in some:
                            x = tiny.inputs(replica, points[place], past)

                            def chance(params, x=x, unit=unit, past=past, replica=replica):
                                return chances(tiny, replica, params, x, past, tiny.task + 1)[unit]

                            jacobian.append(flat_gradient(chance, params))
                            change.append(float(chance(params)) - float(then[place][unit]))
                        total = total + 3.0 * np.stack(jacobian).T @ matrix[np.ix_(some, some)] @ np.array(change)
                norm = np.linalg.norm(total)
                total = total * min(1.0, 1 / (norm + 1e-6))
                mine = of(grads["classifier"], replica)
                got = np.concatenate([mine[name].numpy().ravel() for name in params])
                assert np.abs(got - total).max() < 1e-6 * np.abs(total).max()
                assert np.linalg.norm(got) < 1 + 1e-9
        tiny.train(3)
        for replica in range(3):
            plain[replica].finish(tiny, replica, of(tiny.params["classifier"], replica), task)
        tiny.finish()
        memory = tiny.memory("fromp")
        for replica in range(3):
            params = of(tiny.params["classifier"], replica)
            fisher = np.concatenate([memory["fisher"][name][replica].numpy().ravel() for name in params])
            assert np.allclose(fisher, plain[replica].fisher, rtol=1e-8, atol=1e-12)
            assert tiny.held(replica, "fromp") == plain[replica].stored
        assert ("inverse" in memory) == (task < 2)  # after the last task nothing is held
        for past in range(task + 1 if task < 2 else 0):
            for replica in range(3):
                _, then, inverse = plain[replica].held[past]
                for place, unit in enumerate(memory["units"][past][replica].tolist()):
                    ours = memory["inverse"][past][replica, place].numpy()
                    # compared as kernels: what is nearly singular multiplies whatever is rounded
                    assert np.abs(np.linalg.inv(ours) - np.linalg.inv(inverse[unit])).max() < 1e-8
                    theirs = [float(each[unit]) for each in then]
                    assert np.allclose(memory["chances"][past][replica, :, place], theirs, atol=1e-12)
        if task < 2:
            tiny.begin(task + 1)
            tiny.train(2)


def test_pieces_of_any_size_make_the_same_kernel(monkeypatch):
    found = []
    for at_once in (1 << 22, 600, 1):  # all samples, a few, one
        monkeypatch.setattr(function_kernel, "ON_CPU", at_once)
        found.append(stack("class").reach(1).memory("fromp")["inverse"])
    for other in found[1:]:
        assert near(other, found[0], 1e-7)


def test_a_class_smaller_than_the_budget_is_held_as_it_is():
    """And what fills up the table makes no difference to what is held."""
    ends = []
    for budget in (15, 40):  # classes have 6 to 15 samples
        method = f"fromp:strength=3,budget={budget},prior={PRIOR}"
        tiny = TinyStack("few", "class", method, batch=6, hidden=6).reach(1)
        counts = tiny.memory("fromp")["count"]
        labels = STREAMS["few"].data.train_y.tolist()
        for replica in range(3):
            sizes = [labels.count(each) for each in tiny.sequences[replica][0].classes]
            assert counts[replica].tolist() == sizes
        ends.append(tiny.memory("fromp")["chances"][0])
    for replica in range(3):
        for place in range(2):
            n = int(counts[replica, place])
            assert near(ends[0][replica, place * 15 :][:n], ends[1][replica, place * 40 :][:n])


def test_with_no_strength_it_is_plain_training_with_short_steps():
    tiny, none = stack("class", 0.0, lr="sgd:lr=0.1"), TinyStack("few", "class", "none", hidden=6, lr="sgd:lr=0.1")
    assert near(tiny.reach(1).params, none.reach(1).params)  # gradients are shorter than 1


def test_memory_beyond_the_machine_is_refused():
    settings = Settings.checked(iters=3, hidden=8, batch=12, device="cpu")
    with pytest.raises(ThreefoldError, match=r"would need about .* for the networks and the memory of one run"):
        Cell.of(STREAMS["split"], KNOWN["class"], parse("fromp:strength=1,budget=1000000"), settings)
    fine = Cell.of(STREAMS["split"], KNOWN["class"], parse("fromp:strength=1"), settings)
    assert fine.remembered == function_kernel.WITHIN + 4 * 200**2 + 4 * 200**2
