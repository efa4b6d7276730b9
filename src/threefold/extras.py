"""Optional dependencies."""

from importlib.util import find_spec

from threefold.errors import ThreefoldError


def need(what: str, extra: str, *modules: str) -> None:
    """Raise a one-sentence error if a module that `what` needs is missing."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ThreefoldError(
            f"{what} needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed; install"
            f" {'it' if len(missing) == 1 else 'them'} with: pip install 'threefold[{extra}]'"
        )
