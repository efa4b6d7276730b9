"""The stacks of a cohort. What would be trained alike is trained once: networks, and networks beside them."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Any

import torch
from torch import Tensor

from threefold.engine.lockstep import Lockstep, code
from threefold.engine.material import Material
from threefold.engine.training import Training
from threefold.methods import Method
from threefold.methods.part import Memory, Params, Part, Setting
from threefold.protocols import Protocol
from threefold.scenarios import Outputs, Scenario


@dataclass(frozen=True)
class Crew:
    """Replica i has `methods[i]`, `seeds[i]` and `lr[i]`; the methods differ in numbers at most."""

    scenario: Scenario
    methods: Sequence[Method]
    seeds: Sequence[int]
    lr: Sequence[float]

    def alike(self) -> Hashable:
        """Equal for crews that are trained as one stack: of one code, in scenarios that differ in masks at most."""
        methods = [network.method for network in self.trained()]
        in_masks = all(method.scenario_in_masks() for method in methods)
        own = tuple((part, repr(fields)) for part, fields in code(methods[0]))
        return self.scenario.own_units if in_masks else self.scenario, own

    def networks(self) -> "list[Network]":
        return self._each(self.methods)

    def trained(self) -> "list[Network]":
        """The networks that stand for its own: some may be equal. Where they would not be of one code, its own."""
        methods = [method.trained_as() for method in self.methods]
        same = all(code(method) == code(methods[0]) for method in methods)
        return self._each(methods if same else self.methods)

    def _each(self, methods: Sequence[Method]) -> "list[Network]":
        each = zip(methods, self.seeds, self.lr, strict=True)
        return [Network(method, self.scenario, seed, lr) for method, seed, lr in each]


@dataclass(frozen=True)
class Network:
    """What a network depends on."""

    method: Method = field(compare=False)
    scenario: Scenario
    seed: int
    lr: float
    parts: tuple[Hashable, ...] = field(init=False)

    def __post_init__(self) -> None:
        told = tuple((type(part), part.model_dump_json()) for part in self.method.parts)
        object.__setattr__(self, "parts", told)


@dataclass
class View:
    """A crew's networks as they are judged: trained for it alone, or for others too."""

    stack: Lockstep
    source: Lockstep | None  # the stack that is trained, if it is another
    which: Tensor  # its replicas

    def consolidate(self) -> None:
        """A task is finished, and so is what is trained."""
        if self.source is not None:
            self.stack.take_over(self.source, self.which)
            self.stack.consolidate(besides=self.source.memory.keys())

    def own_memory(self) -> dict[str, Memory]:
        """What is remembered for judging alone."""
        source = self.stack if self.source is None else self.source
        return {name: memory for name, memory in self.stack.memory.items() if name not in source.memory}


