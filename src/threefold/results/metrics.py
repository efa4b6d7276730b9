"""What an accuracy matrix says about learning and forgetting.

Notation: T tasks; R[i, j] is the accuracy on task j after training on tasks 1…i, in per cent; b[j] the accuracy on
task j before any training. A metric that needs a second task is NaN for one task, and every metric is NaN where it
would need a row that was never measured because the run diverged.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from threefold.results.curve import Curve


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
    """The fall from the best accuracy ever had: (1/(T−1)) Σ_{j<T} (max_{l<T} R[l, j] − R[T, j]).

    F_T of Chaudhry et al. (2018), "Riemannian Walk". As there, the maximum runs over all l < T, also those before
    task j was trained. Negative when a task ends better than it ever was.
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


def measure(initial: ArrayLike, matrix: ArrayLike, curve: Curve | None = None) -> dict[str, float]:
    """Every metric of one run, by name."""
    return {
        "average_accuracy": average_accuracy(matrix),
        "learning_accuracy": learning_accuracy(matrix),
        "forgetting": forgetting(matrix),
        "backward_transfer": backward_transfer(matrix),
        "forward_transfer": forward_transfer(initial, matrix),
    }


def _square(matrix: ArrayLike) -> NDArray[np.float64]:
    accuracy = np.asarray(matrix, dtype=float)
    if accuracy.ndim != 2 or accuracy.shape[0] != accuracy.shape[1] or accuracy.size == 0:
        raise ValueError(f"an accuracy matrix has a row and a column for each task, not shape {accuracy.shape}")
    return accuracy
