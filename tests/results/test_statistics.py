"""Means, intervals and corrections, against hand-worked numbers, scipy.stats and properties."""

import ast
import math
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import threefold.results
from threefold.results import Summary, compare_all, paired, summarize
from threefold.results.statistics import holm, mean_sem, welch

samples = st.lists(st.integers(0, 10_000).map(lambda n: n / 100), min_size=2, max_size=25)


def test_mean_and_standard_error_by_hand():
    mean, sem = mean_sem([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])  # squared deviations sum to 32, n = 8
    assert mean == 5.0
    assert sem == pytest.approx(math.sqrt(32 / 7) / math.sqrt(8))


def test_one_value_has_no_standard_error():
    summary = summarize([97.5])
    assert (summary.mean, summary.n, summary.per_seed) == (97.5, 1, (97.5,))
    assert math.isnan(summary.sem)


def test_no_values_have_no_mean():
    with pytest.raises(ValueError, match="no values"):
        mean_sem([])


def test_equal_values_have_a_standard_error_of_exactly_zero():
    assert mean_sem([0.1] * 7) == (0.1, 0.0)


def test_a_diverged_seed_is_not_dropped():
    summary = summarize([90.0, math.nan, 92.0])
    assert math.isnan(summary.mean)
    assert math.isnan(summary.sem)
    assert summary.n == 3


@settings(deadline=None)
@given(samples)
def test_mean_sem_is_scipys(values):
    mean, sem = mean_sem(values)
    assert mean == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert sem == pytest.approx(stats.sem(values), abs=1e-9)


@settings(deadline=None)
@given(samples, samples)
def test_welch_is_scipys(first, second):
    assume(len(set(first)) > 1 or len(set(second)) > 1)
    ours = welch(summarize(first), summarize(second))
    with warnings.catch_warnings(action="ignore"):  # about one sample being constant
        theirs = stats.ttest_ind(first, second, equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, abs=1e-9)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


def test_welch_by_hand():
    """Two runs a side with SEM 1: √2 combined, two degrees of freedom, whose 97.5% point is 4.3027."""
    found = welch(summarize([9.0, 11.0]), summarize([4.0, 6.0]))
    assert found.value == 5.0
    assert (found.low, found.high) == pytest.approx((5 - 4.30265 * math.sqrt(2), 5 + 4.30265 * math.sqrt(2)), abs=1e-4)
    assert found.p == pytest.approx(0.0719, abs=5e-4)  # t = 3.5355


@pytest.mark.parametrize(("first", "p"), [([20.0] * 3, 1.0), ([21.0] * 3, 0.0)])
def test_no_spread_at_all(first, p):
    found = welch(summarize(first), summarize([20.0] * 4))
    assert found.low == found.value == found.high == first[0] - 20
    assert found.p == p


def test_one_run_on_either_side_has_a_difference_but_no_interval():
    for pair in (([5.0], [1.0, 2.0]), ([5.0, 6.0], [1.0])):
        found = welch(*map(summarize, pair))
        assert math.isfinite(found.value)
        assert all(map(math.isnan, (found.low, found.high, found.p)))


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_test_that_could_not_be_made_does_not_count():
    corrected = holm([0.02, math.nan, 0.5])
    assert (corrected[0], corrected[2]) == (0.04, 0.5)
    assert math.isnan(corrected[1])


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p_values):
    corrected = holm(p_values)
    for p, q in zip(p_values, corrected, strict=True):
        assert p <= q <= min(1.0, p * len(p_values))
    by_p = [q for _, q in sorted(zip(p_values, corrected, strict=True))]
    assert by_p == sorted(corrected)


def seeded(values: list[float], seeds: list[int] | None = None) -> Summary:
    """Values of the seeds 1, 2, …, or of these."""
    return summarize(values, seeds or range(1, len(values) + 1))


def test_paired_by_hand():
    """Differences 1, 2, 3, 4, 5: mean 3, standard deviation √2.5; four degrees of freedom, whose 97.5% point is 2.7764.
    p is the area beyond t = 3 √5 / √2.5 = 4.24264 on both sides."""
    found = paired(seeded([51, 62, 73, 84, 95]), seeded([50, 60, 70, 80, 90]))
    assert found.value == 3.0
    reach = 2.776445 * math.sqrt(2.5 / 5)
    assert (found.low, found.high) == pytest.approx((3 - reach, 3 + reach), abs=1e-5)
    assert found.p == pytest.approx(0.013236, abs=1e-5)
    assert found.effect == pytest.approx(3 / math.sqrt(2.5))
    assert found.seeds == 5


pairs = st.lists(st.tuples(*[st.integers(0, 10_000).map(lambda n: n / 100)] * 2), min_size=5, max_size=25)


@settings(deadline=None)
@given(pairs)
def test_paired_is_scipys(values):
    first, second = (list(side) for side in zip(*values, strict=True))
    differences = [one - other for one, other in values]
    assume(max(differences) - min(differences) > 1e-6)
    ours, theirs = paired(seeded(first), seeded(second)), stats.ttest_rel(first, second)
    interval = theirs.confidence_interval(0.95)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)
    assert ours.effect == pytest.approx(theirs.statistic / math.sqrt(len(values)), rel=1e-6)


