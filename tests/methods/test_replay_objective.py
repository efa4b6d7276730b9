"""What LwF, DGR, DGR+distill and ER minimise at one step, several tasks in, against the sums written out.

Both networks, their gradients and every weight: the classifier's loss on current and replayed data, weighted 1/K and
1 − 1/K (section 4.2), and the generator's, weighted the same.
"""

import pytest
import torch
from method_lab import (
    PROTOCOLS,
    SCENARIOS,
    Lab,
    copied,
    near,
    of,
    stored_in,
    target,
    tiny_data,
)
from replay_lab import (
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

from threefold.methods import DGR, Noise, Replay
from threefold.methods.replay import LATENT, dream
from threefold.protocols import Split

CASES = [(kind, scenario) for kind in ("split", "permuted") for scenario in SCENARIOS]
WHERE = pytest.mark.parametrize(("kind", "scenario"), [*CASES, ("permuted", "hidden")])


def with_gates(method, scenario):
    return f"{method}+xdg:share=0.4" if scenario == "hidden" else method


DISTILLED = [
    (1, 2, "sum", "one"),
    (2, 2, "sum", "one"),
    (2, 3, "mean", "one"),
    (1, 2, "sum", "every"),
    (2, 3, "mean", "every"),
]


def options(temperature, reduction, replayed_for):
    """As text; what is the default is left out."""
    given = {"temperature": (temperature, 2), "reduction": (reduction, "sum"), "replayed_for": (replayed_for, "one")}
    said = ",".join(f"{name}={value}" for name, (value, default) in given.items() if value != default)
    return said and f":{said}"


# the objectives


@pytest.mark.parametrize(("task", "temperature", "reduction", "replayed_for"), DISTILLED)
@WHERE
def test_lwf(kind, scenario, task, temperature, reduction, replayed_for):
    given = options(temperature, reduction, replayed_for)
    lab, teacher, batch, drawn = at_task(with_gates(f"lwf{given}", scenario), scenario, task, kind)

    def total(replica, params):
        x, y = batch.x[replica], batch.y[replica]
        current = classified(lab, replica, params["classifier"], x, y, [task] * BATCH)
        replays = []
        for tasks in replayed_in(lab, replayed_for):
            soft = soft_targets(lab, replica, of(teacher["classifier"], replica), x, tasks, temperature)
            replays.append(distilled(lab, replica, params["classifier"], x, soft, tasks, temperature, reduction))
        replay = sum(replays) / len(replays)
        share = 1 / (task + 1)
        return share * current + (1 - share) * replay

    agrees(lab, batch, drawn, total)


@pytest.mark.parametrize(("task", "replayed_for"), [(1, "one"), (2, "one"), (2, "every")])
@WHERE
def test_dgr(kind, scenario, task, replayed_for):
    given = options(2, "sum", replayed_for)
    lab, copies, batch, drawn = at_task(with_gates(f"dgr{given}", scenario), scenario, task, kind)

    def total(replica, params):
        x, y = batch.x[replica], batch.y[replica]
        dreamt = dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        current = classified(lab, replica, params["classifier"], x, y, [task] * BATCH)
        replays = []
        for tasks in replayed_in(lab, replayed_for):
            hard = hard_targets(lab, replica, of(copies["classifier"], replica), dreamt, tasks)
            replays.append(classified(lab, replica, params["classifier"], dreamt, hard, tasks))
        replay = sum(replays) / len(replays)
        own = generative(params["generator"], x, drawn["dgr noise"][replica])
        again = generative(params["generator"], dreamt, drawn["dgr noise of replay"][replica])
        share = 1 / (task + 1)
        return share * current + (1 - share) * replay + share * own + (1 - share) * again

    agrees(lab, batch, drawn, total)


@pytest.mark.parametrize(("temperature", "reduction", "replayed_for"), [case[1:] for case in DISTILLED[1:]])
@WHERE
def test_dgr_with_distillation(kind, scenario, temperature, reduction, replayed_for):
    given = options(temperature, reduction, replayed_for)
    lab, copies, batch, drawn = at_task(with_gates(f"dgr-distill{given}", scenario), scenario, 2, kind)

    def total(replica, params):
        x, y = batch.x[replica], batch.y[replica]
        dreamt = dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        current = classified(lab, replica, params["classifier"], x, y, [2] * BATCH)
        replays = []
        for tasks in replayed_in(lab, replayed_for):
            soft = soft_targets(lab, replica, of(copies["classifier"], replica), dreamt, tasks, temperature)
            replays.append(distilled(lab, replica, params["classifier"], dreamt, soft, tasks, temperature, reduction))
        replay = sum(replays) / len(replays)
        own = generative(params["generator"], x, drawn["dgr noise"][replica])
        again = generative(params["generator"], dreamt, drawn["dgr noise of replay"][replica])
        return (current + 2 * replay + own + 2 * again) / 3

    agrees(lab, batch, drawn, total)


@pytest.mark.parametrize("use", ["training", "both"])
@WHERE
def test_er(kind, scenario, use):
    lab, _, batch, drawn = at_task(with_gates(f"er:budget=30,use={use}", scenario), scenario, 2, kind)
    stored = stored_in(drawn)
    data = PROTOCOLS[kind].data

    def total(replica, params):
        current = classified(lab, replica, params["classifier"], batch.x[replica], batch.y[replica], [2] * BATCH)
        tasks, y = stored.task[replica].tolist(), stored.y[replica].tolist()
        for x, unit, task in zip(stored.x[replica], y, tasks, strict=True):
            # what is replayed is a training sample of an earlier task, under its own label
            index = next(i for i in range(len(data.train_y)) if torch.equal(lab.inputs(replica, i, task), x))
            assert unit == target(scenario, task, lab.label(replica, index, task), lab.classes)
        replay = classified(lab, replica, params["classifier"], stored.x[replica], y, tasks)
        return current / 3 + replay * 2 / 3

    agrees(lab, batch, drawn, total)


def test_er_used_in_execution_only_trains_like_none():
    lab, _, batch, drawn = at_task("er:budget=30,use=execution", "class", 2)

    def total(replica, params):
        return classified(lab, replica, params["classifier"], batch.x[replica], batch.y[replica], [2] * BATCH)

    agrees(lab, batch, drawn, total)


@pytest.mark.parametrize("method", ["dgr", "dgr-distill"])
def test_in_the_first_task_the_generator_learns_current_data_alone(method):
    lab = Lab("split", "class", method, batch=BATCH)
    lab.train(2)
    batch, drawn = next(lab.draws(1))

    def total(replica, params):
        x = batch.x[replica]
        current = classified(lab, replica, params["classifier"], x, batch.y[replica], [0] * BATCH)
        return current + generative(params["generator"], x, drawn["dgr noise"][replica])

    agrees(lab, batch, drawn, total)


class Dreamer(DGR):
    """A user's: twice as many dreams as there are current samples, and one more."""

    name = "dreamer"

    def draws(self, setting, seed, task, memory, steps):
        return {"dgr dreamt": Noise((2 * setting.batch + 1, LATENT))} if task else {}

    def side_draws(self, setting, seed, task, memory, steps):
        current = {"dgr noise": Noise((setting.batch, LATENT))}
        return current | ({"dgr noise of replay": Noise((2 * setting.batch + 1, LATENT))} if task else {})

    def recall(self, learner, batch, drawn):
        memory = learner.memory[self.name]
        task = self.tasks(learner, 2 * len(batch.y) + 1)
        x = dream(learner.nets["generator"], memory["generator"], drawn["dgr dreamt"])
        return Replay(x, self.targets(learner, memory, x, task), task)


def test_more_dreams_than_samples_weigh_as_much_together():
    lab, copies, batch, drawn = at_task(Dreamer(), "domain", 2)

    def total(replica, params):
        x, y = batch.x[replica], batch.y[replica]
        dreamt = dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        current = classified(lab, replica, params["classifier"], x, y, [2] * BATCH)
        hard = hard_targets(lab, replica, of(copies["classifier"], replica), dreamt, [0] * len(dreamt))
        replay = classified(lab, replica, params["classifier"], dreamt, hard, [0] * len(dreamt))
        own = generative(params["generator"], x, drawn["dgr noise"][replica])
        again = generative(params["generator"], dreamt, drawn["dgr noise of replay"][replica])
        return (current + own) / 3 + (replay + again) * 2 / 3

    agrees(lab, batch, drawn, total)


@pytest.mark.parametrize("penalty", ["ewc:strength=50", "online-ewc:strength=50,decay=0.9", "si:strength=5"])
def test_replay_and_a_penalty_add_up(penalty):
    """Only the data are weighted by 1/K; the penalty keeps its strength."""
    lab, teacher, batch, drawn = at_task(f"lwf+{penalty}", "class", 2)
    part = lab.stack.parts[1]
    memory, replayed = lab.memory(part.name), earlier_tasks(lab)
    weight = {"ewc": 0.5 * 50, "online-ewc": 0.5 * 0.9 * 50, "si": 5}[part.name]
    precision = memory["importance" if part.name == "si" else "precision"]

    def total(replica, params):
        net, x = params["classifier"], batch.x[replica]
        current = classified(lab, replica, net, x, batch.y[replica], [2] * BATCH)
        soft = soft_targets(lab, replica, of(teacher["classifier"], replica), x, replayed, 2)
        replay = distilled(lab, replica, net, x, soft, replayed, 2, "sum")
        pulls = [precision[n][replica] * (p - memory["anchor"][n][replica]) ** 2 for n, p in net.items()]
        return current / 3 + replay * 2 / 3 + weight * sum(pull.sum() for pull in pulls)

    agrees(lab, batch, drawn, total)


def test_two_replays_share_the_weight_of_replay():
    """Current data keep 1/K; what is left is divided equally."""
    lab, teacher, batch, drawn = at_task("lwf+er:budget=30", "class", 2)
    stored, replayed = stored_in(drawn), earlier_tasks(lab)

    def total(replica, params):
        net, x = params["classifier"], batch.x[replica]
        current = classified(lab, replica, net, x, batch.y[replica], [2] * BATCH)
        soft = soft_targets(lab, replica, of(teacher["classifier"], replica), x, replayed, 2)
        dreamt = distilled(lab, replica, net, x, soft, replayed, 2, "sum")
        kept = classified(lab, replica, net, stored.x[replica], stored.y[replica], stored.task[replica].tolist())
        return current / 3 + dreamt / 3 + kept / 3

    agrees(lab, batch, drawn, total)


# targets


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_soft_targets_are_over_the_units_taught_and_zero_elsewhere(scenario):
    lab, teacher, batch, drawn = at_task(with_gates("lwf", scenario), scenario, 2)
    replay = lab.recall(batch, drawn)
    for replica in range(3):
        assert replay.task[replica].tolist() == earlier_tasks(lab)
        assert torch.equal(replay.x[replica], batch.x[replica])
        expected = soft_targets(
            lab, replica, of(teacher["classifier"], replica), batch.x[replica], earlier_tasks(lab), 2
        )
        for row, probabilities in zip(replay.y[replica], expected, strict=True):
            assert float(row.sum()) == pytest.approx(1)
            for unit, value in enumerate(row.tolist()):
                assert value == pytest.approx(probabilities.get(unit, 0), abs=1e-12)
                assert (value > 0) == (unit in probabilities)


@pytest.mark.parametrize("scenario", [*SCENARIOS, "hidden"])
def test_hard_targets_are_the_most_likely_of_the_units_taught(scenario):
    lab, copies, batch, drawn = at_task(with_gates("dgr", scenario), scenario, 2)
    with torch.no_grad():  # however much the copy would like a unit of the current task, it may not say so
        teacher = lab.memory("dgr")["teacher"]
        if scenario in ("task", "class"):
            teacher["output.shift.bias"][:, 4:] += 100
            copies["classifier"]["output.shift.bias"][:, 4:] += 100
    replay = lab.recall(batch, drawn)
    said = set()
    for replica in range(3):
        dreamt = dreams(of(copies["generator"], replica), drawn["dgr dreamt"][replica])
        assert near(replay.x[replica], dreamt)
        expected = hard_targets(lab, replica, of(copies["classifier"], replica), dreamt, earlier_tasks(lab))
        assert replay.y[replica].tolist() == expected
        said |= set(expected)
    assert said <= set(range(2 if scenario in ("domain", "hidden") else 4))
    assert len(said) > 1


@pytest.mark.parametrize("batch", [12, 13])
def test_replays_are_shared_equally_over_the_earlier_tasks(batch):
    for method in ("lwf", "dgr", "dgr-distill", "er:budget=30"):
        lab = Lab("split", "task", method, batch=batch).reach(2)
        for current, drawn in lab.draws(3):
            tasks = lab.recall(current, drawn).task
            assert (tasks < 2).all()
            for row in tasks:
                counts = torch.bincount(row, minlength=2)
                assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("method", ["lwf", "dgr", "er:budget=16"])
def test_no_earlier_task_is_left_out_where_a_batch_is_smaller(method):
    """Three earlier tasks and two samples a step: each task has its turn within a few steps."""
    lab = Lab(Split(tiny_data(classes=8, base=6, more=1), 4), "task", method, batch=2).reach(3)
    replayed = []
    for batch, drawn in lab.draws(6):
        replayed += lab.recall(batch, drawn).task[0].tolist()
        lab.stack.step(batch, drawn)
    assert [replayed.count(task) for task in range(3)] == [4, 4, 4]


def test_what_teaches_does_not_learn():
    """The copies stay what they were at the end of the task before, however long the current one is trained."""
    for method, copies in (("lwf", ["teacher"]), ("dgr", ["teacher", "generator"]), ("icarl:budget=30", ["teacher"])):
        lab = Lab("split", "class", method).reach(1)
        at_the_end = copied(lab.params)
        lab.train(5)
        for name in copies:
            then = at_the_end["generator" if name == "generator" else "classifier"]
            now = lab.memory(method.partition(":")[0])[name]
            needed = then if name == "teacher" else {n for n in then if n.startswith(("decoder", "pixels"))}
            assert set(now) == set(needed)
            assert all(torch.equal(p, then[n]) for n, p in now.items())


def test_the_noise_is_standard_normal_and_drawn_apart():
    lab = Lab("split", "class", "dgr").reach(1)
    every = [drawn for _, drawn in lab.draws(4)]
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
