"""DER and DER++ against a loop over networks, samples and numbers, in float64 (Buzzega et al. 2020)."""

import pytest
import torch
from plain_losses import classified, scores
from tiny_cohorts import copied, of, tiny_data
from tiny_stack import SCENARIOS, TinyStack, near

from threefold.methods import DER, DERpp
from threefold.randomness import generator
from threefold.streams import Split

STEPS, BUDGET, BATCH = 6, 30, 12


class Reservoir:
    """Samples one after the other (Vitter's algorithm R)."""

    def __init__(self):
        self.rows, self.come = [], 0

    def add(self, sample, chance):
        if len(self.rows) < BUDGET:
            self.rows.append(sample)
        elif (place := int(chance * (self.come + 1))) < BUDGET:
            self.rows[place] = sample
        self.come += 1

    def drawn(self, uniform):
        return [self.rows[int(u * len(self.rows))] for u in uniform.tolist()]


def numbers(tiny, replica, name, task):
    """What each step draws, of so many in [0, 1)."""
    return {
        what: torch.rand(50, BATCH, generator=generator(tiny.seeds[replica], f"{name} {what}", task, 0))
        for what in ("kept", "logits", "labels")
    }


def by_hand(tiny, replica, name, start, batches, alpha, beta):
    """Training one network: yields its weights and its reservoir after each task."""
    params = {n: p.clone().requires_grad_() for n, p in of(start, replica).items()}
    optimizer, memory = torch.optim.Adam(params.values(), lr=1e-2, foreach=False), Reservoir()
    for task, steps in enumerate(batches):
        tiny.stack.begin_task(task)
        draws = numbers(tiny, replica, name, task)
        for step, (x, y, indices) in enumerate(steps):
            own = torch.full((BATCH,), task)
            loss = classified(tiny, replica, params, x, y, own)
            if memory.come:
                rows = memory.drawn(draws["logits"][step])
                seen, of_task = torch.stack([row[0] for row in rows]), torch.tensor([row[2] for row in rows])
                apart = scores(tiny, replica, params, seen, of_task) - torch.stack([row[3] for row in rows])
                loss = loss + alpha * apart.pow(2).sum() / apart.numel()
            if memory.come and beta:
                rows = memory.drawn(draws["labels"][step])
                seen, of_task = torch.stack([row[0] for row in rows]), torch.tensor([row[2] for row in rows])
                loss = loss + beta * classified(tiny, replica, params, seen, [row[1] for row in rows], of_task)
            logits = scores(tiny, replica, params, x, own).detach()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            samples = zip(x, y.tolist(), [task] * BATCH, logits, indices.tolist(), strict=True)
            for sample, chance in zip(samples, draws["kept"][step].tolist(), strict=True):
                memory.add(sample, chance)
        yield {n: p.detach().clone() for n, p in params.items()}, list(memory.rows)


CASES = [("split", scenario, "") for scenario in SCENARIOS]
CASES += [("permuted", "domain", ""), ("split", "task", "+xdg:share=0.3"), ("split", "hidden", "+xdg:share=0.3")]


@pytest.mark.parametrize(("name", "weights"), [
    ("der", [(0.3, 0), (2.0, 0), (0.0, 0)]),
    ("der-pp", [(0.2, 0.5), (2.0, 0.0), (0.0, 1.0)]),
])  # fmt: skip
@pytest.mark.parametrize(("kind", "scenario", "also"), CASES)
def test_it_is_the_loop_written_by_hand(kind, scenario, also, name, weights):
    written = [f"alpha={a}" + (f",beta={b}" if name == "der-pp" else "") for a, b in weights]
    tiny = TinyStack(kind, scenario, [f"{name}:budget={BUDGET},{each}{also}" for each in written])
    start, after, batches = copied(tiny.params["classifier"]), [], []
    for task in range(2):
        if task:
            tiny.begin(task)
        batches.append([batch for batch, _ in tiny.draws(STEPS)])
        tiny.train(STEPS)
        tiny.finish()
        after.append(copied((tiny.params["classifier"], tiny.memory(name))))
    for replica, (alpha, beta) in enumerate(weights):
        own = [[(b.x[replica], b.y[replica], b.indices[replica]) for b in steps] for steps in batches]
        for (params, memory), (wanted, rows) in zip(
            after, by_hand(tiny, replica, name, start, own, alpha, beta), strict=True
        ):
            assert near(of(params, replica), wanted)
            mine = of(memory, replica)
            assert mine["reservoir"].tolist() == [row[4] for row in rows]
            assert mine["of_task"].tolist() == [row[2] for row in rows]
            assert near(mine["logits"], torch.stack([row[3] for row in rows]))
        assert {row[2] for row in rows} == {0, 1}, "some of each task"


def test_every_sample_is_as_likely_to_stay():
    """Forty networks, twelve steps of twelve samples that come once each, and places for half of them."""
    data = Split(tiny_data(classes=4, base=80, dtype=torch.float64), 2)
    tiny = TinyStack(data, "class", "der:budget=72", range(40))
    order = [batch.indices for batch, _ in tiny.draws(12)]
    tiny.train(12)
    stored = tiny.memory("der")["reservoir"].unsqueeze(-1)
    for indices in order:
        stay = int((stored == indices.unsqueeze(1)).sum())
        assert abs(stay - 240) < 5 * (480 / 4) ** 0.5  # binomial: 480 samples, one half each


def test_before_anything_is_stored_a_step_is_a_plain_one():
    ours, plain = (TinyStack("split", "class", method) for method in ("der-pp:alpha=5,beta=5", "none"))
    for tiny in (ours, plain):
        tiny.train(1)
    assert near(ours.params, plain.params, 0)


def test_the_papers_numbers_are_the_defaults():
    assert (DER().alpha, DERpp().alpha, DERpp().beta) == (0.3, 0.2, 0.5)
