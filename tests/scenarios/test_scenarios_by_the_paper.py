"""The scenarios against a table written by hand from the paper's Tables 2 and 3, section A.1 and Table B.1."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from threefold.errors import ThreefoldError
from threefold.scenarios import SCENARIOS, Outputs, find


def head(task, n):
    return set(range(task * n, task * n + n))


# Each row answers, for tasks of n classes, tasks and labels counted from 0:
#   units        how many output units there are for K tasks in all
#   target       the unit that is right for the class with label y of task t
#   current      the units active for data of the newest of k tasks (A.1.1)
#   replayed     the units active for replayed data of task t when k tasks have been seen (A.1.1)
#   soft         the units over which targets of replayed data of task t are defined, with k tasks seen (A.1.1, A.1.2)
#   tested       the units that compete when task t is tested after k tasks (k > t)
MULTI_HEADED = {  # "always only the nodes of the task under consideration are active"
    "units": lambda K, n: K * n,
    "target": lambda t, y, n: t * n + y,
    "current": lambda k, n, K: head(k - 1, n),
    "replayed": lambda t, k, n, K: head(t, n),
    "soft": lambda t, k, n, K: head(t, n),
    "tested": lambda t, k, n, K: head(t, n),
}
SINGLE_HEADED = {  # "always all nodes are active", "each unit corresponding to one class in every task"
    "units": lambda K, n: n,
    "target": lambda t, y, n: y,
    "current": lambda k, n, K: set(range(n)),
    "replayed": lambda t, k, n, K: set(range(n)),
    "soft": lambda t, k, n, K: set(range(n)),
    "tested": lambda t, k, n, K: set(range(n)),
}
A_UNIT_FOR_EVERY_CLASS = {  # "the nodes of all tasks seen so far are active"; targets: "up to the previous task"
    "units": lambda K, n: K * n,
    "target": lambda t, y, n: t * n + y,
    "current": lambda k, n, K: set(range(k * n)),
    "replayed": lambda t, k, n, K: set(range(k * n)),
    "soft": lambda t, k, n, K: set(range((k - 1) * n)),
    "tested": lambda t, k, n, K: set(range(k * n)),
}
TABLE = {
    ("task", None): MULTI_HEADED,
    ("task", "output"): MULTI_HEADED,
    ("task", "both"): MULTI_HEADED,
    ("task", "hidden"): SINGLE_HEADED,  # Table B.1: the task is used in the hidden layers instead
    ("domain", None): SINGLE_HEADED,
    ("class", None): A_UNIT_FOR_EVERY_CLASS,
}


def units(mask):
    assert mask.dtype == torch.bool
    return {unit for unit, on in enumerate(mask.tolist()) if on}


@given(st.sampled_from(sorted(TABLE, key=str)), st.integers(1, 6), st.integers(2, 6))
def test_outputs_answer_as_the_paper_says(which, tasks, classes):
    name, layers = which
    row = TABLE[which]
    outputs = Outputs(find(name).using_task_in(layers), tasks, classes)
    everywhere = (classes, tasks)
    assert outputs.units == row["units"](tasks, classes)
    for task in range(tasks):
        assert outputs.units_of(task) == [row["target"](task, label, classes) for label in range(classes)]
    for seen in range(1, tasks + 1):
        newest = seen - 1
        assert units(outputs.active(newest, seen)) == row["current"](seen, *everywhere)
        for task in range(seen):
            assert units(outputs.active(task, seen)) == row["replayed"](task, seen, *everywhere)
            assert units(outputs.at_test(task, seen)) == row["tested"](task, seen, *everywhere)
        for task in range(newest):  # only what was learned before can be replayed
            assert units(outputs.active(task, seen - 1)) == row["soft"](task, seen, *everywhere)
    for mask in (outputs.active(0, 1), outputs.at_test(tasks - 1, 1)):
        assert len(mask) == outputs.units


@given(st.sampled_from(sorted(TABLE, key=str)), st.integers(1, 6), st.integers(2, 6))
def test_a_target_is_always_active_and_no_two_classes_share_one_where_they_compete(which, tasks, classes):
    outputs = Outputs(find(which[0]).using_task_in(which[1]), tasks, classes)
    for seen in range(1, tasks + 1):
        for task in range(seen):
            targets = outputs.units_of(task)
            assert len(set(targets)) == classes
            assert set(targets) <= units(outputs.active(task, seen)) & units(outputs.at_test(task, seen))


@given(st.sampled_from(sorted(TABLE, key=str)), st.integers(1, 6), st.integers(2, 6))
def test_a_task_to_come_is_tested_as_if_it_were_the_newest(which, tasks, classes):
    outputs = Outputs(find(which[0]).using_task_in(which[1]), tasks, classes)
    for seen in range(tasks):
        for task in range(seen, tasks):
            assert units(outputs.at_test(task, seen)) == TABLE[which]["tested"](task, task + 1, classes, tasks)


@given(st.sampled_from(sorted(TABLE, key=str)), st.integers(1, 6), st.integers(2, 6))
def test_the_table_of_masks_holds_a_row_for_every_task(which, tasks, classes):
    outputs = Outputs(find(which[0]).using_task_in(which[1]), tasks, classes)
    for seen in range(tasks + 1):
        table = outputs.table(seen)
        assert table.shape == (tasks, outputs.units)
        for task in range(max(seen, 1)):
            row = TABLE[which]["replayed"](task, seen, classes, tasks)
            assert units(table[task]) == row


@pytest.mark.parametrize(
    ("name", "title", "known", "own"),
    [("task", "Task-IL", True, True), ("domain", "Domain-IL", False, False), ("class", "Class-IL", False, True)],
)
def test_the_three_scenarios(name, title, known, own):
    scenario = find(name)
    assert (scenario.title, scenario.task_known, scenario.own_units) == (title, known, own)
    assert len(SCENARIOS) == 3


@pytest.mark.parametrize("layers", ["output", "hidden", "both"])
def test_the_task_stays_known_wherever_it_is_used(layers):
    assert find("task").using_task_in(layers).task_known


@pytest.mark.parametrize(
    ("which", "compete"),
    [(("task", None), False), (("task", "hidden"), False), (("domain", None), False), (("class", None), True)],
)
def test_only_in_class_il_the_task_must_be_inferred(which, compete):
    assert Outputs(find(which[0]).using_task_in(which[1]), 3, 2).all_compete is compete


@pytest.mark.parametrize("tasks", [1, 2, 5])
@pytest.mark.parametrize("which", [("task", None), ("task", "hidden"), ("domain", None)])
def test_one_class_a_task_is_refused_where_tasks_do_not_compete(which, tasks):
    with pytest.raises(ThreefoldError, match="2 classes") as info:
        Outputs(find(which[0]).using_task_in(which[1]), tasks, 1)
    assert find(which[0]).title in str(info.value)


def test_one_class_a_task_is_a_question_in_class_il():
    assert Outputs(find("class"), 5, 1).units == 5


@pytest.mark.parametrize("name", ["task", "domain", "class"])
def test_one_class_at_all_is_refused(name):
    with pytest.raises(ThreefoldError, match=r"(1 class a task|1 output unit to choose from).*at least 2 classes"):
        Outputs(find(name), 1, 1)


@pytest.mark.parametrize("name", ["domain", "class"])
@pytest.mark.parametrize("layers", ["output", "hidden", "both"])
def test_a_task_that_is_not_given_cannot_be_used(name, layers):
    with pytest.raises(ThreefoldError, match=f"task-id-in is '{layers}', but in {find(name).title} no task is given"):
        find(name).using_task_in(layers)


@pytest.mark.parametrize("name", ["task", "domain", "class"])
def test_not_saying_where_the_task_is_used_changes_nothing(name):
    assert find(name).using_task_in(None) == find(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("clas", "did you mean 'class'?"),
        ("domian", "did you mean 'domain'?"),
        ("tasks", "did you mean 'task'?"),
        ("xyzzy", "known: class, domain, task."),
        ("", "known: class, domain, task."),
    ],
)
def test_unknown_scenarios_are_refused_with_a_suggestion(name, hint):
    with pytest.raises(ThreefoldError) as info:
        find(name)
    assert str(info.value) == f"scenario '{name}' is not known; {hint}"


@pytest.mark.parametrize("name", ["task", "domain"])
def test_unknown_layers_are_refused_with_a_suggestion(name):
    with pytest.raises(ThreefoldError) as info:
        find(name).using_task_in("hiden")
    assert str(info.value) == "task-id-in 'hiden' is not known; did you mean 'hidden'?"
