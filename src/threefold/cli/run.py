"""`threefold run`: compare methods in scenarios."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from threefold.cli import options
from threefold.cli.stdout import console, write
from threefold.errors import ThreefoldError
from threefold.text import printable

if TYPE_CHECKING:
    from threefold.experiments import Result, Section

PAPER_SEEDS = 20


def run(
    stream: Annotated[
        str,
        typer.Argument(help="split-mnist, split-mnist:classes=5-3-2, … (threefold list streams), or FILE.py:NAME."),
    ],
    scenario: Annotated[
        list[str] | None, typer.Option(help="task, domain, class, or all if not given; may be repeated.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="NAME or NAME:key=value,…, none if not given; may be repeated; all for every method."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="20 (seeds 1 to 20), 3-7, or 1,5,9.")] = "20",
    orders: Annotated[
        str | None, typer.Option(help="Seeds of the tasks alone, written like --seeds: each seed in every order.")
    ] = None,
    tasks: Annotated[list[int] | None, typer.Option(help="Number of tasks; the paper's if not given.")] = None,
    boundaries: Annotated[
        list[str] | None,
        typer.Option(help="Between the tasks: sharp, blurred:width=500, … (threefold list boundaries)."),
    ] = None,
    iters: Annotated[
        list[int] | None, typer.Option(help="Training iterations per task; the paper's if not given.")
    ] = None,
    epochs: Annotated[
        list[int] | None, typer.Option(help="Passes through each task's data, instead of --iters.")
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="One pass, no sample seen twice: --epochs 1.")] = False,
    network: Annotated[list[str] | None, options.NETWORK] = None,
    hidden: Annotated[list[int] | None, options.HIDDEN] = None,
    optimizer: Annotated[list[str] | None, options.OPTIMIZER] = None,
    lr: Annotated[list[float] | None, typer.Option(help="Learning rate; the paper's if not given.")] = None,
    schedule: Annotated[list[str] | None, options.SCHEDULE] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Samples in a batch; the paper's if not given.")] = None,
    data: Annotated[str | None, typer.Option(help="Dataset NAME, or FILE.npz of your own.")] = None,
    normalize: options.Normalize = False,
    features: Annotated[
        str | None, typer.Option(help="Learn from frozen features: FILE.py:FUNCTION, FILE.pt or FILE.pt:SEED.")
    ] = None,
    augment: options.Augment = False,
    evaluate_every: Annotated[
        int | None,
        typer.Option(help="Test all tasks after every N steps as well, not only at the end of each."),
    ] = None,
    evaluate_first: Annotated[int, typer.Option(help="And after each of the first N steps of every task.")] = 0,
    evaluate_samples: Annotated[str, typer.Option(help="On so many test samples of each task, or all.")] = "500",
    training_curves: Annotated[
        bool, typer.Option("--training-curves", help="And keep the loss and the accuracy on training data.")
    ] = False,
    task_id_in: Annotated[
        str | None, typer.Option(help="Task-IL: use the task in the output layer, the hidden layers, or both.")
    ] = None,
    active: Annotated[
        list[str] | None,
        typer.Option(help="Class-IL: output units in training, seen (of classes seen so far) or all."),
    ] = None,
    keep_networks: options.KeepNetworks = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    time_limit: options.TimeLimit = None,
    yes: options.Yes = False,
    plugin: options.Plugin = None,
    store: options.StoreFile = Path("threefold.db"),
    as_json: options.Json = False,
) -> None:
    """Train methods in scenarios, one network for each seed, and compare them with the published numbers.

    Settings from --tasks to --batch, and --active, may be repeated: every combination is trained.
    """
    from threefold.cli.stopping import loaded, stopped, stopping
    from threefold.experiments import Section, Stopped, run_request, train_requests
    from threefold.experiments.progress import Bars, fetching
    from threefold.experiments.settings import settings_in
    from threefold.methods import METHODS
    from threefold.report import as_json as documents
    from threefold.results import Store

    loaded()
    epochs = _epochs(epochs, iters, online)
    settings = settings_in(locals())
    with fetching() as report:
        request = run_request(
            stream,
            scenario or ["all"],
            [name for given in method or ["none"] for name in (METHODS if given == "all" else [given])],
            seeds,
            orders=orders,
            data=data,
            normalize=normalize,
            features=features,
            tasks=tasks,
            boundaries=boundaries,
            task_id_in=task_id_in,
            settings=settings,
            command=typed(sys.argv),
            yes=yes,
            report=report,
        )
    try:
        with stopping(time_limit) as stop, Bars(len(request.asked)) as bars:
            (results,) = train_requests([request], store, bars, stop, keep=keep_networks)
    except Stopped:
        with Store(store, readonly=True) as opened:
            left = request.left(opened, keep=keep_networks)
        stopped(left)
    asked = {name: getattr(request, name) for name in ("name", "title", "kind", "refused", "selected", "command")}
    section = Section(results=results, **asked)
    if as_json:
        write(documents.text({**documents.UNIT, **documents.described(section)}))
    else:
        _show(section, store, plugin or ())


def _epochs(epochs: list[int] | None, iters: list[int] | None, online: bool) -> list[int] | None:
    if online and iters:
        raise ThreefoldError(f"iters is {iters[0]}, but online is one pass; give one of them.")
    if online and epochs not in (None, [1]):
        raise ThreefoldError(f"epochs is {max(epochs or [])}, but online is one pass; give one of them.")
    return [1] if online else epochs


def typed(words: "Sequence[str]") -> str:
    """The command as typed, without the store (which is known where it is shown), the time limit and --json."""
    program = ["threefold"] if Path(words[0]).name in ("threefold", "__main__.py") else ["python", words[0]]
    rest, kept = iter(words[1:]), []
    for word in rest:
        if word in ("--store", "--time-limit"):
            next(rest, None)
        elif word != "--json" and not word.startswith(("--store=", "--time-limit=")):
            kept.append(word)
    return shlex.join([*program, *kept])


def _show(section: "Section", store: Path, plugins: "Sequence[str]") -> None:
    from threefold.report.tables import result_tables
    from threefold.report.terminal import fitting

    (table,) = result_tables(section)
    with console(120) as screen:
        screen.print(fitting(screen, table))
        for dash in table.refused:
            line = f"– {dash.row} in {dash.column}: {dash.reason}"
            screen.print(printable(line), style="dim", markup=False, highlight=False)
        for found in table.cells:
            if found.diverged:
                line = f"{found.row} in {found.column}: {found.diverged}."
                screen.print(printable(line), markup=False, highlight=False)
        note = shortened(section.results, store, plugins)
        if note:
            screen.print(printable(note), markup=False, highlight=False, soft_wrap=True)


def shortened(results: "Sequence[Result]", store: Path, plugins: "Sequence[str]" = ()) -> str | None:
    """A sentence on what was shortened, with the command that runs it in full; only for the paper's data."""
    from threefold.experiments.command import at, run_command

    cell, seeds = results[0].cell, len(results[0].seeds)
    cut = list(dict.fromkeys(words for result in results for words in result.cell.cuts()))
    if seeds < PAPER_SEEDS and cell.on_the_papers_data:
        cut.append(f"{seeds} of {PAPER_SEEDS} seeds")
    if not cut:
        return None
    full = run_command([each.cell for each in results], range(1, max(seeds, PAPER_SEEDS) + 1), in_full=True)
    full += "".join(f" --plugin {shlex.quote(each)}" for each in plugins)
    return f"This was shortened: {', '.join(cut)}. In full: {full}{at(store)}"