class Company:
    """All stacks of a cohort: those that are trained, and for each crew a view on one of them."""

    def __init__(self, protocol: Protocol, crews: Sequence[Crew], training: Training) -> None:
        self.protocol, self.training = protocol, training
        self.device = torch.device(training.device)
        self._lent: dict[Hashable, dict[str, Params]] = {}
        self.trained: list[Lockstep] = []
        self._networks: dict[Lockstep, list[Network]] = {}
        views: dict[int, View] = {}
        for group in _trained_alike(crews):
            views |= self._views({number: crews[number] for number in group})
        self.views = [views[number] for number in range(len(crews))]

    def _views(self, crews: dict[int, Crew]) -> dict[int, View]:
        """Views of crews that are trained alike; where there is nothing to share, a crew's own methods are trained."""
        own = {number: crew.networks() for number, crew in crews.items()}
        alike = {number: crew.trained() for number, crew in crews.items()}
        every = list(dict.fromkeys(network for each in alike.values() for network in each))
        if len(crews) == 1 and sum(map(len, alike.values())) == len(every):
            alike, (every,) = own, own.values()
        stack = self._trained(every)
        self.trained.append(stack)
        self._networks[stack] = every
        places = {network: place for place, network in enumerate(every)}
        views = {}
        for number in crews:
            which = torch.tensor([places[network] for network in alike[number]], device=self.device)
            if own[number] == every:
                views[number] = View(stack, None, which)
            else:
                views[number] = View(self._stack(own[number], False), stack, which)
        return views

    def _trained(self, networks: "Sequence[Network]") -> Lockstep:
        """A stack to be trained. Networks beside its classifiers that another stack trains are lent by that."""
        lent: dict[str, Params] = {}
        keys = _lending(networks)
        for key in keys.values():
            lent |= self._lent.get(key, {})
        stack = self._stack(networks, True, lent)
        for part, key in keys.items():
            self._lent.setdefault(key, stack.beside(part))
        return stack

    def _stack(self, networks: "Sequence[Network]", trained: bool, lent: dict[str, Params] | None = None) -> Lockstep:
        protocol, training = self.protocol, self.training
        outputs = [Outputs(n.scenario, protocol.tasks, protocol.classes_per_task) for n in networks]
        methods, seeds, lr = [n.method for n in networks], [n.seed for n in networks], [n.lr for n in networks]
        material = Material(protocol, outputs[0], seeds, training.batch, self.device)
        inputs = material.train_x.shape[1]
        setting = Setting(outputs[0], inputs, training.hidden, training.batch, protocol.data.in_unit_interval)
        return Lockstep(methods, seeds, setting, material, lr if trained else None, self.device, lent, outputs)

    def seedlings(self) -> list[Lockstep]:
        """For each stack that is trained, the one to learn the first task: it has no two networks that learn it alike.

        A penalty has nothing to protect yet, and nothing is stored: a whole grid of strengths or budgets is one network
        for each seed. Units of one task alone are active, so scenarios that differ in masks do not differ yet. Where
        there is nothing to gain, it is the stack itself.
        """
        found = []
        for stack in self.trained:
            alike = _alike_at_first(stack)
            first: dict[Hashable, int] = {}
            for place, key in enumerate(alike):
                first.setdefault(key, place)
            if len(first) == len(alike) or stack.params.keys() != stack.own.keys():
                found.append(stack)
                continue
            networks = self._networks[stack]
            found.append(self._stack([networks[place] for place in first.values()], True))
        return found

    def grow(self, seedlings: Sequence[Lockstep]) -> None:
        """The first task is learned: every network stands where the one stands that learned it."""
        for stack, seedling in zip(self.trained, seedlings, strict=True):
            if seedling is not stack:
                places = {key: place for place, key in enumerate(_alike_at_first(seedling))}
                which = [places[key] for key in _alike_at_first(stack)]
                stack.take_over(seedling, torch.tensor(which, device=self.device))

    def reach(self, task: int) -> None:
        for stack in self.trained:
            stack.reach(task)

    def consolidate(self) -> None:
        for stack in self.trained:
            stack.consolidate()
        for view in self.views:
            view.consolidate()

    def state(self) -> dict[str, Any]:
        judged = [view.own_memory() for view in self.views]
        return {"trained": [stack.state() for stack in self.trained], "judged": judged}

    def restore(self, state: dict[str, Any]) -> None:
        for stack, saved in zip(self.trained, state["trained"], strict=True):
            stack.restore(saved)
        for view, memory in zip(self.views, state["judged"], strict=True):
            view.stack.memory |= memory


def first_task(part: Part) -> tuple[type[Part], str]:
    """Equal for parts with which the first task's steps are the same. An heir from elsewhere may do anything."""
    kind = type(part)
    later = {
        name
        for name, field in kind.model_fields.items()
        if isinstance(field.json_schema_extra, dict)
        and field.json_schema_extra["later"]
        and (not kind.from_outside() or name in get_annotations(kind))
    }
    return kind, part.model_dump_json(exclude=later)


def _alike_at_first(stack: Lockstep) -> list[Hashable]:
    """Equal for networks that learn the first task alike."""
    assert stack.optimizer is not None
    each = zip(stack.methods, stack.seeds, stack.optimizer.lr, strict=True)
    return [(tuple(map(first_task, method.parts)), seed, lr) for method, seed, lr in each]


def _lending(networks: Sequence[Network]) -> dict[str, Hashable]:
    """By part: equal for stacks whose networks beside the classifier learn the same, replica by replica."""
    each = [network.method.networks_depend_on() for network in networks]
    known = [part for part in each[0] if all(part in keys for keys in each)]
    draws = tuple((network.seed, network.lr) for network in networks)
    return {part: (tuple(keys[part] for keys in each), draws) for part in known}


def _trained_alike(crews: Sequence[Crew]) -> list[list[int]]:
    """The numbers of the crews, grouped by the stack that trains them."""
    groups: dict[Hashable, list[int]] = {}
    for number, crew in enumerate(crews):
        groups.setdefault(crew.alike(), []).append(number)
    return list(groups.values())
