"""Errors in an experiment's file, in the file's own terms."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

Place = tuple[str | int, ...]
Known = Mapping[str, Mapping[str, str]]

_WHOLE, _NUMBER, _TABLE = "a whole number", "a number", "a table"
_WANTED = {  # by the type of error that pydantic names
    "string_type": "text in quotes",
    "list_type": "a list",
    "too_short": "one at least",
    "model_type": _TABLE,
    "dict_type": _TABLE,
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt:g}",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "string_pattern_mismatch": "letters, digits, dots, dashes and spaces, the first a letter or digit",
}
_FORM = {  # how to write a field that is missing or of the wrong kind
    "stream": 'stream = "split-mnist", or "split" or "permuted" with data = "FILE.npz"',
    "methods": '[[methods]] tables, one at least, each with its method = "NAME"',
    "method": 'method = "NAME", such as "ewc"',
    "scenarios": 'a list such as ["task", "class"]',
    "parts": "[[parts]] tables, one at least, each with a stream and its methods",
}
_OF_ANOTHER_KIND = ("missing", "list_type", "too_short")
_VALUE = "a finite number, text, true or false, or a list of these"


def sentence(errors: Iterable[Mapping[str, Any]], known: Known, *, several: bool) -> str:
    """The number of mistakes, and each with its place.

    `known`: for each table of the file (the file itself is "") its fields, with a suggestion for each.
    """
    by_place: dict[Place, Mapping[str, Any]] = {}
    for error in errors:
        by_place.setdefault(_place(error["loc"], several), error)
    mistakes = [_mistake(places, error, known, several) for places, error in by_place.items()]
    count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    text = f"{count}: {'; '.join(mistakes)}"
    return text if text.endswith("?") else f"{text}."


def _place(given: Place, several: bool) -> Place:
    """The place in the file: a single part's fields are at the top, and a value is one place, even if nested."""
    places = given[2:] if not several and given[:2] == ("parts", 0) else given
    places = tuple(place for place in places if place not in ("<one>", "<several>"))
    return places[: places.index("with") + 2] if "with" in places else places


def _mistake(places: Place, error: Mapping[str, Any], known: Known, several: bool) -> str:
    where, field = _written(places), next((str(p) for p in reversed(places) if isinstance(p, str)), "")
    kind = error["type"]
    if "with" in places[:-1]:  # none of a value's permitted types
        return f"{where} must be {_VALUE}, got {_short(error['input'])}"
    if kind == "extra_forbidden":
        return _unknown(places, known, several)
    if kind == "value_error":
        return _ours(where, field, error["msg"].removeprefix("Value error, ").rstrip("."))
    usual = _WANTED.get(kind, error["msg"].removeprefix("Input should be ")).format_map(error.get("ctx", {}))
    wanted = _FORM.get(field, usual) if kind in _OF_ANOTHER_KIND and places[-1] == field else usual
    if kind == "missing":
        return f"{where} is missing; use {wanted}"
    return f"{where} must be {wanted}, got {_short(error['input'])}"


def _ours(where: str, field: str, message: str) -> str:
    """Our own sentences often name the field, but not its place in the file."""
    if message.startswith((f"{field} is ", f"{field} must ", f"{field} '")):
        return f"{where}{message.removeprefix(field)}"
    return f"{where or 'the file'}: {message}"


def _unknown(places: Place, known: Known, several: bool) -> str:
    field, outer = str(places[-1]), [str(p) for p in places[:-1] if isinstance(p, str)]
    table = outer[-1] if outer else ""
    if several and not table and field in known["parts"]:
        return f"field '{field}' is outside the [[parts]]; it must be inside each of them"
    names = known[table] if several or table else {**known["parts"], **known[""]}
    close = get_close_matches(field.lower(), names, n=1)
    own = sorted(name for name, suggested in names.items() if name == suggested)
    hint = f"did you mean '{names[close[0]]}'?" if close else f"known: {', '.join(own)}"
    return f"field '{_written(places)}' is not known; {hint}"


def _written(places: Place) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in places).lstrip(".")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
