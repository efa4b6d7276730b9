"""What a GPU waits for is drawn by several cores."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

WORKERS = 8

Given = TypeVar("Given")
Made = TypeVar("Made")


def in_threads(function: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """The function's values, made in threads: PyTorch's random numbers take one core each, and hold no lock."""

    @torch.no_grad()  # which each thread decides for itself
    def one(item: Given) -> Made:
        return function(item)

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, items))
