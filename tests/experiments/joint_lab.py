"""Cells that have something in common, for tests of cohorts of several stacks."""

from cohort_lab import (
    cell,
    small_split,
)

from threefold.experiments import Cell, Run
from threefold.experiments.cohort import Cohort, plan

SPLIT = small_split()
SEEDS = (1, 2, 3)
SCENARIOS = ("task", "domain", "class")
PLENTY = 1 << 40  # bytes

GENERATIVE = [cell(SPLIT, method, scenario, iters=3) for method in ("dgr", "dgr-distill") for scenario in SCENARIOS]
STORED = [cell(SPLIT, f"er:budget={budget},use={use}", iters=3) for use in ("training", "both") for budget in (4, 8)]


def runs(cells: list[Cell], seeds: tuple[int, ...] = SEEDS) -> list[Run]:
    return [Run(cell, seed) for cell in cells for seed in seeds]


def planned(wanted: list[Run]) -> list[Cohort]:
    return plan(wanted, lambda device: PLENTY)
