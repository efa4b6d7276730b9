"""The conventions of the paper's successor (van de Ven, Tuytelaars and Tolias 2022), as options: against plain sums.

All output units active from the start; LwF's distillation added, without T²; a budget for each class; stored samples
from all that is stored; A-GEM's 10⁻⁷. What is at its default is in no key, so runs from before keep theirs.
"""

from collections import Counter
from math import ceil

import pytest
import torch
from plain_losses import BATCH, agrees, at_task, classified, distilled, earlier_tasks, soft_targets
from plain_network import cross_entropy, gradient, logits
from tiny_cohorts import of, scenario_of
from tiny_stack import SCENARIOS, STREAMS, TinyStack, near, stored_in

from threefold.experiments import Settings
from threefold.experiments.cell import Cell
from threefold.experiments.description import method_again, written
from threefold.methods import parse

WHERE = pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden", "all"])
T = 2.0


def plain_methods(method, scenario):
    return f"{method}+xdg:share=0.4" if scenario == "hidden" else method


# all units active


@pytest.mark.parametrize("task", [0, 2])
def test_all_units_compete_from_the_first_task_on(task):
    tiny = TinyStack("split", "all", "none", batch=BATCH).reach(task)
    batch, drawn = next(tiny.draws(1))

    def total(replica, params):
        rows = torch.stack([logits(params["classifier"], x) for x in batch.x[replica]])
        return cross_entropy(rows, [range(6)] * BATCH, batch.y[replica])

    agrees(tiny, batch, drawn, total)


def test_units_of_classes_to_come_are_trained_down():
    """Never a target in the first task, so their biases fall; with the units seen so far they stay."""
    for scenario, moves in (("all", True), ("class", False)):
        tiny = TinyStack("split", scenario, "none")
        before = tiny.params["classifier"]["output.shift.bias"].clone()
        tiny.train()
        change = (tiny.params["classifier"]["output.shift.bias"] - before)[:, 2:]
        assert (change < 0).all() if moves else (change == 0).all()


def test_at_test_time_they_compete_too():
    outputs = TinyStack("split", "all", "none").stack.setting.outputs
    assert all(outputs.at_test(task, seen).all() for task in range(3) for seen in range(4))


# LwF


@pytest.mark.parametrize("replayed_for", ["one", "every"])
@pytest.mark.parametrize("task", [1, 2])
@WHERE
def test_lwf_added_without_t_squared(scenario, task, replayed_for):
    """Cross entropy of current data with weight 1; distillation summed over past heads, or times their number where
    heads are shared; with weight 1 where units compete."""
    method = plain_methods(f"lwf:weighting=added,t_squared=false,replayed_for={replayed_for}", scenario)
    tiny, copies, batch, drawn = at_task(method, scenario, task)
    known = scenario in ("task", "hidden")

    def total(replica, params):
        net, teacher, x = params["classifier"], of(copies["classifier"], replica), batch.x[replica]
        current = classified(tiny, replica, net, x, batch.y[replica], [task] * BATCH)
        past = []
        rows = [[t] * BATCH for t in range(task)] if known and replayed_for == "every" else [earlier_tasks(tiny)]
        for tasks in rows:
            soft = soft_targets(tiny, replica, teacher, x, tasks, T)
            past.append(distilled(tiny, replica, net, x, soft, tasks, T, "sum") / T**2)
        if len(rows) == task:  # a sum over heads
            return current + sum(past)
        return current + past[0] * (1 if scenario in ("class", "all") else task)

    agrees(tiny, batch, drawn, total)


def test_what_is_added_leaves_what_is_shared_alone():
    """LwF beside ER: ER's replay has 1 − 1/K, LwF's distillation is added."""
    tiny, copies, batch, drawn = at_task("er:budget=30+lwf:weighting=added", "class", 2)
    stored = stored_in(drawn)

    def total(replica, params):
        net, x, tasks = params["classifier"], batch.x[replica], earlier_tasks(tiny)
        current = classified(tiny, replica, net, x, batch.y[replica], [2] * BATCH)
        again = classified(tiny, replica, net, stored.x[replica], stored.y[replica], stored.task[replica].tolist())
        soft = soft_targets(tiny, replica, of(copies["classifier"], replica), x, tasks, T)
        return current / 3 + again * 2 / 3 + distilled(tiny, replica, net, x, soft, tasks, T, "sum")

    agrees(tiny, batch, drawn, total)


