"""Curves that were never measured: what runs would have found during training, had they dipped after each switch;
and runs in orders of their own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from fake_sections import a_cell, a_result, stream
from numpy.typing import NDArray

from threefold.experiments import Result, Section
from threefold.results import Record, Seed, in_spec, pack, run_key

IMAGES = 2000  # of each task's test set


def a_tested_result(
    scenario: str,
    method: str,
    mean: float,
    *,
    iters: int = 2000,
    every: int = 100,
    first: int = 0,
    seeds: int = 3,
    dip: float = 30.0,
    boundaries: str = "sharp",
    diverged: Sequence[int] = (),
    of: str = "split-mnist",
) -> Result:
    """Runs that were tested after each of the `first` steps of a task and every so many, and dip after 8 steps."""
    cut = stream(of, boundaries)
    tests = {"evaluate_every": every, "evaluate_first": first, "evaluate_samples": "all"}
    cell = a_cell(cut, scenario, method, iters=iters, **tests)
    result = a_result(cell, mean, seeds=seeds, diverged=diverged)
    flow = cut.boundaries.clock is not None
    return Result(cell, [_tested(record, iters, every, first, dip, flow) for record in result.records])


def _tested(record: Record, iters: int, every: int, first: int, dip: float, flow: bool) -> Record:
    tasks = len(record.initial)
    steps = sorted({*range(1, first + 1), *range(every, iters, every), iters})
    rows, values = [(0, 0, 1)], [np.array(record.initial)]
    for task in range(tasks):
        before = np.array(record.matrix[task - 1] if task else record.initial)
        for step in steps:
            rows.append((0, task * iters + step, min(task + 2, tasks)) if flow else (task, step, task + 1))
            values.append(_between(before, np.array(record.matrix[task]), task, step / iters, step, dip))
    accuracy = np.round(np.clip(values, 0, 100) * IMAGES / 100) * 100 / IMAGES
    points = {"points": pack(np.array(rows, dtype=np.int64)), "accuracy": pack(accuracy.astype(np.float32))}
    return replace(record, curves=points)


def _between(
    start: NDArray[np.float64], end: NDArray[np.float64], task: int, share: float, step: int, dip: float
) -> NDArray[np.float64]:
    if share == 1:
        return end
    values = start + (end - start) * (1 - np.exp(-40 * share))
    values[:task] -= dip * np.exp(-(((step - 8) / 12) ** 2))
    return values


METHODS = {"none": 2.0, "ewc": 12.0, "er:budget=1000": 25.0, "dgr": 18.0, "offline": 6.0}  # how deep each dips


def stability(seeds: int = 20, iters: int = 2000, first: int = 100, every: int = 100) -> Section:
    """The study of the stability gap."""
    results = [
        a_tested_result(
            *(scenario, method, 60.0 + dip if scenario == "domain" else 80.0 + dip / 2),
            **{"seeds": seeds, "iters": iters, "first": first, "every": every, "dip": dip},
        )
        for method, dip in METHODS.items()
        for scenario in ("task", "domain")
    ]
    command = "threefold reproduce stability --device cuda"
    return Section("stability", "The stability gap: split MNIST", "table", results, command=command)


def ordered(method: str, seeds: Sequence[Seed], scenario: str = "domain", diverged: Sequence[int] = ()) -> Result:
    """A result whose runs have these seeds."""
    plain = a_result(a_cell(stream(), scenario, method), 70.0, 8.0, seeds=len(seeds), diverged=diverged)
    records = []
    for record, seed in zip(plain.records, seeds, strict=True):
        spec = {name: value for name, value in record.spec.items() if name != "seed"} | in_spec(seed)
        records.append(replace(record, spec=spec, key=run_key(spec)))
    return Result(plain.cell, records)
