"""`threefold bench`: speed as ratios."""

from typing import Annotated

import typer


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto (tf32 on a GPU), fp32 or tf32.")] = "auto",
    rounds: Annotated[int, typer.Option(min=3, help="Steps measured of each kind; medians are shown.")] = 9,
    protocol: Annotated[str, typer.Option(help="Whose steps are taken with each method: split or permuted.")] = "split",
    growth: Annotated[bool, typer.Option("--growth", help="By replicas, hidden units and tasks instead.")] = False,
) -> None:
    """Time training steps: beside networks one by one, beside bare matrix products, beside what the device could do."""
    from rich.console import Console
    from rich.table import Table

    from threefold import bench, protocols
    from threefold.engine.train import precise
    from threefold.experiments import Settings

    settings = Settings.checked(device=device, precision=precision)
    where, kind = settings.resolved_device(), protocols.find(protocol)[0]
    on = f"{where}, {settings.resolved_precision()}"
    console = Console(width=100)

    def shown(title: str, text: int, *columns: str) -> Table:
        table = Table(title=title, title_justify="left")
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < text else "right")
        return table

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
        for row in bench.bench(where, rounds=rounds):
            table.add_row(
                row.protocol,
                str(row.replicas),
                *(f"{ms:.2f}" for ms in (row.cohort, row.alone, row.products)),
                f"{row.cohort / row.alone:.2f}",
                f"{row.cohort / row.products:.2f}",
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
