"""`threefold reproduce` and `threefold experiment`: whole experiments, resumable."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from threefold.cli import options, stopping
from threefold.cli.stdout import write
from threefold.errors import ThreefoldError

if TYPE_CHECKING:
    from threefold.experiments.experiment_request import Options
    from threefold.experiments.spec import Experiment

NAMES = (
    "table4, table5, tableB1, figureC1, figureD1, figureD2 or all (of these); taskfree, stability or orders;"
    " nmi-table2, nmi-table3, nmi-budgets-mnist or nmi-budgets-cifar, of the paper's successor."
)


def reproduce(
    name: Annotated[str, typer.Argument(help=NAMES)],
    seeds: options.Seeds = None,
    iters: options.Iters = None,
    quick: options.Quick = False,
    only: options.Only = None,
    time_limit: options.TimeLimit = None,
    yes: options.Yes = False,
    keep_networks: options.KeepNetworks = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    cluster: options.ClusterAt = None,
    per_cohort: options.PerCohort = None,
    plugin: options.Plugin = None,
    store: options.StoreFile = Path("threefold.db"),
    as_json: options.Json = False,
) -> None:
    """Reproduce a table or figure of the paper and judge it by the published numbers."""
    from threefold.experiments.experiment_request import Options
    from threefold.experiments.spec import PAPER, paper_experiment

    wanted = PAPER if name == "all" else (name,)
    experiments = {f"reproduce {each}": paper_experiment(each) for each in wanted}
    asked = Options(seeds, iters, quick, options.names(only), device, precision, cluster, yes=yes)
    _train(experiments, asked, time_limit, per_cohort, store, keep_networks, as_json)


def experiment(
    file: Annotated[Path, typer.Argument(help="TOML file that describes the experiment.")],
    seeds: options.Seeds = None,
    iters: options.Iters = None,
    quick: options.Quick = False,
    only: options.Only = None,
    time_limit: options.TimeLimit = None,
    yes: options.Yes = False,
    keep_networks: options.KeepNetworks = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    cluster: options.ClusterAt = None,
    per_cohort: options.PerCohort = None,
    plugin: options.Plugin = None,
    store: options.StoreFile = Path("threefold.db"),
    as_json: options.Json = False,
) -> None:
    """Run an experiment of your own, as `reproduce` runs the paper's."""
    from threefold.experiments.experiment_request import Options
    from threefold.experiments.spec import load_experiment

    asked = Options(seeds, iters, quick, options.names(only), device, precision, cluster, yes=yes)
    _train({f"experiment {file}": load_experiment(file)}, asked, time_limit, per_cohort, store, keep_networks, as_json)


def _train(
    experiments: "dict[str, Experiment]",
    asked: "Options",
    until: float | None,
    per_cohort: float | None,
    store: Path,
    keep: bool,
    as_json: bool,
) -> None:
    """Train experiments, by their names on the command line, and show their results."""
    from threefold.cli.summary import show
    from threefold.experiments import Failed, Stopped, sections, train_requests
    from threefold.experiments.experiment_request import experiment_request
    from threefold.experiments.progress import Bars, fetching
    from threefold.report import render
    from threefold.results import Store

    stopping.loaded()
    if per_cohort is not None and asked.cluster is None:
        raise ThreefoldError(f"per-cohort is {per_cohort:g}, but there is no cluster; use --cluster auto.")
    if keep and asked.cluster is not None:
        raise ThreefoldError("keep-networks does not go with cluster: its workers do not reach the store's folder.")
    ended: Exception | None = None
    with ExitStack() as closing:
        cluster = None
        if asked.cluster:
            from threefold.cluster import connected

            cluster = closing.enter_context(connected(asked.cluster, asked.device, per_cohort))
            asked = replace(asked, cuda=cluster.cuda)
            stopping.loaded()
        with fetching() as report:
            requests = [experiment_request(each, asked, source, report) for source, each in experiments.items()]
        cells = sum(len(request.asked) for request in requests)
        try:
            with stopping.stopping(until) as stop, Bars(cells) as bars:
                train_requests(requests, store, bars, stop, cluster, keep=keep)
        except (Failed, Stopped) as error:
            ended = error
    with Store(store, readonly=True) as opened:
        left = sum(request.left(opened, keep=keep) for request in requests)
        mine = [section for section in sections(opened) if section.name in {request.name for request in requests}]
    if as_json:
        write(render(mine, "json"))
    else:
        show(mine, store)
    if isinstance(ended, Failed):
        raise ended
    if ended:
        stopping.stopped(left)
