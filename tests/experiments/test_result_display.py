"""Results as notebooks show them: short text, HTML, tables of pandas, plots, comparisons."""

import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib import pyplot
from small_cells import small_split

import threefold
from threefold import EWC, SI, Result, ThreefoldError, XdG

QUICK = {"iters": 6, "hidden": 8, "batch": 16, "device": "cpu", "store": None}


@pytest.fixture(scope="module")
def found() -> Result:
    return threefold.run(small_split(), scenario="class", method="ewc:strength=5", seeds=5, evaluate_every=2, **QUICK)


@pytest.fixture(scope="module")
def plain() -> Result:
    return threefold.run(small_split(), scenario="class", seeds=5, **QUICK)


@pytest.fixture(autouse=True)
def _no_windows() -> Iterator[None]:
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def test_hyperparameters_that_were_given_are_shown_and_no_others() -> None:
    assert repr(EWC(strength=3.0)) == str(EWC(strength=3.0)) == "EWC(strength=3.0)"
    assert repr(SI(strength=2, damping=0.1)) == "SI(strength=2.0)"
    assert repr(EWC(strength=3.0) + XdG()) == "Method(EWC(strength=3.0), XdG())"


def test_a_result_says_in_a_line_what_it_is(found: Result) -> None:
    mean, sem = found.accuracy.mean, found.accuracy.sem
    assert repr(found) == f"Result({found.cell.name}: {mean:.2f} ± {sem:.2f} per cent, 5 seeds)"
    assert "ewc:strength=5" in repr(found)


def test_orders_are_counted_too() -> None:
    result = threefold.run(small_split(), scenario="class", seeds=1, orders=3, **QUICK)
    assert repr(result).endswith("per cent, 1 seed in 3 orders)")


def test_a_notebook_shows_metrics_and_a_picture(found: Result) -> None:
    page = found._repr_html_()
    assert f"<td>Average accuracy (ACC)</td><td>{found.accuracy}</td>" in page
    assert "<svg" in page
    assert "nan" not in re.sub("<svg.*</svg>", "", page, flags=re.DOTALL)


def test_tables_hold_every_number_of_every_run(found: Result) -> None:
    rows = found.to_pandas()
    tasks = len(found.initial[0])
    assert len(rows) == 5 * (tasks + 1) * tasks
    for index, seed in enumerate(found.seeds):
        mine = rows[rows.seed == seed].pivot(index="after_task", columns="on_task", values="accuracy").to_numpy()
        np.testing.assert_array_equal(mine, [found.initial[index], *found.matrix[index]])
    runs = found.to_pandas("runs").set_index("seed")
    assert list(runs.average_accuracy) == list(found.accuracy.per_seed)
    curves = found.to_pandas("curves")
    last = curves[curves.step == curves.step.max()].pivot(index="seed", columns="on_task", values="accuracy")
    assert last.shape == (5, tasks)


def test_without_pandas_a_sentence_says_what_to_install(found: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threefold.extras.find_spec", lambda name: None)
    with pytest.raises(ThreefoldError, match=r"to_pandas needs pandas, which is not installed"):
        found.to_pandas()


def test_plots_are_axes_to_go_on_with(found: Result) -> None:
    axes = found.plot()
    means = np.concatenate([found.initial[:, None], found.matrix], 1).mean(0)
    for task, line in enumerate(axes.lines):
        np.testing.assert_allclose(line.get_ydata(), means[:, task])
    _, own = pyplot.subplots()
    assert found.plot("matrix", ax=own) is own
    np.testing.assert_allclose(own.images[0].get_array(), found.matrix.mean(0))
    curves = found.plot("curves")
    task = curves.lines[0]
    every = np.array([record.curve.accuracy[:, 0] for record in found.records if record.curve])
    np.testing.assert_allclose(task.get_ydata(), every.mean(0))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda result: result.plot("curves"), "curves need tests during training"),
        (lambda result: result.to_pandas("curves"), "curves need tests during training"),
        (lambda result: result.plot("bars"), "kind must be 'tasks', 'curves' or 'matrix', got 'bars'."),
        (lambda result: result.to_pandas("all"), "of must be 'runs', 'accuracies' or 'curves', got 'all'."),
        (lambda result: result.compare(result, "speed"), "metric 'speed'"),
    ],
)
def test_what_there_is_not_is_said_in_a_sentence(plain: Result, call: object, sentence: str) -> None:
    with pytest.raises(ThreefoldError, match=re.escape(sentence)):
        call(plain)  # type: ignore[operator]


def test_comparisons_are_paired_by_seed(found: Result, plain: Result) -> None:
    difference = found.compare(plain)
    by_hand = np.subtract(found.accuracy.per_seed, plain.accuracy.per_seed)
    assert difference.seeds == 5
    assert difference.value == pytest.approx(by_hand.mean())
    assert found.compare(plain, "forgetting").value == pytest.approx(
        found.metrics["forgetting"].mean - plain.metrics["forgetting"].mean
    )


def test_diverged_seeds_are_said_and_not_averaged_away() -> None:
    result = threefold.run(small_split(), scenario="class", optimizer="sgd:lr=1e30", seeds=2, **QUICK)
    assert "diverged" in repr(result)
    assert "2 of 2 seeds diverged" in result.plot().get_title()
    assert "diverged" in result._repr_html_()


def test_in_a_terminal_there_are_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    threefold.run(small_split(), scenario="class", seeds=2, **QUICK)
    assert "Class-IL none: " in capsys.readouterr().err
