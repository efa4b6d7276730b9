"""`threefold new`: a method, network or stream to start from, with its test."""

import keyword
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
    written = {}
    for prefix in ("", "test_"):
        template = (
            files("threefold.cli").joinpath("templates").joinpath(f"{prefix}{kind}.py.txt").read_text(encoding="utf-8")
        )
        text = template.replace("NAME", name).replace("CLASS", _class_name(name))
        written[Path(f"{prefix}{name}.py")] = text
    for path in written:
        if path.exists():
            raise ThreefoldError(f"file '{path}' is there already; use another name.")
    for path, text in written.items():
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    lines = written[Path(f"{name}.py")].splitlines()
    command = next(line for line in lines if line.startswith("threefold run"))
    say(f"{name}.py and test_{name}.py are written. Try: {command}")


def _class_name(name: str) -> str:
    """The class name for `my_method`: `MyMethod`."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
