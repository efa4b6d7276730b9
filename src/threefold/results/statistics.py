"""Means with standard errors, and tests of which of them differ.

A NaN (its run diverged) is not dropped: the mean becomes NaN, as a mean over the seeds that happened to survive would
flatter the method. To get that mean, leave the seed out explicitly.

Two of our own results are compared by a paired t test (`paired`): runs of the same seed share the class order, the
initial weights and the batches, so they are correlated, and their differences show the effect of a method. Welch's
test assumes that the two sides are independent and attributes differences that hold for every seed to chance; it is
kept for published numbers (`welch`), of which only mean, standard error and count are known. Wilcoxon's signed-rank
and sign-flip tests would pair as well, without assuming normality; but with five seeds the smallest two-sided p that
they can reach is 2/32, so that five seeds could never show anything, and neither yields an interval in points of
accuracy without further assumptions. The t test's own assumption is mild here: each value is a mean over whole test
sets, and a difference of two of them removes most of what skews a single one (such as a hard class order).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats would take a second to import

from threefold.results.seed import Seed
from threefold.text import decimal

CONFIDENCE = 0.95
FEWEST_SEEDS = 5
"""With fewer nothing is decided: the spread of four values is poorly known, and Student's factor for them is 3.2."""
ROUNDING = 9  # decimals that are kept of a difference: beyond them is rounding, as accuracies are counts of images


class Estimate(Protocol):
    """A mean over n runs with its standard error: ours (`Summary`) or a published one."""

    @property
    def mean(self) -> float: ...
    @property
    def sem(self) -> float: ...
    @property
    def n(self) -> int: ...


@dataclass(frozen=True)
class Summary:
    """The mean of one value per seed, its standard error, the values themselves, and the seeds they belong to."""

    mean: float
    sem: float
    n: int
    per_seed: tuple[float, ...]
    seeds: tuple[Seed, ...] = ()  # in the order of the values; empty: unknown, so nothing can be paired

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "diverged"
        return decimal(self.mean) + ("" if math.isnan(self.sem) else f" ± {self.sem:.2f}")


@dataclass(frozen=True)
class Difference:
    """A difference of two means: its value, its 95% interval, and the p value for no difference."""

    value: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Paired(Difference):
    """A mean difference between runs of the same seeds."""

    effect: float  # Cohen's d_z: mean difference / its standard deviation over seeds
    seeds: int  # how many both sides have


@dataclass(frozen=True)
class Comparison:
    """One pair of a column: `difference` is first − second, `p_holm` its p corrected for the number of pairs."""

    first: str
    second: str
    difference: Paired
    p_holm: float

    @property
    def significant(self) -> bool:
        return self.p_holm < 1 - CONFIDENCE


def mean_sem(values: Iterable[float]) -> tuple[float, float]:
    """The mean, and its standard error: the sample standard deviation (with n − 1) over √n.

    The standard error of a single value is NaN, not zero, as its spread is unknown.
    """
    data = np.fromiter(values, dtype=float)
    if data.size == 0:
        raise ValueError("there is no mean of no values")
    shifted = data - data[0]  # so that equal values have a standard error of exactly zero
    mean = float(data[0] + shifted.mean())
    return mean, float(shifted.std(ddof=1) / math.sqrt(data.size)) if data.size > 1 else math.nan


def summarize(values: Iterable[float], seeds: Iterable[Seed] = ()) -> Summary:
    """The summary of one value per seed, in the order of the seeds."""
    per_seed = tuple(float(value) for value in values)
    mean, sem = mean_sem(per_seed)
    return Summary(mean, sem, len(per_seed), per_seed, tuple(seeds))


