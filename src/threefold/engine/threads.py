"""Draws random numbers on several cores, so that a GPU does not wait for them."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

WORKERS = 8

Given = TypeVar("Given")
Made = TypeVar("Made")


def in_threads(function: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """The function's values, computed in threads: PyTorch's random numbers use one core each, without the GIL."""

    @torch.no_grad()  # gradient mode is per thread
    def one(item: Given) -> Made:
        return function(item)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, items))
