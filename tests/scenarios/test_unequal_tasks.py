"""Output units of tasks that differ in size, or have classes in common, against what each scenario says in words."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from threefold.scenarios import SCENARIOS, Outputs

SIZES = st.lists(st.integers(2, 5), min_size=1, max_size=5).map(tuple)
CLASSES = st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=4, unique=True).map(tuple), min_size=1, max_size=4)


def units(mask):
    return {unit for unit, on in enumerate(mask.tolist()) if on}


def numbered(tasks):
    """The same classes, numbered as they first come."""
    order = list(dict.fromkeys(number for task in tasks for number in task))
    return tuple(tuple(order.index(number) for number in task) for task in tasks)


@given(SIZES)
def test_each_class_of_each_task_has_the_next_unit(sizes):
    for name in ("task", "class"):
        outputs = Outputs(SCENARIOS[name], len(sizes), sizes)
        assert [unit for task in range(len(sizes)) for unit in outputs.units_of(task)] == list(range(sum(sizes)))
        assert outputs.units == sum(sizes)


@given(SIZES)
def test_in_domain_il_a_label_is_a_unit_and_all_are_active(sizes):
    outputs = Outputs(SCENARIOS["domain"], len(sizes), sizes)
    assert outputs.units == max(sizes)
    for task, size in enumerate(sizes):
        assert outputs.units_of(task) == list(range(size))
        assert units(outputs.active(task, 1)) == set(range(max(sizes)))


@given(SIZES)
def test_the_tasks_own_units_or_those_of_all_tasks_so_far_are_active(sizes):
    given, inferred = (Outputs(SCENARIOS[name], len(sizes), sizes) for name in ("task", "class"))
    for seen in range(1, len(sizes) + 1):
        for task in range(seen):
            assert units(given.active(task, seen)) == set(given.units_of(task))
            assert units(inferred.active(task, seen)) == set(range(sum(sizes[:seen])))


@given(CLASSES)
def test_a_class_that_comes_again_keeps_its_unit_but_where_tasks_have_heads(tasks):
    tasks = numbered(tasks)
    sizes = tuple(map(len, tasks))
    for name in ("domain", "class"):
        outputs = Outputs(SCENARIOS[name], len(tasks), sizes, tasks)
        assert [outputs.units_of(task) for task in range(len(tasks))] == [list(classes) for classes in tasks]
        assert outputs.units == len({number for classes in tasks for number in classes})
    inferred = Outputs(SCENARIOS["class"], len(tasks), sizes, tasks)
    for seen in range(1, len(tasks) + 1):
        assert units(inferred.active(0, seen)) == {number for classes in tasks[:seen] for number in classes}
    heads = Outputs(SCENARIOS["task"], len(tasks), sizes, tasks)
    assert heads == Outputs(SCENARIOS["task"], len(tasks), sizes, tasks)
    assert heads.units == sum(sizes)


@given(CLASSES, st.data())
def test_the_score_of_a_unit_is_its_best_class_so_far(tasks, data):
    tasks = numbered(tasks)
    sizes = tuple(map(len, tasks))
    for scenario in SCENARIOS.values():
        for recurring in (None, tasks):
            outputs = Outputs(scenario, len(tasks), sizes, recurring)
            seen = data.draw(st.integers(1, len(tasks)))
            scores = torch.randn(3, sum(sizes[:seen]))
            best = torch.full((3, outputs.units), -torch.inf)
            place = 0
            for task in range(seen):
                for unit in outputs.units_of(task):
                    best[:, unit] = torch.maximum(best[:, unit], scores[:, place])
                    place += 1
            assert torch.equal(outputs.by_unit(scores), best)


@given(SIZES)
def test_equal_sizes_are_one_number(sizes):
    size = sizes[0]
    for scenario in SCENARIOS.values():
        one, other = (Outputs(scenario, 4, each) for each in (size, (size,) * 4))
        assert one.units == other.units
        for seen in range(1, 5):
            assert torch.equal(one.table(seen), other.table(seen))
            assert torch.equal(one.at_test(seen - 1, 1), other.at_test(seen - 1, 1))
        device = torch.device("cpu")
        assert torch.equal(one.tasks_of_classes(3, device), other.tasks_of_classes(3, device))
