"""What a cell's training costs: parameters, memory and floating-point operations of one network.

None of it is stored: it follows from the cell's settings. The method is trained for a few steps on a few random
samples, and the operations are counted; docs/fairness.md says which.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from threefold.data import Dataset, joined
from threefold.data.catalog import CATALOG
from threefold.engine.device_data import DeviceData
from threefold.engine.flow import Flow
from threefold.engine.sampling import Sampler
from threefold.engine.stack import ReplicaStack
from threefold.engine.step_runner import Eager
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell
from threefold.experiments.description import absent
from threefold.methods import (
    DER,
    EWC,
    FROMP,
    GEM,
    Exemplars,
    GenerativeClassifier,
    Method,
    Offline,
    Part,
    Separate,
    Setting,
)
from threefold.methods.learner import Batch, Memory
from threefold.networks import OwnNetwork
from threefold.streams import STREAMS, Stream, Timed
from threefold.streams.stream import COUNTING

EACH = 12  # samples of each class
BATCHES = 6, 12  # operations are linear in the batch: those for two sizes tell those for any
TASKS = 4  # tasks that are trained; what later ones cost follows from the last three, by a parabola
CPU = torch.device("cpu")
SEED = 1


@dataclass(frozen=True)
class Costs:
    """What one network of a cell costs."""

    parameters: float  # trained, of all its networks
    memory: float  # bytes that the method keeps from task to task
    flops: float  # floating-point operations of its whole training
    unknown: str = ""  # why they are not known: then they are NaN


def costs(cell: Cell) -> Costs:
    """The costs of a cell; unknown if its code or the shape of its data is not at hand."""
    try:
        return _costs(_Trial.of(cell))
    except ThreefoldError as error:
        reason = str(error)
    except Exception as error:
        if not cell.own_code:
            raise
        reason = f"its own code cannot be tried out ({' '.join(f'{type(error).__name__}: {error}'.split())[:200]})."
    return Costs(math.nan, math.nan, math.nan, reason)


@dataclass(frozen=True, eq=False)
class _Trial:
    """A cell over a few random samples, and what is known of its real data."""

    cell: Cell
    parts: Sequence[Part]  # as they were given
    samples: int  # of a task, on average
    of_class: int  # of a class of a task
    bytes: int  # of the inputs of a sample
    key: str  # of everything that the costs follow from

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Trial) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @classmethod
    def of(cls, cell: Cell) -> "_Trial":
        parts = cell.method.parts
        for part in parts:
            if type(part) is absent(part.name):
                raise ThreefoldError(f"method {part.name} is not loaded; give its file by --plugin.")
        stream, real = _few(cell)
        network = cell.training.network
        if not isinstance(network, OwnNetwork):
            network = network.model_copy(update={"init": None})  # which weights it begins with costs nothing
        training = replace(cell.training, network=network, device="cpu", precision="fp32", evaluation=None)
        small = [part.model_copy(update={"budget": EACH}) if isinstance(part, FROMP) else part for part in parts]
        made = Cell(stream, cell.scenario, Method(*small), training, cell.optimizer, cell.task_id_in)
        data = stream.data
        samples, of_class = stream.samples * real // len(data.train_y), real // data.classes
        each = math.prod(data.shape) * (1 if data.name.split("+")[0] in CATALOG else 4)
        return cls(made, parts, samples, of_class, each, repr((cell.spec(), data.shape, real)))

    def steps(self, task: int) -> int:
        """How many steps are taken on a task."""
        training, samples = self.cell.training, self.samples
        for part in self.parts if training.epochs else ():
            if isinstance(part, Offline):
                samples *= task + 1
            elif isinstance(part, Exemplars) and type(part).data is not Part.data and task:
                samples += _stored(part, self.cell.setting, self.of_class)
            elif type(part).data is not Part.data and not isinstance(part, Exemplars):
                raise ThreefoldError(f"how many samples an epoch of {part.name} has is not known beforehand.")
        return training.steps(samples)


def _few(cell: Cell) -> tuple[Stream, int]:
    """The cell's stream over a few samples of each class, and how many training samples its data really have."""
    spec, data, kind = cell.spec()["stream"], cell.stream.data, STREAMS.get(cell.stream.name)
    if kind in (None, Timed) or "code" in spec:
        raise ThreefoldError(f"the tasks of stream {cell.stream.title} are not kept with results.")
    if spec.get("features"):
        raise ThreefoldError("the data are features, and how many of a sample is not kept with results.")
    if len(data.train_y):
        forms = [(data.shape, data.classes, len(data.train_y))]
    else:
        names = data.name.split("+")
        if unknown := [name for name in names if name not in CATALOG]:
            raise ThreefoldError(f"the shape of data {unknown[0]} is not kept with results.")
        forms = [(CATALOG[name].shape, CATALOG[name].classes, CATALOG[name].samples) for name in names]
    each = [_random(data.name, shape, classes, normalized=data.is_normalized) for shape, classes, _ in forms]
    options = spec.get("options", {})
    tasks = None if COUNTING & options.keys() else spec["tasks"]
    stream = kind(each[0] if len(each) == 1 else joined(each), tasks, **options)
    stream.only, stream.boundaries = spec.get("first"), cell.stream.boundaries
    return stream, sum(samples for _, _, samples in forms)


