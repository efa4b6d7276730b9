"""Experiments as one JSON document, the same for every command that takes --json."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from threefold.experiments import Cell, Result, Section
from threefold.report.charts import charts
from threefold.report.panels import Chart, Selected
from threefold.report.paper_statements import Statement, statements
from threefold.report.rules import footnote
from threefold.report.tables import TableCell, remarks, result_tables

UNIT = {"unit": "per cent"}  # of all accuracies
Place = tuple[str, str]


def render(sections: Sequence[Section]) -> str:
    """The document of several experiments."""
    drawn = charts(sections)
    every = [described(section, [chart for of, chart in drawn if of is section]) for section in sections]
    return text({**UNIT, "experiments": every})


def text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def described(section: Section, drawn: Sequence[Chart] = ()) -> dict[str, Any]:
    """An experiment: what was asked for, what is done and left, and each cell with its runs and judgement."""
    tables = result_tables(section)
    places = {cell.cell: (cell.row, cell.column) for table in tables for cell in table.cells}
    footnotes = [footnote(section)] if section.rules and section.kind == "table" else []
    explanations = [line for table in tables for line in table.explanations]
    return {
        "name": section.name,
        "title": section.title,
        "kind": section.kind,
        "command": section.command,
        "done": len(section.records),
        "left": section.left,
        "lacking": [_named(cell) | {"runs": runs} for cell, runs in section.lacking.items()],
        "shortened": list(section.shortened),
        "selected": section.selected,
        "results": [_result(result, places) for result in section.results],
        "validation": [_result(result, {}) for result in section.validation],
        "chosen": [_chosen(each) for chart in drawn for each in chart.selected],
        "refused": [_named(cell) | {"reason": reason} for cell, reason in section.refused],
        "remarks": [*footnotes, *remarks(section), *explanations],
        "statements": [_statement(each) for chart in drawn for each in statements(section, chart)],
    }


def _result(result: Result, places: Mapping[Cell, Place]) -> dict[str, Any]:
    row, column = places.get(result.cell, ("", ""))
    cell = TableCell(result, row, column)
    label = {"stream": result.cell.stream.label, "row": row, "column": column} if row else {}
    return label | result.to_json() | ({"judgement": cell.judgement} if row else {})


def _chosen(selected: Selected) -> dict[str, Any]:
    """The values of a grid that each rule chooses: the paper's, the best on the test sets, and without test data."""
    rules = {"paper": selected.paper, "best": selected.best, "validation": selected.honest}
    chosen = {rule: choice.text if choice else None for rule, choice in rules.items()}
    return {"row": selected.method, "column": selected.scenario, **chosen}


def _statement(found: Statement) -> dict[str, str]:
    plain = {name: getattr(found, name) for name in ("title", "quote", "rule", "because")}
    return plain | {"truth": str(found.truth)}


def _named(cell: Cell) -> dict[str, Any]:
    return {"scenario": cell.scenario.name, "method": cell.method.name, "spec": cell.spec()}
