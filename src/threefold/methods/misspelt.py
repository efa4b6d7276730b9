"""A hook whose name is misspelt would never be called, without a word."""

from difflib import get_close_matches
from inspect import isfunction
from warnings import warn


def warn_of_misspelt(part: type, hooks_of: type) -> None:
    """Ask about what a class defines that is nearly a hook."""
    hooks, mine = (
        [name for name, value in vars(one).items() if isfunction(value) and not name.startswith("_")]
        for one in (hooks_of, part)
    )
    for name in mine:
        if name not in hooks and (alike := get_close_matches(name, hooks, n=1, cutoff=0.85)):
            warn(f"{part.__name__} defines {name}, which is no hook; did you mean {alike[0]}?", stacklevel=4)
