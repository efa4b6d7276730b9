"""One training step of a stack: the gradients of all replicas, the optimiser's update and the hooks after it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.utils._pytree import tree_leaves

from threefold.engine import hook_checks
from threefold.engine.compile import CompiledFunction
from threefold.engine.device_data import Tables
from threefold.engine.optimizer import Pull, WeightTerms
from threefold.engine.schedule import CONSTANT
from threefold.engine.stack import Numbers, ReplicaStack
from threefold.methods import Part
from threefold.methods.learner import (
    Batch,
    InTraining,
    Learner,
    Memory,
    Now,
    Params,
    PathIntegral,
    Quadratic,
    Step,
    copied,
)
from threefold.methods.method import objective


class StepInput(NamedTuple):
    """The input of a step: of all replicas, or, inside the mapping, of one."""

    params: dict[str, Params]  # without lent networks, which may be a step ahead or behind
    memory: dict[str, Memory]
    numbers: Numbers
    batch: Batch
    drawn: dict[str, Any]
    now: Now
    tables: Tables
    buffers: Params
    keys: Tensor


REPLICA_AXES: Any = StepInput(0, 0, 0, 0, 0, None, 0, 0, 0)  # type: ignore[arg-type]  # `now` is the same for all


@dataclass
class StepPlan:
    """Which hooks of a step do what, by the positions of their parts. A step does only that."""

    quadratic: set[int] = field(default_factory=set)  # the penalty is quadratic
    adjusts: set[int] = field(default_factory=set)  # the gradient is adjusted
    paths: dict[int, str] = field(default_factory=dict)  # a path integral is added up, in this entry of the memory
    writes: set[int] = field(default_factory=set)  # the memory is written

    @property
    def left_to_optimizer(self) -> set[int]:
        """Parts whose penalty the optimiser adds. If the gradient is adjusted, it must include all penalties first."""
        return set() if self.adjusts else self.quadratic


class TrainingStep:
    """The step that trains a stack."""

    def __init__(self, stack: ReplicaStack) -> None:
        self.stack = stack
        self.plan: StepPlan | None = None  # None: determined at the next step
        self.compiled: CompiledFunction | None = None  # computes the gradients faster
        self._read: dict[str, set[str]] = {part.name: set() for part in stack.template}

    def take(self, batch: Batch, drawn: dict[str, Batch | Tensor]) -> None:
        """Train every replica on its batch. No host synchronisation, no shape that depends on values."""
        stack = self.stack
        assert stack.optimizer is not None
        given = StepInput(
            *(stack.own, stack.memory, stack.numbers, batch, drawn, stack.now, stack.data.tables),
            *(stack.buffers, stack.keys),
        )
        plan = self.plan = self.plan or self._find_out(given)
        gradients = self.compiled(self.gradients, given) if self.compiled else self.gradients(given)
        grads, stack.loss, buffers = gradients
        if stack.loss_sum is not None:
            stack.loss_sum += stack.loss
        for name, value in buffers.items():
            stack.buffers[name].copy_(value)
        if stack.optimizer.schedule != CONSTANT:
            torch.div(stack.now.step, stack.steps, out=stack.optimizer.progress)
        classifier = stack.own["classifier"]
        before = copied(classifier) if plan.writes else {}
        whole = stack.optimizer.step(tree_leaves(grads), self._terms(plan, given), whole=bool(plan.writes))
        if plan.writes:
            self._write(plan, given, Step(batch, before, dict(zip(classifier, whole, strict=False))))
        stack.now.step.add_(1)

    def _find_out(self, given: StepInput) -> StepPlan:
        """Call the hooks whose return types vary, and record what each returns; the values are not used."""
        plan = StepPlan()

        def one(given: StepInput) -> Tensor:
            learner = self._learner(given)
            step = Step(given.batch, learner.params, learner.params)
            for place, part in enumerate(learner.parts):
                if isinstance(part.penalty(learner), Quadratic):
                    plan.quadratic.add(place)
                if part.adjust(learner, learner.params) is not None:
                    plan.adjusts.add(place)
                done = part.after_step(learner, step)
                if isinstance(done, PathIntegral):
                    plan.paths[place] = done.entry
                elif done is not None:
                    plan.writes.add(place)
            return given.batch.y

        self._for_replicas(one, given)
        return plan

    def _for_replicas(self, function: Callable[[StepInput], Any], given: StepInput) -> Any:
        return self.stack.mapping(function, (REPLICA_AXES,), given)

    def _learner(self, given: StepInput, parts: list[Part] | None = None) -> Learner:
        """One network, as its hooks see it; reads of the memory are recorded."""
        stack = self.stack
        return Learner(
            stack.networks,
            stack.setting,
            parts or stack.bind(given.numbers),
            given.params,
            {name: _Noted(memory, self._read[name]) for name, memory in given.memory.items()},
            given.now,
            given.buffers,
            InTraining(given.drawn, stack.data.sampler(given.tables), given.keys),
        )

    def gradients(self, given: StepInput) -> Any:
        """All replicas' gradients, losses (without the penalties that the optimiser adds) and new buffers."""
        return self._for_replicas(self._gradients, given)

    def _gradients(self, given: StepInput) -> tuple[dict[str, Params], Tensor, Params]:
        """One network's gradient: current data, replayed data, penalties; then adjusted."""
        plan = self.plan
        assert plan is not None
        learner, batch = self._learner(given), given.batch
        parts = list(learner.parts)
        replays = [part.replay(learner, batch) for part in parts]
        penalties = [part for place, part in enumerate(parts) if place not in plan.left_to_optimizer]
        sides = {part.name for part in parts if not self.stack.lent(part)}

        def loss(params: dict[str, Params]) -> tuple[Tensor, Params]:
            learner = self._learner(given._replace(params=params), parts)
            return objective(learner, batch, replays, penalties, sides), learner.buffers

        plain = self.stack.device.type == "cpu" and not self.stack.setting.structure.mapped
        differentiated = partial(_plainly, loss) if plain else grad_and_value(loss, has_aux=True)
        grads, (value, buffers) = differentiated(given.params)
        for place in sorted(plan.adjusts):
            adjusted = parts[place].adjust(learner, grads["classifier"])
            grads = grads | {"classifier": hook_checks.gradient(parts[place], adjusted, learner.params)}
        return grads, value, buffers

    def _terms(self, plan: StepPlan, given: StepInput) -> list[WeightTerms]:
        """What else the optimiser does to each parameter; the classifier's come first."""
        stack, params = self.stack, given.params["classifier"]
        assert stack.optimizer is not None
        quadratics = [self._quadratic(place, given) for place in sorted(plan.left_to_optimizer)]
        paths = []
        for place, entry in plan.paths.items():
            part = stack.template[place]
            paths.append(hook_checks.path(part, stack.memory[part.name].get(entry), params))
        terms = []
        for name, param in params.items():
            shape = (-1, *[1] * (param.dim() - 1))
            pulls = [Pull(strength.view(shape), anchor[name], its[name]) for strength, anchor, its in quadratics]  # type: ignore[union-attr]
            terms.append(WeightTerms(pulls, [path[name] for path in paths]))
        return terms + [WeightTerms()] * (len(stack.optimizer.params) - len(terms))

    def _quadratic(self, place: int, given: StepInput) -> Quadratic:
        """A part's quadratic penalty (its hook returns that of one network) for the whole stack."""

        def one(given: StepInput) -> tuple[Any, ...]:
            learner = self._learner(given)
            part = learner.parts[place]
            return tuple(hook_checks.quadratic(part, part.penalty(learner), learner.params))

        return Quadratic(*self._for_replicas(one, given))

    def _write(self, plan: StepPlan, given: StepInput, step: Step) -> None:
        """What the hooks after the step write into the memory."""

        def one(given: StepInput, step: Step) -> dict[int, Any]:
            learner = self._learner(given)
            parts = {place: learner.parts[place] for place in sorted(plan.writes)}
            return {
                n: hook_checks.memory("after_step", part, part.after_step(learner, step)) for n, part in parts.items()
            }

        for place, written in self.stack.mapping(one, (REPLICA_AXES, 0), given, step).items():
            part = self.stack.template[place]
            for entry, value in written.items():
                hook_checks.write(part, entry, self.stack.memory[part.name].get(entry), value)

    def addresses(self) -> object:
        """The addresses of all tensors that a step reads or writes, except draws: a captured step needs them fixed."""
        stack = self.stack
        entries = {name: sorted(memory) for name, memory in stack.memory.items()}
        read = [stack.memory[name][entry] for name in entries for entry in entries[name] if entry in self._read[name]]
        used = (stack.params, stack.buffers, stack.keys, read, stack.now, stack.numbers)
        return entries, [leaf.data_ptr() for leaf in tree_leaves(used)]


