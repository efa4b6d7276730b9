"""Crews in company: how tests make them, train them together and alone, and compare."""

from dataclasses import dataclass
from importlib import import_module

import pytest
import torch
from tiny_cohorts import PROTOCOLS
from torch.func import functional_call
from torch.utils._pytree import tree_map

from threefold.engine import Crew, Outcome, Training, train_together
from threefold.methods import ER, Method, Noise, Part, hyper, parse
from threefold.nets.layers import Layer
from threefold.scenarios import find

engine = import_module("threefold.engine.train")

SEEDS, LR = [3, 1], [1e-2, 5e-3]
TRAINING = Training(iters=3, batch=12, hidden=8)
SCENARIOS = ["task", "domain", "class"]


def crew(scenario, *methods, seeds=SEEDS, lr=LR):
    """Replicas with one method, or with one each; "hidden" is Task-IL with the task in the hidden layers alone."""
    chosen = [parse(m) if isinstance(m, str) else m if isinstance(m, Method) else Method(m) for m in methods]
    wanted = find("task").using_task_in("hidden") if scenario == "hidden" else find(scenario)
    return Crew(
        wanted, chosen if len(chosen) == len(seeds) else chosen * len(seeds), list(seeds), list(lr)[: len(seeds)]
    )


def grid(scenario, make, numbers, seeds=(1, 2), lr=1e-2):
    """Every number with every seed."""
    pairs = [(number, seed) for number in numbers for seed in seeds]
    methods = [Method(*make(number)) for number, _ in pairs]
    return Crew(find(scenario), methods, [seed for _, seed in pairs], [lr] * len(pairs))


def generative(scenarios=SCENARIOS):
    return [crew(scenario, method) for method in ("dgr", "dgr-distill") for scenario in scenarios]


@dataclass
class Seen:
    """A crew's outcome, and all weights at the end: few samples are decided otherwise by slightly wrong ones."""

    outcome: Outcome
    weights: dict[str, dict[str, torch.Tensor]]


KNOWN: dict[object, Seen] = {}


def alone(crews, protocol="split"):
    """Each crew as an experiment of its own; one that several tests compare with is trained once."""
    found = []
    for c in crews:
        key = protocol, c.scenario, tuple(c.networks())
        if key not in KNOWN:
            (KNOWN[key],) = together([c], protocol)
        found.append(KNOWN[key])
    return found


def same(some, others):
    """Do these crews agree in every bit?"""
    assert len(some) == len(others)
    for mine, its in zip(some, others, strict=True):
        one, other = mine.outcome, its.outcome
        assert mine.weights.keys() == its.weights.keys()
        for net, params in mine.weights.items():
            assert all(torch.equal(p.nan_to_num(), its.weights[net][name].nan_to_num()) for name, p in params.items())
        assert torch.equal(one.initial, other.initial)
        assert torch.equal(one.matrix.nan_to_num(-1), other.matrix.nan_to_num(-1))
        assert one.diverged_at == other.diverged_at
        assert [kept.keys() for kept in one.kept] == [kept.keys() for kept in other.kept]
        assert all(
            torch.equal(mine[name], its[name])
            for mine, its in zip(one.kept, other.kept, strict=True)
            for name in mine
        )


def together(crews, protocol="split", **also):
    """Crews as one experiment."""
    seen, measure = [], engine.accuracies

    def watched(stack, tasks_seen):
        seen.append(tree_map(torch.clone, stack.params))
        return measure(stack, tasks_seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "accuracies", watched)
        outcomes = train_together(PROTOCOLS[protocol], crews, TRAINING, **also)
    return [Seen(outcome, weights) for outcome, weights in zip(outcomes, seen[-len(crews) :], strict=True)]


def trained(stacks):
    return [stack for stack in stacks if stack.optimizer]


def stored(scenario, use, budgets=(6, 12), more=()):
    return grid(scenario, lambda budget: (*more, ER(budget=budget, use=use)), budgets)


class Critic(Part):
    """A part as docs/your-own-method.md describes it: a network beside the classifier that learns from inputs alone."""

    name = "critic"
    rate: float = hyper("how strongly it learns", 1.0, gt=0)
    weight: float = hyper("what the classifier makes of it", 0.1, ge=0)

    def networks(self, setting):
        return {"first": Layer(setting.inputs, 3), "second": Layer(3, 1)}

    def networks_depend_on(self):
        return "generator", self.rate  # a word that another part might use, too

    def side_draws(self, setting, seed, task, memory, steps):
        return {"critic noise": Noise((setting.batch, setting.inputs))}

    def side_loss(self, learner, batch, replay, drawn):
        x = batch.x + drawn["critic noise"]
        for name in ("first", "second"):
            x = functional_call(learner.nets[name], learner.all_params[name], (x,)).relu()
        return self.rate * ((x - 1) ** 2).mean()

    def penalty(self, params, memory):
        size = memory["size"] if memory else 0.0
        return self.weight * size * sum((p**2).sum() for p in params.values())

    def consolidate(self, stack, memory, task):
        return {"size": stack.params["first"]["weighted.weight"].abs().mean((1, 2))}
