"""Metrics of learning and forgetting, computed from a run's tests: docs/metrics.md has each with its source.

Notation: T tasks; R[i, j] is the accuracy on task j after training on tasks 1…i, in per cent; b[j] the accuracy on
task j before any training; a[n, j] the accuracy on task j at point n of the curve, if tasks were tested in training.
Metrics that need a second task are NaN for one task, metrics of the curve are NaN without one, most are NaN where tasks
have no ends, and every metric is NaN if it needs a row that was not measured because the run diverged.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from threefold.errors import ThreefoldError
from threefold.results.curve import Curve
from threefold.values import check_name, check_words

Array = NDArray[np.float64]
REGAINED = 0.9  # share of a gap's depth at which it counts as recovered: the last tenth is noise


class Metric(NamedTuple):
    """A metric and its names in tables and pages."""

    name: str
    short: str
    title: str
    meaning: str


METRICS = [
    Metric("average_accuracy", "ACC", "Average accuracy", "over all tasks at the end"),
    Metric("learning_accuracy", "LA", "Learning accuracy", "on each task right after it was learned"),
    Metric("forgetting", "F", "Forgetting", "fall from the best accuracy ever had"),
    Metric("backward_transfer", "BWT", "Backward transfer", "what later tasks did to earlier ones"),
    Metric("forward_transfer", "FWT", "Forward transfer", "what earlier tasks did for later ones"),
    Metric("average_incremental_accuracy", "AIA", "Average incremental accuracy", "over the tasks so far, after each"),
    Metric("average_anytime_accuracy", "AAA", "Average anytime accuracy", "over the tasks so far, at every step"),
    Metric("minimum_accuracy", "min-ACC", "Minimum accuracy", "lowest that an earlier task ever had"),
    Metric("worst_case_accuracy", "WC-ACC", "Worst-case accuracy", "the last task's, and the lowest of all others"),
    Metric("gap_depth", "gap", "Depth of the stability gap", "dip of earlier tasks after a switch that is made up"),
    Metric("gap_recovery", "recovery", "Recovery from the stability gap", "steps until nine tenths are made up"),
]
LOWER = ("forgetting", "gap_depth", "gap_recovery")  # is better; of the others the higher, of the user's nobody knows
Measured = Callable[[Array, Array, Curve | None], float]
REGISTERED: dict[str, Measured] = {}


def register_metric(name: str, short: str, title: str, meaning: str, measured: Measured) -> None:
    """Register your own metric: tables and results then include it, for old runs too.

    `measured` is called with the accuracy on each task before training, the accuracy after each task (rows) on each
    task, and the curve during training or None; accuracies are in per cent, rows of a diverged run NaN.
    """
    check_name("name of a metric", name, {metric.name for metric in METRICS} - REGISTERED.keys())
    check_words(short=short, title=title, meaning=meaning)
    if not callable(measured):
        raise ThreefoldError(f"measured must be a function that gives a number, got {measured!r}.")
    if short in {metric.short for metric in METRICS if metric.name != name}:
        raise ThreefoldError(f"short is '{short}', which another metric has; use another.")
    METRICS[:] = [metric for metric in METRICS if metric.name != name] + [Metric(name, short, title, meaning)]
    REGISTERED[name] = measured


def average_accuracy(matrix: ArrayLike) -> float:
    """Accuracy over all tasks at the end: (1/T) Σ_j R[T, j].

    The number in the tables of van de Ven & Tolias (2019); ACC of Lopez-Paz & Ranzato (2017).
    """
    return float(_square(matrix)[-1].mean())


def learning_accuracy(matrix: ArrayLike) -> float:
    """Accuracy on each task right after it was learned: (1/T) Σ_j R[j, j] (LA of Riemer et al., 2019).

    Low when a method is too stiff to learn, however little it forgets.
    """
    return float(np.diagonal(_square(matrix)).mean())


def forgetting(matrix: ArrayLike) -> float:
    """The fall from the best accuracy so far: (1/(T−1)) Σ_{j<T} (max_{l<T} R[l, j] − R[T, j]).

    F_T of Chaudhry et al. (2018), "Riemannian Walk". As there, the maximum runs over all l < T, also those before
    task j was trained. Negative when a task ends better than ever before.
    """
    accuracy = _square(matrix)
    if len(accuracy) < 2:
        return math.nan
    return float((accuracy[:-1, :-1].max(axis=0) - accuracy[-1, :-1]).mean())


def backward_transfer(matrix: ArrayLike) -> float:
    """What later tasks did to earlier ones: (1/(T−1)) Σ_{j<T} (R[T, j] − R[j, j]).

    BWT of Lopez-Paz & Ranzato (2017), "Gradient Episodic Memory". Negative when they were forgotten.
    """
    accuracy = _square(matrix)
    if len(accuracy) < 2:
        return math.nan
    return float((accuracy[-1] - np.diagonal(accuracy))[:-1].mean())


def forward_transfer(initial: ArrayLike, matrix: ArrayLike) -> float:
    """What earlier tasks did for later ones, before those were trained: (1/(T−1)) Σ_{j≥2} (R[j−1, j] − b[j]).

    FWT of Lopez-Paz & Ranzato (2017), with this run's own accuracies before training as the baseline b.
    """
    accuracy, baseline = _square(matrix), np.asarray(initial, dtype=float)
    if baseline.shape != accuracy.shape[:1]:
        raise ValueError(f"initial has shape {baseline.shape}, but matrix has {len(accuracy)} tasks")
    if len(accuracy) < 2:
        return math.nan
    return float((np.diagonal(accuracy, offset=1) - baseline[1:]).mean())


def intransigence(matrix: ArrayLike, joint: ArrayLike) -> float:
    """How much worse tasks are learned than by joint training on all data so far: (1/T) Σ_j (R*[j, j] − R[j, j]).

    I of Chaudhry et al. (2018); R* is the matrix of Offline with the same seed.
    """
    return learning_accuracy(joint) - learning_accuracy(matrix)


def average_incremental_accuracy(matrix: ArrayLike) -> float:
    """The average accuracy over the tasks so far, averaged over the ends of tasks: (1/T) Σ_i (1/i) Σ_{j≤i} R[i, j].

    Rebuffi et al. (2017), iCaRL.
    """
    accuracy = _square(matrix)
    return float(np.mean([accuracy[i, : i + 1].mean() for i in range(len(accuracy))]))


def average_anytime_accuracy(curve: Curve) -> float:
    """The average accuracy over the tasks seen so far, averaged over the steps of training.

    AAA of Caccia et al. (2022). A point counts for all steps since the previous point, so that dense points do not
    weigh more.
    """
    steps = np.diff(curve.total, prepend=0)
    so_far = [row[:seen].mean() for row, seen in zip(curve.accuracy, curve.seen, strict=True)]
    return float(np.average(so_far, weights=steps)) if steps.any() else math.nan


def minimum_accuracy(curve: Curve) -> float:
    """The lowest accuracy that an earlier task had once it was learned: (1/(T−1)) Σ_{j<T} min_{n after task j} a[n, j].

    min-ACC of De Lange et al. (2023).
    """
    last = int(curve.task.max(initial=0))
    lowest = [curve.accuracy[curve.task > task, task].min() for task in range(last)]
    return float(np.mean(lowest)) if lowest else math.nan


def worst_case_accuracy(curve: Curve) -> float:
    """The accuracy that can be relied on at any time: (1/T) a[N, T] + (1 − 1/T) min-ACC, N being the last point.

    WC-ACC of De Lange et al. (2023).
    """
    tasks = int(curve.task.max(initial=0)) + 1
    newest = float(curve.accuracy[-1, tasks - 1]) if len(curve.accuracy) else math.nan
    return newest if tasks == 1 else newest / tasks + (1 - 1 / tasks) * minimum_accuracy(curve)


class Gap(NamedTuple):
    """The effect of a switch of tasks on the average accuracy on all earlier tasks."""

    task: int  # the one that begins, counted from 0
    before: float
    lowest: float
    after: float  # when the new task ends
    at: int  # step of the new task at which it is lowest
    recovered: int  # step at which nine tenths of the depth are regained; 0 where there is no gap

    @property
    def depth(self) -> float:
        """How far it falls below both its start and its end. Forgetting without recovery is not a gap."""
        return min(self.before, self.after) - self.lowest


def gaps(curve: Curve) -> list[Gap]:
    """The stability gap (De Lange et al., 2023) after each switch of tasks."""
    found = []
    for task in range(1, int(curve.task.max(initial=0)) + 1):
        points = np.flatnonzero(curve.task == task)
        if not len(points) or points[0] == 0:
            continue
        earlier = curve.accuracy[np.append(points[0] - 1, points), :task].mean(axis=1)
        steps = np.append(0, curve.step[points])
        low = int(earlier.argmin())
        gap = Gap(task, earlier[0], earlier[low], earlier[-1], int(steps[low]), 0)
        regained = earlier[low:] >= gap.lowest + REGAINED * gap.depth
        found.append(gap._replace(recovered=int(steps[low:][regained.argmax()])) if gap.depth > 0 else gap)
    return found


def measure(
    initial: ArrayLike, matrix: ArrayLike, curve: Curve | None = None, *, ends: bool = True
) -> dict[str, float]:
    """Every metric of one run, by name. `ends`: do its tasks end? If not, no row of the matrix follows a task just
    learned, and only averages over all tasks are meaningful."""
    diverged = bool(np.isnan(_square(matrix)).any())
    curve = None if curve is None or diverged else curve.complete()
    curve = curve if curve and len(curve.step) else None
    ended = curve if curve and curve.has_ends and ends else None
    switches = gaps(ended) if ended else []
    found = {
        "average_accuracy": average_accuracy(matrix),
        "learning_accuracy": learning_accuracy(matrix) if ends else math.nan,
        "forgetting": forgetting(matrix) if ends else math.nan,
        "backward_transfer": backward_transfer(matrix) if ends else math.nan,
        "forward_transfer": forward_transfer(initial, matrix) if ends else math.nan,
        "average_incremental_accuracy": average_incremental_accuracy(matrix) if ends else math.nan,
        "average_anytime_accuracy": average_anytime_accuracy(curve) if curve else math.nan,
        "minimum_accuracy": minimum_accuracy(ended) if ended else math.nan,
        "worst_case_accuracy": worst_case_accuracy(ended) if ended else math.nan,
        "gap_depth": float(np.mean([gap.depth for gap in switches])) if switches else math.nan,
        "gap_recovery": float(np.mean([gap.recovered for gap in switches])) if switches else math.nan,
    }
    found |= {name: _own(name, initial, matrix, curve) for name in REGISTERED}
    assert found.keys() == {metric.name for metric in METRICS}
    return found


def _own(name: str, initial: ArrayLike, matrix: ArrayLike, curve: Curve | None) -> float:
    """A metric of the user's, whose code may raise anything; what it is given cannot be changed."""
    given = np.array(initial, float), np.array(matrix, float)
    for array in given:
        array.flags.writeable = False
    try:
        found = float(REGISTERED[name](*given, curve))
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ThreefoldError(f"metric '{name}' cannot be computed ({told}).") from error
    if math.isinf(found):
        raise ThreefoldError(f"metric '{name}' must be a finite number, or NaN where there is none, got {found}.")
    return found


def _square(matrix: ArrayLike) -> Array:
    accuracy = np.asarray(matrix, dtype=float)
    if accuracy.ndim != 2 or accuracy.shape[0] != accuracy.shape[1] or accuracy.size == 0:
        raise ValueError(f"an accuracy matrix has a row and a column for each task, not shape {accuracy.shape}")
    return accuracy
