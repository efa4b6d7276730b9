"""What must hold for every method in every scenario it supports: company, kills, learning, and data it may not see."""

from itertools import pairwise

import pytest
import torch
from every_method import CASES, METHODS, SPLIT, Leaving, left, protocol_of, watched
from method_lab import SEEDS, furthest, near, of, supported, tiny_data
from torch.utils._pytree import tree_leaves

from threefold.engine import Checkpoint
from threefold.methods import METHODS as REGISTRY
from threefold.methods import parse
from threefold.protocols import Split

# Stacks of different height are multiplied in different order; Adam divides by what may be small.
CLOSE = 1e-8


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, tmp_path_factory):
    """A cohort of three that was trained undisturbed, and the folder with what it left after each task."""
    folder = tmp_path_factory.mktemp("cohort")
    kind, scenario, method = request.param
    return *request.param, watched(kind, scenario, [method] * 3, SEEDS, Leaving(folder / "cohort.pt")), folder


def stored_of(memory, replica):
    """For each class that a memory holds, the indices it holds; empty where nothing is stored."""
    for part in memory.values():
        if "stored" in part:
            own = of({"stored": part["stored"], "count": part["count"]}, replica)
            return [row[:n].tolist() for row, n in zip(own["stored"], own["count"].tolist(), strict=True)]
    return []


def test_every_method_of_the_registry_is_here():
    assert {name for method in METHODS for name in parse(method).hyperparameters()} | {"none"} == set(REGISTRY)
    refused = {(m, s) for m in METHODS for s in ("task", "domain", "class") if not supported(m, s)}
    only_task = {(m, s) for m in METHODS if "xdg" in m for s in ("domain", "class")}
    assert refused == only_task | {("icarl:budget=30", "task"), ("icarl:budget=30", "domain")}
    assert len(SPLIT) == len(METHODS) * 3 - len(refused)


def test_a_cohort_of_three_is_three_single_runs(case):
    kind, scenario, method, seen, _ = case
    for replica, seed in enumerate(SEEDS):
        alone = watched(kind, scenario, [method], [seed])
        assert furthest(of(alone.first, 0), of(seen.first, replica)) == 0
        for ours, theirs in zip(seen.batches, alone.batches, strict=True):
            assert ours[0] == theirs[0]
            assert torch.equal(ours[1][replica], theirs[1][0])
            assert torch.equal(ours[2][replica], theirs[2][0])
        for (params, memory), (its_params, its_memory) in zip(seen.after, alone.after, strict=True):
            assert near(of(its_params, 0), of(params, replica), CLOSE)
            assert stored_of(its_memory, 0) == stored_of(memory, replica)
        assert torch.equal(alone.outcome.initial[0], seen.outcome.initial[replica])
        assert torch.equal(alone.outcome.matrix[0], seen.outcome.matrix[replica])
        for kept, its_own in zip(seen.outcome.kept, alone.outcome.kept, strict=True):
            assert kept.keys() == its_own.keys()
            assert all((kept[name][replica].int() - value[0].int()).abs().max() <= 1 for name, value in its_own.items())


@pytest.mark.parametrize("finished", [1, 2])
def test_killed_after_a_task_and_resumed_is_undisturbed(case, finished, tmp_path):
    kind, scenario, method, seen, folder = case
    path = tmp_path / "cohort.pt"
    path.write_bytes(left(folder, finished).read_bytes())
    again = watched(kind, scenario, [method] * 3, SEEDS, Checkpoint(path))
    assert len(again.after) == 3 - finished  # finished tasks are not trained again
    assert torch.equal(again.outcome.initial, seen.outcome.initial)
    assert torch.equal(again.outcome.matrix, seen.outcome.matrix)
    assert furthest(again.after[-1], seen.after[-1]) == 0
    assert len(again.outcome.kept) == 3
    for kept, its_own in zip(seen.outcome.kept, again.outcome.kept, strict=True):
        assert kept.keys() == its_own.keys()
        assert all(torch.equal(kept[name], value) for name, value in its_own.items())


def test_numbers_stay_finite(case):
    *_, seen, _ = case
    assert torch.stack(seen.losses).isfinite().all()
    assert all(leaf.isfinite().all() for leaf in tree_leaves(seen.after))
    assert seen.outcome.matrix.isfinite().all()
    assert seen.outcome.diverged_at == [None] * 3