# stored data


@pytest.mark.parametrize("method", ["er", "a-gem", "icarl"])
def test_a_budget_of_each_class_does_not_shrink(method):
    tiny = TinyStack("split", "class", f"{method}:budget=7,per_class=true").reach(1)
    first = [tiny.held(replica)[:2] for replica in range(3)]
    tiny.reach(2)
    tiny.train()
    tiny.finish()
    for replica in range(3):
        held = tiny.held(replica)
        assert [len(place) for place in held] == [7] * 6
        assert held[:2] == first[replica]


def test_more_than_a_class_has_is_all_of_it():
    tiny = TinyStack("split", "class", "er:budget=1000,per_class=true,selection=random").reach(1)
    labels = STREAMS["split"].data.train_y.tolist()
    for replica in range(3):
        for place, indices in enumerate(tiny.held(replica)):
            label = tiny.sequences[replica][0].classes[place]
            assert sorted(indices) == [index for index, each in enumerate(labels) if each == label]


@pytest.mark.parametrize("method", ["er:budget=9", "a-gem:budget=61", "er:budget=3,per_class=true,use=both"])
@WHERE
def test_batches_come_from_all_that_is_stored(scenario, method):
    """Each stored sample as often as any other; where the task is given as often from each, rounded up."""
    tiny = TinyStack("split", scenario, plain_methods(f"{method},sampling=whole", scenario), batch=BATCH)
    assert not tiny.sampler(3).samples
    for task in (1, 2):
        tiny.reach(task)
        (samples,) = tiny.sampler(400).samples.values()
        for replica in range(3):
            held = tiny.held(replica)
            number_of = {index: place // 2 for place, indices in enumerate(held) for index in indices}
            indices, tasks = samples.indices[replica], samples.task[replica]
            size = task * ceil(BATCH / task) if scenario in ("task", "hidden") else BATCH
            assert indices.shape == tasks.shape == (400, size)
            counts = Counter(indices.flatten().tolist())
            assert set(counts) == set(number_of)
            for index, each in zip(indices.flatten().tolist(), tasks.flatten().tolist(), strict=True):
                assert number_of[index] == each
            if scenario in ("task", "hidden"):
                for earlier in range(task):
                    assert ((tasks == earlier).sum(1) == ceil(BATCH / task)).all()
            for earlier in range(task):
                own = [index for index, each in number_of.items() if each == earlier]
                share = ceil(BATCH / task) / len(own) if scenario in ("task", "hidden") else BATCH / len(number_of)
                for index in own:  # binomial
                    assert abs(counts[index] - 400 * share) < 5.5 * (400 * share) ** 0.5


@pytest.mark.parametrize("scenario", ["task", "all"])
def test_er_weighs_the_mean_of_what_is_drawn(scenario):
    tiny, _, batch, drawn = at_task("er:budget=5,per_class=true,sampling=whole", scenario, 2)
    stored = stored_in(drawn)

    def total(replica, params):
        net = params["classifier"]
        current = classified(tiny, replica, net, batch.x[replica], batch.y[replica], [2] * BATCH)
        tasks, x, y = stored.task[replica].tolist(), stored.x[replica], stored.y[replica]
        if scenario == "all":
            return current / 3 + classified(tiny, replica, net, x, y, tasks) * 2 / 3
        means = []
        for task in (0, 1):  # a batch of each earlier task, averaged
            rows = [row for row, each in enumerate(tasks) if each == task]
            assert len(rows) == 7
            means.append(classified(tiny, replica, net, x[rows], y[rows], [task] * 7))
        return current / 3 + sum(means) / 2 * 2 / 3

    agrees(tiny, batch, drawn, total)


def test_a_gem_adds_a_little_to_what_it_divides_by():
    """So much that it shows: steps are those of plain training but for g − (g·r)/(‖r‖² + 2) r where g·r < 0."""
    tiny = TinyStack("split", "all", "a-gem:budget=30,damping=2", lr=5e-2).reach(2)
    against = 0
    for batch, drawn in list(tiny.draws(5)):
        _, grads = tiny.gradients(batch, drawn)
        stored = stored_in(drawn)
        for replica in range(3):
            found = []
            for each in (batch, stored):
                rows = range(len(each.y[replica]))

                def loss(params, each=each, rows=rows, replica=replica):
                    scores = torch.stack([logits(params, x) for x in each.x[replica]])
                    return cross_entropy(scores, [range(6) for _ in rows], each.y[replica])

                found.append(gradient(loss, of(tiny.params["classifier"], replica))[1])
            g, r = found
            along = sum(float((g[name] * r[name]).sum()) for name in g)
            length = sum(float((r[name] ** 2).sum()) for name in g)
            against += along < 0
            expected = {name: g[name] - min(along, 0) / (length + 2) * r[name] for name in g}
            assert near(of(grads["classifier"], replica), expected)
        with torch.no_grad():
            tiny.step.take(batch, drawn)
    assert against


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("er:selection=reservoir,per_class=true", "per_class of er is true, but a reservoir is one for all classes"),
        ("er:selection=reservoir,sampling=whole", "sampling of er is whole, as a reservoir's always is"),
    ],
)
def test_what_means_nothing_is_refused(method, sentence):
    assert parse(method).refuse(TinyStack("split", "class", "none").stack.setting).startswith(sentence)


