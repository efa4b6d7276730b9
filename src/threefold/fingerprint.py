"""Fingerprints of users' code: when the code that determines a run changes, so must the run's key.

The sum is taken over compiled code (instructions, constants, names, defaults, closures), never over source text: a
notebook has no file, and a file may have been edited since it was imported, but what was compiled is what runs.
Comments and line numbers do not count. Whatever the code refers to counts too, as far as it is the user's: functions,
classes and values of the same package, of `__main__` or of a module that is not installed. What a library has under a
name counts by that name.
"""

import builtins
import dis
import functools
import importlib
import sys
import sysconfig
from collections.abc import Iterable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice)
BY_VALUE = (tuple, frozenset, CodeType, Tensor, np.ndarray)  # the compiler may share equal ones, or not
HIDING = (eval, exec, globals, builtins.__import__, importlib, importlib.import_module)  # may find anything
# what Python and pydantic keep in a class for themselves: a field's value is a hyperparameter, which a spec has anyway
BOOKKEEPING = {
    *("__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"),
    *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__"),
    *("_abc_impl", "__parameters__", "__orig_bases__", "__signature__", "__class_vars__", "__private_attributes__"),
}


class NotCovered(Exception):
    """Something that determines a run cannot be fingerprinted; the text says what it is."""


def is_ours(kind: type) -> bool:
    """Is this class part of threefold itself?"""
    return kind.__module__.partition(".")[0] == "threefold"


def code_of(kind: Any, state: object = None) -> str | None:
    """The sum of a user's class or function and of `state`, what an instance holds beside its hyperparameters.

    None for threefold's own classes. Raises `NotCovered` for what has no sum, such as an open file.
    """
    if isinstance(kind, type) and is_ours(kind) and not _overridden(state):
        return None
    first = kind
    while isinstance(first, functools.partial):
        first = first.func
    home = getattr(first, "__module__", None) or type(first).__module__
    return _Description(home.partition(".")[0]).sum_of(kind, state)


def _overridden(state: object) -> bool:
    """Does an instance have its own function in place of its class's?"""
    return isinstance(state, dict) and any(map(callable, state.values()))


class _Used(NamedTuple):
    """What a function's code uses, the functions inside it included."""

    globals: frozenset[str]
    names: frozenset[str]  # of globals, of attributes, and text that may be the name of one
    imports: tuple[tuple[str, Any, int], ...]  # the module, the names that are wanted of it, how many packages up


