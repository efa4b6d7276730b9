"""Parts of generated pages: tables with their evidence folded away, the stability gap, the gallery of figures."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from threefold.experiments import Section
from threefold.methods import METHODS
from threefold.report import markdown
from threefold.report.document import Block, Heading, Items, Table, Text, below, comparison, evidence, metrics, opening
from threefold.report.during_training import SEEN
from threefold.report.formatting import DASH, number, plus_minus, untuned
from threefold.report.metric_table import OF_CURVES, metric_tables
from threefold.report.panels import Chart
from threefold.report.tables import PAIRED, ResultTable, result_tables
from threefold.results.metrics import METRICS

SHORT = {metric.name: metric.short for metric in METRICS if metric.name in OF_CURVES}


def written(blocks: Iterable[Block]) -> str:
    return "\n\n".join(markdown.block(block) for block in blocks)


def tables(sections: Iterable[Section]) -> str:
    """Each experiment's table; what is behind its numbers is folded, and opens at a click."""
    told = []
    for section in sections:
        told.append(written([Heading(section.title), *opening(section)]))
        for table in result_tables(section):
            told.append(written([comparison(table), *map(Text, below(table))]))
            told += [_folded(title, blocks) for title, blocks in _behind(table).items() if blocks]
    return "\n\n".join(told)


def _behind(table: ResultTable) -> Mapping[str, Sequence[Block]]:
    dashes = [f"{DASH} {gap.row}, {gap.column}: {gap.reason}" for gap in table.refused]
    measured = [
        block
        for some in metric_tables(table)
        for block in (metrics(some, f"{table.stream}: metrics of {some.title}"), Text(some.legend))
    ]
    return {
        "Evidence for each cell: seeds, spread, difference, verdict": [
            evidence(table.cells, f"{table.stream}: the evidence for each cell")
        ],
        "Forgetting, transfer and other metrics": measured,
        "Low numbers and dashes explained": [Items([*table.explanations, *dashes])],
        "Which methods differ from each other": [
            Text(PAIRED),
            Items([column.sentence for column in table.significance]),
        ],
    }


def _folded(title: str, blocks: Sequence[Block]) -> str:
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{written(blocks)}\n\n</details>'


def block_or_folded(block: Block) -> str:
    """A block of a page; a table is folded under its caption."""
    return _folded(f"Numbers: {block.caption}", [block]) if isinstance(block, Table) else markdown.block(block)


def pictures(drawn: Iterable[tuple[Section, Chart, Path, str]]) -> str:
    """Each figure: what it shows, the command behind it, and where its numbers are. `page`: that has its section."""
    told = []
    for section, chart, picture, page in drawn:
        title = markdown.escape(section.title)
        sentence = re.split(r"(?<=\.) (?=[A-Z0-9])", chart.caption, maxsplit=1)[0]
        told += [
            f"## {title}",
            f"![{markdown.escape(chart.title)}](figures/{picture.name})",
            f"{markdown.escape(sentence)} Made by `{section.command}`; [numbers and remarks]({page}).",
        ]
    return "\n\n".join(told)


def lost_and_regained(section: Section) -> str:
    """The stability gap in a sentence for each scenario."""
    told = []
    for scenario in dict.fromkeys(result.cell.scenario.title for result in section.results):
        mine = [result for result in section.results if result.cell.scenario.title == scenario]
        mine.sort(key=lambda result: -result.metrics["gap_depth"].mean)
        deep, flat = [], []
        for result in mine:
            name, depth = untuned(result.cell.method), result.metrics["gap_depth"]
            if depth.mean >= SEEN:
                deep.append(f"{name} {plus_minus(depth)} ({number(result.metrics['gap_recovery'].mean, 0)} steps)")
            else:
                flat.append(name)
        rest = f"{'; ' * bool(deep)}less than a point: {', '.join(flat)}" if flat else ""
        told.append(f"{scenario}: {', '.join(deep)}{rest}.")
    return (
        "What a switch of tasks takes from the accuracy on earlier tasks and training on the new task gives back, in"
        f" points, and the steps until nine tenths are back. {' '.join(told)}"
    )


def methods() -> str:
    """The methods in Python and on the command line, with their hyperparameters."""
    lines = ["| Python | command line | hyperparameters |", "| :-- | :-- | :-- |"]
    for entry in METHODS.values():
        told = []
        for name, field in entry.part.model_fields.items() if entry.part else ():
            default = "" if field.default is None else f" = {field.default}"
            told.append(f"`{name}`{default}: {markdown.escape(field.description or '')}")
        named = f"`{entry.part.__name__}`" if entry.part else '`"none"`'
        lines.append(f"| {named} | `{entry.name}` | {'; '.join(told) or DASH} |")
    return "\n".join(lines)


def anchor(title: str) -> str:
    """A heading as GitHub and mkdocs turn it into an address."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def times(sections: Iterable[Section]) -> str:
    """Where the time of each cell went, as stored with its runs."""
    lines = ["| stream | method | scenario | ms per step | training, s | consolidation, s | evaluation, s |"]
    lines += ["| :-- | :-- | :-- | --: | --: | --: | --: |"]
    for section in sections:
        for board in result_tables(section):
            for cell in board.cells:
                training, tasks = cell.cell.training, cell.cell.stream.tasks
                train, consolidate, evaluate = (
                    cell.result.records[0].timings[f"cohort_{what}"] for what in ("train", "consolidate", "evaluate")
                )
                records = cell.result.records
                share = len(records) / records[0].environment["cohort"]  # cells that share networks have one time
                step = 1e3 * share * train / (training.iters * tasks)
                spent = " | ".join([f"{step:.2f}", *(f"{share * s:.1f}" for s in (train, consolidate, evaluate))])
                lines.append(f"| {board.stream} | {cell.row} | {cell.column} | {spent} |")
    return "\n".join(dict.fromkeys(lines))
