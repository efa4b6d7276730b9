"""`threefold list`: the known methods, streams, networks and so on."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, get_args, get_origin

import typer

from threefold.cli import options
from threefold.cli.stdout import console, write
from threefold.text import printable

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.table import Table

    from threefold.values import Value


def listing(
    what: Annotated[
        str,
        typer.Argument(
            help="methods, streams, boundaries, scenarios, networks, optimizers, schedules, or citations (BibTeX)."
        ),
    ],
    plugin: options.Plugin = None,
) -> None:
    """What there is: methods with their hyperparameters and where they work, streams, networks, and so on."""
    from threefold.errors import unknown

    tables: dict[str, Callable[[], Table]] = {
        "methods": _methods,
        "streams": _streams,
        "scenarios": _scenarios,
        "boundaries": lambda: _values_of("boundaries"),
        "networks": lambda: _values_of("network"),
        "optimizers": lambda: _values_of("optimizer"),
        "schedules": lambda: _values_of("schedule"),
    }
    if what == "citations":
        from threefold.methods import bibliography, entries

        write(bibliography(entries()))
        return
    if what not in tables:
        raise unknown("list", what, [*tables, "citations"])
    with console(140) as screen:
        screen.print(tables[what]())


def _table(*columns: str, widths: "Mapping[str, int] | None" = None) -> "Table":
    """`widths`: fixed widths of columns."""
    from rich.table import Table

    table = Table(show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold", width=(widths or {}).get(column))
    return table


def _methods() -> "Table":
    from rich.markup import escape

    from threefold.methods import METHODS, Method, Setting
    from threefold.networks import MLPNetwork
    from threefold.scenarios import SCENARIOS, Outputs

    table = _table("method", "strategy", "what it does", "hyperparameters", "where")
    for entry in METHODS.values():
        method = Method(entry.part()) if entry.part else Method()
        where = []
        for scenario in SCENARIOS.values():
            reason = method.refuse(Setting(Outputs(scenario, 5, 2), (1, 28, 28), 128, MLPNetwork(width=400)))
            where.append(f"{scenario.title}: {reason or 'yes'}")
        fields = entry.part.model_fields if entry.part else {}
        meanings = [
            f"{name}: {field.description} ({_values(field)}{_default(entry.name, name, field)})"
            for name, field in fields.items()
        ]
        row = (entry.name, entry.strategy, entry.meaning, "\n".join(meanings), "\n".join(where))
        table.add_row(*(escape(printable(cell)) for cell in row))
    return table


def _values_of(what: str) -> "Table":
    from rich.markup import escape

    from threefold.engine import OPTIMIZERS, SCHEDULES
    from threefold.networks import NETWORKS
    from threefold.networks.spec import REGISTERED as OWN_NETWORKS
    from threefold.streams import BOUNDARIES

    kinds: dict[str, Mapping[str, type[Value]]] = {
        "network": NETWORKS,
        "optimizer": OPTIMIZERS,
        "schedule": SCHEDULES,
        "boundaries": BOUNDARIES,
    }
    table = _table(what, "what it is", "hyperparameters")
    for name, kind in kinds[what].items():
        table.add_row(name, escape((kind.__doc__ or "").splitlines()[0]), escape(_fields(kind)))
    for name, own in OWN_NETWORKS.items() if what == "network" else ():
        table.add_row(name, escape(printable(_first_line(own))), "")
    return table


def _first_line(own: object) -> str:
    """The first line of the docstring of a user's object."""
    return ((own.__doc__ or "").strip().splitlines() or [""])[0]


def _fields(kind: "type[Value]") -> str:
    """The hyperparameters of a value, each with its meaning and default."""
    from threefold.values import as_text

    defaults = kind().model_dump(mode="json")
    return "\n".join(
        f"{key}: {field.description} ({_values(field)}default: "
        f"{'none' if defaults.get(key) is None else as_text(defaults[key])})"
        for key, field in kind.model_fields.items()
    )


def _values(field: "FieldInfo") -> str:
    """The permitted values, if they are a choice of words."""
    if get_origin(field.annotation) is not Literal:
        return ""
    *most, last = get_args(field.annotation)
    return f"{', '.join(most)} or {last}; "


def _default(method: str, name: str, field: "FieldInfo") -> str:
    """The default, which may be the paper's by stream and scenario, or that a value must be given."""
    from threefold.methods.paper import chosen, optional
    from threefold.scenarios import SCENARIOS
    from threefold.streams import STREAMS

    if field.default is not None or optional(field):
        return f"default: {'none' if field.default is None else field.default}"
    paper = []
    for stream in STREAMS:
        values = {scenario: chosen(stream, scenario, method).get(name) for scenario in SCENARIOS}
        known = [f"{scenario} {value:g}" for scenario, value in values.items() if value is not None]
        paper += [f"{stream}: {', '.join(known)}"] if known else []
    return f"default: the paper's, {'; '.join(paper)}" if paper else "must be given"


def _streams() -> "Table":
    from rich.markup import escape

    from threefold.streams import STREAMS
    from threefold.streams.find import REGISTERED

    numbers = ("tasks", "iterations", "learning rate", "hidden units", "batch")
    widths = {"what it does": 27, "tasks": 8, "learning rate": 8, "hidden units": 6}
    table = _table("stream", "what it does", "options", *numbers, widths=widths)
    for stream in STREAMS.values():
        d = stream.defaults
        each = (stream.default_tasks or "one for each dataset", d.iters, d.lr, d.hidden, d.batch)
        table.add_row(stream.name, stream.meaning, escape(_fields(stream.options_type)), *map(str, each))
    for name, own in REGISTERED.items():
        table.add_row(name, escape(printable(_first_line(own))))
    return table


def _scenarios() -> "Table":
    from threefold.scenarios import SCENARIOS

    table = _table("scenario", "title", "required at test time")
    for scenario in SCENARIOS.values():
        table.add_row(scenario.name, scenario.title, scenario.question)
    return table
