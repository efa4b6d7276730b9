"""Stored runs that stand for runs to come: read in another way, told below each table, gone once those are there."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from threefold.experiments import Cell, Result, Section
from threefold.report.formatting import own_parts, setting, untuned
from threefold.results import run_key

READ = {  # the options by which a text can be read in more than one way
    "xdg": ("gate_on",),
    "lwf": ("reduction", "replayed_for"),
    "dgr": ("replayed_for",),
    "dgr-distill": ("reduction", "replayed_for"),
    "icarl": ("temperature",),
}

TO_BE_RUN = "Still to be run"


def stood_in(by_name: Mapping[str, Section], names: Iterable[str]) -> dict[str, Section]:
    """The sections; in those of these names, cells that lack runs are shown by the nearest reading that has more."""
    known: dict[str, list[Result]] = {}
    for section in by_name.values():
        for result in section.results:
            known.setdefault(_however_read(result.cell), []).append(result)
    return {name: _with_stand_ins(section, known) if name in names else section for name, section in by_name.items()}


def stands_in(section: Section, cell: Cell) -> bool:
    """Is this cell shown in the place of one that is still to be run?"""
    return cell not in section.lacking and _however_read(cell) in map(_however_read, section.lacking)


def _with_stand_ins(section: Section, known: Mapping[str, list[Result]]) -> Section:
    own = {result.cell: result for result in section.results}
    taken: dict[Cell, Result] = {}
    for cell in section.lacking:
        have = len(own[cell].records) if cell in own else 0
        others = [result for result in known.get(_however_read(cell), []) if len(result.records) > have]
        if others:
            taken[cell] = max(others, key=lambda result: (len(result.records), _alike(result.cell, cell)))
    if not taken:
        return section
    shown = {cell: taken[cell].cell if cell in taken else cell for cell in section.cells}
    results = [taken.get(cell) or own.get(cell) for cell in section.cells]
    return replace(
        section,
        cells=list(shown.values()),
        results=[result for result in results if result],
        rules=[*section.rules, _told(taken)],
    )


def _told(taken: Mapping[Cell, Result]) -> dict[str, Any]:
    """A rule that says what is shown otherwise, so that names of methods need not."""
    texts: dict[tuple[str, str], list[str]] = {}
    options: dict[str, dict[str, Any]] = {}
    for wanted, result in taken.items():
        given, by_rule = result.cell.method.hyperparameters(), wanted.method.hyperparameters()
        differing = []
        for part, name in [(each, name) for each in given for name in READ.get(each, ())]:
            if given[part][name] != by_rule[part][name]:
                differing.append(f"{name}={setting(given[part][name])}")
                options.setdefault(part, {})[name] = given[part][name]
        where = wanted.scenario.title + (", task in hidden layers" if wanted.task_id_in == "hidden" else "")
        name = f"{untuned(own_parts(wanted))} with {', '.join(differing)}"
        texts.setdefault((wanted.stream.title, name), []).append(where)
    told = "; ".join(f"{name} ({stream}: {', '.join(where)})" for (stream, name), where in texts.items())
    return {"text": f"{TO_BE_RUN} by this rule, and shown as an earlier run had it: {told}.", "options": options}


def _alike(one: Cell, other: Cell) -> int:
    """How many options of the readings two cells have in common."""
    own, theirs = one.method.hyperparameters(), other.method.hyperparameters()
    return sum(own[part][name] == theirs[part][name] for part, names in READ.items() if part in own for name in names)


def _however_read(cell: Cell) -> str:
    """What tells a cell from others but how the text was read."""
    spec = deepcopy(cell.spec())
    for part, given in spec["method"]["hyperparameters"].items():
        for name in READ.get(part, ()):
            given.pop(name, None)
    return run_key(spec)
