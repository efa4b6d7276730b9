"""Stands for a user's part that is not loaded here, so that its runs can be reported all the same."""

from functools import cache
from typing import Any, ClassVar

from pydantic import ConfigDict

from threefold.methods import Part


@cache
def absent(name: str) -> type[Part]:
    """A part of that name which does nothing and has whatever hyperparameters it is given."""
    fields: dict[str, Any] = {"name": name, "__annotations__": {"name": ClassVar[str]}}
    return type("Absent", (Part,), fields | {"model_config": ConfigDict(extra="allow")})
