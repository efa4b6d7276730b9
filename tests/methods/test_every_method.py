"""What must hold for every method in every scenario it supports: kills, learning, and data it may not see."""

from itertools import pairwise

import pytest
import torch
from every_method import CASES, METHODS, ONE_EACH, SPLIT, Kept, Leaving, left, networks_of, trained
from tiny_cohorts import furthest, of, same_bits, same_measured, tiny_data
from tiny_stack import SEEDS, STREAMS, near, supported
from torch.nn.functional import pad
from torch.utils._pytree import tree_leaves

from covering import full, rest_in_full
from threefold.methods import METHODS as REGISTRY
from threefold.methods import parse
from threefold.streams import Split


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, tmp_path_factory):
    """A cohort of three that was trained undisturbed, and the folder with what it left after each task."""
    folder, kept = tmp_path_factory.mktemp("cohort"), Kept(replica=1)
    seen = trained(*request.param, SEEDS, checkpoint=Leaving(folder / "cohort.pt"), keeper=kept)
    seen.kept = kept
    return *request.param, seen, folder


def stored_of(memory, replica):
    """For each class that a memory holds, the indices it holds; empty where nothing is stored."""
    for part in memory.values():
        if "stored" in part:
            own = of({"stored": part["stored"], "count": part["count"]}, replica)
            return [row[:n].tolist() for row, n in zip(own["stored"], own["count"].tolist(), strict=True)]
    return []


def flowing(memory, replica):
    """The reservoir of a memory: for each sample its index and task."""
    for part in memory.values():
        if "reservoir" in part:
            own = of({name: part[name] for name in ("reservoir", "of_task", "come")}, replica)
            held = min(len(own["reservoir"]), int(own["come"]))
            return list(zip(own["reservoir"].tolist()[:held], own["of_task"].tolist()[:held], strict=True))
    return []


def chosen(method):
    """Does it choose at the end of a task what to store?"""
    return "budget" in method and not method.startswith("der")


def test_every_method_of_the_registry_is_here():
    assert {name for method in METHODS for name in parse(method).hyperparameters()} | {"none"} == set(REGISTRY)
    refused = {(m, s) for m in METHODS for s in ("task", "domain", "class") if not supported(m, s)}
    only_task = {(m, s) for m in METHODS if "xdg" in m for s in ("domain", "class")}
    only_task |= {("separate:width=6", s) for s in ("domain", "class")}
    only_class = {(m, s) for m in METHODS if "generative" in m for s in ("task", "domain")}
    assert refused == only_task | only_class | {("icarl:budget=30", "task"), ("icarl:budget=30", "domain")}
    assert len(SPLIT) == len(METHODS) * 3 - len(refused)


@pytest.mark.parametrize("finished", [full(1), 2])
def test_killed_after_a_task_and_resumed_is_undisturbed(case, finished, tmp_path):
    *which, seen, folder = case
    path = tmp_path / "cohort.pt"
    path.write_bytes(left(folder, finished).read_bytes())
    again = trained(*which, SEEDS, checkpoint=path)
    assert len(again.states) == 3 - finished  # finished tasks are not trained again
    assert same_measured(again.measured, seen.measured)
    assert same_bits(again.states[-1], seen.states[-1])


def as_shown(stream, task):
    """A task's test images, and the place of each one's class in the task."""
    images = stream.inputs(stream.data.test_x)[task.test]
    flat = pad(images.flatten(1), (0, 1))  # a pixel that is none is 0
    x = flat[:, :-1] if task.pixels is None else flat[:, task.pixels]
    labels = stream.data.test_y[task.test]
    return x.view_as(images), labels, torch.tensor([task.classes.index(label) for label in labels.tolist()])