def _random(name: str, shape: tuple[int, ...], classes: int, *, normalized: bool) -> Dataset:
    y = torch.arange(classes).repeat_interleave(EACH)
    x = torch.rand(len(y), *shape, generator=torch.Generator().manual_seed(SEED)) - 0.5 * normalized
    return Dataset(name, x, y, x, y, "", normalized)


@lru_cache(1024)
def _costs(trial: _Trial) -> Costs:
    cell, flow = trial.cell, Flow.of(trial.cell.stream, trial.cell.training)
    tasks, setting, parts = cell.stream.tasks, cell.setting, trial.parts
    with torch.no_grad():
        few, more = (_Trained(trial, batch, flow) for batch in BATCHES)
    share = (cell.training.batch - BATCHES[0]) / (BATCHES[1] - BATCHES[0])
    each = [one + (other - one) * share for one, other in zip(few.steps, more.steps, strict=True)]
    for part in parts:
        if isinstance(part, FROMP) and tasks > 1:
            one = (few.steps[1] - few.steps[0]) / BATCHES[0]
            each = [each[0] + one * number for number in _replayed(part, setting, cell.training.batch)]
    if flow:
        flops = flow.steps * each[-1] + flow.steps / flow.clock * few.consolidated[-1]
    else:
        of_steps = zip(map(trial.steps, range(tasks)), _continued(each, tasks), strict=True)
        flops = sum(steps * cost for steps, cost in of_steps) + sum(_continued(few.consolidated, tasks))
    memory = 0.0
    for part in parts:
        own = [after[part.name] for after in few.memories]
        memory += _remembered(part, setting, own, trial.of_class) or _continued(list(map(_bytes, own)), tasks)[-1]
        memory += _stored(part, setting, trial.of_class) * trial.bytes
    parameters = sum(_instead(part, setting, few.memories[-1][part.name]) for part in parts) or cell.numbers
    return Costs(parameters, memory, flops)


def _continued(known: Sequence[float], tasks: int) -> list[float]:
    """A number for each task: those known, then a parabola through the last three."""
    found = list(known[:tasks])
    while len(found) < tasks:
        found.append(3 * found[-1] - 3 * found[-2] + found[-3] if len(known) > 2 else found[-1])
    return found


