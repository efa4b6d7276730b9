"""What a user's code is, as a sum: when the code that determines a run changes, so must the run's key.

The sum is taken over compiled code (instructions, constants, names, defaults, closures), never over source text: a
notebook has no file, and a file may have been edited since it was imported, but what was compiled is what runs.
Comments and line numbers do not count. Whatever the code refers to counts too, as far as it is the user's: functions,
classes and values of the same package, of `__main__` or of a module that is not installed. Libraries count by name.
"""

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice)
BY_VALUE = (tuple, frozenset, CodeType, Tensor, np.ndarray)  # the compiler may share equal ones, or not
# what Python and pydantic keep in a class for themselves: a field's value is a hyperparameter, which a spec has anyway
BOOKKEEPING = {
    *("__module__", "__qualname__", "__dict__", "__weakref__", "__doc__", "__firstlineno__", "__static_attributes__"),
    *(
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__abstractmethods__",
        "_abc_impl",
    ),
    *("__parameters__", "__orig_bases__", "__signature__", "__class_vars__", "__private_attributes__"),
}


class NotCovered(Exception):
    """Something that determines a run has no sum; the text says what it is."""


def is_ours(kind: type) -> bool:
    """Is this class part of threefold itself?"""
    return kind.__module__.partition(".")[0] == "threefold"


def code_of(kind: Any, state: object = None) -> str | None:
    """The sum of a user's class or function and of `state`, what an instance holds beside its hyperparameters.

    None for threefold's own classes. Raises `NotCovered` for what has no sum, such as an open file.
    """
    home = getattr(kind, "__module__", None) or type(kind).__module__
    if isinstance(kind, type) and is_ours(kind):
        return None
    told = _Description(home.partition(".")[0])
    told.add(kind)
    told.add(state)
    return told.sum.hexdigest()


class _Description:
    """Everything that was reached, added up in the order in which it was."""

    def __init__(self, home: str) -> None:
        self.home = home  # the user's package: covered also where it is installed
        self.sum = sha256()
        self.known: dict[int, int] = {}  # by id: what was reached before, at which place
        self.alive: list[object] = []  # so that no id is used twice

    def add(self, value: Any) -> None:
        if isinstance(value, PLAIN):
            self._tell(type(value).__name__, repr(value))
            return
        if not isinstance(value, BY_VALUE):
            if id(value) in self.known:
                self._tell("again", self.known[id(value)])
                return
            self.known[id(value)] = len(self.known)
            self.alive.append(value)
        match value:
            case Tensor():
                self.add(_array(value))
            case np.ndarray() if value.dtype != object:
                self._tell("array", value.dtype.str, value.shape)
                self.sum.update(np.ascontiguousarray(value).tobytes())
            case tuple() | list():
                self._several(type(value).__name__, value)
            case set() | frozenset():
                self._several("set", sorted(self._apart(each) for each in value))
            case Mapping():
                self._several(type(value).__name__, (each for pair in value.items() for each in pair))
            case ModuleType():
                self._tell("module", value.__name__)
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
                self._tell("builtin", value.__module__, value.__qualname__)
            case _ if hasattr(value, "__qualname__") and self._is_library(getattr(value, "__module__", None)):
                self._tell("library", value.__module__, value.__qualname__)
            case _:
                self._object(value)

    def _tell(self, *words: object) -> None:
        self.sum.update(f"{words!r}\n".encode())

    def _several(self, what: str, values: Iterable[Any]) -> None:
        self._tell(what, "(")
        for value in values:
            self.add(value)
        self._tell(")")

    def _apart(self, value: object) -> str:
        """The sum of one member of a set, whose order means nothing."""
        own = _Description(self.home)
        own.add(value)
        return own.sum.hexdigest()

    def _function(self, function: FunctionType) -> None:
        if self._is_library(function.__module__):
            self._tell("library", function.__module__, function.__qualname__)
            return
        self._several("function", (function.__code__, function.__defaults__, function.__kwdefaults__))
        self._several("closure", function.__closure__ or ())
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name not in function.__globals__:
                continue
            value = function.__globals__[name]
            self._tell("global", name)
            if isinstance(value, ModuleType) and not self._is_library(value.__name__):
                used = [each for each in names if each in vars(value)]
                self._several("module", (vars(value)[each] for each in used))
            else:
                self.add(value)

    def _code(self, code: CodeType) -> None:
        """Instructions and what they work on; not where they stand in a file."""
        self._tell("code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        self._tell(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._tell(code.co_exceptiontable)
        self._several("constants", code.co_consts)

    def _class(self, kind: type) -> None:
        if self._is_library(kind.__module__):
            self._tell("library", kind.__module__, kind.__qualname__)
            return
        own = {
            name: value
            for name, value in vars(kind).items()
            if name not in BOOKKEEPING and not name.startswith(("__pydantic", "model_"))
        }
        self._tell("class", kind.__qualname__.rpartition(".")[2], sorted(own))
        self._several("bases", kind.__bases__)
        self._several("attributes", (own[name] for name in sorted(own)))

    def _object(self, value: object) -> None:
        """Any other thing is what pickle would write of it."""
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:
            raise NotCovered(f"a {type(value).__qualname__} ({value!r:.60})") from error
        if isinstance(reduced, str):
            self._tell("named", type(value).__module__, reduced)
            return
        make, given, *rest = reduced
        state, listed, items = [*rest, None, None, None][:3]
        self._several("object", (make, given, state, list(listed or ()), list(items or ())))

    def _is_library(self, module: str | None) -> bool:
        """Is this a module of an installed package, of Python itself or of threefold?"""
        if module is None:
            return False
        top = module.partition(".")[0]
        if top in (self.home, "__main__"):
            return False
        if top == "threefold" or top in sys.stdlib_module_names:
            return True
        file = getattr(sys.modules.get(module), "__file__", None)
        return file is None or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _array(tensor: Tensor) -> Any:
    """A tensor's values; one that has left the function it was mapped by has none any more."""
    try:
        return tuple(tensor.shape) if tensor.device.type == "meta" else tensor.detach().cpu().numpy()
    except Exception as error:
        raise NotCovered("a tensor without values") from error


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _filled(cell: CellType) -> bool:
    """A closure's variable may not have a value yet."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
