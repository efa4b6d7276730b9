"""`threefold bench`: speed as ratios."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from threefold.cli.stdout import console, say

if TYPE_CHECKING:
    from threefold.streams import Stream


class What(StrEnum):
    STEPS = "steps"
    NETWORKS = "networks"
    PROFILE = "profile"
    GROWTH = "growth"
    GRID = "grid"
    ACCURACY = "accuracy"


MEANINGS = (
    "steps: each method's step beside its floor; networks: those for images beside plain modules; profile: where the"
    " time of a step goes; growth: by replicas, hidden units and tasks; grid: 14 points beside 14 seeds; accuracy: what"
    " capture, TF32 and sharing do to results."
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
    from threefold import streams
    from threefold.engine.train import precise
    from threefold.experiments import Settings

    settings = Settings.checked(device=device, precision=precision)
    where, how, kind = settings.resolved_device(), settings.resolved_precision(), streams.find(stream)[0]
    on = f"{where}, {how}"
    match what:
        case What.GRID:
            _grid(where, how, kind, rounds or 3, on)
        case What.ACCURACY:
            _accuracy(where, kind)
        case _:
            with precise(how):
                match what:
                    case What.GROWTH:
                        _growth(where, rounds or 9, on)
                    case What.NETWORKS:
                        _networks(where, rounds or 9, on)
                    case What.PROFILE:
                        _profile(where, kind, on)
                    case _:
                        _steps(where, kind, rounds or 9, on)


def _show(title: str, text: int, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table whose first columns are text."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < text else "right")
    for row in rows:
        table.add_row(*row)
    with console(100) as screen:
        screen.print(table, width=100)


def _numbers(*values: float) -> list[str]:
    return [f"{value:.2f}" for value in values]


def _steps(device: str, kind: "type[Stream]", rounds: int, on: str) -> None:
    from threefold import bench

    columns = ("stream", "replicas", "cohort", "one by one", "bare products", "÷ one by one", "÷ products")
    timings = bench.bench(device, rounds=rounds)
    rows = (
        [
            *(t.stream, str(t.replicas)),
            *_numbers(t.cohort, t.alone, t.products, t.cohort / t.alone, t.cohort / t.products),
        ]
        for t in timings
    )
    _show(f"milliseconds per training step of all replicas, {on}", 1, columns, rows)
    columns = ("method", "scenario", "ms per step", "÷ none", "products", "memory", "÷ floor")
    costs = bench.bench_methods(device, kind, rounds=rounds)
    rows = (
        [
            *(c.method, c.scenario),
            *_numbers(c.step, c.step / c.none, c.floor.products, c.floor.memory, c.step / c.floor.step),
        ]
        for c in costs
    )
    _show(f"a step on the second task of {kind.name} MNIST, 20 replicas, {on}", 2, columns, rows)
    say("÷ none: beside a step of None that was measured in turn with the method's")
    say("floor: the larger of products and memory, at the rates of a large product and a large copy here")


def _networks(device: str, rounds: int, on: str) -> None:
    from threefold import bench

    rows = (
        (t.network, str(t.batch), str(t.replicas), *_numbers(t.cohort, t.alone, t.cohort / t.alone))
        for t in bench.bench_networks(device, rounds)
    )
    columns = ("network", "batch", "replicas", "cohort", "one by one", "÷ one by one")
    _show(f"milliseconds per training step of all replicas, {on}", 1, columns, rows)


def _profile(device: str, kind: "type[Stream]", on: str) -> None:
    from threefold import bench

    rows = (
        (s.method, f"{s.kernels:.0f}", *_numbers(s.whole, s.products, s.optimiser, s.rest))
        for s in bench.spent(device, kind)
    )
    title = f"milliseconds of a step on the second task of {kind.name} MNIST, 20 replicas, Class-IL, {on}"
    _show(title, 1, ("method", "kernels", "all", "products", "optimiser", "rest"), rows)


def _growth(device: str, rounds: int, on: str) -> None:
    from threefold import bench

    rows = (
        (g.what, g.method, str(g.size), *_numbers(g.step, g.floor, g.step / g.floor))
        for g in bench.grow(device, rounds)
    )
    title = f"milliseconds per step of all replicas, {on}"
    _show(title, 2, ("by", "method", "size", "step", "floor", "÷ floor"), rows)


def _grid(device: str, precision: str, kind: "type[Stream]", rounds: int, on: str) -> None:
    from threefold import bench

    rows = ((b.what, *_numbers(b.grid, b.seeds, b.ratio)) for b in bench.bench_grid(device, precision, kind, rounds))
    title = f"seconds of whole trainings of {kind.name} MNIST, EWC in Class-IL, {on}"
    _show(title, 1, ("", "14 strengths, one seed", "14 seeds, one strength", "÷"), rows)


def _accuracy(device: str, kind: "type[Stream]") -> None:
    from threefold import bench

    rows = (
        (
            c.ways,
            c.method,
            *_numbers(c.this, c.that),
            f"{c.difference:+.2f} ± {c.sem:.2f}",
            "yes" if c.identical else "",
        )
        for c in bench.compare(device, kind)
    )
    title = f"average accuracy after three short tasks of {kind.name} MNIST, 20 seeds trained in two ways, {device}"
    _show(title, 2, ("this / that", "method", "this", "that", "difference", "identical"), rows)
