"""Methods, networks, optimisers and schedules as plain data and as text, and rebuilt from these for reports.

Placeholders replace what is not loaded when a report is made, such as a user's own method.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, NoReturn

from pydantic import ConfigDict

from threefold.errors import ThreefoldError
from threefold.methods import METHODS, Method, Part, Setting
from threefold.methods.registry import split_parts
from threefold.networks import NETWORKS, AnyNetwork, OwnNetwork, Weights
from threefold.values import V, Value, build, came_later


def described_value(value: Value | OwnNetwork) -> dict[str, Any]:
    """A network, an optimiser or a schedule as plain data."""
    init = getattr(value, "init", None)
    every = value.in_key("json") if isinstance(value, Value) else {}
    plain = {"name": value.name, "hyperparameters": every}
    return plain | ({"init": init.sum} if init else {})


def same_value(one: Value | OwnNetwork, other: Value | OwnNetwork) -> bool:
    """Are these the same values, no matter which were given and which are defaults?"""
    return described_value(one) == described_value(other)


def value_again(kinds: Mapping[str, type[V]], plain: Mapping[str, Any]) -> V:
    """Rebuild a value from `described_value`."""
    return build(kinds, "value", plain["name"], plain.get("hyperparameters", {}))


def network_again(plain: Mapping[str, Any], text: str | None) -> AnyNetwork:
    """A network for reports; a user's own is represented by its name and its text on the command line."""
    if plain["name"] in NETWORKS and "code" not in plain:
        network = value_again(NETWORKS, plain)
        return network.model_copy(update={"init": Weights(plain["init"])}) if plain.get("init") else network
    own = OwnNetwork(_not_loaded, text)
    own.name = plain["name"]
    return own


def _not_loaded(setting: Setting) -> NoReturn:
    raise ThreefoldError("a network that is read from a store has no code; give it again.")


def method_again(text: str, hyperparameters: Mapping[str, Any]) -> Method:
    """Rebuild a method from its text and values, even if a part is not known here or has changed."""
    parts = []
    for piece in split_parts(text):
        name = piece.partition(":")[0]
        if name == "none":
            continue
        kind = METHODS[name].part if name in METHODS else None
        given = {pair.partition("=")[0] for pair in piece.partition(":")[2].split(",") if pair}
        if kind is None or not _has(kind, hyperparameters[name]):
            kind = absent(name)
        parts.append(kind.model_construct(_fields_set=given, **hyperparameters[name]))
    return Method(*parts)


def _has(kind: type[Part], given: Mapping[str, Any]) -> bool:
    """Are these its hyperparameters? Those added later may be missing and have their defaults."""
    fields = kind.model_fields
    return given.keys() <= fields.keys() and all(came_later(fields[name]) for name in fields.keys() - given.keys())


def written(method: Method) -> str:
    """A method as the command line writes it, with the hyperparameters that were given: `ewc:strength=100.0+xdg`."""
    pairs = [",".join(f"{name}={value}" for name, value in given(part).items()) for part in method.parts]
    texts = [f"{part.name}:{some}" if some else part.name for part, some in zip(method.parts, pairs, strict=True)]
    return "+".join(texts) or "none"


def given(part: Part) -> dict[str, Any]:
    """The hyperparameters of a part that were given."""
    every = part.model_dump().items()
    return {name: value for name, value in every if name in part.model_fields_set and value is not None}


@cache
def absent(name: str) -> type[Part]:
    """A placeholder for a user's part that is not loaded here: it does nothing and accepts any hyperparameters."""
    fields: dict[str, Any] = {"name": name, "__annotations__": {"name": ClassVar[str]}}
    return type("Absent", (Part,), fields | {"model_config": ConfigDict(extra="allow")})
