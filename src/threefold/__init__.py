"""Continual learning in three scenarios, all seeds of an experiment trained as one stack.

import threefold

result = threefold.run("split-mnist", scenario="class", method="offline", seeds=20)
result.accuracy.mean, result.accuracy.sem, result.matrix.shape  # per cent, …, (20, 5, 5)
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if sys.platform == "win32":  # which has no fcntl locks and no SIGHUP
    sys.tracebacklimit = 0  # one sentence, from the command too
    raise ImportError("threefold runs on Linux and macOS; on Windows run it in WSL, the Windows Subsystem for Linux.")

if TYPE_CHECKING:
    from threefold.data import Dataset, load, register_dataset
    from threefold.errors import ThreefoldError
    from threefold.experiments.keeping import load_network
    from threefold.experiments.pretrain import pretrain
    from threefold.experiments.result import Result
    from threefold.experiments.run import run
    from threefold.methods import (
        AGEM,
        BIR,
        DER,
        DGR,
        ER,
        EWC,
        FROMP,
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
    from threefold.networks import encoder, register_network
    from threefold.results import Store, register_metric
    from threefold.scenarios import SCENARIOS
    from threefold.streams import OwnStream, Permuted, Rotated, Several, Split, Stream, Task, Timed, register_stream
    from threefold.version import VERSION as __version__

_HOME = {
    "threefold.data": ("Dataset", "load", "register_dataset"),
    "threefold.errors": ("ThreefoldError",),
    "threefold.experiments.keeping": ("load_network",),
    "threefold.experiments.pretrain": ("pretrain",),
    "threefold.experiments.result": ("Result",),
    "threefold.experiments.run": ("run",),
    "threefold.methods": (
        *(
            "AGEM",
            "BIR",
            "DER",
            "DERpp",
            "DGR",
            "DGRDistill",
            "ER",
            "EWC",
            "FROMP",
            "GEM",
            "GenerativeClassifier",
            "ICaRL",
            "LwF",
            "MAS",
            "Offline",
            "OnlineEWC",
            "SI",
            "Separate",
            "XdG",
        ),
        *("Method", "Part", "hyper", "register"),
    ),
    "threefold.networks": ("encoder", "register_network"),
    "threefold.streams": (
        "OwnStream",
        "Permuted",
        "Rotated",
        "Several",
        "Split",
        "Stream",
        "Task",
        "Timed",
        "register_stream",
    ),
    "threefold.results": ("Store", "register_metric"),
    "threefold.scenarios": ("SCENARIOS",),
}

__all__ = [
    "AGEM",
    "BIR",
    "DER",
    "DGR",
    "ER",
    "EWC",
    "FROMP",
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
    "load_network",
    "pretrain",
    "register",
    "register_dataset",
    "register_metric",
    "register_network",
    "register_stream",
    "run",
]


def __getattr__(name: str) -> object:
    """Import at first use, so that the command line's help does not wait for torch."""
    if name == "__version__":
        return import_module("threefold.version").VERSION
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'threefold' has no attribute '{name}'")
