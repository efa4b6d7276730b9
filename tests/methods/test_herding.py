"""Exemplars: what is stored, in which order, for how long, and how it classifies (section A.4, appendix C)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_network import competing, features, target
from tiny_cohorts import copied, of
from tiny_stack import SCENARIOS, SEEDS, STREAMS, TinyStack, setting_of

from threefold.engine import stack as engine_stack
from threefold.methods import AGEM, ER, ICaRL, Method
from threefold.methods.herding import herd

# the algorithm


def distances(found, chosen):
    """‖μ − (ψ(x) + Σ_{j<n} ψ(p_j)) / n‖ for every sample that is not yet chosen, one distance at a time."""
    n, mean = len(chosen) + 1, found.mean(0)
    return {
        place: np.linalg.norm(mean - (found[place] + sum(found[p] for p in chosen)) / n)
        for place in range(len(found))
        if place not in chosen
    }


def argmin_by_the_paper(found, count):
    """p_n, for n = 1, …, m."""
    chosen = []
    for _ in range(count):
        left = distances(found, chosen)
        chosen.append(min(left, key=left.get))
    return chosen


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.lists(st.integers(1, 14), min_size=1, max_size=4), st.integers(1, 6), st.booleans()
)
def test_herding_is_the_papers_argmin(seed, sizes, dimensions, rectified):
    """Classes of different size side by side; what is only padding may hold anything."""
    rng = np.random.default_rng(seed)
    found = rng.normal(0.3, 1, (len(sizes), max(sizes), dimensions))
    if rectified:  # like the features of a network: many zeros, some samples the same
        found = np.maximum(found, 0)
    real = np.arange(max(sizes)) < np.array(sizes)[:, None]
    poisoned = np.where(real[..., None], found, rng.normal(0, 1e3, found.shape))
    picked = herd(torch.tensor(poisoned), torch.tensor(real), sizes)
    assert picked.shape == (len(sizes), max(sizes))
    for row, size, values in zip(picked.tolist(), sizes, found, strict=True):
        assert sorted(row[:size]) == list(range(size))  # every sample once, no padding
        for n, pick in enumerate(row[:size]):
            left = distances(values[:size], row[:n])
            assert left[pick] <= min(left.values()) + 1e-12  # of two samples alone, both are as close to their mean


def test_a_shorter_herd_is_the_beginning_of_a_longer_one():
    found, real = torch.rand(2, 12, 4, generator=torch.Generator().manual_seed(0)), torch.ones(2, 12, dtype=torch.bool)
    longest = herd(found, real, [12, 12])
    for count in range(1, 12):
        assert torch.equal(herd(found, real, [count, count]), longest[:, :count])


def test_a_herd_does_not_depend_on_those_beside_it():
    """Whole classes, padded, with other counts: at the end rounding decides, and it must be the replica's own."""
    source = torch.Generator().manual_seed(3)
    found = torch.relu(torch.randn(5, 90, 24, generator=source))
    found = found / found.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    sizes, counts = [90, 61, 77, 30, 90], [90, 61, 5, 30, 40]
    real = torch.arange(90) < torch.tensor(sizes).unsqueeze(1)
    together = herd(found, real, counts)
    for replica, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        alone = herd(found[replica : replica + 1, :size], real[replica : replica + 1, :size], [count])
        assert torch.equal(together[replica, :count], alone[0])


def test_in_float32_a_long_herd_still_follows_the_mean():
    """Rounding may change a choice, but not that the mean of the chosen stays close to the mean of all."""
    source = torch.Generator().manual_seed(0)
    found = torch.relu(torch.randn(1, 1500, 40, generator=source))
    found = found / found.norm(dim=-1, keepdim=True)
    picked = herd(found.float(), torch.ones(1, 1500, dtype=torch.bool), [500])[0]
    exact = herd(found, torch.ones(1, 1500, dtype=torch.bool), [500])[0]
    assert len(set(picked.tolist())) == 500
    mean = found[0].mean(0)
    for count in (1, 5, 50, 500):
        off, best = ((found[0][p[:count]].mean(0) - mean).norm() for p in (picked, exact))
        assert off <= 1.05 * best + 1e-6


# what is stored


METHODS = [
    "er:budget={}",
    "er:budget={},use=both,unit_length=false",
    "icarl:budget={}",
    "icarl:budget={},unit_length=false",
    "a-gem:budget={},selection=herding",
    "er:budget={},selection=random",
    "a-gem:budget={}",
]


def class_samples(tiny, replica, task, label):
    """The training samples of one class of one task, in the order of the data."""
    wanted = tiny.sequences[replica][task].classes[label]
    return [i for i in range(len(tiny.stream.data.train_y)) if int(tiny.stream.data.train_y[i]) == wanted]


