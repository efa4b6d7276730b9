"""Separate Networks against one plain network and one fresh optimiser for each task, in float64."""

import pytest
import torch
from plain_network import competing, cross_entropy, logits
from tiny_cohorts import copied, furthest, of, tiny_data
from tiny_stack import TinyStack, near, setting_of

from threefold.engine import Evaluation, Replicas, Training, find_optimizer, train
from threefold.errors import ThreefoldError
from threefold.methods import Part, parse
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS
from threefold.streams import Split

STEPS = 5
PLAIN = {
    "adam:lr=0.01": lambda params: torch.optim.Adam(params, lr=1e-2, foreach=False),
    "adamw:lr=0.01,weight_decay=0.1": lambda params: torch.optim.AdamW(params, lr=1e-2, weight_decay=0.1),
    "sgd:lr=0.1,momentum=0.9": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
}


def plain_loss(tiny, task, params, x, y):
    return cross_entropy(logits(params, x), [competing(tiny.scenario, task, task + 1, tiny.classes)] * len(y), y)


@pytest.mark.parametrize("optimizer", PLAIN)
@pytest.mark.parametrize(("kind", "scenario"), [("split", "task"), ("permuted", "task"), ("split", "hidden")])
def test_each_task_is_a_network_and_an_optimiser_of_its_own(kind, scenario, optimizer):
    tiny = TinyStack(kind, scenario, "separate:width=7", lr=optimizer)
    begins = copied(tiny.memory("separate")["networks"])
    begins = {name: [tiny.params["separate"][name].clone(), *each.unbind(1)[1:]] for name, each in begins.items()}
    classifier, finished = copied(tiny.params["classifier"]), []
    for task in range(tiny.stream.tasks):
        if task:
            tiny.begin(task)
        assert furthest(tiny.params["separate"], {name: each[task] for name, each in begins.items()}) == 0
        batches = [batch for batch, _ in tiny.draws(STEPS)]
        tiny.train(STEPS)
        tiny.finish()
        finished.append(copied(tiny.params["separate"]))
        for replica in range(3):
            params = {name: each[task][replica].clone().requires_grad_() for name, each in begins.items()}
            steps = PLAIN[optimizer](params.values())
            for batch in batches:
                loss = plain_loss(tiny, task, params, batch.x[replica], batch.y[replica])
                steps.zero_grad()
                loss.backward()
                steps.step()
            assert near(of(finished[-1], replica), {name: p.detach() for name, p in params.items()})
            assert abs(tiny.stack.loss[replica] - loss) < 1e-10
    for task, networks in enumerate(finished):
        of_task = {name: each[:, task] for name, each in tiny.memory("separate")["networks"].items()}
        assert furthest(of_task, networks) == 0
    if "adamw" not in optimizer:
        assert furthest(tiny.params["classifier"], classifier) == 0


def test_each_task_is_tested_with_its_own_network():
    """In the middle of the second task: the first as it ended, the second as it is, the third as it will begin."""
    tiny = TinyStack("split", "task", "separate:width=7").reach(1)
    tiny.train(3)
    networks = [
        {name: each[:, task] for name, each in tiny.memory("separate")["networks"].items()} for task in range(3)
    ]
    assert furthest(networks[1], tiny.params["separate"]) > 1e-3
    networks[1] = tiny.params["separate"]
    x = tiny.stream.data.test_x
    for task in range(3):
        units = competing("task", task, 2, tiny.classes)
        active = torch.zeros(6, dtype=torch.bool).index_fill(0, torch.tensor(units), True)
        with torch.no_grad():
            chosen = tiny.stack.predict(x.expand(3, *x.shape), torch.tensor(task), active)
        for replica in range(3):
            scores = logits(of(networks[task], replica), x.flatten(1))
            assert torch.equal(chosen[replica], scores[:, units].argmax(-1) + units[0])


def test_a_finished_tasks_accuracy_never_changes_and_a_coming_one_is_as_before_training():
    data = Split(tiny_data(dtype=torch.float64), 3)
    optimizer = find_optimizer("adam:lr=0.01")
    asked = Replicas(SCENARIOS["task"], [parse("separate:width=9")] * 2, [1, 2], [optimizer] * 2)
    training = Training(40, 16, MLPNetwork(width=8), evaluation=Evaluation(every=15, samples=None))
    (measured,) = train(data, [asked], training)
    for task in range(3):
        column = measured.matrix[:, :, task]
        assert (column[:, :task] == measured.initial[:, [task]]).all() or task == 0
        assert (column[:, task:] == column[:, [task]]).all()
    assert measured.matrix[:, -1].mean() > 80


@pytest.mark.parametrize("scenario", ["domain", "class"])
def test_it_is_refused_where_the_task_is_not_given(scenario):
    assert "task must be given at test time" in parse("separate").refuse(setting_of(scenario))
    assert "in this stream none does" in parse("separate").refuse(setting_of("task", tasks_end=False))


class Beginner(Part):
    """Names weights that are not its own."""

    name = "beginner"

    def begin(self, setting, task, memory):
        return self.answer

    @property
    def answer(self):
        return {"generator": {}}


class Silent(Beginner):
    @property
    def answer(self):
        return None


@pytest.mark.parametrize(("part", "named"), [
    (Beginner(), "begin of beginner gives weights for 'generator', which is no network of its own"),
    (Silent(), "begin of beginner must return a dictionary of weights by network, got nothing"),
])  # fmt: skip
def test_weights_of_no_network_are_refused(part, named):
    with pytest.raises(ThreefoldError, match=named):
        TinyStack("split", "task", part).begin(1)
