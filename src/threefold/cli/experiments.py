"""`threefold reproduce` and `threefold experiment`: whole experiments, resumable."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from threefold.cli import stopping
from threefold.errors import ThreefoldError

if TYPE_CHECKING:
    from threefold.experiments import Place
    from threefold.experiments.ask import Options
    from threefold.experiments.spec import Experiment


def _until(seconds: float | None) -> float | None:
    """When a time limit is over. It counts from the command on, so that importing PyTorch and planning are in it."""
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
    typer.Option(callback=_until, help="Stop cleanly after so many SECONDS; the same command goes on."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Train them all, even if these are more than 10,000 runs.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Precision = Annotated[str, typer.Option(help="auto (tf32 on a GPU), fp32 or tf32.")]
ClusterAt = Annotated[str | None, typer.Option("--cluster", help="Train on a Ray cluster: auto, or its ADDRESS.")]
PerCohort = Annotated[float | None, typer.Option(help="CPUs or GPUs for each cohort on a cluster: 1, 2, or 0.5.")]
StoreFile = Annotated[Path, typer.Option(help="File that keeps finished runs.")]


def reproduce(
    name: Annotated[str, typer.Argument(help="table4, table5, tableB1, figureC1, figureD1, figureD2 or all.")],
    seeds: Seeds = None,
    iters: Iters = None,
    quick: Quick = False,
    only: Only = None,
    time_limit: TimeLimit = None,
    yes: Yes = False,
    device: Device = "auto",
    precision: Precision = "auto",
    cluster: ClusterAt = None,
    per_cohort: PerCohort = None,
    store: StoreFile = Path("threefold.db"),
) -> None:
    """Reproduce a table or figure of the paper and judge it by the published numbers."""
    from threefold.experiments.ask import Options
    from threefold.experiments.spec import PAPER, paper_experiment

    wanted = PAPER if name == "all" else (name,)
    asked = [(paper_experiment(each), f"reproduce {each}") for each in wanted]
    options = Options(seeds, iters, quick, _names(only), device, precision, cluster, yes=yes)
    _run(asked, options, time_limit, per_cohort, store)


def experiment(
    file: Annotated[Path, typer.Argument(help="TOML file that describes the experiment.")],
    seeds: Seeds = None,
    iters: Iters = None,
    quick: Quick = False,
    only: Only = None,
    time_limit: TimeLimit = None,
    yes: Yes = False,
    device: Device = "auto",
    precision: Precision = "auto",
    cluster: ClusterAt = None,
    per_cohort: PerCohort = None,
    store: StoreFile = Path("threefold.db"),
) -> None:
    """Run an experiment of your own, as `reproduce` runs the paper's."""
    from threefold.experiments.ask import Options
    from threefold.experiments.spec import load_experiment

    asked = [(load_experiment(file), f"experiment {file}")]
    options = Options(seeds, iters, quick, _names(only), device, precision, cluster, yes=yes)
    _run(asked, options, time_limit, per_cohort, store)


def _names(only: str | None) -> list[str]:
    return [name.strip() for name in only.split(",")] if only else []


def _run(
    experiments: "list[tuple[Experiment, str]]",
    options: "Options",
    until: float | None,
    per_cohort: float | None,
    store: Path,
) -> None:
    stopping.loaded()
    if per_cohort is not None and options.cluster is None:
        raise ThreefoldError(f"per-cohort is {per_cohort:g}, but there is no cluster; use --cluster auto.")
    if options.cluster is None:
        _train(experiments, options, until, store)
        return
    from threefold.cluster import connected

    with connected(options.cluster, options.device, per_cohort) as place:
        stopping.loaded()
        _train(experiments, replace(options, cuda=place.cuda), until, store, place)


def _train(
    experiments: "list[tuple[Experiment, str]]",
    options: "Options",
    until: float | None,
    store: Path,
    place: "Place | None" = None,
) -> None:
    from threefold.cli.brief import show
    from threefold.cli.progress import Bars, fetching
    from threefold.experiments import Failed, Stopped, run_cells
    from threefold.experiments.ask import ask, sections
    from threefold.experiments.run import check_batches
    from threefold.results import Store

    with fetching() as report:
        asked = [ask(experiment, options, source, report) for experiment, source in experiments]
    for each in asked:
        for several, cells in each.by_seeds().items():
            check_batches(cells, several)  # before the store is there
    with Store(store) as opened:
        for each in asked:
            each.follow(opened)
    trained = [(cells, several) for each in asked for several, cells in each.by_seeds().items()]
    stop_asked, failed = False, None
    with stopping.stopping(until) as stop, Bars(sum(len(cells) for cells, _ in trained)) as bars:
        try:
            for cells, several in trained:
                try:
                    run_cells(cells, several, store, bars, stop, place)
                except Failed as error:  # the next may do better
                    failed = failed or error
        except Stopped:
            stop_asked = True
    with Store(store, readonly=True) as opened:
        left = sum(each.left(opened) for each in asked)
        mine = [section for section in sections(opened) if section.name in {each.name for each in asked}]
    show(mine, store)
    if failed:
        raise failed
    if stop_asked:
        stopping.stopped(left)
