"""What LwF, DGR, DGR+distill and ER minimise at one step, several tasks in, against the sums written out.

Both networks, their gradients and every weight: the classifier's loss on current and replayed data, weighted 1/K and
1 − 1/K (section 4.2), and the generator's, weighted the same.
"""

import pytest
import torch
from plain_losses import (
    BATCH,
    agrees,
    at_task,
    classified,
    distilled,
    dreams,
    earlier_tasks,
    generative,
    hard_targets,
    replayed_in,
    soft_targets,
)
from plain_network import target
from tiny_cohorts import copied, of, tiny_data
from tiny_stack import SCENARIOS, STREAMS, TinyStack, near, stored_in

from covering import covering, rest_in_full
from threefold.methods import DGR, Noise, Replay
from threefold.methods.replay import LATENT, dream
from threefold.streams import Split

CASES = [(kind, scenario) for kind in ("split", "permuted") for scenario in SCENARIOS]
CASES += [("permuted", "hidden")]


def with_gates(method, scenario):
    return f"{method}+xdg:share=0.4" if scenario == "hidden" else method


# task, temperature, reduction, replayed for
DISTILLED = [
    (1, 2, "sum", "one"),
    (2, 2, "sum", "one"),
    (2, 3, "mean", "one"),
    (1, 2, "sum", "every"),
    (2, 3, "mean", "every"),
]
CLASSIFIED = [(1, 2, "sum", "one"), (2, 2, "sum", "one"), (2, 2, "sum", "every")]
WAYS = {"lwf": DISTILLED, "dgr": CLASSIFIED, "dgr-distill": DISTILLED[1:]}
REPLAYED = [(*where, method, way) for where in CASES for method, ways in WAYS.items() for way in ways]


def options(temperature, reduction, replayed_for):
    """As text; what is the default is left out."""
    given = {"temperature": (temperature, 2), "reduction": (reduction, "sum"), "replayed_for": (replayed_for, "one")}
    said = ",".join(f"{name}={value}" for name, (value, default) in given.items() if value != default)
    return said and f":{said}"


# the objectives


@pytest.mark.parametrize(("kind", "scenario", "method", "way"), rest_in_full(REPLAYED, covering(REPLAYED, 3)))
def test_what_is_replayed_from_memory_or_dreamt(kind, scenario, method, way):
    """LwF replays current inputs, DGR dreams; DGR with hard targets, the others with soft ones."""
    task, temperature, reduction, replayed_for = way
    given = options(temperature, reduction, replayed_for)
    tiny, copies, batch, drawn = at_task(with_gates(f"{method}{given}", scenario), scenario, task, kind)

    def total(replica, params):
        net, teacher, x = params["classifier"], of(copies["classifier"], replica), batch.x[replica]
        current = classified(tiny, replica, net, x, batch.y[replica], [task] * BATCH)
        again = x if method == "lwf" else dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        replays = []
        for tasks in replayed_in(tiny, replayed_for):
            if method == "dgr":
                hard = hard_targets(tiny, replica, teacher, again, tasks)
                replays.append(classified(tiny, replica, net, again, hard, tasks))
            else:
                soft = soft_targets(tiny, replica, teacher, again, tasks, temperature)
                replays.append(distilled(tiny, replica, net, again, soft, tasks, temperature, reduction))
        past = sum(replays) / len(replays)
        if method != "lwf":  # the generator learns beside the classifier
            current = current + generative(params["generator"], x, drawn["dgr noise"][replica])
            past = past + generative(params["generator"], again, drawn["dgr noise of replay"][replica])
        share = 1 / (task + 1)
        return share * current + (1 - share) * past

    agrees(tiny, batch, drawn, total)


@pytest.mark.parametrize("use", ["training", "both"])
@pytest.mark.parametrize(("kind", "scenario"), CASES)
def test_er(kind, scenario, use):
    tiny, _, batch, drawn = at_task(with_gates(f"er:budget=30,use={use}", scenario), scenario, 2, kind)
    stored = stored_in(drawn)
    data = STREAMS[kind].data

    def total(replica, params):
        current = classified(tiny, replica, params["classifier"], batch.x[replica], batch.y[replica], [2] * BATCH)
        tasks, y = stored.task[replica].tolist(), stored.y[replica].tolist()
        for x, unit, task in zip(stored.x[replica], y, tasks, strict=True):
            # what is replayed is a training sample of an earlier task, under its own label
            index = next(i for i in range(len(data.train_y)) if torch.equal(tiny.inputs(replica, i, task), x.flatten()))
            assert unit == target(scenario, task, tiny.label(replica, index, task), tiny.classes)
        replay = classified(tiny, replica, params["classifier"], stored.x[replica], y, tasks)
        return current / 3 + replay * 2 / 3

    agrees(tiny, batch, drawn, total)


