"""What several runs may share, so that it is trained once: only for the methods that threefold ships.

Two rules pay for themselves (docs/performance.md). DGR's generator learns from inputs and from its own samples, never
from the classifier, so all DGR cells of a table have the same one for each seed. And what ER does at test time does not
change its training: networks that differ only in that are trained once and evaluated in each way.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from threefold.engine.device_data import DeviceData
from threefold.engine.flow import Flow
from threefold.engine.optimizer import Optimizer
from threefold.engine.stack import ReplicaStack, code
from threefold.engine.training import Training
from threefold.fingerprint import is_ours
from threefold.methods import DGR, ER, DGRDistill, ICaRL, Method, Offline, Part
from threefold.methods.learner import Memory, Params, Setting
from threefold.scenarios import Outputs, Scenario
from threefold.streams import Stream

GENERATIVE = (DGR, DGRDistill)
OTHER_DATA = (Offline, ICaRL)  # with these, a generator is not trained on the task's own data


def trained_as(method: Method) -> Method:
    """The method that trains the same networks, without what matters only at test time."""
    if not _is_ours(method):
        return method
    return Method(*(part for each in method.parts if (part := _part_trained_as(each)) is not None))


def _part_trained_as(part: Part) -> Part | None:
    if type(part) is not ER or part.selection == "reservoir":  # which is filled in training
        return part
    return None if part.use == "execution" else part.model_copy(update={"use": "both"})


def generator_of(method: Method) -> str | None:
    """The part whose generator depends on the seed alone, not on the rest of the method; None if there is none."""
    parts = [part for part in method.parts if type(part) in GENERATIVE]
    own_data = all(type(part) not in OTHER_DATA for part in method.parts)
    return parts[0].name if parts and own_data and _is_ours(method) else None


def _is_ours(method: Method) -> bool:
    """Is every part shipped with threefold? A user's part may read or change anything, other parts included."""
    return all(is_ours(type(part)) for part in method.parts)


@dataclass(frozen=True)
class Replicas:
    """Runs that are one stack: replica i has `methods[i]`, `seeds[i]`, `optimizers[i]`. Methods and
    optimisers differ in numbers at most.
    """

    scenario: Scenario
    methods: Sequence[Method]
    seeds: Sequence[int]
    optimizers: Sequence[Optimizer]
    orders: Sequence[int] = ()  # seeds that choose the tasks; empty: as `seeds`

    def networks(self) -> "list[Replica]":
        return self._each(self.methods)

    def trained(self) -> "list[Replica]":
        """The networks to train for these runs, some of which may be equal."""
        return self._each(self._trained_methods())

    def _trained_methods(self) -> Sequence[Method]:
        """The methods that train these networks; unchanged if their code would differ."""
        methods = [trained_as(method) for method in self.methods]
        same = all(code(method) == code(methods[0]) for method in methods)
        return methods if same else self.methods

    def _each(self, methods: Sequence[Method]) -> "list[Replica]":
        each = zip(methods, self.seeds, self.optimizers, self.orders or self.seeds, strict=True)
        return [Replica(method, self.scenario, seed, optimizer, order) for method, seed, optimizer, order in each]

    def shares(self) -> Hashable:
        """A key, equal for stacks that can share something if trained in the same way on the same data."""
        networks = list(dict.fromkeys(self.trained()))
        if all(generator_of(network.method) for network in networks):
            return GENERATIVE, _draws(networks)
        return self.trained_by(), frozenset(_draws(networks))

    def trained_by(self) -> Hashable:
        """A key, equal for replicas that one stack can train."""
        return self.scenario, tuple((part, repr(fields)) for part, fields in code(self._trained_methods()[0]))


