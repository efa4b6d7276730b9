"""Refuses sizes that exceed memory, and plans too large to be intended, before anything is built or written.

Only memory is limited, never time. Needs are underestimated rather than overestimated, by plain arithmetic: what could
be trained is accepted, and no network of five billion units is built to find its size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite

import torch

from threefold.engine import Training
from threefold.errors import ThreefoldError
from threefold.memory import available_memory, in_bytes
from threefold.methods import Method, Setting
from threefold.networks import MLPNetwork
from threefold.results.curve import NUMBERS, POINTS
from threefold.streams import Stream

LARGEST = 10**12  # for any whole number: a budget, a number of iterations
MANY_RUNS = 10_000  # in one command; more need confirmation
COPIES = 4  # of every parameter: itself, its gradient, and Adam's two moments
SMALL = 1 << 28  # bytes: needs below this are accepted without querying free memory, thousands of times in a plan
BEYOND = 1 << 46  # bytes: a cluster's memory is unknown, but no machine has 64 TB for one network
CELL_BYTES, RUN_BYTES = 5000, 500  # memory of a plan


@dataclass(frozen=True)
class Sizes:
    """The sizes that determine the memory that one network needs in training."""

    inputs: int
    depth: int  # hidden layers of an MLP; unknown for other networks
    hidden: int
    batch: int
    tasks: int
    classes_per_task: int
    own_units: bool  # does each task have its own output units?

    @classmethod
    def of(cls, setting: Setting) -> "Sizes":
        outputs = setting.outputs
        own_units, network = outputs.scenario.own_units, setting.network
        layers = (network.depth, setting.hidden) if isinstance(network, MLPNetwork) else (0, 0)
        each = outputs.units // outputs.tasks if own_units else outputs.units
        return cls(setting.inputs, *layers, setting.batch, outputs.tasks, each, own_units)

    def changed(self, name: str, value: int) -> "Sizes":
        return replace(self, **{name: value})  # type: ignore[arg-type]

    @property
    def units(self) -> int:
        return self.classes_per_task * (self.tasks if self.own_units else 1)

    @property
    def bytes(self) -> int:
        """A lower bound: the classifier in training, a batch's activations, and the tables."""
        within = (self.depth - 1) * self.hidden
        weights = self.hidden * (self.inputs + within + self.units + self.depth) + self.units
        activations = self.batch * (self.inputs + self.depth * self.hidden + self.units)
        return 4 * (COPIES * weights + activations) + self.tables

    @property
    def tables(self) -> int:
        """Bytes of what grows with the square of the number of tasks: the masks of active units, and the accuracies."""
        return 2 * self.tasks * self.units + 8 * self.tasks**2


def check_sizes(setting: Setting, *, device: str, elsewhere: bool) -> None:
    """Check that one classifier fits into free memory; `elsewhere`: that of unknown machines."""
    sizes = Sizes.of(setting)
    if sizes.bytes <= SMALL:
        return
    free, limit = _free(device, elsewhere)
    if sizes.bytes <= free:
        return
    name = min(("hidden", "tasks", "batch"), key=lambda name: sizes.changed(name, 1).bytes)
    raise ThreefoldError(
        f"{name} must be at most {_largest(sizes, name, free)} here, got {getattr(sizes, name)}: one network would need"
        f" about {in_bytes(sizes.bytes)} of memory, and {limit}."
    )


def check_networks(
    name: Callable[[], str], parameters: int, remembered: int = 0, *, device: str, elsewhere: bool
) -> None:
    """Check that all networks and memories of a method fit, for one run; `name` describes it in errors."""
    need = 4 * (COPIES * parameters + remembered)
    if need <= SMALL:
        return
    free, limit = _free(device, elsewhere)
    if need > free:
        what = "networks and the memory" if remembered else "networks"
        raise ThreefoldError(
            f"{name()} would need about {in_bytes(need)} of memory for the {what} of one run, and {limit}; use"
            " smaller numbers."
        )


def _free(device: str, elsewhere: bool) -> tuple[int, str]:
    """How many bytes one network may take, and the words for that limit."""
    here = None if elsewhere else free_on(device)
    return (BEYOND, f"no machine has {in_bytes(BEYOND)}") if here is None else (here, f"{in_bytes(here)} are free")


