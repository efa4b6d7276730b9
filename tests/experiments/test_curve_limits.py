"""The number of tests during training is limited before training starts, so that results fit into a store."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiment_files import TOP, requested, small_data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import threefold
from threefold import Dataset, Permuted
from threefold.engine import Evaluation, Training
from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Settings
from threefold.experiments.cohort import capacity
from threefold.experiments.limits import LARGEST, CurveSizes
from threefold.methods import Method
from threefold.networks import MLPNetwork
from threefold.results import Curve, pack
from threefold.results.curve import NUMBERS, POINTS
from threefold.scenarios import SCENARIOS
from threefold.streams import Stream, Task, find_boundaries


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    small_data(tmp_path, monkeypatch)
    return threefold.load("small.npz")


class Ragged(Stream):
    """Tasks of any sizes, which may share samples."""

    def __init__(self, data: Dataset, sizes: list[int]) -> None:
        self.sizes = sizes
        super().__init__(data)

    def sequence(self, seed: int) -> list[Task]:
        return [Task((0, 1, 2, 3), torch.arange(size), torch.arange(80)) for size in self.sizes]


def points_in(steps: list[int], every: int, first: int) -> int:
    """The points of tasks of so many steps, one by one; and that before any training."""
    return 1 + sum(step == own or step % every == 0 or step <= first for own in steps for step in range(1, own + 1))


counts = st.integers(1, 30)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(4, 80), min_size=1, max_size=5), counts, counts, st.integers(0, 40), st.booleans())
def test_no_fewer_points_are_counted_than_there_are(
    data: Dataset, sizes: list[int], length: int, every: int, first: int, passes: bool
) -> None:
    how = {"iters": None, "epochs": length} if passes else {"iters": length}
    training = Training(batch=4, network=MLPNetwork(), evaluation=Evaluation(every, first), **how)  # type: ignore[arg-type]
    steps = [training.steps(size) for size in sizes]
    counted = CurveSizes.of(Ragged(data, sizes), training).points
    found = points_in(steps, every, first)
    spare = (length if passes else 0) + 5  # of each task: samples that fill no batch are counted together
    short = sum(max(0, first - own) for own in steps)  # first steps of one task are counted as if others had them
    assert found <= counted <= found + spare * len(sizes) + short + 1


@pytest.mark.parametrize("boundaries", ["sharp", "blurred:width=2", "none"])
@pytest.mark.parametrize("training", [False, True])
def test_what_is_stored_is_no_more_than_was_counted(data: Dataset, boundaries: str, training: bool) -> None:
    stream = Permuted(data, 3)
    how: dict[str, Any] = {"iters": 7, "evaluate_every": 2, "evaluate_first": 3, "training_curves": training}
    how |= {"device": "cpu", "hidden": 4, "batch": 8}
    result = threefold.run(stream, scenario="class", seeds=1, boundaries=boundaries, store=None, **how)
    stream.boundaries = find_boundaries(boundaries)
    sizes = CurveSizes.of(stream, Cell.of(stream, SCENARIOS["class"], Method(), Settings.checked(**how)).training)
    curve = result.records[0].curve
    assert curve is not None
    assert len(curve.step) <= sizes.points
    found = [curve.accuracy, curve.training_accuracy, curve.loss]
    assert sum(each[0].size for each in found if each is not None) + 3 <= sizes.each


@pytest.mark.parametrize(
    ("settings", "tasks", "said"),
    [
        ({"iters": 10**9, "evaluate_every": 1}, 2, "evaluate_every is 1 and evaluate_first 0, which is about 2,000,0"),
        ({"iters": 10**9, "evaluate_every": 10**9, "evaluate_first": 10**8}, 2, "evaluate_first 100000000, which is"),
        ({"epochs": 10**9, "evaluate_every": 5}, 2, "in each run; use numbers that make at most 100,000."),
        ({"iters": 500, "evaluate_every": 1}, 500, "tests of 500 tasks in each run; use numbers that make at most 19,"),
        ({"iters": 5, "evaluate_every": LARGEST + 1}, 2, "evaluate_every must be at most 1000000000000, got"),
        ({"iters": 5, "evaluate_every": 1, "evaluate_first": 10**30}, 2, "evaluate_first must be at most"),
        ({"iters": 5, "evaluate_every": 1, "evaluate_samples": 10**30}, 2, "evaluate_samples must be at most"),
    ],
)
def test_more_than_fits_is_refused(data: Dataset, settings: dict[str, Any], tasks: int, said: str) -> None:
    chosen = Settings.checked(device="cpu", hidden=8, batch=8, **settings)
    with pytest.raises(ThreefoldError) as told:
        Cell.of(Permuted(data, tasks), SCENARIOS["domain"], Method(), chosen)
    assert said in str(told.value)


def test_what_just_fits_is_planned(data: Dataset) -> None:
    longest = Settings.checked(device="cpu", hidden=8, batch=8, iters=10**9, evaluate_every=25_000)
    cell = Cell.of(Permuted(data, 2), SCENARIOS["domain"], Method(), longest)
    assert 0.75 * POINTS < CurveSizes.of(cell.stream, cell.training).points <= POINTS


def test_a_file_is_checked_as_well(data: Dataset) -> None:
    text = TOP.replace("iters = 6", "iters = 100_000\nevaluate_every = 1") + "[[methods]]\nmethod = 'none'\n"
    with pytest.raises(ThreefoldError, match="about 200,005 tests of 2 tasks in each run"):
        requested(text)


def test_a_stack_has_room_for_what_is_found(data: Dataset) -> None:
    """Points, and which samples are tested."""

    def most(**settings: Any) -> int:
        chosen = Settings.checked(device="cpu", hidden=4, batch=4, iters=10_000, **settings)
        return capacity(Cell.of(Permuted(data, 5), SCENARIOS["class"], Method(), chosen), lambda device: 10**9)

    assert most(evaluate_every=1) <= 0.7 * 10**9 / (4 * 5 * 10_000 * 5) < most(evaluate_every=10**6) <= most()
    assert most(evaluate_every=10**6, evaluate_samples="all") < most(evaluate_every=10**6, evaluate_samples=2)


def curve_of(points: Any, accuracy: Any, **more: Any) -> Curve:
    packed = {"points": pack(np.array(points)), "accuracy": pack(np.array(accuracy))}
    return Curve.of(packed | {name: pack(np.array(value)) for name, value in more.items()}, 2)


TWO = [[0, 0, 1], [0, 2, 1]]
HALF = [[50.0, 50.0]] * 2


@pytest.mark.parametrize(
    ("points", "accuracy", "more", "said"),
    [
        (np.array([[0, 0, 1], [0, 127, 1]], "i1"), HALF, {}, ""),  # small integers are no reason to count wrongly
        (np.array([[0, 127, 1], [0, 2, 1]], "i1"), HALF, {}, "not in order"),
        ([[0, 0, 1], [1, 2**62, 1]], HALF, {}, "a step beyond"),
        ([[0, 2**62, 1], [1, 2**62, 1]], HALF, {}, "a step beyond"),
        ([[1, 5, 1], [0, 2**62, 1]], HALF, {}, "not in order"),
        (TWO, [[1, 2], [3, 4]], {}, "accuracy has values of type int64"),
        (TWO, np.array(HALF, complex), {}, "accuracy has values of type complex128"),
        (TWO, HALF, {"loss": [True, False]}, "loss has values of type bool"),
        ([[0, step, 1] for step in range(POINTS + 1)], [[50.0, 50.0]] * (POINTS + 1), {}, "100001 points, more than"),
    ],
)
def test_a_curve_from_elsewhere_is_what_it_says(points: Any, accuracy: Any, more: dict[str, Any], said: str) -> None:
    if not said:
        assert curve_of(points, accuracy, **more).total.tolist() == [0, 127]
        return
    with pytest.raises(ValueError, match=said):
        curve_of(points, accuracy, **more)


def test_a_curve_that_unpacks_to_much_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros pack a thousandfold; and many small arrays are one large one."""
    monkeypatch.setattr("threefold.results.curve.unpack", lambda packed: pytest.fail("it was unpacked"))
    packed = {"points": pack(np.array(TWO)), "accuracy": pack(np.array(HALF))}
    large = {"dtype": "<f8", "shape": [NUMBERS // 3], "bytes": ""}
    with pytest.raises(ValueError, match=f"more than {NUMBERS}"):
        Curve.of(packed | dict.fromkeys("abc", large), 2)
