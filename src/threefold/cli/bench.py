"""`threefold bench`: speed as ratios."""

from typing import Annotated

import typer


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    rounds: Annotated[int, typer.Option(min=3, help="Steps measured of each kind; medians are shown.")] = 9,
) -> None:
    """Time a training step of a cohort, of the same networks one after the other, and of the bare matrix products."""
    from rich.console import Console
    from rich.table import Table

    from threefold.experiments import Settings, bench

    where = Settings.checked(device=device).resolved_device()
    table = Table(title=f"milliseconds per training step of all replicas, {where}", title_justify="left")
    for column in ("protocol", "replicas", "cohort", "one by one", "bare products", "÷ one by one", "÷ products"):
        table.add_column(column, justify="left" if column == "protocol" else "right")
    for row in bench.bench(where, rounds=rounds):
        table.add_row(
            row.protocol,
            str(row.replicas),
            *(f"{ms:.2f}" for ms in (row.cohort, row.alone, row.products)),
            f"{row.cohort / row.alone:.2f}",
            f"{row.cohort / row.products:.2f}",
        )
    console = Console(width=100)
    console.print(table)
    table = Table(title=f"a step on the second task of split MNIST, 20 replicas, {where}", title_justify="left")
    for column in ("method", "scenario", "ms per step", "÷ none"):
        table.add_column(column, justify="left" if column in ("method", "scenario") else "right")
    for cost in bench.bench_methods(where, rounds=rounds):
        table.add_row(cost.method, cost.scenario, f"{cost.step:.2f}", f"{cost.step / cost.none:.2f}")
    console.print(table)