def _largest(sizes: Sizes, name: str, free: int) -> int:
    """The largest value of one of the sizes that fits, found by bisection; 1 if none does."""
    fits, too_large = 1, int(getattr(sizes, name))
    while too_large - fits > 1:
        middle = (fits + too_large) // 2
        if sizes.changed(name, middle).bytes <= free:
            fits = middle
        else:
            too_large = middle
    return fits


def check_numbers(method: Method, training: Training, stream: Stream) -> None:
    """Check that whole numbers, and their products, fit into a tensor, and that others are finite."""
    given = {"iters": training.iters or 0, "epochs": training.epochs or 0, "batch": training.batch}
    given["tasks"] = stream.tasks
    if tests := training.evaluation:
        given |= {"evaluate_every": tests.every, "evaluate_first": tests.first, "evaluate_samples": tests.samples or 0}
    for one in (training.network, stream.boundaries, *method.parts):
        for name, value in one.model_dump().items():
            if isinstance(value, float) and not isfinite(value):  # a user's own field may allow it
                raise ThreefoldError(f"{name} of {one.name} must be a finite number, got {value}.")
            largest = max(value) if isinstance(value, tuple) else value
            if isinstance(largest, int):
                given["hidden" if (one.name, name) == ("mlp", "width") else f"{name} of {one.name}"] = largest
    for name, value in given.items():
        if abs(value) > LARGEST:
            shown = value if value.bit_length() < 100 else f"one of about {value.bit_length() * 3 // 10} digits"
            raise ThreefoldError(f"{name} must be at most {LARGEST}, got {shown}.")


@dataclass(frozen=True)
class CurveSizes:
    """Upper bounds on the size of tests during training in one run; zero if there are none."""

    points: int
    each: int  # numbers at each point
    indices: int  # number of tested samples

    @classmethod
    def of(cls, stream: Stream, training: Training) -> "CurveSizes":
        wanted, tasks = training.evaluation, stream.tasks
        if wanted is None:
            return cls(0, 0, 0)
        steps = (training.iters or 0) * tasks
        if training.epochs:
            own = stream.learned(1) if stream.of_the_user else ()
            samples = sum(len(task.train) for task in own) or (stream.samples + 1) * tasks
            steps = training.epochs * (samples // training.batch)
        first = min(wanted.first * tasks, steps)
        points = first - first // wanted.every + steps // wanted.every + 2 * tasks + 1  # for any lengths of tasks
        tested = [len(stream.data.test_y), len(stream.data.train_y)][: 1 + wanted.training]
        most = [size if wanted.samples is None else min(size, wanted.samples) for size in tested]
        return cls(points, 4 + len(tested) * tasks, tasks * sum(most))

    @property
    def bytes(self) -> int:
        """Bytes of the results, in memory and being saved, and of the indices with their mask."""
        return 8 * self.points * self.each + 9 * self.indices


def check_curve(stream: Stream, training: Training) -> None:
    """Check that results during training fit into a row of the store, and many of those into a report."""
    sizes, wanted = CurveSizes.of(stream, training), training.evaluation
    if wanted is None or (sizes.points <= POINTS and sizes.points * sizes.each <= NUMBERS):
        return
    raise ThreefoldError(
        f"evaluate_every is {wanted.every} and evaluate_first {wanted.first}, which is about {sizes.points:,} tests of"
        f" {stream.tasks:,} tasks in each run; use numbers that make at most"
        f" {min(POINTS, NUMBERS // sizes.each):,}."
    )


def check_runs(cells: int, runs: int, *, confirmed: bool) -> None:
    """Check that the plan itself fits into memory; a very large one must be confirmed (`--yes`)."""
    need, free = CELL_BYTES * cells + RUN_BYTES * runs, available_memory() or BEYOND
    if need > free:
        raise ThreefoldError(
            f"this would be {runs:,} runs, and the plan alone would need about {in_bytes(need)} of memory, and"
            f" {in_bytes(free)} are free; use fewer values, methods or seeds."
        )
    if runs > MANY_RUNS and not confirmed:
        raise ThreefoldError(
            f"this would be {runs:,} runs, more than {MANY_RUNS:,}; use --yes to train them all, or fewer values,"
            " methods or seeds."
        )


def free_on(device: str) -> int | None:
    """The free memory of a device in bytes; None if unknown."""
    return torch.cuda.mem_get_info()[0] if device == "cuda" else available_memory()