# keys


def cell(scenario, method, **settings):
    settings = Settings.checked(iters=3, hidden=8, batch=12, device="cpu", **settings)
    return Cell.of(STREAMS["split"], scenario_of(scenario), parse(method), settings)


def test_at_their_defaults_the_options_are_in_no_key():
    for method, fields in (
        ("lwf", {"replayed_for", "temperature", "reduction"}),
        ("dgr-distill", {"replayed_for", "temperature", "reduction"}),
        ("er", {"budget", "selection", "unit_length", "use"}),
        ("a-gem", {"budget", "selection", "unit_length"}),
        ("icarl:budget=30", {"budget", "selection", "unit_length", "temperature"}),
    ):
        spec = cell("class", method).spec()
        name = method.partition(":")[0]
        assert set(spec["method"]["hyperparameters"][name]) == fields
        assert spec["scenario"] == {"name": "class", "task_id_in": None}
    written_out = "lwf:weighting=shared,t_squared=true"
    assert cell("class", written_out).spec() == cell("class", "lwf").spec()
    assert cell("class", "er", active="seen").spec() == cell("class", "er").spec()


def test_elsewhere_they_are_and_come_back():
    plain, other = cell("class", "lwf"), cell("class", "lwf:weighting=added,t_squared=false", active="all")
    found, usual = other.spec(), plain.spec()
    assert found["method"]["hyperparameters"]["lwf"] == usual["method"]["hyperparameters"]["lwf"] | {
        "weighting": "added",
        "t_squared": False,
    }
    assert found["scenario"] == usual["scenario"] | {"active": "all"}
    for each in (plain, other):
        again = Cell.of_description(each.described())
        assert (again.scenario, again.method.parts) == (each.scenario, each.method.parts)
        assert type(again.method.parts[0]) is type(each.method.parts[0])
    assert other.name.endswith("active all")


def test_a_part_whose_field_is_gone_is_stood_in_for():
    (part,) = method_again("er", {"er": {"budget": 5, "colour": "red"}}).parts
    assert type(part).__name__ == "Absent"
    assert written(parse("er:per_class=true")) == "er:per_class=True"


@pytest.mark.parametrize("scenario", ["task", "domain"])
def test_where_no_other_task_competes_it_makes_no_difference(scenario):
    assert cell(scenario, "er", active="all").spec() == cell(scenario, "er").spec()


def test_icarl_keeps_to_the_classes_seen_so_far():
    assert cell("class", "icarl:budget=30", active="all").spec() == cell("class", "icarl:budget=30").spec()
    assert "active" not in cell("class", "icarl:budget=30+ewc:strength=1", active="all").spec()["scenario"]