def test_er_used_in_execution_only_trains_like_none():
    tiny, _, batch, drawn = at_task("er:budget=30,use=execution", "class", 2)

    def total(replica, params):
        return classified(tiny, replica, params["classifier"], batch.x[replica], batch.y[replica], [2] * BATCH)

    agrees(tiny, batch, drawn, total)


@pytest.mark.parametrize("method", ["dgr", "dgr-distill"])
def test_in_the_first_task_the_generator_learns_current_data_alone(method):
    tiny = TinyStack("split", "class", method, batch=BATCH)
    tiny.train(2)
    batch, drawn = next(tiny.draws(1))

    def total(replica, params):
        x = batch.x[replica]
        current = classified(tiny, replica, params["classifier"], x, batch.y[replica], [0] * BATCH)
        return current + generative(params["generator"], x, drawn["dgr noise"][replica])

    agrees(tiny, batch, drawn, total)


class Dreamer(DGR):
    """A user's: twice as many dreams as there are current samples, and one more."""

    name = "dreamer"

    def draws(self, setting, task, memory, steps, source):
        more = Noise((2 * setting.batch + 1, LATENT))
        return super().draws(setting, task, memory, steps, source) | (
            {"dgr noise of replay": more, "dgr dreamt": more} if task else {}
        )

    def replay(self, learner, batch):
        if not self.taught(learner):
            return None
        task, memory = self.tasks(learner, 2 * len(batch.y) + 1), learner.memory[self.name]
        x = dream(learner.networks["generator"], memory["generator"], learner.drawn["dgr dreamt"])
        x = x.view(-1, *learner.setting.shape)
        return Replay(x, self.targets(learner, x, task), task)


def test_more_dreams_than_samples_weigh_as_much_together():
    tiny, copies, batch, drawn = at_task(Dreamer(), "domain", 2)

    def total(replica, params):
        x, y = batch.x[replica], batch.y[replica]
        dreamt = dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        current = classified(tiny, replica, params["classifier"], x, y, [2] * BATCH)
        hard = hard_targets(tiny, replica, of(copies["classifier"], replica), dreamt, [0] * len(dreamt))
        replay = classified(tiny, replica, params["classifier"], dreamt, hard, [0] * len(dreamt))
        own = generative(params["generator"], x, drawn["dgr noise"][replica])
        again = generative(params["generator"], dreamt, drawn["dgr noise of replay"][replica])
        return (current + own) / 3 + (replay + again) * 2 / 3

    agrees(tiny, batch, drawn, total)


@pytest.mark.parametrize("penalty", ["ewc:strength=50", "online-ewc:strength=50,decay=0.9", "si:strength=5"])
def test_replay_and_a_penalty_add_up(penalty):
    """Only the data are weighted by 1/K; the penalty keeps its strength."""
    tiny, teacher, batch, drawn = at_task(f"lwf+{penalty}", "class", 2)
    part = tiny.stack.parts[1]
    memory, replayed = tiny.memory(part.name), earlier_tasks(tiny)
    weight = {"ewc": 0.5 * 50, "online-ewc": 0.5 * 0.9 * 50, "si": 5}[part.name]
    precision = memory["importance" if part.name == "si" else "precision"]

    def total(replica, params):
        net, x = params["classifier"], batch.x[replica]
        current = classified(tiny, replica, net, x, batch.y[replica], [2] * BATCH)
        soft = soft_targets(tiny, replica, of(teacher["classifier"], replica), x, replayed, 2)
        replay = distilled(tiny, replica, net, x, soft, replayed, 2, "sum")
        pulls = [precision[n][replica] * (p - memory["anchor"][n][replica]) ** 2 for n, p in net.items()]
        return current / 3 + replay * 2 / 3 + weight * sum(pull.sum() for pull in pulls)

    agrees(tiny, batch, drawn, total)


def test_two_replays_share_the_weight_of_replay():
    """Current data keep 1/K; what is left is divided equally."""
    tiny, teacher, batch, drawn = at_task("lwf+er:budget=30", "class", 2)
    stored, replayed = stored_in(drawn), earlier_tasks(tiny)

    def total(replica, params):
        net, x = params["classifier"], batch.x[replica]
        current = classified(tiny, replica, net, x, batch.y[replica], [2] * BATCH)
        soft = soft_targets(tiny, replica, of(teacher["classifier"], replica), x, replayed, 2)
        dreamt = distilled(tiny, replica, net, x, soft, replayed, 2, "sum")
        kept = classified(tiny, replica, net, stored.x[replica], stored.y[replica], stored.task[replica].tolist())
        return current / 3 + dreamt / 3 + kept / 3

    agrees(tiny, batch, drawn, total)


