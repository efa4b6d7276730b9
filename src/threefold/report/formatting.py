"""Formats methods and numbers for reports."""

import math
from collections.abc import Collection

from threefold.experiments import Cell
from threefold.experiments.description import given
from threefold.methods import METHODS, Method, Part
from threefold.results import Difference, Published, Summary
from threefold.text import decimal

DASH = "–"
NOT_RUN = "…"


Said = Collection[tuple[str, str, object]]
"""Options that are stated once for all methods: part, option and value."""


def title(method: Method, said: Said = ()) -> str:
    """A method's name in tables, with the hyperparameters that were given, except those in `said`."""
    return " + ".join(_title(part, said) for part in method.parts) or METHODS["none"].title


def _title(part: Part, said: Said) -> str:
    own = {name: value for name, value in given(part).items() if (part.name, name, value) not in said}
    values = ", ".join(f"{name}={setting(value)}" for name, value in own.items())
    return f"{_name(part)} ({values})" if values else _name(part)


def _name(part: Part) -> str:
    return METHODS[part.name].title if part.name in METHODS else part.name


def untuned(method: Method) -> str:
    """The method's name without hyperparameters."""
    return " + ".join(map(_name, method.parts)) or METHODS["none"].title


def own_parts(cell: Cell) -> Method:
    """The method that names a cell's row: as in Table B.1, gates that only bring the task into the hidden layers belong
    to the column, not to the method, unless one of their hyperparameters was given."""
    if cell.task_id_in != "hidden":
        return cell.method
    return Method(
        *(part for part in cell.method.parts if not part.uses_task or part.model_fields_set & {*part.per_replica()})
    )


def strategy(method: Method) -> str:
    """The paper's name for the method's approach."""
    if not method.parts:
        return METHODS["none"].strategy
    return " + ".join(dict.fromkeys(_strategy(part) for part in method.parts))


def _strategy(part: Part) -> str:
    return METHODS[part.name].strategy if part.name in METHODS else "Other"


def plus_minus(summary: Summary) -> str:
    return str(summary)


def theirs(published: Published | None) -> str:
    if not published:
        return DASH
    return f"{published.mean:.2f}" + (" (no SEM)" if math.isnan(published.sem) else f" ± {published.sem:.2f}")


def paper_was(cell: Cell) -> str:
    """How the paper's runs of a cell were trained, in two words; empty if ours are trained in the same way."""
    if cell.comparable:
        return ""
    return "full length" if only_shorter(cell) else "paper's settings"


def only_shorter(cell: Cell) -> bool:
    """Does it differ from the paper's training in its length, or its width too, and in nothing else?"""
    usual, ours = cell.stream.defaults, cell.training
    shorter = any(not words.endswith("units per layer") for words in cell.cuts())
    return shorter and (ours.batch, cell.lr) == (usual.batch, usual.lr)


def signed(value: float) -> str:
    """A difference, with a true minus sign."""
    if math.isnan(value):
        return DASH
    text = f"{value:+.2f}"
    return ("+0.00" if float(text) == 0 else text).replace("-", "−")


def difference(found: Difference) -> str:
    """A difference with its 95% interval."""
    if math.isnan(found.value):
        return DASH
    if math.isnan(found.low):
        return signed(found.value)
    return f"{signed(found.value)} [{signed(found.low)}, {signed(found.high)}]"


def number(value: float, digits: int = 2) -> str:
    """A value with a true minus sign, but none before zero; a dash for NaN."""
    return DASH if math.isnan(value) else decimal(value, digits)


def short(value: float) -> str:
    """A hyperparameter or a budget, shortened: 1e+07 is 1e7."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def setting(value: object) -> str:
    """A given value, shortened without ambiguity: 5.0 is 5."""
    if isinstance(value, float) and math.isfinite(value):
        return short(value) if float(short(value)) == value else repr(value)
    if isinstance(value, list) and all(isinstance(item, int | float) for item in value):
        return "-".join(map(setting, value))  # as on the command line
    return str(value)


def duration(seconds: float) -> str:
    """Seconds in readable units."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def moment(created: str) -> str:
    """2026-03-01T12:00:00+00:00 as 2026-03-01 12:00 UTC."""
    return created[:16].replace("T", " ") + (" UTC" if created.endswith("+00:00") else "")


def count(number: int, thing: str, several: str = "") -> str:
    return f"{number} {thing if number == 1 else several or thing + 's'}"
