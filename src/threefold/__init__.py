"""Continual learning in three scenarios, all seeds of an experiment trained as one stack.

import threefold

result = threefold.run("split-mnist", scenario="class", method="offline", seeds=20)
result.accuracy.mean, result.accuracy.sem, result.matrix.shape  # per cent, …, (20, 5, 5)
"""

from threefold.data import Dataset, load
from threefold.errors import ThreefoldError
from threefold.experiments import Result, run
from threefold.methods import Method, Offline, Part, hyper, register
from threefold.protocols import Permuted, Split
from threefold.results import Store
from threefold.scenarios import SCENARIOS
from threefold.version import VERSION as __version__

__all__ = [
    "SCENARIOS",
    "Dataset",
    "Method",
    "Offline",
    "Part",
    "Permuted",
    "Result",
    "Split",
    "Store",
    "ThreefoldError",
    "__version__",
    "hyper",
    "load",
    "register",
    "run",
]