def test_a_kept_network_has_the_accuracies_of_the_runs_own_tests(case):
    """On every task, those to come included; the matrix is that of the second of three seeds."""
    kind, scenario, method, seen, _ = case
    stream, row = STREAMS[kind], seen.measured.matrix[1]
    for after, net in enumerate(seen.kept.networks(method), start=1):
        assert not net.training
        assert net.accuracies == row[after - 1].tolist()
        for task, each in enumerate(stream.sequence(SEEDS[1])):
            x, labels, places = as_shown(stream, each)
            if kind == "permuted" and scenario == "class":  # a digit has a unit for each task
                right = net.units(x, task + 1) == 4 * task + places
            else:
                right = net.predict(x, task + 1) == (places if scenario == "domain" else labels)
            assert 100 * int(right.sum()) / len(right) == row[after - 1, task]
            if scenario in ("domain", "class") and task < after:  # nothing but the image is needed
                assert torch.equal(net.units(x), net.units(x, task + 1))


def test_numbers_stay_finite(case):
    *_, seen, _ = case
    assert torch.stack(seen.losses).isfinite().all()
    assert all(leaf.isfinite().all() for leaf in tree_leaves(seen.states))
    assert seen.measured.matrix.isfinite().all()
    assert seen.measured.diverged_at == [None] * 3


def test_every_task_is_learned_a_little(case):
    """Weights move in every task, and no replica moves as another does."""
    *_, seen, _ = case
    states = [networks_of(state) for state in seen.states]
    for before, after in pairwise(states):
        for replica in range(3):
            assert furthest(of(before, replica), of(after, replica)) > 1e-3
    assert furthest(of(states[-1], 0), of(states[-1], 1)) > 1e-3


def test_only_data_that_a_method_may_see_reach_its_steps(case):
    """The current task's; of earlier tasks what the memory held when the task began; Offline: of all tasks so far."""
    kind, _, method, seen, _ = case
    stream = STREAMS[kind]
    labels = stream.data.train_y.tolist()
    earlier_seen = 0
    assert {current for current, _, _ in seen.batches} == {0, 1, 2}
    for replica, seed in enumerate(SEEDS):
        sequence = stream.sequence(seed)
        own = [set(task.train.tolist()) for task in sequence]
        held = [[], *(stored_of(memory, replica) for _, memory in seen.states[1:3])]
        for current, indices, tasks in seen.batches:
            for index, task in zip(indices[replica].tolist(), tasks[replica].tolist(), strict=True):
                assert labels[index] in sequence[task].classes
                if task == current:
                    assert index in own[current]
                    continue
                earlier_seen += 1
                assert task < current
                if method == "offline":
                    assert index in own[task]
                else:
                    place = task * stream.classes_per_task + sequence[task].classes.index(labels[index])
                    assert index in held[current][place]
    unseen = ("gem", "fromp")  # look at what is stored in a way of their own
    replays = method == "offline" or (chosen(method) and "execution" not in method and not method.startswith(unseen))
    assert (earlier_seen > 0) == replays


