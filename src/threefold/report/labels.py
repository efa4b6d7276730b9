"""The names of table rows and of lines in figures, the same in every format.

A name is the method's, with the hyperparameters that were given. If the cells of a table are not all trained in the
same way, each name says how: network, optimiser, length. If two cells would still be the same row of the same column,
the names include what else differs between their stored specs, so this works without the user's methods, too.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from threefold.engine import OPTIMIZERS, SCHEDULES
from threefold.experiments import Cell
from threefold.networks import NETWORKS
from threefold.report.formatting import Said, own_parts, setting, title
from threefold.streams import BOUNDARIES
from threefold.values import Value, as_text, written_as

Path = tuple[str, ...]
Leaves = dict[Path, str]
Item = tuple[str, Hashable, Mapping[str, Any]]
"""A name, the place in which it must be unique, and its spec."""

WRITTEN: dict[Path, Mapping[str, type[Value]]] = {
    ("network",): NETWORKS,
    ("optimizer",): OPTIMIZERS,
    ("training", "schedule"): SCHEDULES,
    ("stream", "boundaries"): BOUNDARIES,
}
"""Fields that are written as on the command line, `cnn:channels=8-16`, with their known kinds."""

HOW = (
    *(("network",), ("network", "init"), ("optimizer",)),
    *(("stream", name) for name in ("tasks", "first", "boundaries", "data", "normalized", "features", "code")),
    *(("training", name) for name in ("iters", "epochs", "batch", "schedule", "augment")),
    ("numerics",),
)
"""Training settings that every row of a table shows if they are not the same for all."""

SUM = re.compile(r"[0-9a-f]{32,}")


def places(cells: Sequence[Cell], said: Said = ()) -> dict[Cell, tuple[str, str]]:
    """The row and the column of each cell of one table; `said`: the options in its footnotes."""
    two_ways = any(cell.task_id_in == "hidden" for cell in cells)
    columns = [_column(cell, two_ways) for cell in cells]
    specs = [cell.spec() for cell in cells]
    leaves = [dict(_leaves(spec)) for spec in specs]
    differing = [path for path in HOW if _kinds(leaves, [path]) > 1]
    titles = [_extended(title(own_parts(cell), said), own, differing) for cell, own in zip(cells, leaves, strict=True)]
    rows = tell_apart(list(zip(titles, columns, specs, strict=True)))
    return dict(zip(cells, zip(rows, columns, strict=True), strict=True))


def _column(cell: Cell, two_ways: bool) -> str:
    if not (two_ways and cell.scenario.task_known):
        return cell.scenario.title
    return f"{cell.scenario.title}, task in {'hidden layers' if cell.task_id_in == 'hidden' else 'output layer'}"


def tell_apart(items: Sequence[Item]) -> list[str]:
    """The names, extended by what differs if others of the same name and place have other specs."""
    names = [name for name, _, _ in items]
    leaves = [dict(_leaves(spec)) for _, _, spec in items]
    while (longer := _longer(names, [place for _, place, _ in items], leaves)) != names:
        names = longer  # which may equal another name
    return names


def _longer(names: Sequence[str], places: Sequence[Hashable], leaves: Sequence[Leaves]) -> list[str]:
    """The names, extended by what differs between equal ones."""
    longer = list(names)
    for name in dict.fromkeys(names):
        mine = [number for number, other in enumerate(names) if other == name]
        by_place: dict[Hashable, list[Leaves]] = {}
        for number in mine:
            by_place.setdefault(places[number], []).append(leaves[number])
        paths = _telling(list(by_place.values()))
        for number in mine:
            longer[number] = _extended(name, leaves[number], paths)
    return longer


def _extended(name: str, leaves: Leaves, paths: Sequence[Path]) -> str:
    """The name, extended by the values at these paths."""
    return _with(name, [_setting(path, leaves[path], paths) for path in paths if path in leaves])


def _telling(groups: Sequence[Sequence[Leaves]]) -> list[Path]:
    """The paths that differ within some group: those that all have, if sufficient; missing hyperparameters only if
    nothing else distinguishes."""
    every = dict.fromkeys(path for group in groups for leaves in group for path in leaves)
    differing = [path for path in every if any(_kinds(group, [path]) > 1 for group in groups)]
    shared = [path for path in differing if all(path in leaves for group in groups for leaves in group)]
    for fewer in (shared, [path for path in differing if path[-1] != "hyperparameters"]):
        if all(_kinds(group, fewer) == _kinds(group, differing) for group in groups):
            return fewer
    return differing


def _kinds(group: Sequence[Leaves], paths: Sequence[Path]) -> int:
    """How many these paths distinguish."""
    return len({tuple(leaves.get(path) for path in paths) for leaves in group})


def _leaves(spec: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, str]]:
    for key, item in spec.items():
        here = (*path, key)
        if here in WRITTEN and isinstance(item, Mapping) and "name" in item:
            name, every = str(item["name"]), item.get("hyperparameters") or {}
            yield here, written_as(WRITTEN[here].get(name), name, every)
            item = {key: value for key, value in item.items() if key not in ("name", "hyperparameters")}
            yield from _leaves(item, here)
        elif isinstance(item, Mapping) and item:
            yield from _leaves(item, here)
        else:
            yield here, as_text(item) if isinstance(item, bool) else setting(item)


def _setting(path: Path, leaf: str, among: Sequence[Path]) -> str:
    """A setting in short form: the text of a network, an optimiser or boundaries includes its name."""
    return (
        leaf
        if path in (("network",), ("optimizer",), ("stream", "boundaries"))
        else f"{_key(path, among)}={_brief(leaf)}"
    )


def _key(path: Path, among: Sequence[Path]) -> str:
    """The short name of a setting: iters, strength, code; ewc.strength if another part's strength differs as well."""
    if "code" in path:
        return "code"
    if len(path) > 1 and path[-1] == "name":
        return path[-2]  # a method
    steps = [step for step in path if step != "hyperparameters"]
    return ".".join(steps[-2:]) if sum(other[-1] == path[-1] for other in among) > 1 else path[-1]


def _brief(leaf: str) -> str:
    """A value; only the beginning of a fingerprint of code or data."""
    return leaf[:8] if SUM.fullmatch(leaf) else leaf


def _with(name: str, settings: Sequence[str]) -> str:
    if not settings:
        return name
    together = ", ".join(settings)
    return f"{name[:-1]}, {together})" if name.endswith(")") and " + " not in name else f"{name} ({together})"
