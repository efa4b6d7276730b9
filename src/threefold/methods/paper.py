"""The paper's hyperparameters, as data (`paper.toml`)."""

import tomllib
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import Any, get_args

from pydantic.fields import FieldInfo

from threefold.errors import ThreefoldError
from threefold.methods.method import Method
from threefold.methods.part import Part


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(files("threefold.methods").joinpath("paper.toml").read_text(encoding="utf-8"))


def chosen(stream: str, scenario: str, method: str) -> dict[str, Any]:
    """The hyperparameters that the paper chose for a method."""
    found: dict[str, Any] = _tables().get(stream, {}).get(scenario, {}).get(method, {})
    return found


def trained_so(part: Part, stream: str, scenario: str) -> bool:
    """Does it have the paper's hyperparameters? Where the text is ambiguous, any reading counts."""
    theirs, readings = chosen(stream, scenario, part.name), _tables()["readings"].get(part.name, {})
    for name, field in type(part).model_fields.items():
        right = [theirs[name]] if name in theirs else readings.get(name, [field.default])
        if getattr(part, name) not in right:
            return False
    return True


def resolve(method: Method, stream: str, scenario: str) -> Method:
    """The method with every hyperparameter that was not given set to the paper's value."""
    return Method(*(_resolved(part, stream, scenario) for part in method.parts))


def optional(field: FieldInfo) -> bool:
    """Is None a value of this field (`… | None`)?"""
    return NoneType in get_args(field.annotation)


def _resolved(part: Part, stream: str, scenario: str) -> Part:
    fields = type(part).model_fields
    missing = [name for name in fields if getattr(part, name) is None and not optional(fields[name])]
    if not missing:
        return part
    known = chosen(stream, scenario, part.name)
    for name in missing:
        if name not in known:
            raise ThreefoldError(
                f"{name} of {part.name} was not given, and the paper has none for {stream} streams in the"
                f" {scenario} scenario; use {part.name}:{name}=NUMBER."
            )
    found = part.model_copy(update={name: float(known[name]) for name in missing})
    found.model_fields_set.difference_update(missing)  # only what was given counts as set
    return found