def test_a_memory_holds_samples_of_tasks_that_are_finished(case):
    """Under the right class, no more than the budget, and never a sample that was not stored before."""
    kind, _, method, seen, _ = case
    stream = STREAMS[kind]
    labels, n = stream.data.train_y.tolist(), stream.classes_per_task
    for replica, seed in enumerate(SEEDS):
        sequence, before = stream.sequence(seed), []
        for task, (_, memory) in enumerate(seen.states[1:]):
            stored = stored_of(memory, replica)
            assert len(stored) == ((task + 1) * n if chosen(method) else 0)
            for place, indices in enumerate(stored):
                assert {labels[index] for index in indices} == {sequence[place // n].classes[place % n]}
                assert len(indices) == len(set(indices)) == (4 if "fromp" in method else 30 // ((task + 1) * n))
                if place < len(before):
                    assert indices == before[place][: len(indices)]
            before = stored
            passed = flowing(memory, replica)
            assert len(passed) == (0 if chosen(method) or "budget" not in method else 30)
            for index, of_task in passed:
                assert of_task <= task
                assert index in sequence[of_task].train.tolist()


@pytest.mark.parametrize(("kind", "scenario", "method"), ONE_EACH)
def test_data_that_a_method_may_not_see_have_no_influence(kind, scenario, method):
    """Before each task, all training samples but its own and those stored are replaced by noise: nothing changes."""

    def others_are_noise(stack):
        sequence, real = stack.data.sequences[0], STREAMS[kind].data.train_x.flatten(1)
        may_see = [stack.task, *(range(stack.task) if method == "offline" else [])]
        kept = [index for task in may_see for index in sequence[task].train.tolist()]
        kept += [index for place in stored_of(stack.memory, 0) for index in place]
        kept += [index for index, _ in flowing(stack.memory, 0)]
        noise = torch.rand(real.shape, generator=torch.Generator().manual_seed(stack.task))
        noise[kept] = real[kept]
        assert method == "offline" or not torch.equal(noise, real)
        stack.data.train_x = noise

    plain = trained(kind, scenario, method, SEEDS[:1])
    alone = trained(kind, scenario, method, SEEDS[:1], prepare=others_are_noise)
    assert same_bits(alone.states, plain.states)
    assert same_measured(alone.measured, plain.measured)


@pytest.mark.parametrize(("kind", "scenario", "method"), rest_in_full(SPLIT, ONE_EACH))
def test_the_loss_falls_within_the_first_task(kind, scenario, method):
    """On a stream of one task, so that nothing else is trained."""
    stream = Split(tiny_data(classes=2, base=60, dtype=torch.float64), 1)
    seen = trained(stream, scenario, method, SEEDS, iters=20, lr=2e-2)
    losses = torch.stack(seen.losses)
    assert (losses[-5:].mean(0) < losses[:5].mean(0) - 0.02).all()
    if "xdg" not in method:  # half of ten units may be too few
        assert seen.measured.matrix.mean() > seen.measured.initial.mean()


@pytest.mark.parametrize(("kind", "scenario", "method"), ONE_EACH)
def test_in_float32_everything_stays_float32(kind, scenario, method):
    """What the engine is used with: no number becomes wider by the way, and none is lost."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        seen = trained(Split(tiny_data(), 3), scenario, method, SEEDS, iters=3)
    finally:
        torch.set_default_dtype(before)
    kinds = {leaf.dtype for leaf in tree_leaves((seen.states, seen.losses))}
    assert kinds <= {torch.float32, torch.int64}
    assert all(leaf.isfinite().all() for leaf in tree_leaves((seen.states, seen.losses)))


@pytest.mark.parametrize(("kind", "scenario", "method"), ONE_EACH)
def test_a_replica_that_diverges_leaves_the_others_alone(kind, scenario, method):
    """The second of three steps out of all numbers; the first and third learn as if it were not there."""
    mixed = [method, method.replace("lr=0.02", "lr=1e250"), method] if "generative" in method else method
    lost = trained(kind, scenario, mixed, SEEDS, lr=[1e-2, 1e250, 1e-2])
    fine = trained(kind, scenario, method, SEEDS)
    assert lost.measured.diverged_at == [None, 0, None]
    for replica in (0, 2):
        assert near(of(lost.states[-1][0], replica), of(fine.states[-1][0], replica), 1e-8)
        assert stored_of(lost.states[-1][1], replica) == stored_of(fine.states[-1][1], replica)
        assert torch.equal(lost.measured.matrix[replica], fine.measured.matrix[replica])


@pytest.mark.parametrize("method", [m for _, scenario, m in SPLIT if scenario == "class"])
def test_one_class_a_task_is_enough_in_class_il(method):
    """The first task has nothing to tell apart: no loss, no gradient, no Fisher information; and no NaN."""
    seen = trained(Split(tiny_data(classes=4, dtype=torch.float64), 4), "class", method, [1, 2], iters=3)
    assert all(leaf.isfinite().all() for leaf in tree_leaves((seen.states, seen.losses)))
    assert seen.measured.matrix.shape == (2, 4, 4)
