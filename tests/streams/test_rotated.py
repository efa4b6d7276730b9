"""Rotated: images turned about their middle, against NumPy, SciPy and a loop over complex numbers."""

import cmath
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered_data import numbered
from scipy import ndimage

from threefold.engine.device_data import DeviceData
from threefold.errors import ThreefoldError
from threefold.scenarios import SCENARIOS, Outputs
from threefold.streams import Rotated, find

SIDES = st.integers(1, 9)
ANGLES = st.floats(-720, 720, allow_nan=False)


def seen(stream, task=0, seed=1):
    """The test samples of a task, as the engine makes them of its pixels."""
    outputs = Outputs.of(SCENARIOS["domain"], stream)
    data = DeviceData(stream, outputs, [seed], 2, torch.device("cpu"))
    indices = torch.arange(len(stream.data.test_y)).unsqueeze(0)
    return data.test(indices, torch.tensor(task)).x[0].numpy()


@pytest.mark.parametrize("shape", [(4, 4), (5, 5), (3, 6), (1, 4, 4), (3, 5, 5), (2, 4, 6)])
def test_quarter_and_half_turns_are_exact(shape):
    data = numbered(*shape)
    images = data.test_x.numpy().reshape(len(data.test_y), *((1,) * (3 - len(shape))), *shape)
    turns = (0, 90, 180, 270, 360) if shape[-1] == shape[-2] else (0, 180, 360)
    stream = Rotated(data, angles=turns)
    for task, degrees in enumerate(turns):
        assert np.array_equal(seen(stream, task), np.rot90(images, degrees // 90, axes=(2, 3))), degrees


def test_an_image_that_is_not_square_keeps_its_shape_and_loses_its_ends():
    """By hand: upright, a row of three pixels has only its middle within an image of one row."""
    wide = numbered(1, 3)
    assert wide.test_x[0].tolist() == [[28.0, 29.0, 30.0]]
    assert seen(Rotated(wide, angles=[90.0]))[0].tolist() == [[[0.0, 29.0, 0.0]]]


@given(SIDES, SIDES, ANGLES)
@settings(max_examples=60)
def test_each_pixel_is_the_nearest_one_of_the_image_before_it_was_turned(height, width, degrees):
    """Counter-clockwise about the middle, rows running down; a pixel between two others may be either."""
    data = numbered(height, width, train=3, test=3)
    image, found = data.test_x[1].numpy(), seen(Rotated(data, angles=[degrees]))[1, 0]
    middle, turn = complex((width - 1) / 2, (height - 1) / 2), cmath.exp(-1j * math.radians(degrees))
    for row in range(height):
        for column in range(width):
            place = (complex(column, row) - middle).conjugate() * turn  # up is the imaginary axis
            place = place.conjugate() + middle
            near = [
                image[y, x] if 0 <= y < height and 0 <= x < width else 0.0
                for y in {round(place.imag + tie) for tie in (-1e-9, 1e-9)}
                for x in {round(place.real + tie) for tie in (-1e-9, 1e-9)}
            ]
            assert found[row, column] in near


@pytest.mark.parametrize("shape", [(12, 12), (7, 10), (3, 9, 9)])
@pytest.mark.parametrize("degrees", [17.3, 45.1, 111.1, 179.9, -33.3])
def test_scipy_turns_images_likewise(shape, degrees):
    data = numbered(*shape)
    images = data.test_x.numpy()
    expected = ndimage.rotate(images, degrees, (-1, -2), reshape=False, order=0, mode="grid-constant")
    if len(shape) == 2:
        expected = expected[:, None]
    assert np.array_equal(seen(Rotated(data, angles=[degrees])), expected)


def test_all_channels_are_turned_alike():
    data = numbered(3, 6, 6)
    found = seen(Rotated(data, angles=[30.0]))
    inside = (found != 0).all(1)
    assert np.array_equal((found != 0).any(1), inside)
    steps = np.diff(found, axis=1)  # each channel's numbers are 36 above those of the one before
    assert set(np.unique(steps[np.broadcast_to(inside[:, None], steps.shape)])) == {36.0}


def test_each_task_and_seed_has_an_angle_of_its_own_between_0_and_180():
    stream = Rotated(numbered(4, 4), 5)
    angles = np.array([stream.angles(seed) for seed in range(400)])
    assert angles.shape == (400, 5)
    assert len(np.unique(angles)) == 2000
    assert 0 <= angles.min() < 2
    assert 178 < angles.max() < 180
    counts = np.histogram(angles, 10, (0, 180))[0]
    assert np.abs(counts - 200).max() < 67  # five standard deviations of 13.4
    assert Rotated(numbered(4, 4), 3).angles(7) == stream.angles(7)[:3]


def test_given_angles_are_the_same_for_every_seed():
    stream = Rotated(numbered(4, 4), angles="0-45-90")
    assert (stream.tasks, stream.angles(1), stream.angles(2)) == (3, (0, 45, 90), (0, 45, 90))
    for one, other in zip(stream.sequence(1), stream.sequence(2), strict=True):
        assert torch.equal(one.pixels, other.pixels)


def test_every_task_has_all_samples_without_a_copy_and_classes_of_its_own():
    stream = Rotated(numbered(4, 4), 3)
    tasks = stream.sequence(1)
    for task in tasks:
        assert task.classes == (0, 1, 2)
        assert task.train.tolist() == list(range(9))
        assert task.train.data_ptr() == tasks[0].train.data_ptr()
    assert (stream.samples, stream.smallest_task(3), stream.recurring) == (9, 9, None)
    assert Outputs.of(SCENARIOS["class"], stream).units == 9


@pytest.mark.parametrize(
    ("angles", "written"),
    [([0, 30.0], "0-30"), ([-30, 0.5, -0.25], "-30-0.5--0.25"), ([1e-05, -1e-05], "1e-05--1e-05"), ([-45], "-45")],
)
def test_any_angles_are_read_back(angles, written):
    made = Rotated(numbered(4, 4), angles=angles)
    assert made.written == f"rotated-numbered:angles={written}"
    assert find(made.written).of(made.data).angles(1) == tuple(angles)


@pytest.mark.parametrize("angles", ["", "a", "30-x", "nan", "inf", "1-inf", (), 30, "Random", [None]])
def test_what_angles_must_be(angles):
    with pytest.raises(ThreefoldError) as refused:
        Rotated(numbered(4, 4), angles=angles)
    assert str(refused.value) == f"angles of rotated must be degrees such as 0-30-60, or random, got '{angles}'."


def test_angles_say_how_many_tasks_there_are():
    with pytest.raises(ThreefoldError, match=r"^tasks is 3, but angles is for 2 tasks; give one of them\.$"):
        Rotated(numbered(4, 4), 3, angles="0-30")
    assert Rotated(numbered(4, 4), 2, angles="0-30").tasks == 2


@pytest.mark.parametrize(("shape", "written"), [((16,), "16"), ((2, 2, 2, 2), "2×2×2×2")])
def test_data_that_are_no_images_are_refused(shape, written):
    with pytest.raises(ThreefoldError) as refused:
        Rotated(numbered(*shape))
    assert str(refused.value) == f"rotated needs images, but the samples of numbered have the shape {written}."
