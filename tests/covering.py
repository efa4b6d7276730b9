"""Products of axes: a selection that covers them is always run, the rest by `pytest --full` only."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest

Case = Sequence[Hashable]


def covering(cases: Iterable[Case], *axes: int) -> list[Case]:
    """For all values of the other axes one case: pairs of values that were chosen least often come first."""
    groups: dict[Any, list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(value for place, value in enumerate(case) if place not in axes), []).append(case)
    used: Counter[Any] = Counter()
    chosen = []
    for group in groups.values():
        chosen.append(min(group, key=lambda case: sum(used[pair] for pair in _pairs(case))))
        used.update(_pairs(chosen[-1]))
    return chosen


def _pairs(case: Case) -> list[Any]:
    return list(combinations(enumerate(case), 2))


def rest_in_full(cases: Iterable[Any], always: Iterable[Any]) -> list[Any]:
    """The same cases, those that are not always run marked."""
    kept = list(always)
    return [case if case in kept else full(case) for case in cases]


def full(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.full)