def test_every_task_is_learned_a_little(case):
    """Weights move in every task, and no replica moves as another does."""
    *_, seen, _ = case
    states = [seen.first, *(params for params, _ in seen.after)]
    for before, after in pairwise(states):
        for replica in range(3):
            assert furthest(of(before, replica), of(after, replica)) > 1e-3
    assert furthest(of(states[-1], 0), of(states[-1], 1)) > 1e-3


def test_only_data_that_a_method_may_see_reach_its_steps(case):
    """The current task's; of earlier tasks what the memory held when the task began; Offline: of all tasks so far."""
    kind, _, method, seen, _ = case
    protocol = protocol_of(kind)
    labels = protocol.data.train_y.tolist()
    earlier_seen = 0
    assert {current for current, _, _ in seen.batches} == {0, 1, 2}
    for replica, seed in enumerate(SEEDS):
        sequence = protocol.sequence(seed)
        own = [set(task.train.tolist()) for task in sequence]
        held = [[], *(stored_of(memory, replica) for _, memory in seen.after[:2])]
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
                    place = task * protocol.classes_per_task + sequence[task].classes.index(labels[index])
                    assert index in held[current][place]
    replays = method == "offline" or ("budget" in method and "execution" not in method)
    assert (earlier_seen > 0) == replays


