"""Medians of times measured in turns."""

import statistics
import time
from collections.abc import Callable, Mapping

import torch

Row = dict[str, str | int | float]
"""A measurement as a row of a table, by column names."""

WARM_UP = 3
AT_A_TIME = 20  # calls timed together on a GPU, as launches are asynchronous


def medians(
    functions: Mapping[str, Callable[[], None]],
    rounds: int,
    device: torch.device,
    clock: Callable[[], float] | None = None,
) -> dict[str, float]:
    """Median milliseconds of each, measured in turns after warming up; on a GPU over several calls at a time."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    clock, calls = clock or time.perf_counter, AT_A_TIME if device.type == "cuda" else 1
    for turn in range(-WARM_UP, rounds):
        for name, function in functions.items():
            wait(device)
            start = clock()
            for _ in range(calls):
                function()
            wait(device)
            if turn >= 0:
                taken[name].append(1e3 * (clock() - start) / calls)
    return {name: statistics.median(times) for name, times in taken.items()}


def trainings(
    functions: Mapping[str, Callable[[], dict[str, float]]], rounds: int, device: str
) -> dict[str, dict[str, float]]:
    """Run whole trainings in turns, each of which returns seconds by phase: medians of each phase and of the sum."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in functions}
    for turn in range(-1, rounds):  # the first is not counted
        for name in list(functions)[:: 1 if turn % 2 else -1]:  # none is always the first
            if device == "cuda":
                torch.cuda.empty_cache()
            seconds = functions[name]()
            if turn >= 0:
                taken[name].append(seconds | {"all": sum(seconds.values())})
    return {
        name: {what: statistics.median(each[what] for each in turns) for what in turns[0]}
        for name, turns in taken.items()
    }


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
