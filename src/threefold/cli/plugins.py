"""Imports user code that registers methods, networks, streams, datasets and metrics."""

from collections.abc import Sequence
from importlib.metadata import entry_points

from threefold.errors import ThreefoldError
from threefold.own_code import module_of

GROUP = "threefold.plugins"


def load(given: Sequence[str] | None) -> None:
    """Import installed plug-ins, then those that were named. Each registers its content (`threefold.register`, …)."""
    for found in entry_points(group=GROUP):
        try:
            found.load()
        except Exception as error:  # a user's package may raise anything
            raise ThreefoldError(
                f"plug-in '{found.name}' of an installed package cannot be imported ({type(error).__name__}: {error});"
                " fix or uninstall it."
            ) from error
    for name in given or ():
        module_of(name, "plugin")
