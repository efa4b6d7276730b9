"""EWC, Online EWC and SI against their equations, term by term and step by step (sections A.2.1 to A.2.3)."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_network import competing, cross_entropy, gradient, logits
from tiny_cohorts import copied, furthest, of
from tiny_stack import CLOSE, SCENARIOS, SEEDS, TinyStack, near

from threefold.methods import EWC, SI, Method, OnlineEWC
from threefold.methods.fisher import fisher_diagonal
from threefold.methods.learner import Quadratic
from threefold.methods.regularization import absorb

SIZE = 5
numbers = st.floats(-3, 3, allow_subnormal=False)
importances = st.one_of(st.just(0.0), st.floats(1e-8, 1e4))
tasks = st.lists(
    st.tuples(*[st.lists(kind, min_size=SIZE, max_size=SIZE) for kind in (importances, numbers)]),
    min_size=3,
    max_size=6,
)


def absorbed(pairs):
    memory = {}
    for fisher, params in pairs:
        memory = absorb(memory, {"w": torch.tensor(fisher)}, {"w": torch.tensor(params)})
    return memory


def summed(theta, pairs):
    """Σ_k ½ Σ_i F_i^(k) (θ_i − θ̂_i^(k))² and its gradient, one number at a time."""
    loss = sum(
        0.5 * f * (t - a) ** 2 for fisher, anchor in pairs for f, t, a in zip(fisher, theta, anchor, strict=True)
    )
    grad = [sum(fisher[i] * (theta[i] - anchor[i]) for fisher, anchor in pairs) for i in range(SIZE)]
    return loss, torch.tensor(grad)


# one quadratic instead of many


@settings(max_examples=60, deadline=None)
@given(tasks, *[st.lists(numbers, min_size=SIZE, max_size=SIZE)] * 2)
def test_one_quadratic_pulls_as_all_of_them_do(pairs, theta, other):
    memory = absorbed(pairs)
    size = sum(sum(fisher) for fisher, _ in pairs) * 100 + 1e-6
    found = []
    for place in (theta, other):
        value = Quadratic(1, memory["anchor"], memory["precision"]).value
        loss, grad = gradient(value, {"w": torch.tensor(place)})
        expected, pull = summed(place, pairs)
        assert (grad["w"] - pull).abs().max() <= 1e-12 * size
        assert loss <= expected + 1e-12 * size  # the constant is what the anchors disagree about
        found.append(loss - expected)
    assert abs(found[0] - found[1]) <= 1e-12 * size  # a constant apart
    fishers, anchors = (torch.tensor(list(column)) for column in zip(*pairs, strict=True))
    assert torch.allclose(memory["precision"]["w"], fishers.sum(0), rtol=1e-12, atol=0)
    assert (memory["anchor"]["w"] <= anchors.amax(0) + 1e-12).all()
    assert (memory["anchor"]["w"] >= anchors.amin(0) - 1e-12).all()


def test_weights_that_never_mattered_have_no_pull_and_one_that_matters_late_is_held_where_it_is_then():
    memory = absorbed([([0.0] * SIZE, [float(k)] * SIZE) for k in range(3)])
    assert memory["anchor"]["w"].isfinite().all()
    _, grad = gradient(Quadratic(1, memory["anchor"], memory["precision"]).value, {"w": torch.full((SIZE,), 9.0)})
    assert (grad["w"] == 0).all()
    memory = absorbed([([0.0] * SIZE, [1.0] * SIZE), ([0.0] * SIZE, [2.0] * SIZE), ([3.0] * SIZE, [5.0] * SIZE)])
    assert (memory["anchor"]["w"] == 5).all()
    assert (memory["precision"]["w"] == 3).all()


def test_the_anchor_does_not_cancel_in_float32():
    """Ten tasks that end at the same large weight: the anchor is that weight, whatever the precisions."""
    weight = torch.full((SIZE,), 100.003, dtype=torch.float32)
    memory = {}
    for k in range(10):
        memory = absorb(memory, {"w": torch.full((SIZE,), 10.0 ** (k % 5 - 2), dtype=torch.float32)}, {"w": weight})
    assert torch.equal(memory["anchor"]["w"], weight)


# the two kinds of EWC on cohorts


def finished(tiny, task):
    """Train up to the end of `task`; for each task its Fisher diagonal and the weights it ended with."""
    past = []
    while True:
        tiny.train()
        with torch.no_grad():
            past.append((fisher_diagonal(tiny.stack, tiny.task, "predicted", None), copied(tiny.params["classifier"])))
        tiny.finish()
        tiny.begin(tiny.task + 1)
        if len(past) == task + 1:
            return past


def current(tiny, replica, batch):
    """The plain loss on a batch of the current task."""
    units = [competing(tiny.scenario, tiny.task, tiny.task + 1, tiny.classes)] * len(batch.y[replica])
    gates = tiny.gates(replica, tiny.task)
    return lambda params: cross_entropy(logits(params, batch.x[replica], gates), units, batch.y[replica])


def all_quadratics(params, past, replica):
    """Σ_k ½ Σ_i F_i^(k) (θ_i − θ̂_i^(k))²."""
    each = [0.5 * of(f, replica)[n] * (p - of(a, replica)[n]) ** 2 for n, p in params.items() for f, a in past]
    return sum(one.sum() for one in each)


STRENGTHS, DECAYS = [3.0, 200.0, 0.5], [0.5, 1.0, 0.9]


@pytest.mark.parametrize(
    ("scenario", "also"), [("task", ""), ("domain", ""), ("class", ""), ("task", "+xdg:share=0.3")]
)
def test_ewc_adds_half_of_every_tasks_quadratic(scenario, also):
    tiny = TinyStack("few", scenario, [f"ewc:strength={s}{also}" for s in STRENGTHS])
    past = finished(tiny, 1)
    tiny.train(3)  # away from the last anchor
    batch, drawn = next(tiny.draws(1))
    _, grads = tiny.gradients(batch, drawn)
    for replica, strength in enumerate(STRENGTHS):
        plain = current(tiny, replica, batch)

        def total(params, plain=plain, replica=replica, strength=strength):
            return plain(params) + strength * all_quadratics(params, past, replica)

        _, expected = gradient(total, of(tiny.params["classifier"], replica))
        assert near(of(grads["classifier"], replica), expected)
        _, without = gradient(plain, of(tiny.params["classifier"], replica))
        assert not near(of(grads["classifier"], replica), without, 1e-3)


@torch.no_grad()
def moved_loss(tiny, batch, drawn, by):
    for p in tiny.params["classifier"].values():
        p.add_(by)
    loss, _ = tiny.gradients(batch, drawn)
    for p in tiny.params["classifier"].values():
        p.sub_(by)
    return loss


def test_ewcs_loss_differs_from_the_sum_by_a_constant():
    tiny = TinyStack("few", "class", [f"ewc:strength={s}" for s in STRENGTHS])
    past = finished(tiny, 1)
    batch, drawn = next(tiny.draws(1))
    constants = []
    for by in (0.0, 0.1, -0.3):
        loss = moved_loss(tiny, batch, drawn, by)
        row = []
        for replica, strength in enumerate(STRENGTHS):
            params = {n: p + by for n, p in of(tiny.params["classifier"], replica).items()}
            pulls = strength * all_quadratics(params, past, replica)
            row.append(loss[replica] - current(tiny, replica, batch)(params) - pulls)
        constants.append(torch.stack(row))
    assert (constants[0] - constants[1]).abs().max() < CLOSE
    assert (constants[0] - constants[2]).abs().max() < CLOSE
    assert (constants[0] < 0).all()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_online_ewc_keeps_a_running_sum_and_half_gamma_of_its_quadratic(scenario):
    cases = list(zip(STRENGTHS, DECAYS, strict=True))
    tiny = TinyStack("few", scenario, [f"online-ewc:strength={s},decay={d}" for s, d in cases])
    past = finished(tiny, 1)
    tiny.train(3)
    batch, drawn = next(tiny.draws(1))
    loss, grads = tiny.gradients(batch, drawn)
    for replica, (strength, decay) in enumerate(cases):
        (first, _), (second, anchor) = of(past, replica)
        running = {n: decay * first[n] + second[n] for n in first}  # F̃^(2) = γ F̃^(1) + F^(2)
        assert near(of(tiny.memory("online-ewc")["precision"], replica), running)
        assert furthest(of(tiny.memory("online-ewc")["anchor"], replica), anchor) == 0
        plain = current(tiny, replica, batch)

        def total(params, plain=plain, running=running, anchor=anchor, weight=strength * 0.5 * decay):
            return plain(params) + weight * sum((running[n] * (p - anchor[n]) ** 2).sum() for n, p in params.items())

        expected, pull = gradient(total, of(tiny.params["classifier"], replica))
        assert abs(loss[replica] - expected) < CLOSE
        assert near(of(grads["classifier"], replica), pull)


def test_online_ewcs_running_sum_over_four_tasks():
    """F̃ = γ³F¹ + γ²F² + γF³ + F⁴ for Fisher diagonals that are given, a decay for each replica."""
    decay = torch.tensor([0.5, 1.0, 0.1])
    part = OnlineEWC(strength=1, decay=1).model_copy(update={"decay": decay})
    source = torch.Generator().manual_seed(0)
    fishers = [torch.rand(3, 4, 2, generator=source) for _ in range(4)]
    weights = [torch.rand(3, 4, 2, generator=source) for _ in range(4)]
    memory = {}
    with pytest.MonkeyPatch.context() as patch:
        for task in range(4):
            patch.setattr(
                "threefold.methods.regularization.fisher_diagonal", lambda *_, task=task: {"w": fishers[task].clone()}
            )
            memory = part.consolidate(SimpleNamespace(params={"classifier": {"w": weights[task]}}), memory, task)
    for replica, gamma in enumerate(decay.tolist()):
        expected = sum(gamma ** (3 - task) * fishers[task][replica] for task in range(4))
        assert torch.allclose(memory["precision"]["w"][replica], expected, atol=1e-14)
    assert torch.equal(memory["anchor"]["w"], weights[3])


def test_the_conventions_by_hand():
    """θ = 3, anchor 1, precision 5: EWC ½λ·20, Online EWC ½γλ·20, SI c·20."""
    memory = {"anchor": {"w": torch.tensor([1.0])}, "precision": {"w": torch.tensor([5.0])}}
    memory["importance"] = memory["precision"]
    theta = {"w": torch.tensor([3.0])}
    cases = [(EWC(strength=7), 70), (OnlineEWC(strength=7, decay=0.8), 56), (SI(strength=7), 140)]
    for part, wanted in cases:
        found = part.penalty(SimpleNamespace(memory={part.name: memory}))
        assert float(found.value(theta)) == pytest.approx(wanted)


@pytest.mark.parametrize("method", ["ewc:strength={}", "online-ewc:strength={},decay=0.9", "si:strength={}"])
def test_the_first_task_has_no_penalty_and_without_strength_no_task_has(method):
    held, slack, free = (TinyStack("few", "class", each) for each in (method.format(1e6), method.format(0), "none"))
    for tiny in (held, slack, free):
        tiny.train()
    assert furthest(held.params, free.params) == 0
    for tiny in (held, slack, free):
        tiny.reach(2)
        tiny.train()
    assert furthest(held.params, free.params) > 1e-3
    assert furthest(slack.params, free.params) == 0


# SI


def by_hand(tiny, replica, strength, damping, runs, lr=1e-2):
    """Training with SI, one number's history at a time: yields weights and Ω after every task."""
    params = {name: p.clone() for name, p in of(tiny.params["classifier"], replica).items()}
    leaves = {name: p.requires_grad_() for name, p in params.items()}
    optimizer = torch.optim.Adam(leaves.values(), lr=lr, foreach=False)
    importance = {name: torch.zeros_like(p) for name, p in params.items()}
    for task, batches in enumerate(runs):
        start = {name: p.detach().clone() for name, p in leaves.items()}
        omega = {name: torch.zeros_like(p) for name, p in params.items()}
        for x, y in batches:
            units = [competing(tiny.scenario, task, task + 1, tiny.classes)] * len(y)
            loss = cross_entropy(logits(leaves, x), units, y)
            if task > 0:
                loss = loss + strength * sum((importance[n] * (p - start[n]) ** 2).sum() for n, p in leaves.items())
            optimizer.zero_grad()
            loss.backward()
            before = {name: p.detach().clone() for name, p in leaves.items()}
            optimizer.step()
            for name, p in leaves.items():
                omega[name] += (p.detach() - before[name]) * -p.grad
        for name, p in leaves.items():
            change = p.detach() - start[name]
            importance[name] = importance[name] + omega[name] / (change**2 + damping)
        yield {name: p.detach().clone() for name, p in leaves.items()}, importance


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_si_is_the_loop_written_by_hand(scenario):
    cases = [(1.0, 0.1), (40.0, 0.1), (5.0, 0.01)]
    methods = [SI(strength=s) if d == 0.1 else SI(strength=s, damping=d) for s, d in cases]
    tiny = TinyStack("few", scenario, [Method(m) for m in methods])
    first = TinyStack("few", scenario, "none")
    after, runs = [], []
    for task in range(3):
        batches = [batch for batch, _ in tiny.draws(6)]
        runs.append(batches)
        tiny.train(6)
        tiny.finish()
        after.append(copied((tiny.params["classifier"], tiny.memory("si")["importance"])))
        assert all((omega == 0).all() for omega in tiny.memory("si")["omega"].values())  # each task counts anew
        assert furthest(tiny.memory("si")["anchor"], tiny.params["classifier"]) == 0
        if task < 2:
            tiny.begin(task + 1)
    for replica, (strength, damping) in enumerate(cases):
        own = [[(batch.x[replica], batch.y[replica]) for batch in batches] for batches in runs]
        for task, expected in enumerate(by_hand(first, replica, strength, damping, own)):
            weights, importance = of(after[task], replica)
            assert near(weights, expected[0], 1e-9)
            assert near(importance, expected[1], 1e-9)


def test_si_counts_the_penaltys_gradient_too():
    """One step away from the anchor, where the penalty has a gradient: ω grows by the step times the whole gradient."""
    tiny = TinyStack("few", "class", "si:strength=300").reach(1)
    tiny.train(1)
    batch, drawn = next(tiny.draws(1))
    before, omega = copied(tiny.params["classifier"]), copied(tiny.memory("si")["omega"])
    _, grads = tiny.gradients(batch, drawn)
    with torch.no_grad():
        tiny.step.take(batch, drawn)
    for name, p in tiny.params["classifier"].items():
        grown = tiny.memory("si")["omega"][name] - omega[name]
        assert torch.allclose(grown, -(p - before[name]) * grads["classifier"][name], atol=1e-14)
    for replica in range(len(SEEDS)):
        _, plain = gradient(current(tiny, replica, batch), of(before, replica))
        assert not near(of(grads["classifier"], replica), plain, 1e-3)
