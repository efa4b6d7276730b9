"""What hooks of a step may return, against the same thing in a loop over networks, steps and weights, in float64."""

from itertools import combinations, pairwise

import pytest
import torch
from every_method import trained
from plain_network import competing, cross_entropy, features, gradient, logits
from tiny_cohorts import copied, furthest, of
from tiny_stack import SCENARIOS, SEEDS, TinyStack, near

from covering import covering, rest_in_full
from threefold.methods import (
    AGEM,
    ER,
    EWC,
    SI,
    Method,
    OnlineEWC,
    Part,
    PathIntegral,
    Quadratic,
    Replay,
    classification,
    hyper,
)

# the same method as parts, and by hand


class Numbered(Part):
    """A penalty that is a number."""

    name = "number"
    strength: float = hyper("weight", 0.3)

    def penalty(self, learner):
        return self.strength * sum((p**4).sum() for p in learner.params.values())


class Held(Part):
    """A quadratic penalty around the first weights, with another precision for each weight of each network."""

    name = "quadratic"
    strength: float = hyper("weight", 3.0)

    def start(self, setting, seed, params):
        source = torch.Generator().manual_seed(seed)
        precision = {n: torch.rand(p.shape, generator=source) for n, p in params.items()}
        return {"anchor": params, "precision": precision}

    def penalty(self, learner):
        memory = learner.memory[self.name]
        return Quadratic(self.strength, memory["anchor"], memory["precision"])


class Loose(Held):
    """Another one, around zero, with one precision for all."""

    name = "around zero"

    def penalty(self, learner):
        params = learner.params
        zero, one = ({n: p.new_full((), value) for n, p in params.items()} for value in (0.0, 1.0))
        return Quadratic(0.1, zero, one)


class Damped(Part):
    """The gradient is changed, each weight's by its size."""

    name = "adjusted"

    def adjust(self, learner, gradient):
        return {n: g / (1 + learner.params[n] ** 2) for n, g in reversed(gradient.items())}


class Summed(Part):
    """A path integral."""

    name = "path"

    def start(self, setting, seed, params):
        return {"sums": {n: torch.zeros_like(p) for n, p in params.items()}}

    def after_step(self, learner, step):
        return PathIntegral("sums")


class Noting(Part):
    """Entries of the memory, of all that a step knows."""

    name = "entries"

    def start(self, setting, seed, params):
        zeros = {n: torch.zeros_like(p) for n, p in params.items()}
        return {"seen": torch.zeros(400), "moved": zeros, "gradient": zeros, "first": params}

    def after_step(self, learner, step):
        memory, ones = learner.memory[self.name], torch.ones(len(step.batch.y))
        moved = {n: memory["moved"][n] + (p - step.before[n]).abs() for n, p in learner.params.items()}
        seen = memory["seen"].index_add(0, step.batch.indices, ones)
        return {"seen": seen, "moved": moved, "gradient": step.gradient}


PARTS = {part.name: part for part in (Numbered, Held, Loose, Damped, Summed, Noting)}


def penalty_by_hand(names, strength, params, memory):
    total = 0
    for name, p in params.items():
        if "number" in names:
            total = total + 0.3 * (p**4).sum()
        if "quadratic" in names:
            held = memory["quadratic"]
            total = total + 0.5 * strength * (held["precision"][name] * (p - held["anchor"][name]) ** 2).sum()
        if "around zero" in names:
            total = total + 0.5 * 0.1 * (p**2).sum()
    return total


def by_hand(names, strength, start, memory, batches):
    """One network, step by step; changes the memory, and returns the weights."""
    params = {name: p.clone().requires_grad_() for name, p in start.items()}
    optimizer = torch.optim.Adam(params.values(), lr=1e-2, foreach=False)
    for x, y, indices in batches:
        loss = cross_entropy(logits(params, x), [competing("class", 0, 1, 2)] * len(y), y)
        loss = loss + penalty_by_hand(names, strength, params, memory)
        optimizer.zero_grad()
        loss.backward()
        before = {name: p.detach().clone() for name, p in params.items()}
        if "adjusted" in names:
            for p in params.values():
                p.grad = p.grad / (1 + p.detach() ** 2)
        optimizer.step()
        for name, p in params.items():
            change = p.detach() - before[name]
            if "path" in names:
                memory["path"]["sums"][name] -= change * p.grad
            if "entries" in names:
                memory["entries"]["moved"][name] += change.abs()
                memory["entries"]["gradient"][name] = p.grad.clone()
        if "entries" in names:
            for index in indices.tolist():
                memory["entries"]["seen"][index] += 1
    return {name: p.detach() for name, p in params.items()}