def seen_features(tiny, replica, indices, task, unit_length):
    x = torch.stack([tiny.inputs(replica, i, task) for i in indices])
    found = features(of(tiny.params["classifier"], replica), x, tiny.gates(replica, task)).numpy()
    return found / np.linalg.norm(found, axis=1, keepdims=True) if unit_length else found


@pytest.mark.parametrize("method", METHODS)
def test_every_class_is_chosen_once_and_then_only_shortened(method):
    """By herding or at random. Budgets differ within the stack; classes differ in size between its replicas."""
    budgets = [20, 7, 61]
    tiny = TinyStack("few", "class", [method.format(b) for b in budgets])
    before = [[], [], []]
    for task in range(3):
        if task:
            tiny.begin(task)
        tiny.train()
        tiny.finish()
        for replica, budget in enumerate(budgets):
            share = budget // (2 * (task + 1))  # m = ⌊B / classes so far⌋
            classes = tiny.held(replica)
            assert len(classes) == 2 * (task + 1)
            for place, indices in enumerate(classes[: 2 * task]):
                assert indices == before[replica][place][:share]
            for label in range(2):
                own, stored = class_samples(tiny, replica, task, label), classes[2 * task + label]
                assert len(stored) == len(set(stored)) == min(share, len(own))
                assert set(stored) <= set(own)
                if tiny.stack.template[0].selection == "herding":
                    found = seen_features(tiny, replica, own, task, "unit_length=false" not in method)
                    assert stored == [own[place] for place in argmin_by_the_paper(found, len(stored))]
            assert sum(map(len, classes)) <= budget
            before[replica] = classes


