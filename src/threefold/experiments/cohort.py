"""Runs are trained in cohorts: those that differ in seeds and numbers only are one stack."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import torch
from torch import nn

from threefold.experiments.cell import Cell
from threefold.results import run_key

SHARE_OF_MEMORY = 0.7  # of what is free: evaluation and consolidation need some, too
COPIES = 8  # of the parameters: themselves, gradient, Adam's two, a method's memory, what a step holds on the way


@dataclass(frozen=True)
class Run:
    """One network to be trained: a cell and a seed."""

    cell: Cell
    seed: int

    @cached_property
    def key(self) -> str:
        return run_key(self.cell.run_spec(self.seed))


@dataclass(frozen=True)
class Cohort:
    """Runs that are trained together, in this order."""

    runs: tuple[Run, ...]

    @property
    def cell(self) -> Cell:
        """The first run's: all others differ from it in numbers at most."""
        return self.runs[0].cell

    @property
    def seeds(self) -> list[int]:
        return [run.seed for run in self.runs]

    @property
    def name(self) -> str:
        """A cohort is known by its runs, so the same command finds its checkpoint again."""
        return sha256(" ".join(run.key for run in self.runs).encode()).hexdigest()[:32]

    @property
    def weight(self) -> int:
        """What it costs, in numbers that steps move; good enough to put cheap cohorts first."""
        training = self.cell.training
        return len(self.runs) * training.iters * self.cell.protocol.tasks * _numbers(self.cell)

    def halves(self) -> "list[Cohort]":
        middle = len(self.runs) // 2
        return [Cohort(self.runs[:middle]), Cohort(self.runs[middle:])]


def plan(runs: Iterable[Run]) -> list[Cohort]:
    """Group runs into cohorts that fit into memory, cheap ones first: early results cover the table."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_shape(run.cell), []).append(run)
    cohorts = []
    for group in groups.values():
        most = capacity(group[0].cell)
        cohorts += [Cohort(tuple(group[start : start + most])) for start in range(0, len(group), most)]
    return sorted(cohorts, key=lambda cohort: cohort.weight)


def _shape(cell: Cell) -> str:
    """What must agree for runs to be one stack: everything but seeds, learning rates and numeric hyperparameters."""
    spec = cell.spec()
    spec["training"].pop("lr")
    for part in cell.method.parts:
        for name in part.per_replica():
            spec["method"]["hyperparameters"][part.name].pop(name)
    return json.dumps([spec, id(cell.protocol)], sort_keys=True)


def capacity(cell: Cell) -> int:
    """How many networks fit into memory at once."""
    inputs = cell.inputs
    activations = cell.training.batch * (4 * inputs + 12 * cell.training.hidden)
    each = 4 * (COPIES * _numbers(cell) + activations)
    return max(1, int(_free_memory(cell.training.device) * SHARE_OF_MEMORY / each))


def _numbers(cell: Cell) -> int:
    """Parameters of all networks that one run trains."""
    setting = cell.setting
    with torch.device("meta"):
        nets: dict[str, nn.Module] = {"classifier": cell.classifier()}
        for part in cell.method.parts:
            nets |= part.networks(setting)
    return sum(p.numel() for net in nets.values() for p in net.parameters())


def _free_memory(device: str) -> int:
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    try:
        with open("/proc/meminfo") as file:
            free = next(line for line in file if line.startswith("MemAvailable"))
        return int(free.split()[1]) * 1024
    except (OSError, StopIteration, ValueError):
        return 8 << 30
