"""How seeds are written."""

from contextlib import suppress
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threefold.errors import ThreefoldError
from threefold.experiments import parse_seeds
from threefold.experiments.seeds import MOST

numbers = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("given_", "seeds"),
    [
        ("20", tuple(range(1, 21))),
        ("1", (1,)),
        ("3-7", (3, 4, 5, 6, 7)),
        ("5-5", (5,)),
        ("1,5,9", (1, 5, 9)),
        ("9,1", (9, 1)),
        ("0,2", (0, 2)),
        ("1-3,7", (1, 2, 3, 7)),
        (" 1 , 4 - 6 ", (1, 4, 5, 6)),
        (3, (1, 2, 3)),
        ([7, 3], (7, 3)),
        (range(2, 5), (2, 3, 4)),
        ({8}, (8,)),
        (np.arange(3), (0, 1, 2)),
    ],
    ids=str,
)
def test_what_is_meant(given_: object, seeds: tuple[int, ...]) -> None:
    parsed = parse_seeds(given_)  # type: ignore[arg-type]
    assert parsed == seeds
    assert {type(seed) for seed in parsed} == {int}, "the draws are addressed by the text of a seed"


@given(st.lists(numbers, min_size=2, unique=True))
def test_a_list_comes_back(seeds: list[int]) -> None:
    assert parse_seeds(",".join(map(str, seeds))) == tuple(seeds)
    assert parse_seeds(seeds) == tuple(seeds)


@given(numbers, st.integers(0, 300))
def test_a_range_comes_back(first: int, more: int) -> None:
    assert parse_seeds(f"{first}-{first + more}") == tuple(range(first, first + more + 1))


@given(st.integers(1, 500))
def test_a_count_starts_at_one(number: int) -> None:
    assert parse_seeds(str(number)) == parse_seeds(number) == parse_seeds(f"1-{number}")


@given(st.lists(st.tuples(numbers, st.integers(0, 20)), min_size=1))
def test_lists_of_ranges_are_all_or_nothing(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{first}-{first + more}" for first, more in ranges)
    meant = [seed for first, more in ranges for seed in range(first, first + more + 1)]
    if len(set(meant)) == len(meant):
        assert parse_seeds(text) == tuple(meant)
    else:
        with pytest.raises(ThreefoldError, match="twice"):
            parse_seeds(text)


@given(st.text() | st.text("0123456789,- ", max_size=8))
def test_any_other_text_is_an_error_and_nothing_worse(text: str) -> None:
    """What is accepted means what its numbers say, read here in another way."""
    with suppress(ThreefoldError):
        seeds = parse_seeds(text)
        if text.strip().isdecimal():
            assert seeds == tuple(range(1, int(text) + 1))
        else:
            ends = [piece.split("-") for piece in text.split(",")]
            assert seeds == tuple(seed for piece in ends for seed in range(int(piece[0]), int(piece[-1]) + 1))


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ("0", "names no seed"),
        ("0\x1f", "names no seed"),  # a space to regular expressions, not to int
        (0, "names no seed"),
        (-3, "names no seed"),
        ([], "names no seed"),
        ([3, -1], "negative"),
        ([3, 3], "names 3 twice"),
        ([1.5], "whole numbers"),
        (["1"], "whole numbers"),
        ([True], "whole numbers"),
        (1.5, "whole numbers"),
        (None, "whole numbers"),
        ("7-3", "backwards"),
        ("1,,2", "use a count such as 20"),
        ("1-2-3", "use a count such as 20"),
        ("1.5", "use a count such as 20"),
        ("٣", "use a count such as 20"),
        (str(MOST + 1), "at most"),
        (f"1-{MOST + 1}", "at most"),
        (f"0,1-{MOST}", "at most"),
        (10**15, "at most"),
        (range(10**12), "at most"),
        (count(), "at most"),
        ("9" * 5000, "use a count such as 20"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_wrong_is_said(given_: object, why: str) -> None:
    with pytest.raises(ThreefoldError, match=why) as caught:
        parse_seeds(given_)  # type: ignore[arg-type]
    assert str(caught.value).startswith("seeds is '")
    assert str(caught.value).endswith(".")
