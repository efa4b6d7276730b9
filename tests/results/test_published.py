"""The published numbers against the paper's text, and the rule for agreement."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from threefold.results import Outcome, Published, Summary, lookup, published_cells, summarize, verdict


def cell(mean: float, sem: float, n: int = 20) -> Published:
    return Published("table4", "split-mnist", "class", "none", None, mean, sem, n)


def ours(mean: float, sem: float, n: int = 20) -> Summary:
    return Summary(mean, sem, n, ())


def test_there_are_59_cells_each_its_own():
    cells = published_cells()
    assert len(cells) == 59
    assert len({(c.stream, c.scenario, c.method, c.task_id_in) for c in cells}) == 59
    by_table = [sum(c.table == table for c in cells) for table in ("table4", "table5", "tableB1")]
    assert by_table == [26, 26, 7]
    assert all(0 < c.mean < 100 and 0 < c.sem < 3 and c.n == 20 for c in cells)
    assert {c.scenario for c in cells if c.task_id_in is None} == {"domain", "class"}


@pytest.mark.parametrize(
    ("where", "mean", "sem"),
    [
        (("split-mnist", "task", "none"), 87.19, 0.94),
        (("split-mnist", "domain", "none"), 59.21, 2.04),
        (("split-mnist", "class", "icarl"), 94.57, 0.11),
        (("permuted-mnist", "task", "xdg"), 91.40, 0.23),
        (("permuted-mnist", "task", "ewc"), 94.74, 0.05),
        (("permuted-mnist", "task", "ewc", "output"), 94.74, 0.05),
        (("permuted-mnist", "task", "ewc", "hidden"), 96.94, 0.02),
        (("permuted-mnist", "task", "none", "hidden"), 90.41, 0.32),
        (("permuted-mnist", "class", "dgr-distill"), 96.38, 0.03),
    ],
)
def test_lookup(where, mean, sem):
    found = lookup(*where)
    assert found is not None
    assert (found.mean, found.sem) == (mean, sem)


@pytest.mark.parametrize(
    "where",
    [
        ("split-mnist", "domain", "xdg"),  # a dash in the table
        ("split-mnist", "task", "ewc", "hidden"),  # Table B.1 is permuted MNIST only
        ("permuted-mnist", "domain", "ewc", "hidden"),
        ("split-fashion", "task", "none"),
    ],
)
def test_a_cell_the_paper_does_not_print(where):
    assert lookup(*where) is None


@pytest.mark.parametrize(
    ("mean", "sem", "n", "outcome"),
    [
        (90.0 + 3 * math.hypot(0.3, 0.4), 0.3, 20, Outcome.AGREES),  # on the bound: 3 × 0.5
        (91.51, 0.3, 20, Outcome.DIFFERS),
        (88.49, 0.3, 20, Outcome.DIFFERS),
        (95.0, 3.0, 5, Outcome.AGREES),  # noisy: 9.1 points allowed
        (90.0, math.nan, 1, Outcome.TOO_FEW),  # even on the spot
        (90.0, 0.01, 2, Outcome.TOO_FEW),
        (10.0, 0.01, 2, Outcome.TOO_FEW),  # and even far off
        (90.0, 0.01, 4, Outcome.TOO_FEW),
        (10.0, 0.01, 4, Outcome.TOO_FEW),
        (10.0, 0.01, 5, Outcome.DIFFERS),
        (93.2, 1.0, 5, Outcome.AGREES),  # 3.231 = 3 × 1.077 allowed
        (93.3, 1.0, 5, Outcome.DIFFERS),
        (math.nan, math.nan, 20, Outcome.DIFFERS),  # a seed diverged
    ],
)
def test_the_rule(mean, sem, n, outcome):
    found = verdict(ours(mean, sem, n), cell(90.0, 0.4))
    assert found.outcome is outcome
    assert found.difference.value == pytest.approx(mean - 90.0, nan_ok=True)


def test_half_a_point_agrees_however_small_the_errors():
    for low, high in ((97.40, 97.90), (99.11, 99.61), (19.40, 19.90)):
        assert verdict(ours(low, 0.0), cell(high, 0.01)).outcome is Outcome.AGREES
        assert verdict(ours(high, 0.0), cell(low, 0.01)).outcome is Outcome.AGREES
    assert verdict(ours(97.39, 0.0), cell(97.90, 0.01)).outcome is Outcome.DIFFERS


def test_measured_cells_of_the_notes():
    """Prototype means from the reproduction notes, whose verdicts were reached without this code."""
    assert verdict(ours(20.35, 0.25), cell(23.85, 0.44)).outcome is Outcome.DIFFERS  # LwF Class-IL by the text
    assert verdict(ours(24.94, 0.58), cell(23.85, 0.44)).outcome is Outcome.AGREES
    assert verdict(ours(92.37, 0.26), cell(91.79, 0.32)).outcome is Outcome.AGREES


def test_real_seeds_carry_through():
    found = verdict(summarize([19.8, 19.9, 20.0, 19.7, 20.1]), cell(19.90, 0.02))
    assert (found.outcome, found.allowed) == (Outcome.AGREES, 0.5)
    assert found.difference.low < 0 < found.difference.high


@settings(deadline=None)
@given(st.floats(0, 100), st.floats(0, 5), st.integers(1, 30), st.floats(0, 100), st.floats(0.01, 3))
def test_verdict_and_interval_never_contradict_each_other(mean, sem, n, theirs, their_sem):
    found = verdict(ours(mean, sem if n > 1 else math.nan, n), cell(theirs, their_sem))
    assert (found.outcome is Outcome.TOO_FEW) == (n < 5)
    if n > 1:
        assert found.z * math.hypot(sem, their_sem) == pytest.approx(mean - theirs, abs=1e-9)
    if found.outcome is Outcome.DIFFERS:
        assert not found.difference.low <= 0 <= found.difference.high
        assert abs(found.difference.value) > found.allowed
