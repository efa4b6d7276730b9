"""Experiments: what is compared with what, planned, run and resumed."""

from threefold.experiments.cell import Cell, Settings
from threefold.experiments.cohort import Cohort, Run
from threefold.experiments.result import Result, Summaries
from threefold.experiments.run import Stopped, Watcher, run, run_cells
from threefold.experiments.section import Section
from threefold.experiments.seeds import parse_seeds

__all__ = [
    "Cell",
    "Cohort",
    "Result",
    "Run",
    "Section",
    "Settings",
    "Stopped",
    "Summaries",
    "Watcher",
    "parse_seeds",
    "run",
    "run_cells",
]