# targets


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_soft_targets_are_over_the_units_taught_and_zero_elsewhere(scenario):
    tiny, teacher, batch, drawn = at_task(with_gates("lwf", scenario), scenario, 2)
    replay = tiny.replay(batch, drawn)
    for replica in range(3):
        assert replay.task[replica].tolist() == earlier_tasks(tiny)
        assert torch.equal(replay.x[replica], batch.x[replica])
        expected = soft_targets(
            tiny, replica, of(teacher["classifier"], replica), batch.x[replica], earlier_tasks(tiny), 2
        )
        for row, probabilities in zip(replay.y[replica], expected, strict=True):
            assert float(row.sum()) == pytest.approx(1)
            for unit, value in enumerate(row.tolist()):
                assert value == pytest.approx(probabilities.get(unit, 0), abs=1e-12)
                assert (value > 0) == (unit in probabilities)


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_hard_targets_are_the_most_likely_of_the_units_taught(scenario):
    tiny, copies, batch, drawn = at_task(with_gates("dgr", scenario), scenario, 2)
    with torch.no_grad():  # however much the copy would like a unit of the current task, it may not say so
        teacher = tiny.memory("dgr")["teacher"]
        if scenario in ("task", "class"):
            teacher["output.shift.bias"][:, 4:] += 100
            copies["classifier"]["output.shift.bias"][:, 4:] += 100
    replay = tiny.replay(batch, drawn)
    said = set()
    for replica in range(3):
        dreamt = dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        assert near(replay.x[replica].flatten(1), dreamt)
        expected = hard_targets(tiny, replica, of(copies["classifier"], replica), dreamt, earlier_tasks(tiny))
        assert replay.y[replica].tolist() == expected
        said |= set(expected)
    assert said <= set(range(2 if scenario in ("domain", "hidden") else 4))
    assert len(said) > 1


@pytest.mark.parametrize("batch", [12, 13])
def test_replays_are_shared_equally_over_the_earlier_tasks(batch):
    for method in ("lwf", "dgr", "dgr-distill", "er:budget=30"):
        tiny = TinyStack("split", "task", method, batch=batch).reach(2)
        for current, drawn in tiny.draws(3):
            tasks = tiny.replay(current, drawn).task
            assert (tasks < 2).all()
            for row in tasks:
                counts = torch.bincount(row, minlength=2)
                assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("method", ["lwf", "dgr", "er:budget=16"])
def test_no_earlier_task_is_left_out_where_a_batch_is_smaller(method):
    """Three earlier tasks and two samples a step: each task has its turn within a few steps."""
    tiny = TinyStack(
        Split(tiny_data(classes=8, base=6, more=1, dtype=torch.float64), 4), "task", method, batch=2
    ).reach(3)
    replayed = []
    for batch, drawn in tiny.draws(6):
        replayed += tiny.replay(batch, drawn).task[0].tolist()
        tiny.step.take(batch, drawn)
    assert [replayed.count(task) for task in range(3)] == [4, 4, 4]


def test_what_teaches_does_not_learn():
    """The copies stay what they were at the end of the task before, however long the current one is trained."""
    for method, copies in (("lwf", ["teacher"]), ("dgr", ["teacher", "generator"]), ("icarl:budget=30", ["teacher"])):
        tiny = TinyStack("split", "class", method).reach(1)
        at_the_end = copied(tiny.params)
        tiny.train(5)
        for name in copies:
            then = at_the_end["generator" if name == "generator" else "classifier"]
            now = tiny.memory(method.partition(":")[0])[name]
            needed = then if name == "teacher" else {n for n in then if n.startswith(("decoder", "pixels"))}
            assert set(now) == set(needed)
            assert all(torch.equal(p, then[n]) for n, p in now.items())


def test_the_noise_is_standard_normal_and_drawn_apart():
    tiny = TinyStack("split", "class", "dgr").reach(1)
    every = [drawn for _, drawn in tiny.draws(4)]
    names = list(every[0])
    assert len(names) == 3
    noise = {name: torch.stack([drawn[name] for drawn in every]) for name in names}
    for name, values in noise.items():
        assert values.shape == (4, 3, 12, 100)
        assert abs(float(values.mean())) < 5 / values.numel() ** 0.5
        assert abs(float(values.std()) - 1) < 5 / (2 * values.numel()) ** 0.5
        flat = values.flatten(2).flatten(0, 1)
        assert len({tuple(row[:5].tolist()) for row in flat}) == 12  # each step and replica
        assert not any(torch.equal(values, other) for n, other in noise.items() if n != name)