def paired(first: Summary, second: Summary) -> Paired:
    """first − second over the seeds that both have, with the 95% interval and the two-sided p of the paired t test.

    With fewer than five common seeds there is only the difference, and if a run of either side diverged not even that.
    If all seeds have the same difference, p is 1 if it is zero, else 0.
    """
    others = _by_seed(second)
    differences = [round(value - others[seed], ROUNDING) for seed, value in _by_seed(first).items() if seed in others]
    seeds = len(differences)
    if not seeds or math.isnan(first.mean) or math.isnan(second.mean):
        return Paired(math.nan, math.nan, math.nan, math.nan, math.nan, seeds)
    value, error = mean_sem(differences)
    if seeds < FEWEST_SEEDS:
        return Paired(value, math.nan, math.nan, math.nan, math.nan, seeds)
    if error == 0:
        effect = math.copysign(math.inf, value) if value else 0.0
        return Paired(value, value, value, 0.0 if value else 1.0, effect, seeds)
    reach = float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(seeds - 1, -abs(value) / error))
    return Paired(value, value - reach, value + reach, p, value / (error * math.sqrt(seeds)), seeds)


def _by_seed(summary: Summary) -> dict[Seed, float]:
    return dict(zip(summary.seeds, summary.per_seed, strict=True)) if summary.seeds else {}


def welch(first: Estimate, second: Estimate) -> Difference:
    """first − second, with the 95% interval and the two-sided p of Welch (1947): the variances may differ.

    It only needs means, standard errors and counts, so one side can be a published cell; use `paired` for two of our
    own results. Everything but the value is NaN if either side has one run.
    """
    value = first.mean - second.mean
    error = math.hypot(first.sem, second.sem)
    if math.isnan(value) or math.isnan(error) or min(first.n, second.n) < 2:
        return Difference(value, math.nan, math.nan, math.nan)
    if error == 0:
        return Difference(value, value, value, 1.0 if value == 0 else 0.0)
    share = (first.sem / error) ** 2
    freedom = 1 / (share**2 / (first.n - 1) + (1 - share) ** 2 / (second.n - 1))
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Difference(value, value - reach, value + reach, float(2 * stdtr(freedom, -abs(value) / error)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p values corrected for multiple tests by Holm (1979), which controls the family-wise error rate.

    The k-th smallest of m is multiplied by m − k + 1, and the results are made monotone. A NaN is a test that could not
    be made: it stays NaN and does not count towards m.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


def compare_all(column: Mapping[str, Summary]) -> list[Comparison]:
    """Every pair of methods in a column of a table, by the paired t test with Holm's correction over those pairs."""
    pairs = list(combinations(column, 2))
    differences = [paired(column[first], column[second]) for first, second in pairs]
    corrected = holm([difference.p for difference in differences])
    return [
        Comparison(first, second, difference, p)
        for (first, second), difference, p in zip(pairs, differences, corrected, strict=True)
    ]


@dataclass(frozen=True)
class Best:
    """The best of a column's methods, and all that are not significantly worse."""

    names: frozenset[str]
    tests: frozenset[str]  # by which they were compared: "paired", "Welch", "none"


def best(column: Mapping[str, Summary], *, high: bool = True) -> Best:
    """The methods with the best mean, or one from which it does not differ significantly.

    Each is compared with the best: by the paired t test if both have the same seeds, else by Welch's, with Holm's
    correction over these comparisons. With fewer than five seeds nothing is tested, and only the best mean is best.
    """
    known = {name: value for name, value in column.items() if not math.isnan(value.mean)}
    if not known:
        return Best(frozenset(), frozenset())
    top = (max if high else min)(known.values(), key=lambda value: value.mean)
    tests = {name: _compared(top, value) for name, value in known.items() if value.mean != top.mean}
    corrected = holm([p for _, p in tests.values()])
    alike = {name for name, p in zip(tests, corrected, strict=True) if p >= 1 - CONFIDENCE}
    return Best(frozenset(alike | (known.keys() - tests.keys())), frozenset(test for test, _ in tests.values()))


def _compared(first: Summary, second: Summary) -> tuple[str, float]:
    """The test for two summaries, and its p."""
    if min(first.n, second.n) < FEWEST_SEEDS:
        return "none", math.nan
    if first.seeds and set(first.seeds) == set(second.seeds):
        return "paired", paired(first, second).p
    return "Welch", welch(first, second).p
