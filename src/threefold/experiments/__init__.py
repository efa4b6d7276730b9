"""Experiments: what is compared with what, planned, run and resumed."""

from threefold.experiments.cell import Cell, Settings
from threefold.experiments.cohort import Cohort, Run
from threefold.experiments.result import Result, Summaries
from threefold.experiments.run import run, run_cells
from threefold.experiments.scheduler import Failed, Place, Stopped, Watcher, Work
from threefold.experiments.section import Section
from threefold.experiments.seeds import parse_seeds

__all__ = [
    "Cell",
    "Cohort",
    "Failed",
    "Place",
    "Result",
    "Run",
    "Section",
    "Settings",
    "Stopped",
    "Summaries",
    "Watcher",
    "Work",
    "parse_seeds",
    "run",
    "run_cells",
]
