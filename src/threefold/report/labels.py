"""How the rows of tables and the lines of figures are named: one way for every format.

A name is the method's, with what was given for it. Where two cells would then be the same row of the same column, the
names say what differs between their specs, as these are stored: so it works without the user's methods, too.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from threefold.experiments import Cell
from threefold.report.formatting import own_parts, setting, title

Path = tuple[str, ...]
Leaves = dict[Path, str]
Item = tuple[str, Hashable, Mapping[str, Any]]
"""A name, the place that it must have for itself, and the spec behind it."""

SUM = re.compile(r"[0-9a-f]{32,}")


def places(cells: Sequence[Cell]) -> dict[Cell, tuple[str, str]]:
    """The row and the column of each cell of one table."""
    two_ways = any(cell.task_id_in == "hidden" for cell in cells)
    columns = [_column(cell, two_ways) for cell in cells]
    named = [(title(own_parts(cell)), column) for cell, column in zip(cells, columns, strict=True)]
    rows = tell_apart([(*name, cell.spec()) for name, cell in zip(named, cells, strict=True)])
    return dict(zip(cells, zip(rows, columns, strict=True), strict=True))


def _column(cell: Cell, two_ways: bool) -> str:
    if not (two_ways and cell.scenario.task_known):
        return cell.scenario.title
    return f"{cell.scenario.title}, task in {'hidden layers' if cell.task_id_in == 'hidden' else 'output layer'}"


def tell_apart(items: Sequence[Item]) -> list[str]:
    """The names, each with what differs where others of its name and place have other specs."""
    names = [name for name, _, _ in items]
    leaves = [dict(_leaves(spec)) for _, _, spec in items]
    while (longer := _longer(names, [place for _, place, _ in items], leaves)) != names:
        names = longer  # which may be another's name
    return names


def _longer(names: Sequence[str], places: Sequence[Hashable], leaves: Sequence[Leaves]) -> list[str]:
    """The names with what differs between those that are alike."""
    longer = list(names)
    for name in dict.fromkeys(names):
        mine = [number for number, other in enumerate(names) if other == name]
        by_place: dict[Hashable, list[Leaves]] = {}
        for number in mine:
            by_place.setdefault(places[number], []).append(leaves[number])
        paths = _telling(list(by_place.values()))
        for number in mine:
            own = leaves[number]
            longer[number] = _with(name, [f"{_key(path, paths)}={_brief(own[path])}" for path in paths if path in own])
    return longer


def _telling(groups: Sequence[Sequence[Leaves]]) -> list[Path]:
    """What differs within some group: of that what all have, if it is enough; that there are no hyperparameters, only
    if nothing else tells."""
    every = dict.fromkeys(path for group in groups for leaves in group for path in leaves)
    differing = [path for path in every if any(_kinds(group, [path]) > 1 for group in groups)]
    shared = [path for path in differing if all(path in leaves for group in groups for leaves in group)]
    for fewer in (shared, [path for path in differing if path[-1] != "hyperparameters"]):
        if all(_kinds(group, fewer) == _kinds(group, differing) for group in groups):
            return fewer
    return differing


def _kinds(group: Sequence[Leaves], paths: Sequence[Path]) -> int:
    """How many can be told apart by these."""
    return len({tuple(leaves.get(path) for path in paths) for leaves in group})


def _leaves(spec: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, str]]:
    for key, item in spec.items():
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, (*path, key))
        else:
            yield (*path, key), setting(item)


def _key(path: Path, among: Sequence[Path]) -> str:
    """What people call it: iters, strength, code; ewc.strength where another part's strength differs as well."""
    if "code" in path:
        return "code"
    if len(path) > 1 and path[-1] == "name":
        return path[-2]  # a method, network, optimiser or schedule
    told = [step for step in path if step != "hyperparameters"]
    return ".".join(told[-2:]) if sum(other[-1] == path[-1] for other in among) > 1 else path[-1]


def _brief(leaf: str) -> str:
    """A value; of a sum over code or data the beginning."""
    return leaf[:8] if SUM.fullmatch(leaf) else leaf


def _with(name: str, settings: Sequence[str]) -> str:
    if not settings:
        return name
    together = ", ".join(settings)
    return f"{name[:-1]}, {together})" if name.endswith(")") and " + " not in name else f"{name} ({together})"
