"""Imports go one way through the packages, including imports inside functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import threefold

SOURCE = Path(threefold.__file__).parent
ORDER = [
    {
        "errors",
        "extras",
        "fingerprint",
        "memory",
        "own_code",
        "randomness",
        "reading",
        "revision",
        "text",
        "values",
        "version",
    },
    {"data"},
    {"streams"},
    {"scenarios"},
    {"networks"},
    {"methods"},
    {"engine"},
    {"results"},
    {"experiments"},
    {"report"},
    {"watch", "export", "cluster", "bench"},
    {"cli"},
    {"__init__", "__main__"},  # names that users import, and the command
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def test_every_module_has_its_place() -> None:
    tops = {path.stem for path in SOURCE.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert tops - {"__pycache__"} == LEVEL.keys()


def test_imports_go_one_way() -> None:
    found = {
        (str(path.relative_to(SOURCE)), name)
        for path in SOURCE.rglob("*.py")
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if not may_import(top_of(path), name)
    }
    assert found == set(), "move what is needed to a lower package"


def test_an_import_that_goes_up_is_found_wherever_it_is() -> None:
    text = """
    from typing import TYPE_CHECKING
    import threefold.data.idx
    from threefold import scenarios, Dataset
    if TYPE_CHECKING:
        from threefold.cli import main
    else:
        from threefold.watch import page
    def later():
        from threefold.results.record import Record
    """
    names = list(imported(ast.parse("if True:" + text)))
    assert sorted(names) == ["__init__", "data", "results", "scenarios", "watch"]
    assert [name for name in names if not may_import("methods", name)] == ["__init__", "watch", "results"]
    assert not may_import("watch", "export"), "beside each other"
    assert may_import("data", "data")


def top_of(path: Path) -> str:
    """The package, or the module at the top, that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def may_import(importing: str, imported: str) -> bool:
    """Those at the bottom may import each other."""
    return importing == imported or LEVEL[imported] < max(LEVEL[importing], 1)


def imported(node: ast.AST) -> Iterator[str]:
    """The packages and modules of ours that are imported below a node, but for those that only types need."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            inside: list[ast.AST] = list(node.orelse)
        case ast.Import():
            yield from (_top(alias.name.split(".")) for alias in node.names if alias.name.split(".")[0] == "threefold")
            return
        case ast.ImportFrom(module="threefold"):
            yield from (_top(["threefold", alias.name]) for alias in node.names)
            return
        case ast.ImportFrom():
            assert node.level == 0, "imports are absolute"
            words = (node.module or "").split(".")
            if words[0] == "threefold":
                yield _top(words)
            return
        case _:
            inside = list(ast.iter_child_nodes(node))
    for child in inside:
        yield from imported(child)


def _top(words: list[str]) -> str:
    """`threefold.data.idx` is data; `threefold.Dataset`, which is no module, comes from the very top."""
    return words[1] if len(words) > 1 and words[1] in LEVEL else "__init__"