TOGETHER = [[name] for name in PARTS] + [list(pair) for pair in combinations(PARTS, 2)] + [list(PARTS)]


@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_what_hooks_return_is_done_as_by_hand(names):
    strengths = [3.0, 0.5, 20.0]

    def method(strength):
        return Method(*(PARTS[name](strength=strength) if name == "quadratic" else PARTS[name]() for name in names))

    tiny = TinyStack("split", "class", [method(strength) for strength in strengths])
    params, memory = copied(tiny.params["classifier"]), copied(tiny.stack.memory)
    batches = [batch for batch, _ in tiny.draws(5)]
    tiny.train(5)
    for replica, strength in enumerate(strengths):
        own = [(batch.x[replica], batch.y[replica], batch.indices[replica]) for batch in batches]
        its = copied(of(memory, replica))
        wanted = by_hand(names, strength, of(params, replica), its, own)
        assert near(of(tiny.params["classifier"], replica), wanted)
        assert near((of(tiny.stack.memory, replica), wanted), (its, wanted))
    assert furthest(tiny.params["classifier"], params) > 1e-3


@pytest.mark.parametrize("names", [["path", "quadratic"], ["entries", "adjusted"]], ids="+".join)
def test_a_memory_that_is_written_stays_in_its_tensors(names):
    """A captured step writes where it wrote before; and what is not returned is not touched."""
    tiny = TinyStack("split", "class", Method(*(PARTS[name]() for name in names)))
    memory = tiny.memory(names[0])
    before = [leaf.data_ptr() for leaf in torch.utils._pytree.tree_leaves(memory)]
    first = copied(memory)
    tiny.train(3)
    assert [leaf.data_ptr() for leaf in torch.utils._pytree.tree_leaves(tiny.memory(names[0]))] == before
    changed = {entry for entry in first if furthest(first[entry], memory[entry]) > 0}
    assert changed == ({"sums"} if "path" in names else {"seen", "moved", "gradient"})


# our own methods, in the other form


class NumberedEWC(EWC):
    def penalty(self, learner):
        found = super().penalty(learner)
        return found and found.value(learner.params)


class NumberedOnlineEWC(OnlineEWC):
    def penalty(self, learner):
        found = super().penalty(learner)
        return found and found.value(learner.params)


class WritingSI(SI):
    """ω added up by hand, and the penalty as a number."""

    def penalty(self, learner):
        found = super().penalty(learner)
        return found and found.value(learner.params)

    def after_step(self, learner, step):
        omega = learner.memory[self.name]["omega"]
        change = {n: p - step.before[n] for n, p in learner.params.items()}
        return {"omega": {n: omega[n] - change[n] * step.gradient[n] for n in change}}


FORMS = {
    "ewc": (EWC(strength=50), NumberedEWC(strength=50)),
    "online-ewc": (OnlineEWC(strength=50, decay=0.8), NumberedOnlineEWC(strength=50, decay=0.8)),
    "si": (SI(strength=2), WritingSI(strength=2)),
}


BESIDE = {"nothing": None, "a-gem": AGEM(budget=30), "si": SI(strength=0.5)}
CASES = [(name, scenario, beside) for name in FORMS for scenario in SCENARIOS for beside in BESIDE]


def end(method, scenario="class", tasks=3, seeds=SEEDS):
    """Weights and memories after so many tasks."""
    tiny = TinyStack("split", scenario, method, seeds).reach(tasks - 1)
    tiny.train()
    return tiny.params, tiny.stack.memory


