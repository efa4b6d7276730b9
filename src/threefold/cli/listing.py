"""`threefold list`: what there is."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table


class What(StrEnum):
    METHODS = "methods"
    PROTOCOLS = "protocols"
    SCENARIOS = "scenarios"


def listing(what: Annotated[What, typer.Argument(help="What to list.")]) -> None:
    """Methods with their hyperparameters and where they work, protocols, or scenarios."""
    from rich.console import Console

    tables = {What.METHODS: _methods, What.PROTOCOLS: _protocols, What.SCENARIOS: _scenarios}
    Console(width=None if Console().is_terminal else 140).print(tables[what]())


def _table(*columns: str) -> "Table":
    from rich.table import Table

    table = Table(show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _methods() -> "Table":
    from threefold.methods import METHODS, Method
    from threefold.methods.part import Setting
    from threefold.scenarios import SCENARIOS, Outputs

    table = _table("method", "strategy", "what it does", "hyperparameters", "where")
    for entry in METHODS.values():
        method = Method(entry.part()) if entry.part else Method()
        where = []
        for scenario in SCENARIOS.values():
            reason = method.refuse(Setting(Outputs(scenario, 5, 2), 784, 400, 128))
            where.append(f"{scenario.title}: {reason or 'yes'}")
        fields = entry.part.model_fields if entry.part else {}
        meanings = [f"{name}: {field.description}" for name, field in fields.items()]
        table.add_row(entry.name, entry.strategy, entry.meaning, "\n".join(meanings), "\n".join(where))
    return table


def _protocols() -> "Table":
    from threefold.protocols import PROTOCOLS

    table = _table("protocol", "what it does", "tasks", "iterations", "learning rate", "hidden units", "batch")
    for protocol in PROTOCOLS.values():
        d = protocol.defaults
        numbers = (protocol.default_tasks, d.iters, d.lr, d.hidden, d.batch)
        table.add_row(protocol.name, protocol.meaning, *map(str, numbers))
    return table


def _scenarios() -> "Table":
    from threefold.scenarios import SCENARIOS

    table = _table("scenario", "title", "required at test time")
    for scenario in SCENARIOS.values():
        table.add_row(scenario.name, scenario.title, scenario.question)
    return table
