"""Values: a name with hyperparameters (parts of methods, networks, optimisers), and their text: `cnn:norm=group`."""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.fields import FieldInfo

from threefold.errors import ThreefoldError, unknown


def hyper(meaning: str, default: Any = None, *, per_replica: bool = True, later: bool = False, **bounds: Any) -> Any:
    """A hyperparameter: its meaning, default and range. No default: the paper's value for the stream and scenario.

    Numbers may differ between the replicas of a stack, unless `per_replica` is False; whatever changes shapes or code
    may not. `later`: it was added when there were runs without it, so at its default it is left out of keys.
    """
    extra: Any = {"per_replica": per_replica, "later": later}
    return Field(default, description=meaning, json_schema_extra=extra, **bounds)


def came_later(field: FieldInfo) -> bool:
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get("later"))


@cache
def _added_later(kind: type["Value"]) -> list[tuple[str, Any]]:
    """The hyperparameters that were added later, with their defaults."""
    return [(name, field.default) for name, field in kind.model_fields.items() if came_later(field)]


@cache
def _numeric(kind: type["Value"]) -> list[str]:
    """The hyperparameters that are single numbers, and not those of all replicas."""
    return [
        name
        for name, field in kind.model_fields.items()
        if field.annotation in (int, float)
        and isinstance(field.json_schema_extra, dict)
        and field.json_schema_extra["per_replica"]
    ]


class Value(BaseModel):
    """Something with a name; its fields are the hyperparameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: ClassVar[str]
    called: ClassVar[str] = "hyperparameter"  # the word for a field in errors

    def per_replica(self) -> list[str]:
        """The hyperparameters that may differ between the replicas of a stack."""
        return _numeric(type(self))

    def in_key(self, mode: str = "python") -> dict[str, Any]:
        """The hyperparameters, except those that were added later and have their default."""
        every = self.model_dump(mode=mode)
        for name, default in _added_later(type(self)):
            if getattr(self, name) == default:
                del every[name]
        return every

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, given: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        """Turn pydantic's errors into our sentences."""
        try:
            return build(given)
        except ValidationError as error:
            every = error.errors()
            mine = [each for each in every if each["loc"][:1] == every[0]["loc"][:1]]
            first = max(mine, key=lambda each: len(each["loc"]))  # of several permitted forms, the nearest one
            key = str(first["loc"][0]) if first["loc"] else cls.name
            message = first["msg"].removeprefix("Value error, ")
            message = message[0].lower() + message[1:].rstrip(".")
            if message.startswith("must be "):  # a whole sentence already
                raise ThreefoldError(f"{key} of {cls.name} {message}.") from error
            raise ThreefoldError(f"{cls.called} {key} of {cls.name} is '{first['input']}': {message}.") from error

    def __repr_args__(self) -> "Iterable[tuple[str | None, Any]]":
        """The fields that are not at their defaults: `EWC(strength=3.0)`."""
        fields = type(self).model_fields
        return [(name, value) for name, value in super().__repr_args__() if not name or value != fields[name].default]

    __str__ = BaseModel.__repr__

    def written(self) -> str:
        """Its text on the command line, without defaults: `cnn:channels=16-32,norm=group`."""
        return written_as(type(self), self.name, self.model_dump(mode="json"))


V = TypeVar("V", bound=Value)
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")  # so that the command line can write it


def check_name(what: str, name: str, taken: Container[str]) -> None:
    """Check that a user's object can have this name on the command line."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or name == "all":
        raise ThreefoldError(f"{what} must be a letter, then letters, digits, - or _ (not 'all'), got '{name}'.")
    if name in taken:
        raise ThreefoldError(f"{what} is '{name}', which threefold has already; use another name.")


def check_words(**given: str) -> None:
    """What tables show of something of the user's must be text."""
    for field, text in given.items():
        if not isinstance(text, str):
            raise ThreefoldError(f"{field} must be text, got {text!r}.")


def written_as(kind: type[Value] | None, name: str, every: Mapping[str, Any]) -> str:
    """The text of a value with these hyperparameters; its kind need not be known here."""
    usual = kind().model_dump(mode="json") if kind else {}
    chosen = {key: value for key, value in every.items() if key not in usual or value != usual[key]}
    pairs = ",".join(f"{key}={as_text(value)}" for key, value in chosen.items())
    return f"{name}:{pairs}" if pairs else name


def listed(given: Any) -> Any:
    """Parse a list as on the command line: `16-32`; numbers may be negative, or written as `1e-05`."""
    return re.split(r"(?<=[^-])(?<![0-9.][eE])-", given) if isinstance(given, str) else given


def must_be(what: str) -> WrapValidator:
    """One error for a whole list, as pydantic's would be about a single number in it."""

    def checked(given: Any, check: Callable[[Any], Any]) -> Any:
        try:
            return check(given)
        except ValidationError:
            raise ValueError(f"must be {what}, got '{given}'") from None

    return WrapValidator(checked)


def as_text(value: Any) -> str:
    """A hyperparameter's value as text: `16-32`, `0-1/2-3`, `true`, `0.1`; a list of one list: `0-1/`."""
    if isinstance(value, list):
        if any(isinstance(each, list) for each in value):
            return "/".join(map(as_text, value)) + ("/" if len(value) == 1 else "")
        return "-".join(as_text(each).removesuffix(".0") for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def pairs_of(text: str, what: str) -> tuple[str, dict[str, str]]:
    """The name and the hyperparameters in `name:key=value,key=value`; `what` is the kind of value, for errors."""
    name, colon, listed = text.partition(":")
    if colon and not listed:
        raise ThreefoldError(f"{what} '{text}' has nothing after the colon; use {name} or {name}:key=value.")
    given: dict[str, str] = {}
    for pair in filter(None, listed.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ThreefoldError(f"{what} '{text}' has '{pair}'; use key=value.")
        if key in given:
            raise ThreefoldError(f"{what} '{text}' gives {key} twice; give it once.")
        given[key] = value
    return name, given


def build(kinds: Mapping[str, type[V]], what: str, name: str, given: Mapping[str, Any]) -> V:
    """Build the value of that name, with its hyperparameters checked."""
    if name not in kinds:
        raise unknown(what, name, kinds)
    check_keys(kinds[name], what, given)
    return kinds[name](**given)


def known(kinds: Mapping[str, type[V]], what: str, given: V, advice: str = "") -> V:
    """Check that a value is of one of these kinds, not of a subclass, which keys would not distinguish."""
    if type(given) not in kinds.values():
        raise ThreefoldError(
            f"{what} must be one of {', '.join(kinds)}, got a {type(given).__name__}, which is none of them{advice}."
        )
    return given


def check_keys(kind: type[Value], what: str, given: Mapping[str, Any]) -> None:
    """Refuse hyperparameters that it does not have."""
    for key in given:
        if key not in kind.model_fields:
            if not kind.model_fields:
                raise ThreefoldError(f"{what} '{kind.name}' has no hyperparameters, but '{key}' was given.")
            raise unknown(f"hyperparameter of {kind.name}", key, kind.model_fields)
