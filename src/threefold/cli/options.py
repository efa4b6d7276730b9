"""Options that several commands have."""

import time
from pathlib import Path
from typing import Annotated

import typer

from threefold.cli import plugins
from threefold.errors import ThreefoldError


def _until(seconds: float | None) -> float | None:
    """When a time limit expires. It counts from the start of the command, including imports and planning."""
    if seconds is None:
        return None
    if not seconds > 0:
        raise ThreefoldError(f"time-limit must be a number of seconds above 0, got {seconds}.")
    return time.monotonic() + seconds


Seeds = Annotated[str | None, typer.Option(help="20 (seeds 1 to 20), 3-7, or 1,5,9; the experiment's if not given.")]
Iters = Annotated[int | None, typer.Option(help="Training iterations per task; the experiment's if not given.")]
Quick = Annotated[bool, typer.Option("--quick", help="The whole of it in minutes on two cores; proves nothing.")]
Only = Annotated[str | None, typer.Option(help="METHOD,SCENARIO: these alone; may name several of each.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(callback=_until, help="Stop cleanly after so many SECONDS; run the same command again to continue."),
]
NETWORK = typer.Option(help="NAME or NAME:key=value,… (threefold list networks), or FILE.py:CLASS.")
HIDDEN = typer.Option(help="Units in each hidden layer, short for mlp:width=.")
OPTIMIZER = typer.Option(help="NAME or NAME:key=value,…, adam if not given (threefold list optimizers).")
SCHEDULE = typer.Option(help="Of the learning rate through a task: constant, cosine or step:at=…,factor=….")
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Normalise the data with the training data's mean and deviation.")
]
Augment = Annotated[bool, typer.Option("--augment", help="Shift and mirror images at random, at each step anew.")]
Plugin = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        callback=plugins.load,
        is_eager=True,
        help="Import FILE.py or a module that registers methods, networks, streams, …; may be repeated.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Train them all, even if these are more than 10,000 runs.")]
KeepNetworks = Annotated[
    bool,
    typer.Option("--keep-networks", help="Keep each run's network after each task, in files beside the store."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto (tf32 on a GPU), fp32 or tf32.")]
ClusterAt = Annotated[str | None, typer.Option("--cluster", help="Train on a Ray cluster: auto, or its ADDRESS.")]
PerCohort = Annotated[float | None, typer.Option(help="CPUs or GPUs for each cohort on a cluster: 1, 2, or 0.5.")]
ExperimentNames = Annotated[
    list[str] | None, typer.Option("--experiment", help="Of this experiment alone (threefold status); may be repeated.")
]
OnlyStored = Annotated[
    str | None, typer.Option("--only", help="METHOD,SCENARIO: of these alone; may name several of each.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
StoreFile = Annotated[Path, typer.Option(help="File that keeps finished runs.")]


def names(only: str | None) -> list[str]:
    """The names in METHOD,SCENARIO."""
    return [name.strip() for name in only.split(",")] if only else []
