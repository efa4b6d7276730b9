"""Continual learning in three scenarios, all seeds of an experiment trained as one stack.

import threefold

result = threefold.run("split-mnist", scenario="class", method="offline", seeds=20)
result.accuracy.mean, result.accuracy.sem, result.matrix.shape  # per cent, …, (20, 5, 5)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threefold.data import Dataset, load
    from threefold.errors import ThreefoldError
    from threefold.experiments.pretrain import pretrain
    from threefold.experiments.result import Result
    from threefold.experiments.run import run
    from threefold.methods import (
        AGEM,
        DER,
        DGR,
        ER,
        EWC,
        GEM,
        MAS,
        SI,
        DERpp,
        DGRDistill,
        GenerativeClassifier,
        ICaRL,
        LwF,
        Method,
        Offline,
        OnlineEWC,
        Part,
        Separate,
        XdG,
        hyper,
        register,
    )
    from threefold.networks import encoder
    from threefold.results import Store
    from threefold.scenarios import SCENARIOS
    from threefold.streams import OwnStream, Permuted, Rotated, Several, Split, Stream, Task, Timed
    from threefold.version import VERSION as __version__

_HOME = {
    "threefold.data": ("Dataset", "load"),
    "threefold.errors": ("ThreefoldError",),
    "threefold.experiments.pretrain": ("pretrain",),
    "threefold.experiments.result": ("Result",),
    "threefold.experiments.run": ("run",),
    "threefold.methods": (
        *(
            "AGEM",
            "DER",
            "DERpp",
            "DGR",
            "DGRDistill",
            "ER",
            "EWC",
            "MAS",
            "ICaRL",
            "LwF",
            "Offline",
            "OnlineEWC",
            "SI",
            "XdG",
        ),
        *("Method", "Part", "hyper", "register"),
    ),
    "threefold.networks": ("encoder",),
    "threefold.streams": ("OwnStream", "Permuted", "Rotated", "Several", "Split", "Stream", "Task", "Timed"),
    "threefold.results": ("Store",),
    "threefold.scenarios": ("SCENARIOS",),
}

__all__ = [
    "AGEM",
    "DER",
    "DGR",
    "ER",
    "EWC",
    "GEM",
    "MAS",
    "SCENARIOS",
    "SI",
    "DERpp",
    "DGRDistill",
    "Dataset",
    "GenerativeClassifier",
    "ICaRL",
    "LwF",
    "Method",
    "Offline",
    "OnlineEWC",
    "OwnStream",
    "Part",
    "Permuted",
    "Result",
    "Rotated",
    "Separate",
    "Several",
    "Split",
    "Store",
    "Stream",
    "Task",
    "ThreefoldError",
    "Timed",
    "XdG",
    "__version__",
    "encoder",
    "hyper",
    "load",
    "pretrain",
    "register",
    "run",
]


def __getattr__(name: str) -> object:
    """Loaded at first use: the command line's help should not wait for torch."""
    if name == "__version__":
        return import_module("threefold.version").VERSION
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'threefold' has no attribute '{name}'")
