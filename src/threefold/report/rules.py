"""How ambiguous descriptions of methods were interpreted: an experiment's rules, and the exceptions."""

from collections.abc import Mapping, Sequence
from functools import cache

from threefold.experiments import Cell, Section
from threefold.experiments.spec import paper_experiment
from threefold.report.formatting import Said, setting


def said(section: Section) -> Said:
    """The options that the section's rules set, so that names can omit them."""
    return [
        (part, name, value)
        for rule in section.rules
        for part, options in rule["options"].items()
        for name, value in options.items()
    ]


def footnote(section: Section) -> str:
    """The text of the rules, to print below a table or a figure; empty if there are none."""
    return " ".join(str(rule["text"]) for rule in section.rules)


def unlike_the_published(cell: Cell) -> str:
    """The options that a cell's published number is based on, where they differ from the cell's."""
    published = cell.published()
    if published is None or not cell.comparable:
        return ""
    wanted = _published_by(published.table, cell.scenario.name, published.task_id_in)
    own = cell.method.hyperparameters()
    others = [
        f"{part}:{name}={setting(value)}"
        for part, options in wanted.items()
        for name, value in options.items()
        if part in own and own[part].get(name) != value
    ]
    return ", ".join(others)


@cache
def _published_by(table: str, scenario: str, task_id_in: str | None) -> Mapping[str, Mapping[str, object]]:
    """The options by part that the paper's experiment uses there."""
    found: dict[str, dict[str, object]] = {}
    for rule in paper_experiment(table).rules:
        for part, options in rule.options(scenario, task_id_in).items():
            found.setdefault(part, {}).update(options)
    return found


def other_readings(cells: Sequence[tuple[str, str, Cell]]) -> list[str]:
    """A sentence for each row (row, column, cell) that interprets its method differently from its published number."""
    columns: dict[tuple[str, str], list[str]] = {}
    for row, column, cell in cells:
        if others := unlike_the_published(cell):
            columns.setdefault((row, others), []).append(column)
    return [
        f"{row}, {' and '.join(where)}: not trained by the rule of the published numbers, which takes {others};"
        " judged by them nevertheless."
        for (row, others), where in columns.items()
    ]
