"""Boundaries: each task's probability at each step, against trapezoids written out and against the actual draws."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from threefold.engine.batches import FlowingBatches
from threefold.engine.flow import Flow
from threefold.errors import ThreefoldError
from threefold.streams import BOUNDARIES, SHARP, find_boundaries
from threefold.streams.boundaries import Blurred, Mixed

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=6)


@st.composite
def blurred(draw):
    """Lengths of tasks, and a width that they can have."""
    lengths = draw(st.lists(st.integers(2, 30), min_size=2, max_size=6))
    return lengths, draw(st.integers(0, min([lengths[0] // 2, *(length // 2 for length in lengths)])))


def trapezoids(lengths, width):
    """Steps × tasks: the mean over each step of a chance that is 1 within a task's stretch and falls from 1 to 0
    along a line, from `width` steps before the stretch's end to `width` steps after it, while the next rises.

    The stretches follow each other round a circle that begins in the middle of the first.
    """
    total, points = sum(lengths), 8
    t = (np.arange(total * points) + 0.5) / points
    chances = np.zeros((len(t), len(lengths)))
    starts = np.cumsum([lengths[0] // 2 - lengths[0], *lengths[:-1]])
    for task, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        for turn in (-total, 0, total):
            since, left = t - (start + turn), start + turn + length - t
            with np.errstate(divide="ignore"):
                rises, falls = (np.clip(np.divide(each, 2 * width) + 0.5, 0, 1) for each in (since, left))
            chances[:, task] += rises * falls
    return chances.reshape(total, points, -1).mean(1)


@given(blurred())
def test_chances_are_trapezoids_round_a_circle(asked):
    lengths, width = asked
    found = Blurred(width=width).chances(lengths, 0, sum(lengths))
    assert found.dtype == torch.float64
    assert np.allclose(found.numpy(), trapezoids(lengths, width), atol=1e-12, rtol=0)


@given(blurred())
def test_some_task_always_comes_and_at_most_two_at_once(asked):
    lengths, width = asked
    found = Blurred(width=width).chances(lengths, 0, sum(lengths)).numpy()
    assert np.allclose(found.sum(1), 1, atol=1e-12)
    assert (found >= 0).all()
    assert ((found > 0).sum(1) <= 2).all()


@given(blurred())
def test_each_task_comes_for_as_many_steps_as_it_has_in_all(asked):
    lengths, width = asked
    found = Blurred(width=width).chances(lengths, 0, sum(lengths))
    assert np.allclose(found.sum(0).numpy(), lengths, atol=1e-9)


@given(blurred())
def test_chances_never_jump_and_the_first_task_is_there_at_both_ends(asked):
    lengths, width = asked
    found = Blurred(width=width).chances(lengths, 0, sum(lengths)).numpy()
    if width:
        assert np.abs(np.diff(found, axis=0)).max() <= 1 / (2 * width) + 1e-12
    near = 1 - (1 / (4 * width) if width else 0) - 1e-12  # where fades meet the ends, half a step is left
    assert found[0, 0] >= near
    assert found[-1, 0] >= near


@given(LENGTHS.filter(lambda lengths: min(lengths) > 1))
def test_without_width_tasks_follow_each_other_sharply_and_go_round(lengths):
    order = [0] * (lengths[0] // 2)
    for task, length in enumerate(lengths[1:], start=1):
        order += [task] * length
    order += [0] * (sum(lengths) - len(order))
    found = Blurred(width=0).chances(lengths, 0, sum(lengths))
    assert found.argmax(1).tolist() == order
    assert set(found.unique().tolist()) <= {0.0, 1.0}


@given(blurred(), st.data(), st.booleans())
def test_a_stretch_of_steps_is_the_same_whenever_it_is_asked_for(asked, data, mixed):
    lengths, width = asked
    ends = Mixed() if mixed else Blurred(width=width)
    start = data.draw(st.integers(0, sum(lengths)))
    stop = data.draw(st.integers(start, sum(lengths)))
    assert torch.equal(ends.chances(lengths, start, stop), ends.chances(lengths, 0, sum(lengths))[start:stop])


@given(blurred())
def test_a_task_begins_with_the_first_step_that_it_may_come_in(asked):
    lengths, width = asked
    found = trapezoids(lengths, width)
    assert Blurred(width=width).begins(lengths) == [int(np.argmax(found[:, task] > 0)) for task in range(len(lengths))]


@given(LENGTHS, st.integers(0, 20))
def test_fades_may_meet_and_not_overlap(lengths, width):
    ends = np.cumsum([lengths[0] // 2, *lengths[1:]])
    fades = [(end - width, end + width) for end in ends]
    apart = all(one[1] <= other[0] for one, other in pairwise(fades))
    fit = apart and fades[0][0] >= 0 and fades[-1][1] <= sum(lengths)
    reason = Blurred(width=width).refuse(lengths)
    if len(lengths) > 1:
        assert (reason is None) == fit
    if reason:
        most = max(w for w in range(width) if Blurred(width=w).refuse(lengths) is None)
        assert reason == (f"width of blurred must be at most {most}, half of the shortest task's steps, got {width}.")


def test_by_hand():
    """Two tasks of four steps, fading over two steps around 2 and 6."""
    found = Blurred(width=1).chances([4, 4], 0, 8)
    first = [1, 0.75, 0.25, 0, 0, 0.25, 0.75, 1]
    assert found[:, 0].tolist() == first
    assert found[:, 1].tolist() == [1 - chance for chance in first]


@given(LENGTHS)
def test_without_boundaries_all_tasks_come_alike_at_every_step(lengths):
    none = Mixed()
    found = none.chances(lengths, 0, sum(lengths)).numpy()
    assert np.allclose(found, np.array(lengths) / sum(lengths), atol=1e-15)
    assert (none.begins(lengths), none.refuse(lengths)) == ([0] * len(lengths), None)


@given(LENGTHS)
def test_sharp_tasks_begin_one_after_the_other(lengths):
    assert SHARP.begins(lengths) == [sum(lengths[:n]) for n in range(len(lengths))]
    assert (SHARP.clock, SHARP.refuse(lengths)) == (None, None)


@pytest.mark.parametrize("text", ["blurred:width=5,every=7", "none:every=3"])
def test_tasks_are_drawn_as_often_as_their_chances_say(text):
    """Each sample of each step draws its own task: 400 seeds of 8 samples, within five standard deviations."""
    ends, lengths, batch, seeds = find_boundaries(text), (12, 20, 16), 8, 400
    pool = [(task, torch.arange(100 * task, 100 * task + 40)) for task in range(3)]
    counts = np.zeros((sum(lengths), 3))
    for seed in range(seeds):
        flow = Flow(ends, ends.clock, lengths, online=False)
        drawn = FlowingBatches(pool, seed, batch, flow).take(sum(lengths))
        assert torch.equal(drawn.indices // 100, drawn.task), "samples are those of the task"
        counts += torch.nn.functional.one_hot(drawn.task, 3).sum(1).numpy()
    chances, draws = ends.chances(lengths, 0, sum(lengths)).numpy(), seeds * batch
    allowed = 5 * np.sqrt(draws * chances * (1 - chances))
    assert (np.abs(counts - draws * chances) <= allowed).all()
    assert counts[chances == 0].sum() == 0


@pytest.mark.parametrize(
    ("text", "kind", "written", "clock"),
    [
        ("sharp", "sharp", "sharp", None),
        ("blurred", "blurred", "blurred", 100),
        ("blurred:width=20", "blurred", "blurred:width=20", 100),
        ("blurred:width=500,every=100", "blurred", "blurred", 100),
        ("blurred:every=7,width=0", "blurred", "blurred:every=7,width=0", 7),
        ("none:every=1", "none", "none:every=1", 1),
    ],
)
def test_boundaries_by_name(text, kind, written, clock):
    found = find_boundaries(text)
    assert (found.name, found.written(), found.clock) == (kind, written, clock)
    assert find_boundaries(found) is found
    assert find_boundaries(written) == found
    assert found.described() == {"name": kind, "hyperparameters": found.model_dump()}
    assert isinstance(found, BOUNDARIES[kind])


@pytest.mark.parametrize(
    ("given_", "sentence"),
    [
        ("blured", "boundaries 'blured' is not known; did you mean 'blurred'?"),
        ("", "boundaries '' is not known; known: blurred, none, sharp."),
        ("sharp:width=3", "boundaries 'sharp' has no hyperparameters, but 'width' was given."),
        ("blurred:widht=3", "hyperparameter of blurred 'widht' is not known; did you mean 'width'?"),
        ("blurred:", "boundaries 'blurred:' has nothing after the colon; use blurred or blurred:key=value."),
        ("blurred:5", "boundaries 'blurred:5' has '5'; use key=value."),
        ("blurred:width=-1", "hyperparameter width of blurred is '-1': input should be greater than or equal to 0."),
        ("none:every=0", "hyperparameter every of none is '0': input should be greater than or equal to 1."),
        (500, "boundaries must be a name such as 'blurred:width=500', got 500."),
        (None, "boundaries must be a name such as 'blurred:width=500', got None."),
        (Blurred, f"boundaries must be a name such as 'blurred:width=500', got {Blurred!r}."),
    ],
)
def test_other_boundaries_are_refused_in_a_sentence(given_, sentence):
    with pytest.raises(ThreefoldError) as refused:
        find_boundaries(given_)
    assert str(refused.value) == sentence