@settings(deadline=None)
@given(pairs, st.randoms(use_true_random=False))
def test_values_are_paired_by_seed_not_by_place(values, random):
    seeds = list(range(3, 3 + len(values)))
    first, second = (list(side) for side in zip(*values, strict=True))
    order = random.sample(range(len(seeds)), len(seeds))
    shuffled = seeded([second[place] for place in order], [seeds[place] for place in order])
    assert paired(seeded(first, seeds), shuffled) == paired(seeded(first, seeds), seeded(second, seeds))


def test_only_common_seeds_are_compared():
    first = seeded([50.0, 61, 72, 83, 94, 10], [1, 2, 3, 4, 5, 6])
    second = seeded([99.0, 50, 60, 70, 80, 90], [7, 1, 2, 3, 4, 5])
    assert paired(first, second) == paired(seeded([50.0, 61, 72, 83, 94]), seeded([50.0, 60, 70, 80, 90]))


@pytest.mark.parametrize("common", [0, 1, 2, 4])
def test_fewer_than_five_common_seeds_decide_nothing(common):
    """However clear the difference: both have six seeds, and so many of them in common."""
    later = list(range(7 - common, 13 - common))
    found = paired(seeded([99.0, 99.1, 99.2, 99.3, 99.4, 99.5]), seeded([1.0, 2, 3, 4, 5, 6], later))
    assert all(map(math.isnan, (found.low, found.high, found.p, found.effect)))
    assert found.seeds == common
    assert math.isnan(found.value) == (common == 0)


def test_values_without_seeds_cannot_be_paired():
    assert paired(summarize([1.0] * 6), summarize([2.0] * 6)).seeds == 0


@pytest.mark.parametrize(("shift", "p", "effect"), [(0.0, 1.0, 0.0), (2.0, 0.0, math.inf), (-2.0, 0.0, -math.inf)])
def test_the_same_difference_for_every_seed(shift, p, effect):
    """Two methods that do the same have no difference; one that is always two points above has no doubt."""
    found = paired(seeded([value + shift for value in (64.0, 16, 32, 8, 4)]), seeded([64.0, 16, 32, 8, 4]))
    assert found.low == found.value == found.high == shift
    assert (found.p, found.effect) == (p, effect)


def test_rounding_is_no_difference():
    """0.1 + 0.2 is 0.30000000000000004, for every seed: that would be significant."""
    found = paired(seeded([0.1 + 0.2] * 5), seeded([0.3] * 5))
    assert (found.value, found.p) == (0.0, 1.0)


def test_one_side_without_spread():
    """Against a constant it is the test of one sample."""
    values = [19.8, 20.1, 20.4, 19.9, 20.6, 20.2]
    found = paired(seeded(values), seeded([20.0] * 6))
    assert found.p == pytest.approx(stats.ttest_1samp(values, 20.0).pvalue)


def test_a_diverged_seed_is_not_dropped_from_a_comparison():
    """Nor one that the other side does not have: a method of which a run diverged has no mean."""
    fine = seeded([90.0, 91, 92, 93, 94])
    for diverged in (seeded([math.nan, 51, 52, 53, 54, 55]), seeded([50.0, 51, 52, 53, 54, math.nan])):
        for found in (paired(fine, diverged), paired(diverged, fine)):
            assert all(map(math.isnan, (found.value, found.low, found.high, found.p, found.effect)))
            assert found.seeds == 5


def test_pairing_sees_what_welch_cannot():
    """Seeds scatter by tens of points, and one method is two points above the other for every one of them."""
    low = [50.0, 60, 70, 80, 90, 55, 65]
    high = [value + 2 + bonus for value, bonus in zip(low, (0.1, -0.1, 0.2, -0.2, 0, 0.1, -0.1), strict=True)]
    first, second = seeded(high), seeded(low)
    assert welch(first, second).p > 0.5
    assert paired(first, second).p < 1e-6


def test_a_column_compares_every_pair_once():
    column = {
        "none": seeded([19.8, 19.9, 20.0, 19.9, 19.8]),
        "ewc": seeded([19.9, 20.1, 20.0, 19.8, 19.9]),
        "dgr": seeded([90.1, 91.2, 90.8, 91.0, 90.5]),
        "few": seeded([50.0, 51.0, 52.0, 53.0]),
    }
    found = {(c.first, c.second): c for c in compare_all(column)}
    assert len(found) == 6
    assert found["none", "dgr"].significant
    assert found["ewc", "dgr"].significant
    assert not found["none", "ewc"].significant
    assert not found["dgr", "few"].significant
    assert math.isnan(found["dgr", "few"].p_holm)
    worst = stats.ttest_rel(column["none"].per_seed, column["ewc"].per_seed).pvalue
    assert found["none", "ewc"].p_holm == pytest.approx(worst)  # the largest p of all is multiplied by 1
    least = min(c.difference.p for c in found.values() if not math.isnan(c.difference.p))
    assert min(c.p_holm for c in found.values() if not math.isnan(c.p_holm)) == pytest.approx(3 * least)


def test_results_stand_alone():
    """The package loads neither torch nor any other stage of threefold when it is imported."""
    imported = set()
    for source in Path(threefold.results.__file__).parent.glob("*.py"):
        for node in ast.parse(source.read_text()).body:
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module)
    outside = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    allowed = (
        "numpy",
        "scipy",
        "pydantic",
        "threefold.errors",
        "threefold.memory",
        "threefold.reading",
        "threefold.results",
        "threefold.text",
        "threefold.values",
    )
    assert {name for name in outside if not name.startswith(allowed)} == set()
    assert "scipy.special" in outside
