"""Parses and writes seeds."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import index

from threefold.errors import ThreefoldError
from threefold.results import Ordered, Seed

FORM = "use a count such as 20 (seeds 1 to 20), a range such as 3-7, or a list such as 1,5,9"
MOST = 10_000  # seeds at once; a typo must not exhaust memory


def parse_seeds(given: str | int | Iterable[int], what: str = "seeds") -> tuple[int, ...]:
    """`20` means seeds 1 to 20, `3-7` a range, `1,5,9` a list; lists may hold ranges."""
    if isinstance(given, str):
        number = re.fullmatch(r"\s*([0-9]{1,18})\s*", given)
        seeds = _count(what, given, int(number[1])) if number else _listed(what, given)
    elif isinstance(given, int):
        seeds = _count(what, given, given)
    else:
        try:
            seeds = [_whole(seed) for seed in islice(given, MOST + 1)]
        except TypeError:
            raise _wrong(what, given, "holds something else than whole numbers") from None
        _few(what, given, len(seeds))
    if not seeds:
        raise _wrong(what, given, "names no seed")
    if min(seeds) < 0:
        raise _wrong(what, given, "names a negative seed")
    known: set[int] = set()
    for seed in seeds:
        if seed in known:
            raise _wrong(what, given, f"names {seed} twice")
        known.add(seed)
    return tuple(seeds)


def seeds_in_orders(seeds: Sequence[int], orders: str | int | Iterable[int] | None) -> tuple[Seed, ...]:
    """Each seed with each of these orders of tasks; None: each seed has its own order."""
    if orders is None:
        return tuple(seeds)
    every = parse_seeds(orders, "orders")
    _few("orders", orders, len(seeds) * len(every))
    return tuple(Ordered(seed, order) for seed in seeds for order in every)


def how_many(seeds: Sequence[Seed]) -> str:
    """The number of seeds, and of orders if they are separate: `20 seeds`, `1 seed in 100 orders`."""
    orders = {seed.order for seed in seeds if isinstance(seed, Ordered)}
    own = {seed.seed if isinstance(seed, Ordered) else seed for seed in seeds}
    text = f"{len(own)} seed{'s' * (len(own) != 1)}"
    return f"{text} in {len(orders)} order{'s' * (len(orders) != 1)}" if orders else text


def _wrong(what: str, given: object, why: str, advice: str = FORM) -> ThreefoldError:
    text = str(given)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return ThreefoldError(f"{what} is '{shown}', which {why}; {advice}.")


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
    return f"{text}-{text}" if text.isdigit() else text  # a single number would be a count


def _whole(seed: object) -> int:
    if isinstance(seed, bool):
        raise TypeError
    return index(seed)  # type: ignore[arg-type]  # a NumPy integer becomes one of Python's


def _count(what: str, given: object, number: int) -> list[int]:
    _few(what, given, number)
    return list(range(1, number + 1))


def _listed(what: str, text: str) -> list[int]:
    seeds: list[int] = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,18})(?:\s*-\s*([0-9]{1,18}))?\s*", piece)
        if match is None:
            raise _wrong(what, text, "is none of the forms there are")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first:
            raise _wrong(what, text, "has a range that runs backwards")
        _few(what, text, len(seeds) + last - first + 1)
        seeds.extend(range(first, last + 1))
    return seeds


def _few(what: str, given: object, number: int) -> None:
    if number > MOST:
        raise _wrong(what, given, f"names more than {MOST}", f"use {MOST} at most")
