"""How seeds are written."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import index

from threefold.errors import ThreefoldError

FORM = "use a count such as 20 (seeds 1 to 20), a range such as 3-7, or a list such as 1,5,9"
MOST = 10_000  # seeds at once; a slip of the finger must not fill the memory


def parse_seeds(given: str | int | Iterable[int]) -> tuple[int, ...]:
    """`20` means seeds 1 to 20, `3-7` a range, `1,5,9` a list; lists may hold ranges."""
    if isinstance(given, str):
        number = re.fullmatch(r"\s*([0-9]{1,18})\s*", given)
        seeds = _count(given, int(number[1])) if number else _listed(given)
    elif isinstance(given, int):
        seeds = _count(given, given)
    else:
        try:
            seeds = [_whole(seed) for seed in islice(given, MOST + 1)]
        except TypeError:
            raise _wrong(given, "holds something else than whole numbers") from None
        _few(given, len(seeds))
    if not seeds:
        raise _wrong(given, "names no seed")
    if min(seeds) < 0:
        raise _wrong(given, "names a negative seed")
    known: set[int] = set()
    for seed in seeds:
        if seed in known:
            raise _wrong(given, f"names {seed} twice")
        known.add(seed)
    return tuple(seeds)


def _wrong(given: object, why: str, advice: str = FORM) -> ThreefoldError:
    text = str(given)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return ThreefoldError(f"seeds is '{shown}', which {why}; {advice}.")


def written_seeds(seeds: Sequence[int]) -> str:
    """Seeds as `parse_seeds` reads them."""
    if list(seeds) == list(range(1, len(seeds) + 1)):
        return str(len(seeds))
    pieces: list[list[int]] = []
    for seed in seeds:
        if pieces and seed == pieces[-1][-1] + 1:
            pieces[-1].append(seed)
        else:
            pieces.append([seed])
    text = ",".join(str(piece[0]) if len(piece) == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces)
    return f"{text}-{text}" if text.isdigit() else text  # a number alone would be a count


def _whole(seed: object) -> int:
    if isinstance(seed, bool):
        raise TypeError
    return index(seed)  # type: ignore[arg-type]  # a NumPy integer becomes one of Python's


def _count(given: object, number: int) -> list[int]:
    _few(given, number)
    return list(range(1, number + 1))


def _listed(text: str) -> list[int]:
    seeds: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})(?:\s*-\s*([0-9]{1,18}))?\s*", piece)
        if match is None:
            raise _wrong(text, "is none of the forms there are")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise _wrong(text, "has a range that runs backwards")
        _few(text, len(seeds) + last - first + 1)
        seeds.extend(range(first, last + 1))
    return seeds


def _few(given: object, number: int) -> None:
    if number > MOST:
        raise _wrong(given, f"names more than {MOST} seeds", f"use {MOST} at most")
