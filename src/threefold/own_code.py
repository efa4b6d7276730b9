"""Users' classes and functions by their text on the command line: `my_nets.py:Net`, `package.module:Net`."""

import sys
from collections.abc import Container
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from sysconfig import get_path
from types import ModuleType
from typing import Any

from threefold.errors import ThreefoldError
from threefold.reading import open_file


def own_code(text: str, what: str, known: Container[str]) -> Any:
    """The object for `my_nets.py:Net`; None if the text is a name of ours, with or without hyperparameters."""
    module, _, name = text.partition(":")
    if module.endswith(".py") and not name:
        raise _lacks_a_name(module, what)
    if name and "=" not in name and (module.endswith(".py") or module not in known):
        return imported(module, name, what)
    return None


def imported(module: str, name: str, what: str) -> Any:
    """The object of that name in a file such as `my_nets.py`, or in an importable module."""
    found = _module(module, f"{what} '{module}:{name}'")
    if not callable(own := getattr(found, name, None)):
        raise ThreefoldError(
            f"{what} '{module}:{name}' must name a class or function, and {module} has none of that name."
        )
    return own


def module_of(name: str, what: str) -> ModuleType:
    """A user's file such as `my_methods.py`, or an importable module."""
    return _module(name, f"{what} '{name}'", "use FILE.py or the name of a module")


def _module(module: str, told: str, use: str = "use FILE.py:NAME") -> ModuleType:
    """A user's file or module; `told`: how errors name the request."""
    try:
        if not module.endswith(".py"):
            return import_module(module)
        try:
            open_file(module).close()
        except FileNotFoundError as error:
            raise ThreefoldError(f"{told} names a file that is not there; {use}.") from error
        if is_installed(Path(module)):
            raise ThreefoldError(f"{told} has the name of an installed module, which it would replace; rename it.")
        return _from_file(Path(module))
    except ThreefoldError:
        raise
    except Exception as error:  # a user's file may raise anything
        raise ThreefoldError(f"{told} cannot be imported ({type(error).__name__}: {error}).") from error


def is_installed(file: Path) -> bool:
    """Has Python, or a package that is installed, a module of this file's name?"""
    name = file.stem
    if name in sys.stdlib_module_names or name in ("__main__", "threefold"):
        return True
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # a module without a spec was made by hand
        return False
    packages = {Path(get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    return spec is not None and any(Path(spec.origin or "").resolve().is_relative_to(place) for place in packages)


def _lacks_a_name(file: str, what: str) -> ThreefoldError:
    """The error for a file without a name, with the candidates in it."""
    found = _module(file, f"{what} '{file}'")
    own = (name for name, value in vars(found).items() if getattr(value, "__module__", None) == found.__name__)
    names = [name for name in own if callable(getattr(found, name)) and not name.startswith("_")] or ["NAME"]
    use = " or ".join(f"{file}:{name}" for name in names)
    return ThreefoldError(f"{what} '{file}' lacks the name of a class or function; use {use}.")


def _from_file(path: Path) -> ModuleType:
    """Import a file as a module of its name; the same file is imported only once."""
    known = sys.modules.get(path.stem)
    if known and Path(getattr(known, "__file__", None) or "").resolve() == path.resolve():
        return known
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
