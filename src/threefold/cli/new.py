"""`threefold new`: a method, network or stream to start from, with its test."""

import keyword
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from threefold.cli.stdout import say
from threefold.errors import ThreefoldError, unknown

KINDS = ("method", "network", "stream")


def new(
    kind: Annotated[str, typer.Argument(help="method, network or stream.")],
    name: Annotated[str, typer.Argument(help="Its name, such as my_method: NAME.py and test_NAME.py are written.")],
) -> None:
    """Write a commented file that runs as it is, and its test, into this folder."""
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise ThreefoldError(f"name must be letters, digits and _, a letter first, got '{name}'.")
    _check_free(kind, name)
    written = {}
    for prefix in ("", "test_"):
        template = (
            files("threefold.cli").joinpath("templates").joinpath(f"{prefix}{kind}.py.txt").read_text(encoding="utf-8")
        )
        text = template.replace("NAME", name).replace("CLASS", _class_name(name))
        written[Path(f"{prefix}{name}.py")] = text
    for path in written:
        if os.path.lexists(path):
            raise ThreefoldError(f"file '{path}' is there already; use another name.")
    _write(written)
    lines = written[Path(f"{name}.py")].splitlines()
    command = next(line for line in lines if line.startswith("threefold run"))
    say(f"{name}.py and test_{name}.py are written. Try: {command}")


def _check_free(kind: str, name: str) -> None:
    """Could what is written be used under this name?"""
    from threefold.methods import METHODS
    from threefold.own_code import is_installed

    if kind == "method" and name in METHODS:
        raise ThreefoldError(f"name is '{name}', which is a method of threefold; use another name.")
    if is_installed(Path(f"{name}.py")):
        raise ThreefoldError(f"name is '{name}', which is an installed module; use another name.")


def _write(written: Mapping[Path, str]) -> None:
    """Both files or none."""
    from threefold.results.output import explained

    made: list[Path] = []
    try:
        for path, text in written.items():
            with explained(path), path.open("x", encoding="utf-8") as file:
                made.append(path)
                file.write(text)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        raise


def _class_name(name: str) -> str:
    """The class name for `my_method`: `MyMethod`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
