"""`threefold bench`: speed as ratios."""

from typing import Annotated

import typer


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto (tf32 on a GPU), fp32 or tf32.")] = "auto",
    rounds: Annotated[
        int | None, typer.Option(min=3, help="Measured of each kind, 9 steps or 3 trainings; medians are shown.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="Whose steps are taken with each method: split or permuted.")] = "split",
    growth: Annotated[bool, typer.Option("--growth", help="By replicas, hidden units and tasks instead.")] = False,
    grid: Annotated[bool, typer.Option("--grid", help="A grid of 14 points beside 14 seeds instead.")] = False,
) -> None:
    """Time training steps: beside networks one by one, beside bare matrix products, beside what the device could do."""
    from rich.console import Console
    from rich.table import Table

    from threefold import bench, protocols
    from threefold.engine.train import precise
    from threefold.errors import ThreefoldError
    from threefold.experiments import Settings

    if growth and grid:
        raise ThreefoldError("growth and grid are both given; right would be one of them.")
    settings = Settings.checked(device=device, precision=precision)
    where, kind = settings.resolved_device(), protocols.find(protocol)[0]
    on = f"{where}, {settings.resolved_precision()}"
    console = Console(width=100)

    def shown(title: str, text: int, *columns: str) -> Table:
        table = Table(title=title, title_justify="left")
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < text else "right")
        return table

    if grid:
        title = f"seconds of whole trainings of {kind.name} MNIST, EWC in Class-IL, {on}"
        table = shown(title, 1, "", "14 strengths, one seed", "14 seeds, one strength", "÷")
        for row in bench.bench_grid(where, settings.resolved_precision(), kind, rounds or 3):
            table.add_row(row.what, f"{row.grid:.2f}", f"{row.seeds:.2f}", f"{row.ratio:.2f}")
        console.print(table)
        return
    rounds = rounds or 9
    with precise(settings.resolved_precision()):
        if growth:
            table = shown(
                f"milliseconds per step of all replicas, {on}", 2, "by", "method", "size", "step", "floor", "÷"
            )
            for grown in bench.grow(where, rounds):
                times = (f"{grown.step:.2f}", f"{grown.floor:.2f}", f"{grown.step / grown.floor:.2f}")
                table.add_row(grown.what, grown.method, str(grown.size), *times)
            console.print(table)
            return
        columns = ("protocol", "replicas", "cohort", "one by one", "bare products", "÷ one by one", "÷ products")
        table = shown(f"milliseconds per training step of all replicas, {on}", 1, *columns)
        for timing in bench.bench(where, rounds=rounds):
            table.add_row(
                timing.protocol,
                str(timing.replicas),
                *(f"{ms:.2f}" for ms in (timing.cohort, timing.alone, timing.products)),
                f"{timing.cohort / timing.alone:.2f}",
                f"{timing.cohort / timing.products:.2f}",
            )
        console.print(table)
        title = f"a step on the second task of {kind.name} MNIST, 20 replicas, {on}"
        columns = ("method", "scenario", "ms per step", "÷ none", "products", "memory", "÷ floor")
        table = shown(title, 2, *columns)
        for cost in bench.bench_methods(where, kind, rounds=rounds):
            floor = (f"{cost.floor.products:.2f}", f"{cost.floor.memory:.2f}", f"{cost.step / cost.floor.step:.2f}")
            table.add_row(cost.method, cost.scenario, f"{cost.step:.2f}", f"{cost.step / cost.none:.2f}", *floor)
        console.print(table)
        console.print("floor: the larger of products and memory, at the rates of a large product and a large copy here")
