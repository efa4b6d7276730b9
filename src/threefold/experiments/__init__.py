"""Experiments: comparisons of methods, planned, run and resumed."""

from threefold.experiments.cell import Cell
from threefold.experiments.cohort import Cohort, Run
from threefold.experiments.executor import Executor
from threefold.experiments.request import Asked, Request, run_request
from threefold.experiments.result import Result
from threefold.experiments.run import run
from threefold.experiments.scheduler import Failed, Job, Stopped, Watcher, train_requests
from threefold.experiments.section import Section, sections
from threefold.experiments.seeds import parse_seeds
from threefold.experiments.settings import Settings

__all__ = [
    "Asked",
    "Cell",
    "Cohort",
    "Executor",
    "Failed",
    "Job",
    "Request",
    "Result",
    "Run",
    "Section",
    "Settings",
    "Stopped",
    "Watcher",
    "parse_seeds",
    "run",
    "run_request",
    "sections",
    "train_requests",
]