def test_a_memory_holds_samples_of_tasks_that_are_finished(case):
    """Under the right class, no more than the budget, and never a sample that was not stored before."""
    kind, _, method, seen, _ = case
    protocol = protocol_of(kind)
    labels, n = protocol.data.train_y.tolist(), protocol.classes_per_task
    for replica, seed in enumerate(SEEDS):
        sequence, before = protocol.sequence(seed), []
        for task, (_, memory) in enumerate(seen.after):
            stored = stored_of(memory, replica)
            assert len(stored) == ((task + 1) * n if "budget" in method else 0)
            for place, indices in enumerate(stored):
                assert {labels[index] for index in indices} == {sequence[place // n].classes[place % n]}
                assert len(indices) == len(set(indices)) == 30 // ((task + 1) * n)
                if place < len(before):
                    assert indices == before[place][: len(indices)]
            before = stored


def one_scenario_each():
    chosen = {}
    for kind, scenario, method in SPLIT:
        chosen[method] = (kind, scenario, method)  # the last: Class-IL where it can be used
    return list(chosen.values())


@pytest.mark.parametrize(("kind", "scenario", "method"), one_scenario_each())
def test_data_that_a_method_may_not_see_have_no_influence(kind, scenario, method):
    """Before each task, all training samples but its own and those stored are replaced by noise: nothing changes."""

    def others_are_noise(stack):
        sequence, real = stack.material.sequences[0], protocol_of(kind).data.train_x.flatten(1)
        may_see = [stack.task, *(range(stack.task) if method == "offline" else [])]
        kept = [index for task in may_see for index in sequence[task].train.tolist()]
        kept += [index for place in stored_of(stack.memory, 0) for index in place]
        noise = torch.rand(real.shape, generator=torch.Generator().manual_seed(stack.task))
        noise[kept] = real[kept]
        assert method == "offline" or not torch.equal(noise, real)
        stack.material.train_x = noise

    plain = watched(kind, scenario, [method], SEEDS[:1])
    alone = watched(kind, scenario, [method], SEEDS[:1], prepare=others_are_noise)
    assert furthest(alone.after, plain.after) == 0
    assert torch.equal(alone.outcome.matrix, plain.outcome.matrix)


@pytest.mark.parametrize(("kind", "scenario", "method"), SPLIT)
def test_the_loss_falls_within_the_first_task(kind, scenario, method):
    """On a protocol of one task, so that nothing else is trained."""
    protocol = Split(tiny_data(classes=2, base=60), 1)
    seen = watched(protocol, scenario, [method] * 3, SEEDS, iters=20, lr=2e-2)
    losses = torch.stack(seen.losses)
    assert (losses[-5:].mean(0) < losses[:5].mean(0) - 0.02).all()
    if "xdg" not in method:  # half of ten units may be too few
        assert seen.outcome.matrix.mean() > seen.outcome.initial.mean()


@pytest.mark.parametrize(("kind", "scenario", "method"), one_scenario_each())
def test_in_float32_everything_stays_float32(kind, scenario, method):
    """What the engine is used with: no number becomes wider by the way, and none is lost."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        seen = watched(Split(tiny_data(dtype=torch.float32), 3), scenario, [method] * 3, SEEDS, iters=3)
    finally:
        torch.set_default_dtype(before)
    kinds = {leaf.dtype for leaf in tree_leaves((seen.after, seen.losses))}
    assert kinds <= {torch.float32, torch.int64}
    assert all(leaf.isfinite().all() for leaf in tree_leaves((seen.after, seen.losses)))


@pytest.mark.parametrize(("kind", "scenario", "method"), one_scenario_each())
def test_a_replica_that_diverges_leaves_the_others_alone(kind, scenario, method):
    """The second of three steps out of all numbers; the first and third learn as if it were not there."""
    lost = watched(kind, scenario, [method] * 3, SEEDS, lr=[1e-2, 1e250, 1e-2])
    fine = watched(kind, scenario, [method] * 3, SEEDS)
    assert lost.outcome.diverged_at == [None, 0, None]
    for replica in (0, 2):
        assert near(of(lost.after[-1][0], replica), of(fine.after[-1][0], replica), CLOSE)
        assert stored_of(lost.after[-1][1], replica) == stored_of(fine.after[-1][1], replica)
        assert torch.equal(lost.outcome.matrix[replica], fine.outcome.matrix[replica])


@pytest.mark.parametrize("method", [m for _, scenario, m in SPLIT if scenario == "class"])
def test_one_class_a_task_is_enough_in_class_il(method):
    """The first task has nothing to tell apart: no loss, no gradient, no Fisher information; and no NaN."""
    seen = watched(Split(tiny_data(classes=4), 4), "class", [method] * 2, [1, 2], iters=3)
    assert all(leaf.isfinite().all() for leaf in tree_leaves((seen.after, seen.losses)))
    assert seen.outcome.matrix.shape == (2, 4, 4)


GRIDS = {
    "ewc": ["ewc:strength=0.1", "ewc:strength=10", "ewc:strength=1000"],
    "online-ewc": [f"online-ewc:strength={s},decay={d}" for s, d in ((10, 0.5), (10, 1), (500, 0.8))],
    "si": ["si:strength=0.1", "si:strength=10", "si:strength=10,damping=0.01"],
    "xdg": ["xdg:share=0.1", "xdg:share=0.5", "xdg:share=0.8"],
    "lwf": ["lwf:temperature=1", "lwf:temperature=2", "lwf:temperature=7"],
    "dgr-distill": ["dgr-distill:temperature=1", "dgr-distill:temperature=2", "dgr-distill:temperature=7"],
    "icarl": ["icarl:budget=6", "icarl:budget=40,temperature=2", "icarl:budget=130"],
    "er": ["er:budget=6", "er:budget=40", "er:budget=130"],
    "er, exemplars too": [f"er:use=both,budget={b}" for b in (6, 40, 130)],
    "er, random": [f"er:selection=random,budget={b}" for b in (6, 40, 130)],
    "a-gem": ["a-gem:budget=6", "a-gem:budget=40", "a-gem:budget=130"],
    "ewc+xdg": [f"ewc:strength={s}+xdg:share={x}" for s, x in ((1, 0.2), (100, 0.2), (100, 0.7))],
}


@pytest.mark.parametrize("methods", GRIDS.values(), ids=GRIDS)
def test_a_grid_of_numbers_is_a_cohort_too(methods):
    """One seed with three hyperparameters: as if each were trained alone."""
    scenario = "class" if supported(methods[0], "class") else "task"
    together = watched("split", scenario, methods, [4, 4, 4])
    for replica, method in enumerate(methods):
        alone = watched("split", scenario, [method], [4])
        for (params, memory), (its_params, its_memory) in zip(together.after, alone.after, strict=True):
            assert near(of(its_params, 0), of(params, replica), CLOSE)
            assert stored_of(its_memory, 0) == stored_of(memory, replica)
        assert torch.equal(alone.outcome.matrix[0], together.outcome.matrix[replica])
    final = together.after[-1][0]
    for a in range(3):
        for b in range(a):
            assert furthest(of(final, a), of(final, b)) > 1e-6  # and the numbers matter