class _Trained:
    """A network after a few steps and consolidations: the operations of a step and of a consolidation on each task, and
    the memories after it."""

    def __init__(self, trial: _Trial, batch: int, flow: Flow | None) -> None:
        self.trial, cell = trial, trial.cell
        setting = replace(cell.setting, batch=batch)
        data = DeviceData(cell.stream, setting.outputs, [SEED], batch, CPU)
        optimizer = partial(cell.optimizer.stacked, each=[cell.optimizer], schedule=cell.training.schedule)
        self.stack = ReplicaStack([cell.method], [SEED], setting, data, optimizer, None, flow)
        self.steps: list[float] = []
        self.consolidated: list[float] = []
        self.memories: list[dict[str, Memory]] = []
        runner, training = Eager(self.stack), replace(cell.training, batch=batch)
        training = training if flow else replace(training, iters=2, epochs=None)
        most = 2 if flow or any(isinstance(part, FROMP) for part in trial.parts) else TASKS
        if any(
            isinstance(part, GEM) for part in trial.parts
        ):  # a step takes what is stored, in whole samples of each class
            most = cell.stream.tasks
        for task in range(min(most, cell.stream.tasks)):
            if not (flow and task):
                self.stack.begin_task(task)
                runner.begin_task(Sampler(self.stack, training), 2)
            runner.go_on()
            for step in range(2):  # in the first one hooks are called only to see what they return
                with _Operations() as counted:
                    runner.take(2 * task + step if flow else step)
            self.steps.append(counted.number)
            self.consolidated.append(self._consolidate())
            self.memories.append(dict(self.stack.memory))
            if len(self.memories) > 1 and _shapes(self.memories[-1]) == _shapes(self.memories[-2]):
                for known in (self.steps, self.consolidated, self.memories):  # nothing changes from here on
                    known += known[-1:] * (cell.stream.tasks - len(known))  # type: ignore[operator]
                break

    def _consolidate(self) -> float:
        """The operations on all training data of the task; those on stored samples alone are not counted."""
        given, found = self.stack.training_data, 0.0
        limits = [part.fisher_samples for part in self.trial.parts if isinstance(part, EWC) and part.fisher_samples]
        most, there = min([self.trial.samples, *limits]), 1 if self.stack.flow else len(self.stack.own_samples()[0])

        def counting(chosen: Any = None, task: Any = None) -> Iterator[tuple[Batch, Tensor]]:
            nonlocal found
            before, rows = counted.number, 0
            for batch, weight in given(chosen, task):
                yield batch, weight
                rows += weight.shape[1]
            if task is None:
                share = len(chosen[0]) / there if chosen else 1.0  # of the task's samples: some are of one class
                found += (counted.number - before) / rows * share * most

        with _Operations() as counted:
            self.stack.training_data = counting  # type: ignore[method-assign]
            self.stack.consolidate()
            del self.stack.training_data
        return found


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts multiplications and additions in matrix products and convolutions; elementwise ones are few beside."""

    def __init__(self) -> None:
        from torch.utils.flop_counter import flop_registry  # half a second

        super().__init__()  # type: ignore[no-untyped-call]
        self.counts, self.number = flop_registry, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Overridden, as PyTorch would import its compiler for this, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if count := self.counts.get(func.overloadpacket):
            self.number += count(*args, **kwargs, out_val=out)
        return out


def _stored(part: Part, setting: Setting, of_class: int) -> int:
    """How many training samples a part stores for one network."""
    classes = setting.outputs.before(setting.outputs.tasks)
    if isinstance(part, DER) or (isinstance(part, Exemplars) and part.is_reservoir):
        return part.budget
    if isinstance(part, FROMP) or (isinstance(part, Exemplars) and part.per_class):
        return classes * min(part.budget, of_class)
    return classes * min(part.budget // classes, of_class) if isinstance(part, Exemplars) else 0


def _replayed(part: FROMP, setting: Setting, batch: int) -> list[int]:
    """How many of its stored samples are used at a step of each task."""
    outputs = setting.outputs
    stored = [outputs.size(task) * part.budget for task in range(outputs.tasks)]
    return [sum(min(-(-batch // past), each) for each in stored[:past]) for past in range(outputs.tasks)]


def _instead(part: Part, setting: Setting, memory: Memory) -> int:
    """How many parameters it trains instead of the classifier's; 0 if it trains those."""
    if isinstance(part, GenerativeClassifier):
        return sum(leaf.numel() for leaf in tree_leaves(memory["vaes"]))
    return part.size(setting) if isinstance(part, Separate) else 0


def _remembered(part: Part, setting: Setting, memories: Sequence[Memory], of_class: int) -> float:
    """The bytes that a part keeps besides the inputs of stored samples, where few samples do not tell; else 0."""
    last, outputs = memories[-1], setting.outputs
    if isinstance(part, GenerativeClassifier):  # the rest begins anew with each task
        return _bytes([last["vaes"], last["noise"]])
    if isinstance(part, Exemplars) and not part.is_reservoir:
        classes = outputs.before(outputs.tasks)
        means = 4 * classes * setting.hidden if "means" in last else 0
        rest = {name: value for name, value in last.items() if name not in ("stored", "count", "means")}
        return _bytes(rest) + means + 8 * (_stored(part, setting, of_class) + classes)
    if isinstance(part, FROMP):  # in the last task: of each past one the matrices, and for each unit its probabilities
        past = outputs.tasks - 1
        units = [(int(outputs.active(task, past).sum()), outputs.size(task) * part.budget) for task in range(past)]
        matrices = sum(4 * active * samples * (samples + 1) + 8 * active for active, samples in units)
        return _bytes(last["fisher"]) + matrices + 8 * outputs.before(past) * (part.budget + 1)
    return 0


def _shapes(tree: Any) -> list[torch.Size]:
    return [leaf.shape for leaf in tree_leaves(tree)]


def _bytes(tree: Any) -> float:
    return float(sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(tree)))