class _Description:
    """A digest of everything reached, in the order in which it was reached."""

    def __init__(self, home: str) -> None:
        self.home = home  # the user's package: covered also where it is installed
        self.sum = sha256()
        self.known: dict[int, int] = {}  # by id: what was reached before, at which place
        self.alive: list[object] = []  # so that no id is used twice
        self.names: set[str] = set()  # that the code uses
        self.modules: dict[str, ModuleType] = {}  # of the user's, by name

    def sum_of(self, *values: Any) -> str:
        for value in values:
            self.add(value)
        self._add_what_modules_have()
        return self.sum.hexdigest()

    def add(self, value: Any) -> None:
        if type(value) in PLAIN:
            self._write(type(value).__name__, repr(value))
            return
        if any(value is each for each in HIDING):
            raise NotCovered(f"what {value.__name__} finds")
        if not isinstance(value, BY_VALUE):
            if id(value) in self.known:
                self._write("again", self.known[id(value)])
                return
            self.known[id(value)] = len(self.known)
            self.alive.append(value)
        match value:
            case Tensor():
                self._several("tensor", (type(value), _array(value)))
            case np.ndarray() if type(value) is np.ndarray and value.dtype != object:
                self._write("array", value.dtype.str, value.shape)
                self.sum.update(np.ascontiguousarray(value).tobytes())
            case tuple() | list() if type(value) in (tuple, list):
                self._several(type(value).__name__, value)
            case set() | frozenset():
                self._several("set", (type(value), *sorted(self._apart(each) for each in value)))
            case dict() | MappingProxyType() if type(value) in (dict, MappingProxyType):
                self._several(type(value).__name__, (each for pair in value.items() for each in pair))
            case ModuleType():
                self._module(value)
            case CodeType():
                self._code(value)
            case FunctionType():
                self._function(value)
            case type():
                self._class(value)
            case MethodType():
                self._several("method", (value.__func__, value.__self__))
            case staticmethod() | classmethod():
                self._several(type(value).__name__, (value.__func__,))
            case property():
                self._several("property", (value.fget, value.fset, value.fdel))
            case functools.cached_property():
                self._several("cached property", (value.func,))
            case functools.partial():
                self._several("partial", (value.func, value.args, value.keywords))
            case CellType():
                self._several("cell", [value.cell_contents] if _filled(value) else [])
            case BuiltinFunctionType() if isinstance(value.__self__, ModuleType | None):
                self._write("builtin", value.__module__, value.__qualname__)
            case _ if self._library_has(value):
                self._write("library", value.__module__, value.__qualname__)
            case _ if isinstance(getattr(value, "__wrapped__", None), FunctionType):  # functools.cache
                self._several("wrapped", (type(value), value.__wrapped__))
            case _:
                self._object(value)

    def _write(self, *words: object) -> None:
        self.sum.update(f"{words!r}\n".encode())

    def _several(self, what: str, values: Iterable[Any]) -> None:
        self._write(what, "(")
        for value in values:
            self.add(value)
        self._write(")")

    def _apart(self, value: object) -> str:
        """The fingerprint of one member of a set, as sets are unordered."""
        return _Description(self.home).sum_of(value)

    def _module(self, module: ModuleType) -> None:
        self._write("module", module.__name__)
        if not self._is_library(module.__name__):
            self.modules[module.__name__] = module

    def _add_what_modules_have(self) -> None:
        """Of the user's modules what has a name that the code uses, for there are many ways to get at it."""
        done: set[tuple[str, str]] = set()
        while new := {(m, name) for m, module in self.modules.items() for name in self.names & {*vars(module)}} - done:
            for module, name in sorted(new):
                self._write("of module", module, name)
                self.add(vars(self.modules[module])[name])
            done |= new

    def _function(self, function: FunctionType) -> None:
        if self._library_has(function):
            self._write("library", function.__module__, function.__qualname__)
            return
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__)
        self._several("function", parts)
        self._several("closure", function.__closure__ or ())
        if self._is_library(function.__globals__.get("__name__")):  # one that a library made of the user's
            return
        used = _used(function.__code__)
        self.names |= used.names
        known = vars(builtins) | function.__globals__
        for name in sorted(used.globals & {*known}):
            self._write("global", name)
            self.add(known[name])
        for wanted in used.imports:
            self._import(*wanted, function.__globals__)

    def _import(self, name: str, of_it: Any, level: int, scope: dict[str, Any]) -> None:
        """What an import in a function would find."""
        if level == 0 and self._is_library(name):
            self._write("module", name)
            return
        try:
            found = __import__(name, scope, None, of_it or (), level)
        except Exception as error:  # whatever a module of the user's raises
            self._write("no module", name, type(error).__name__)
        else:
            self.add(found)

    def _code(self, code: CodeType) -> None:
        """Add instructions and their operands, but not line numbers."""
        self._write("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._write(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._write(code.co_exceptiontable)
        self._several("constants", code.co_consts)

    def _class(self, kind: type) -> None:
        if self._library_has(kind):
            self._write("library", kind.__module__, kind.__qualname__)
            return
        own = {
            name: value
            for name, value in vars(kind).items()
            if name not in BOOKKEEPING and not name.startswith("__pydantic")
        }
        self._write("class", kind.__qualname__.rpartition(".")[2], sorted(own))
        self._several("bases", (type(kind), *kind.__bases__))
        self._several("attributes", (own[name] for name in sorted(own)))

    def _object(self, value: object) -> None:
        """Add any other object by its pickle."""
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:
            raise NotCovered(f"a {type(value).__qualname__} ({value!r:.60})") from error
        if isinstance(reduced, str):
            self._several("named", (type(value), reduced))
            return
        make, given, *rest = reduced
        state, listed, items = [*rest, None, None, None][:3]
        self._several("object", (make, given, state, list(listed or ()), list(items or ())))

    def _library_has(self, value: Any) -> bool:
        """Does a library have this under its name? What it made for the user may name the library, too."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if not (isinstance(module, str) and isinstance(name, str) and self._is_library(module)):
            return False
        found: Any = sys.modules.get(module)
        for step in name.split("."):
            found = getattr(found, step, None)
        return found is value

    def _is_library(self, module: Any) -> bool:
        """Is this a module of an installed package, of Python itself or of threefold?"""
        if not isinstance(module, str):
            return False
        top = module.partition(".")[0]
        if top == "threefold" or top in sys.builtin_module_names:
            return True
        return top not in (self.home, "__main__") and any(map(_is_installed, _places(module)))


def _places(module: str) -> list[str]:
    """The files or folders of a module; none if it was created by code."""
    top = module.partition(".")[0]
    found = sys.modules.get(module) or sys.modules.get(top)
    if found is None:
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            return []
        return [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    file = getattr(found, "__file__", None)
    return [file] if file else list(getattr(found, "__path__", ()))


INSTALLED = tuple(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))


def _is_installed(place: str) -> bool:
    path = Path(place)
    return any(path.is_relative_to(each) for each in INSTALLED) or "site-packages" in place or "dist-packages" in place


def _array(tensor: Tensor) -> Any:
    """A tensor's values; a tensor that escaped from vmap has none any more."""
    try:
        return tuple(tensor.shape) if tensor.device.type == "meta" else tensor.detach().cpu().numpy()
    except Exception as error:
        raise NotCovered("a tensor without values") from error


@functools.lru_cache(maxsize=4096)
def _used(code: CodeType) -> _Used:
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    inner = [_used(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    read = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")}
    texts = {each for each in code.co_consts if isinstance(each, str) and each.isidentifier()}
    imports = [
        (step.argval, wanted.argval, level.argval)
        for level, wanted, step in zip(steps, steps[1:], steps[2:], strict=False)
        if step.opname == "IMPORT_NAME"
    ]
    return _Used(
        frozenset(read).union(*(each.globals for each in inner)),
        frozenset({*code.co_names, *texts}).union(*(each.names for each in inner)),
        (*imports, *(one for each in inner for one in each.imports)),
    )


def _filled(cell: CellType) -> bool:
    """A closure's variable may not have a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