def _plainly(loss: Callable[..., tuple[Tensor, Params]], params: dict[str, Params]) -> Any:
    """`grad_and_value(loss, has_aux=True)(params)` where nothing is mapped: on a CPU up to a fifth quicker."""
    with torch.enable_grad():
        leaves = {net: {name: p.detach().requires_grad_() for name, p in its.items()} for net, its in params.items()}
        value, buffers = loss(leaves)
        flat = [leaf for its in leaves.values() for leaf in its.values()]
        known = value.requires_grad  # else it depends on no parameter
        grads = torch.autograd.grad(value, flat, materialize_grads=True) if known else map(torch.zeros_like, flat)
    each = iter(grads)
    return {net: {name: next(each) for name in its} for net, its in leaves.items()}, (value.detach(), buffers)


class _Noted(Mapping[str, Any]):
    """A part's memory that records which entries are read: the others may change their shape between tasks."""

    def __init__(self, memory: Memory, read: set[str]) -> None:
        self._memory, self._read = memory, read

    def __getitem__(self, entry: str) -> Any:
        value = self._memory[entry]
        self._read.add(entry)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory)

    def __len__(self) -> int:
        return len(self._memory)

    def __contains__(self, entry: object) -> bool:
        return entry in self._memory

    def __or__(self, other: Mapping[str, Any]) -> Memory:
        return {**self, **other}
