"""`threefold bench`: speed as ratios."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from threefold.cli.stdout import console, say

if TYPE_CHECKING:
    from threefold.bench.timing import Row


class What(StrEnum):
    STEPS = "steps"
    NETWORKS = "networks"
    PROFILE = "profile"
    GROWTH = "growth"
    GRID = "grid"
    EVALUATION = "evaluation"
    ACCURACY = "accuracy"


MEANINGS = (
    "steps: each method's step beside its floor; networks: those for images beside plain modules; profile: where the"
    " time of a step goes; growth: by replicas, hidden units and tasks, and what"
    " the host does beside; grid: 14 points beside 14 seeds; evaluation:"
    " what testing during training costs; accuracy: what capture, TF32 and sharing do to results."
)


def bench(
    what: Annotated[What, typer.Argument(help=MEANINGS)] = What.STEPS,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto (tf32 on a GPU), fp32 or tf32.")] = "auto",
    rounds: Annotated[
        int | None,
        typer.Option(min=3, help="Repetitions, medians of which are shown: 9 steps or 3 trainings."),
    ] = None,
    stream: Annotated[str, typer.Option(help="Whose steps are taken with each method: split or permuted.")] = "split",
) -> None:
    """Time training steps: beside networks one by one, beside bare matrix products, beside what the device could do."""
    from threefold import bench, streams
    from threefold.engine.train import precise
    from threefold.experiments import Settings

    settings = Settings.checked(device=device, precision=precision)
    where, how, kind = settings.resolved_device(), settings.resolved_precision(), streams.find(stream).kind
    on, second = f"{where}, {how}", f"a step on the second task of {kind.name} MNIST, 20 replicas"
    steps = f"milliseconds per training step of all replicas, {on}"
    with precise(how):
        match what:
            case What.STEPS:
                _show(steps, bench.bench(where, rounds=rounds or 9))
                _show(f"{second}, {on}", bench.bench_methods(where, kind, rounds=rounds or 9))
                say("÷ none: relative to a step of None that was measured in turn with the method's")
                say("floor: the larger of products and memory, at the rates of a large product and a large copy here")
            case What.NETWORKS:
                _show(steps, bench.bench_networks(where, rounds or 9))
                if where == "cpu":
                    say("milliseconds that the CPU worked, whatever else it did meanwhile")
            case What.PROFILE:
                _show(f"milliseconds of {second}, Class-IL, {on}", bench.spent(where, kind))
            case What.GROWTH:
                _show(steps, bench.grow(where, rounds or 9))
                host = "beside the steps, milliseconds for each network: to begin, and to draw a task of 200 steps"
                _show(f"{host}, {on}", bench.host_work(where, rounds or 3))
            case What.GRID:
                title = f"seconds of whole trainings of {kind.name} MNIST, EWC in Class-IL, {on}"
                _show(title, bench.bench_grid(where, how, kind, rounds or 3))
            case What.EVALUATION:
                title = f"seconds of whole trainings of {kind.name} MNIST, 20 seeds in Class-IL, {on}"
                _show(title, bench.bench_evaluation(where, how, kind, rounds or 3))
            case What.ACCURACY:
                title = f"average accuracy after three short tasks of {kind.name} MNIST, 20 seeds trained in two ways"
                _show(f"{title}, {where}", bench.compare(where, kind))


class Measurement(Protocol):
    """A benchmark's result."""

    def row(self) -> "Row": ...


def _show(title: str, found: Iterable[Measurement]) -> None:
    """Print a table of measurements; text is left-aligned, numbers right-aligned."""
    from rich.table import Table

    rows = [each.row() for each in found]
    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items() if rows else ():
        table.add_column(column, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
    with console(100) as screen:
        screen.print(table, width=100)