@dataclass(frozen=True)
class Replica:
    """One run of a stack: everything its network depends on."""

    method: Method = field(compare=False)
    scenario: Scenario
    seed: int
    optimizer: Optimizer
    order: int  # the seed that chooses its tasks
    parts: tuple[Hashable, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = tuple((type(part), part.model_dump_json()) for part in self.method.parts)
        object.__setattr__(self, "parts", parts)


@dataclass
class Evaluated:
    """The networks of some runs at evaluation: trained for these runs alone, or shared with others."""

    stack: ReplicaStack
    source: ReplicaStack | None  # the stack that is trained, if it is a different one
    which: Tensor  # its replicas

    def consolidate(self) -> None:
        """A task is finished, in the trained stack too."""
        if self.source is not None:
            self.stack.take_over(self.source, self.which)
            self.stack.consolidate(besides=self.source.memory.keys())

    def own_memory(self) -> dict[str, Memory]:
        """The memory that only evaluation uses."""
        source = self.stack if self.source is None else self.source
        return {name: memory for name, memory in self.stack.memory.items() if name not in source.memory}


class Stacks:
    """All stacks of a cohort: those that are trained, and for each of `asked` the networks to evaluate."""

    def __init__(self, stream: Stream, asked: Sequence[Replicas], training: Training) -> None:
        self.stream, self.training, self.flow = stream, training, Flow.of(stream, training)
        self.device = torch.device(training.device)
        self._generators: dict[Hashable, dict[str, Params]] = {}
        self.trained: list[ReplicaStack] = []
        groups: dict[Hashable, list[int]] = {}
        for number, each in enumerate(asked):
            alone = number if training.evaluation else None  # runs tested during training are trained separately
            groups.setdefault((each.trained_by(), alone), []).append(number)
        found: dict[int, Evaluated] = {}
        for group in groups.values():
            found |= self._trained_once({number: asked[number] for number in group})
        self.evaluated = [found[number] for number in range(len(asked))]

    def _trained_once(self, asked: dict[int, Replicas]) -> dict[int, Evaluated]:
        """One stack for runs that can share it; where there is nothing to share, it has their own methods."""
        own = {number: each.networks() for number, each in asked.items()}
        trained = {number: each.trained() for number, each in asked.items()}
        every = list(dict.fromkeys(network for each in trained.values() for network in each))
        if len(asked) == 1 and (sum(map(len, trained.values())) == len(every) or self.training.evaluation):
            trained, (every,) = own, own.values()
        stack = self._stack(every, self._generators_for(every))
        self.trained.append(stack)
        self._lend(stack, every)
        places = {network: place for place, network in enumerate(every)}
        found = {}
        for number in asked:
            which = torch.tensor([places[network] for network in self._rows(trained[number])], device=self.device)
            alone = own[number] == every
            found[number] = Evaluated(stack if alone else self._stack(own[number]), None if alone else stack, which)
        return found

    def _rows(self, networks: "list[Replica]") -> "list[Replica]":
        """The networks of a stack, row by row. On a CPU a single network is duplicated: a stack of one rounds products
        and sums in another order, and a run must not depend on what it is trained with."""
        return networks * 2 if len(networks) == 1 and self.device.type == "cpu" else networks

    def _generators_for(self, networks: Sequence[Replica]) -> dict[str, Params]:
        """The generators that another stack trains already."""
        return self._generators.get(_draws(networks), {}) if _generative(networks) else {}

    def _lend(self, stack: ReplicaStack, networks: Sequence[Replica]) -> None:
        if part := _generative(networks):
            generator = {name: stack.params[name] for name in stack.beside[part]}
            self._generators.setdefault(_draws(networks), generator)

    def _stack(self, networks: list[Replica], lent: dict[str, Params] | None = None) -> ReplicaStack:
        """A stack of these networks, to be trained with the networks lent to it, or (None) only evaluated."""
        networks = self._rows(networks)
        stream, training, first = self.stream, self.training, networks[0]
        outputs = Outputs.of(first.scenario, stream)
        methods, seeds = [n.method for n in networks], [n.seed for n in networks]
        data = DeviceData(stream, outputs, [n.order for n in networks], training.batch, self.device)
        ends = self.flow is None
        setting = Setting(outputs, data.shape, training.batch, training.network, stream.data.in_unit_interval, ends)
        optimizer = None
        if lent is not None:
            each = [n.optimizer for n in networks]
            optimizer = partial(first.optimizer.stacked, each=each, schedule=training.schedule)
        return ReplicaStack(methods, seeds, setting, data, optimizer, lent, self.flow)

    def begin_task(self, task: int) -> None:
        for stack in self.trained:
            stack.begin_task(task)

    def at_step(self, steps: int) -> None:
        """This many steps of a flow have been taken."""
        assert self.flow is not None
        for stack in self.trained:
            stack.now.earlier.fill_(self.flow.come(steps))
            stack.now.seen.fill_(self.flow.come(steps + 1))
            stack.stretch = -(-steps // self.flow.clock)

    def consolidate(self) -> None:
        """Consolidate after a task, or after an interval of a flow."""
        for stack in self.trained:
            stack.consolidate()
        for each in self.evaluated:
            each.consolidate()

    def state(self) -> dict[str, Any]:
        own = [each.own_memory() for each in self.evaluated]
        return {"trained": [stack.state() for stack in self.trained], "evaluated": own}

    def restore(self, state: dict[str, Any]) -> None:
        for stack, saved in zip(self.trained, state["trained"], strict=True):
            stack.restore(saved)
        for each, memory in zip(self.evaluated, state["evaluated"], strict=True):
            each.stack.memory |= memory


def _generative(networks: Sequence[Replica]) -> str | None:
    """The name of the part that trains the generator, if all networks have one that can be shared."""
    parts = [generator_of(network.method) for network in networks]
    return parts[0] if all(parts) else None


def _draws(networks: Sequence[Replica]) -> tuple[Hashable, ...]:
    """Everything a generator's training depends on, replica by replica."""
    return tuple((network.seed, network.order, network.optimizer) for network in networks)