def test_on_permuted_pixels_and_with_gates_features_are_those_of_the_classs_task():
    tiny = TinyStack("permuted", "task", "er:budget=60,use=both+xdg:share=0.4", seeds=[4, 9]).reach(1)
    tiny.train()
    tiny.finish()
    for replica in range(2):
        for label in range(4):
            own = class_samples(tiny, replica, 1, label)
            expected = argmin_by_the_paper(seen_features(tiny, replica, own, 1, True), 60 // 8)
            assert tiny.held(replica)[4 + label] == [own[place] for place in expected]


def test_it_does_not_matter_how_the_data_are_cut_into_pieces(monkeypatch):
    whole = TinyStack("few", "class", "icarl:budget=20")
    cut = TinyStack("few", "class", "icarl:budget=20")
    for tiny in (whole, cut):
        tiny.train()
    whole.finish()
    monkeypatch.setattr(engine_stack, "SAMPLES", 5)
    cut.finish()
    for replica in range(3):
        assert whole.held(replica) == cut.held(replica)


def test_random_selection_depends_on_the_seed_alone():
    """Not on the weights, nor on who trains beside it; and every sample can be chosen, in any place."""

    def stored(seeds, steps):
        tiny = TinyStack("few", "domain", "er:selection=random,budget=6", seeds=seeds)
        tiny.train(steps)
        tiny.finish()
        return [tiny.held(replica) for replica in range(len(seeds))]

    together = stored(range(60), 1)
    assert stored([7], 4)[0] == together[7]
    firsts = {}
    for seed, (first, _) in enumerate(together):
        firsts.setdefault(STREAMS["few"].sequence(seed)[0].classes[0], []).append(first[0])
    for chosen in firsts.values():
        assert len(set(chosen)) > len(chosen) / 3


def test_a_class_smaller_than_its_share_is_stored_whole():
    tiny = TinyStack("few", "class", "icarl:budget=1000").reach(1)
    for replica in range(3):
        for label, stored in enumerate(tiny.held(replica)):
            assert sorted(stored) == class_samples(tiny, replica, 0, label)


@pytest.mark.parametrize("part", [ER, ICaRL, AGEM])
@pytest.mark.parametrize("stream", ["split", "permuted"])
def test_a_budget_too_small_for_one_sample_of_each_class_is_refused(part, stream):
    classes = {"split": 6, "permuted": 12}[stream]
    setting = setting_of("class", stream)
    reason = Method(part(budget=classes - 1)).refuse(setting)
    assert f"budget of {part.name} must be at least {classes}, one sample of each class, got {classes - 1}" in reason
    assert Method(part(budget=classes)).refuse(setting) is None


def test_the_smallest_budget_works():
    tiny = TinyStack("few", "class", "er:budget=6,use=both").reach(2)
    tiny.train()
    tiny.finish()
    assert all([len(stored) for stored in tiny.held(replica)] == [1] * 6 for replica in range(3))
    assert all(p.isfinite().all() for p in tiny.params["classifier"].values())


# nearest class mean


def class_means(tiny, replica, unit_length):
    """The mean feature of every class's exemplars, in the order of tasks and labels."""
    means = []
    for place, indices in enumerate(tiny.held(replica)):
        mean = seen_features(tiny, replica, indices, place // tiny.classes, unit_length).mean(0)
        means.append(mean / np.linalg.norm(mean) if unit_length else mean)
    return means


def nearest(tiny, replica, samples, task, tested_after, unit_length):
    """y* by the paper's rule among the classes whose units compete; a unit's nearest class counts."""
    means = class_means(tiny, replica, unit_length)
    winners = []
    for found in features(of(tiny.params["classifier"], replica), samples, tiny.gates(replica, task)).numpy():
        found = found / np.linalg.norm(found) if unit_length else found
        best = {}
        for place, mean in enumerate(means):
            unit = target(tiny.scenario, *divmod(place, tiny.classes), tiny.classes)
            best[unit] = min(best.get(unit, np.inf), np.linalg.norm(found - mean))
        units = [u for u in competing(tiny.scenario, task, tested_after, tiny.classes) if u in best]
        winners.append(min(units, key=best.get))
    return winners


EXECUTED = [
    ("task", "er:budget=20,use=execution"),
    ("domain", "er:budget=20,use=execution"),
    ("class", "er:budget=20,use=execution"),
    ("domain", "er:budget=20,use=both"),
    ("class", "icarl:budget=20"),
    ("task", "er:budget=20,use=both+xdg:share=0.3"),
]


@torch.no_grad()
def predicted(tiny, task, seen):
    """The test inputs, the units that win for them when `seen` tasks were learned, and those of the output layer."""
    x, number = tiny.stream.data.test_x.flatten(1).expand(3, -1, -1), torch.tensor(task)
    active = tiny.stack.setting.outputs.at_test(task, seen)
    plain = tiny.stack.map(lambda learner, x: learner.logits(x, number), x)
    return x, tiny.stack.predict(x, number, active), torch.where(active, plain, -torch.inf).argmax(-1)


@pytest.mark.parametrize("unit_length", [True, False])
@pytest.mark.parametrize(("scenario", "method"), EXECUTED)
def test_the_nearest_class_mean_wins(scenario, method, unit_length):
    """Budgets and classes of different size side by side: what fills up a row is nobody's exemplar."""
    methods = [method.replace("budget=20", f"budget={b},unit_length={unit_length}") for b in (20, 7, 61)]
    tiny = TinyStack("few", scenario, methods).reach(1)
    tiny.train()
    tiny.finish()
    differs = 0
    for task in range(2):
        x, found, by_output = predicted(tiny, task, 2)
        for replica in range(3):
            assert found[replica].tolist() == nearest(tiny, replica, x[replica], task, 2, unit_length)
            differs += int((found[replica] != by_output[replica]).sum())
    assert differs > 0  # the output layer would have said something else


def test_unit_length_matters():
    tiny = TinyStack("few", "class", "icarl:budget=20,unit_length=false").reach(1)
    tiny.train()
    tiny.finish()
    with torch.no_grad():
        for p in of(tiny.params["classifier"], 0).values():
            p.mul_(1.7)
    x = tiny.stream.data.test_x.flatten(1)
    assert nearest(tiny, 0, x, 1, 2, True) != nearest(tiny, 0, x, 1, 2, False)


@pytest.mark.parametrize("use", ["training", "execution", "both"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_stored_data_classify_only_where_they_are_used_in_execution(scenario, use):
    """And not before the first task."""
    tiny = TinyStack("few", scenario, f"er:budget=20,use={use}")
    _, found, by_output = predicted(tiny, 0, 0)
    assert torch.equal(found, by_output)
    tiny.reach(1)
    assert ("means" in tiny.memory("er")) == (use != "training")
    _, found, by_output = predicted(tiny, 0, 1)
    assert torch.equal(found, by_output) == (use == "training")


def test_means_follow_the_network():
    """After every task the means of all classes are made anew, with the network as it is then."""
    tiny = TinyStack("few", "class", "icarl:budget=20").reach(1)
    old = copied(tiny.memory("icarl")["means"])
    tiny.train(10)
    tiny.finish()
    new = tiny.memory("icarl")["means"]
    assert new.shape[1] == 4
    for replica in range(len(SEEDS)):
        assert np.allclose(new[replica], class_means(tiny, replica, True), rtol=0, atol=1e-12)
    assert (new[:, :2] - old).abs().max() > 1e-3