@pytest.mark.parametrize(("name", "scenario", "beside"), rest_in_full(CASES, covering(CASES, 2)))
def test_a_quadratic_or_a_path_integral_is_what_the_same_number_or_sum_is(name, scenario, beside):
    """Beside A-GEM too, which must see the whole gradient."""
    beside = Held() if beside == name else BESIDE[beside]
    quick, plain = (part if beside is None else part + beside for part in FORMS[name])
    assert near(end(quick, scenario), end(plain, scenario), 1e-8)
    assert furthest(end(quick, scenario)[0], end(beside or "none", scenario)[0]) > 1e-4


def test_a_penalty_may_begin_and_change_its_form_with_a_task():
    class Changing(Held):
        def penalty(self, learner):
            """None in the first task, a number in the second, a quadratic in the third."""
            tasks = len(learner.memory[self.name]) - 2
            found = super().penalty(learner)
            return [None, found.value(learner.params), found][tasks]

        def consolidate(self, stack, memory, task):
            return memory | {f"finished {task}": torch.zeros(len(stack.seeds))}

    class Late(Held):
        def penalty(self, learner):
            return super().penalty(learner) if len(learner.memory[self.name]) > 2 else None

        consolidate = Changing.consolidate

    assert furthest(end(Changing(), tasks=1)[0], end("none", tasks=1)[0]) == 0
    assert near(end(Changing()), end(Late()))


# what else a part may count on


class Two(Part):
    """Keeps the networks of the last two tasks; the older is what was the newer, not a copy of it."""

    name = "two"
    older_first: bool = True

    def consolidate(self, stack, memory, task):
        new = {"newer": stack.params["classifier"]}
        old = {"older": memory["newer"]} if memory else {}
        return old | new if self.older_first else new | old

    def keep(self, stack, memory):
        each = {name: torch.cat([p.flatten(1) for p in kept.values()], 1) for name, kept in memory.items()}
        return {"older": torch.zeros_like(each["newer"])} | each


@pytest.mark.parametrize("older_first", [True, False])
def test_a_memory_may_hand_on_what_it_remembered(older_first):
    """Whatever the engine does to keep addresses the same."""
    kept = trained("split", "class", Two(older_first=older_first), SEEDS).measured.kept
    assert not kept[0]["older"].any()
    for before, after in pairwise(kept):
        assert torch.equal(after["older"], before["newer"])
        assert not torch.equal(after["older"], after["newer"])


def test_a_look_at_the_logits_without_gradient_does_not_stop_learning():
    class Careful(Part):
        name = "careful"

        def loss(self, learner, batch):
            with torch.no_grad():
                sure = torch.softmax(learner.logits(batch.x, batch.task), -1).amax()
            return classification(learner, batch.x, batch.y, batch.task) * (1 + 0 * sure)

    assert near(end(Careful())[0], end("none")[0])
    assert near(end(Careful() + ER(budget=30))[0], end("er:budget=30")[0])  # where replays go through together


@pytest.mark.parametrize("hidden", [8, 16])
def test_what_is_replayed_need_not_be_inputs(hidden):
    """Latent replay: features of the last hidden layer, which only the output layer sees; also if as wide as inputs."""

    class Latent(Part):
        name = "latent"

        def replay(self, learner, batch):
            return Replay(learner.features(batch.x, batch.task), batch.y, batch.task)

        def replay_loss(self, learner, replay):
            weights, bias = learner.params["output.weighted.weight"], learner.params["output.shift.bias"]
            return (replay.x @ weights.T + bias).square().mean()

    tiny = TinyStack("split", "class", Latent(), hidden=hidden).reach(1)
    batch, drawn = next(tiny.draws(1))
    _, grads = tiny.gradients(batch, drawn)
    for replica in range(3):
        x, y, params = batch.x[replica], batch.y[replica], of(tiny.params["classifier"], replica)
        found = features(params, x)

        def total(p, x=x, y=y, latent=found):
            outputs = latent @ p["output.weighted.weight"].T + p["output.shift.bias"]
            return cross_entropy(logits(p, x), [[0, 1, 2, 3]] * len(y), y) / 2 + (outputs**2).mean() / 2

        assert near(of(grads["classifier"], replica), gradient(total, params)[1])
