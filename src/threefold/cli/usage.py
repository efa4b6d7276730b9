"""Rewrites the argument parser's errors as our sentences: the field, the value, and what it must be."""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from threefold.errors import ThreefoldError, unknown

PARSER = "Input should be "  # the parser's prefix for what a value must be


class Command(TyperCommand):
    """A command that refuses an option given twice, as it is unclear which one is meant."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        seen: dict[str, str] = {}
        for name, value in _single_values(self.params, args):
            if name in seen:
                raise ThreefoldError(f"{name} is given twice, as '{seen[name]}' and '{value}'; give it once.")
            seen[name] = value
        return super().parse_args(ctx, args)


def _single_values(params: Sequence[Any], words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The typed options that take one value, with their values."""
    options = {opt: param for param in params for opt in param.opts if opt.startswith("-") and not param.is_flag}
    rest = iter(words)
    for word in rest:
        if word == "--":  # only arguments follow
            return
        opt, equals, value = word.partition("=")
        if opt in options:
            value = value if equals else next(rest, "")
            if not options[opt].multiple:
                yield _name(options[opt]), value


def sentence(error: Any) -> str:
    """A sentence for an error of the argument parser."""
    command = error.ctx.command if getattr(error, "ctx", None) else None
    params = getattr(command, "params", [])
    match type(error).__name__:
        case "NoSuchOption":
            known = [name for param in params for name in param.opts if name.startswith("--")]
            return str(unknown("option", error.option_name, [*known, "--help"]))
        case "BadOptionUsage":
            option = error.option_name
            if "requires" in error.message:
                return f"{option.lstrip('-')} has no value; use {option} VALUE."
            return f"{option.lstrip('-')} takes no value; use {option} alone."
        case "MissingParameter":
            return f"{_name(error.param)} is missing: {_meaning(error.param)}"
        case "BadParameter" if (value := _given(error.param)) is not None and error.message.startswith(PARSER):
            wanted = error.message.removeprefix(PARSER).partition(",")[0]
            wanted = f"a number {wanted}" if wanted.startswith(("greater", "less")) else wanted
            return f"{_name(error.param)} must be {wanted}, got '{value}'."
        case "BadParameter" if listed := re.search(r"'(.*?)' is not one of (.*)", error.message):
            return str(unknown(_name(error.param), listed[1], re.findall(r"'(.*?)'", listed[2])))
    if word := re.match(r"No such command '(.*?)'", error.message):
        return str(unknown("command", word[1], getattr(command, "commands", [])))
    if extra := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message):
        return f"'{extra[1]}' is more than the command takes; use options that --help names."
    return f"{str(error.format_message()).rstrip('.')}."


def _name(param: Any) -> str:
    """The name of an option or argument on the command line."""
    return max((str(opt).lstrip("-") for opt in param.opts), key=len)


def _meaning(param: Any) -> str:
    return str(getattr(param, "help", None) or "a value.")


def _given(param: Any) -> str | None:
    """The typed value of an option; several of one that may be repeated."""
    found = [
        value if equals else after
        for word, after in pairwise([*sys.argv, ""])
        for name, equals, value in [word.partition("=")]
        if param is not None and name in param.opts
    ]
    return ", ".join(found) or None
