"""`threefold pretrain`: train networks on all classes at once, and keep them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from threefold.cli import options
from threefold.cli.stdout import say

if TYPE_CHECKING:
    from threefold.experiments import Result


def pretrain(
    data: Annotated[str, typer.Argument(help="Dataset NAME (mnist, cifar-10, …), or FILE.npz of your own.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="FILE.pt to write; an earlier one is replaced.")],
    network: Annotated[str | None, options.NETWORK] = None,
    seeds: Annotated[str, typer.Option(help="A network for each: 10 (seeds 1 to 10), 3-7, or 1,5,9.")] = "1",
    iters: Annotated[int | None, typer.Option(help="Training iterations.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes through the data, instead of --iters.")] = None,
    hidden: Annotated[int | None, options.HIDDEN] = None,
    optimizer: Annotated[str | None, options.OPTIMIZER] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate, 0.001 if not given.")] = None,
    schedule: Annotated[str | None, options.SCHEDULE] = None,
    batch: Annotated[int | None, typer.Option(help="Samples in a batch, 128 if not given.")] = None,
    normalize: options.Normalize = False,
    augment: options.Augment = False,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    plugin: options.Plugin = None,
) -> None:
    """Train networks on all classes of a dataset at once, one for each seed, and write them to a file."""
    from threefold.cli.stopping import stopping
    from threefold.experiments import Stopped
    from threefold.experiments.pretrain import pretrain_request
    from threefold.experiments.progress import Bars, fetching
    from threefold.experiments.settings import settings_in

    settings = settings_in(locals())
    with fetching() as report:
        request = pretrain_request(
            data,
            output,
            seeds,
            normalize=normalize,
            settings=settings,
            report=report,
        )
    try:
        with stopping(None) as stop, Bars(1) as bars:
            result = request.train(bars, stop)
    except Stopped:
        raise KeyboardInterrupt from None
    _show(result, output)


def _show(result: "Result", output: Path) -> None:
    from threefold.report.formatting import plus_minus

    for record in result.records:
        say(f"seed {record.spec['seed']}: {record.matrix[-1][-1]:.2f} % of the test data correct")
    many = len(result.records)
    mean = f", {plus_minus(result.accuracy)} on average" if many > 1 else ""
    say(f"{output}: {many} network{'s' if many > 1 else ''}{mean}.")
