"""How seeds are written."""

import re
from collections.abc import Iterable

from threefold.errors import ThreefoldError

FORM = "right would be a count such as 20 (seeds 1 to 20), a range such as 3-7, or a list such as 1,5,9"


def parse_seeds(given: str | int | Iterable[int]) -> tuple[int, ...]:
    """`20` means seeds 1 to 20, `3-7` a range, `1,5,9` a list; lists may hold ranges."""
    if isinstance(given, str):
        seeds = _count(int(given)) if re.fullmatch(r"\s*\d+\s*", given) else _listed(given)
    elif isinstance(given, int):
        seeds = _count(given)
    else:
        seeds = list(given)
    if not seeds or min(seeds) < 0:
        raise ThreefoldError(f"seeds is '{given}', which names no seed; {FORM}.")
    twice = [seed for place, seed in enumerate(seeds) if seed in seeds[:place]]
    if twice:
        raise ThreefoldError(f"seeds is '{given}', which names {twice[0]} twice; {FORM}.")
    return tuple(seeds)


def _count(number: int) -> list[int]:
    return list(range(1, number + 1))


def _listed(text: str) -> list[int]:
    seeds: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", piece)
        if match is None:
            raise ThreefoldError(f"seeds is '{text}'; {FORM}.")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise ThreefoldError(f"seeds is '{text}', whose range runs backwards; {FORM}.")
        seeds.extend(range(first, last + 1))
    return seeds
