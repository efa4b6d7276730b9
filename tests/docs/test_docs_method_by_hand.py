"""docs/your-own-method.md: MAS, DER++ and dropout against loops over networks, samples and numbers, in float64."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from doc_pages import DOCS
from method_page import PAGE
from plain_network import competing, cross_entropy, gradient, logits, target
from tiny_cohorts import copied, of, tiny_data
from tiny_stack import SCENARIOS, TinyStack, near

from threefold.methods import Quadratic, parse
from threefold.randomness import generator
from threefold.streams import Split

STEPS, BUDGET = 6, 30


@pytest.fixture(autouse=True)
def _in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def classified(tiny: Any, replica: int, params: Any, indices: Any, tasks: Any, gates: Any = None) -> Any:
    """Cross entropy of these training samples, each one of its own task, when the current task is trained."""
    pairs = list(zip(indices, tasks, strict=True))
    x = torch.stack([tiny.inputs(replica, index, task) for index, task in pairs])
    units = [competing(tiny.scenario, task, tiny.task + 1, tiny.classes) for task in tasks]
    right = [target(tiny.scenario, t, tiny.label(replica, i, t), tiny.classes) for i, t in pairs]
    return cross_entropy(logits(params, x, gates), units, right)


def test_the_anchor_as_a_quadratic_is_the_anchor(mine: Any) -> None:
    text = " ".join((DOCS / PAGE).read_text(encoding="utf-8").split())
    (written,) = re.findall(r"For `Anchor` that is `([^`]+)`", text)

    class Quick(mine.Anchor):  # type: ignore[misc, name-defined]
        def penalty(self, learner: Any) -> Any:
            anchor = learner.memory[self.name]["anchor"]
            return eval(written, {"self": self, "anchor": anchor, "Quadratic": Quadratic, "torch": torch})

    plain, quick = (TinyStack("split", "class", part(strength=3)).reach(1) for part in (mine.Anchor, Quick))
    assert near(plain.params, quick.params)


# MAS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_mas_is_the_mean_size_of_each_samples_gradient(mine: Any, scenario: str) -> None:
    strengths = [0.1, 3.0, 50.0]
    tiny = TinyStack("few", scenario, [mine.MyMAS(strength=strength) for strength in strengths])
    importance: list[Any] = [{}] * 3
    for _ in range(2):
        tiny.train()
        for replica in range(3):
            params, own = of(tiny.params["classifier"], replica), tiny.sequences[replica][tiny.task].train.tolist()
            for index in own:
                x = tiny.inputs(replica, index, tiny.task)
                _, slopes = gradient(lambda p, x=x: (logits(p, x) ** 2).sum(), params)
                grown = {n: importance[replica].get(n, 0) + g.abs() / len(own) for n, g in slopes.items()}
                importance[replica] = grown
        anchor = copied(tiny.params["classifier"])
        tiny.finish()
        tiny.begin(tiny.task + 1)
    tiny.train(2)
    batch, drawn = next(tiny.draws(1))
    loss, grads = tiny.gradients(batch, drawn)
    for replica, strength in enumerate(strengths):
        assert near(of(tiny.memory("my-mas")["importance"], replica), importance[replica])
        indices, tasks = batch.indices[replica].tolist(), batch.task[replica].tolist()

        def total(p: Any, replica: int = replica, strength: float = strength, at: Any = (indices, tasks)) -> Any:
            held = [importance[replica][n] * (p[n] - anchor[n][replica]) ** 2 for n in p]
            return classified(tiny, replica, p, *at) + strength * sum(each.sum() for each in held)

        expected, slopes = gradient(total, of(tiny.params["classifier"], replica))
        assert abs(loss[replica] - expected) < 1e-10
        assert near(of(grads["classifier"], replica), slopes)


# DER++


class Reservoir:
    """Samples one after the other (Vitter's algorithm R)."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, int, Any]] = []
        self.seen = 0

    def add(self, sample: tuple[int, int, Any], chance: float) -> None:
        if len(self.stored) < BUDGET:
            self.stored.append(sample)
        elif (place := int(chance * (self.seen + 1))) < BUDGET:
            self.stored[place] = sample
        self.seen += 1


def der_by_hand(tiny: Any, replica: int, start: Any, batches: Any, alpha: float, beta: float) -> Any:
    """Yields weights and reservoir after each task; tasks of the same length, drawn as the page says."""
    params = {name: p.clone().requires_grad_() for name, p in of(start, replica).items()}
    optimizer, memory = torch.optim.Adam(params.values(), lr=1e-2, foreach=False), Reservoir()
    for task, steps in enumerate(batches):
        tiny.stack.begin_task(task)
        draws = {what: torch.rand(50, 12, generator=generator(tiny.seeds[replica], f"my-der-pp {what}", task, 0))
                 for what in ("place", "logits", "labels")}  # fmt: skip
        for step, indices in enumerate(steps):
            loss = classified(tiny, replica, params, indices, [task] * 12)
            if memory.seen:
                filled = min(memory.seen, BUDGET)
                first, second = ([memory.stored[int(u * filled)] for u in draws[what][step].tolist()]
                                 for what in ("logits", "labels"))  # fmt: skip
                now = torch.stack([logits(params, tiny.inputs(replica, i, t)) for i, t, _ in first])
                loss = loss + alpha * ((now - torch.stack([then for _, _, then in first])) ** 2).mean()
                loss = loss + beta * classified(tiny, replica, params, *zip(*[s[:2] for s in second], strict=True))
            seen = [logits(params, tiny.inputs(replica, index, task)).detach() for index in indices]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for index, its, chance in zip(indices, seen, draws["place"][step].tolist(), strict=True):
                memory.add((index, task, its), chance)
        yield {name: p.detach().clone() for name, p in params.items()}, list(memory.stored)


@pytest.mark.parametrize("stream", ["split", "permuted"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_der_is_a_reservoir_with_the_logits_of_the_moment(mine: Any, stream: str, scenario: str) -> None:
    weights = [(0.5, 0.5), (2.0, 0.0), (0.0, 1.0)]
    tiny = TinyStack(stream, scenario, [mine.MyDERpp(budget=BUDGET, alpha=a, beta=b) for a, b in weights])
    start, after, batches = copied(tiny.params["classifier"]), [], []
    for task in range(2):
        if task:
            tiny.begin(task)
        batches.append([batch.indices for batch, _ in tiny.draws(STEPS)])
        tiny.train(STEPS)
        tiny.finish()
        after.append(copied((tiny.params["classifier"], tiny.memory("my-der-pp"))))
    for replica, (alpha, beta) in enumerate(weights):
        own = [[indices[replica].tolist() for indices in steps] for steps in batches]
        by_hand = list(der_by_hand(tiny, replica, start, own, alpha, beta))
        for (params, memory), (wanted, stored) in zip(after, by_hand, strict=True):
            assert near(of(params, replica), wanted)
            mine_stored = of(memory, replica)
            assert list(zip(mine_stored["index"].tolist(), mine_stored["task"].tolist(), strict=True)) == [
                sample[:2] for sample in stored
            ]
            assert near(mine_stored["logits"], torch.stack([then for _, _, then in stored]))
        assert {task for _, task, _ in stored} == {0, 1}, "some of each task"


def test_every_sample_is_as_likely_to_stay(mine: Any) -> None:
    """Forty networks, twelve steps of twelve samples that come once each, and places for half of them."""
    data = Split(tiny_data(classes=4, base=80, dtype=torch.float64), 2)
    tiny = TinyStack(data, "class", mine.MyDERpp(budget=72), range(40))
    order = [batch.indices for batch, _ in tiny.draws(12)]
    tiny.train(12)
    stored = tiny.memory("my-der-pp")["index"].unsqueeze(-1)
    for indices in order:
        stay = int((stored == indices.unsqueeze(1)).sum())
        assert abs(stay - 240) < 5 * (480 / 4) ** 0.5  # binomial: 480 samples, one half each


# dropout


def test_dropout_leaves_out_what_was_drawn_and_nothing_at_test_time(mine: Any) -> None:
    rates = [0.25, 0.5, 0.0]
    tiny = TinyStack("split", "class", [mine.Dropout(rate=rate) for rate in rates])
    start = copied(tiny.params["classifier"])
    batches = [batch.indices for batch, _ in tiny.draws(STEPS)]
    tiny.train(STEPS)
    x = tiny.stream.data.test_x.flatten(1)
    with torch.no_grad():
        tested = tiny.stack.predict(x.expand(3, -1, -1), torch.tensor(0), torch.ones(6, dtype=torch.bool))
    for replica, (seed, rate) in enumerate(zip(tiny.seeds, rates, strict=True)):
        params = {name: p.clone().requires_grad_() for name, p in of(start, replica).items()}
        optimizer = torch.optim.Adam(params.values(), lr=1e-2, foreach=False)
        drawn = torch.rand(50, 2, 24, 8, generator=generator(seed, "dropout", 0, 0))
        for step, indices in enumerate(batches):
            gates = [(drawn[step, layer, :12] >= rate) / (1 - rate) for layer in range(2)]
            optimizer.zero_grad()
            classified(tiny, replica, params, indices[replica].tolist(), [0] * 12, gates).backward()
            optimizer.step()
        assert near(of(tiny.params["classifier"], replica), {name: p.detach() for name, p in params.items()})
        assert torch.equal(tested[replica], logits(params, x).argmax(-1))


def test_dropout_goes_with_replays_of_every_kind(mine: Any) -> None:
    """Their logits are taken together with the current ones, and each sample has gates of its own."""
    for method in ("lwf", "er:budget=30", "dgr", "lwf:replayed_for=every"):
        tiny = TinyStack("split", "task", parse(method) + mine.Dropout(rate=0.5)).reach(1)
        batch, drawn = next(tiny.draws(1))
        loss, _ = tiny.gradients(batch, drawn)
        assert loss.isfinite().all()
