"""A report as headings, paragraphs, lists and tables of text, which terminal, Markdown and LaTeX render."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from threefold.experiments import Section
from threefold.report.agreement import Agreement
from threefold.report.charts import charts
from threefold.report.formatting import DASH, NOT_RUN, count, difference, number, plus_minus, short
from threefold.report.grids import ALL_ALIKE
from threefold.report.metric_table import Column, MetricTable, metric_tables
from threefold.report.panels import Chart, Choice, Panel, deviation, seeds_of
from threefold.report.paper_statements import Statement, statements
from threefold.report.provenance import provenance
from threefold.report.rules import footnote
from threefold.report.tables import PAIRED, RULE, ResultTable, TableCell, incomplete, remarks, result_tables, selection
from threefold.results import Summary


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """The first `left` columns are text, the rest numbers. A rule is drawn where `groups` (one per row) changes."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[str] = field(default=())
    left: int = 1
    bold: Collection[tuple[int, int]] = ()  # rows and columns of cells in bold
    cited: Sequence[str] = ()  # for each row the keys of what the last of its text columns cites


Block = Heading | Text | Items | Table


NARROW = {"Method": "Scenario", "Accuracy": "Range", "Published": "Difference [95%]", "Verdict": "Allowed"}
"""Columns of the evidence that are merged in a narrow table."""
Layout = Literal["page", "screen", "narrow"]
"""How wide a table may be: for a page, for a terminal of 120 columns, or for one of 80."""


def document(
    sections: Sequence[Section], layout: Layout = "page", columns: Sequence[Column] = (), *, cite: bool = False
) -> Iterator[Block]:
    """The whole report; with columns, tables of these alone."""
    if columns:
        from threefold.report.paper_tables import paper_tables

        yield from paper_tables(sections, columns, cite=cite, narrow=layout == "narrow")
        return
    yield from body(sections, layout)
    yield from closing(sections)


def body(sections: Sequence[Section], layout: Layout = "page") -> Iterator[Block]:
    """Every experiment."""
    drawn = charts(sections)
    for section in sections:
        yield Heading(section.title, 2)
        yield from opening(section)
        if section.kind == "table":
            for table in result_tables(section):
                yield from _result_table(table, layout)
        for of, chart in drawn:
            if of is section:
                yield from _chart(chart)
                yield from claims(statements(section, chart))
        if said := remarks(section):
            yield Items(said)


def closing(sections: Sequence[Section]) -> Iterator[Block]:
    """How cells are judged, and where everything was run."""
    if any(section.kind == "table" and section.results for section in sections):
        yield Heading("How cells are judged", 2)
        yield Text(RULE)
        yield from agreement(Agreement.of(sections))
    origins = provenance(sections)
    if origins:
        yield Heading("What was run where", 2)
        yield Items([f"{origin.device}: {origin.sentence} {origin.software}".strip() for origin in origins])


def agreement(found: Agreement) -> Iterator[Block]:
    """The second criterion: standard errors alone."""
    if found.sentence:
        yield Text(found.sentence)
    if found.beyond:
        header = ["Further than three", "Ours", "Published", "Difference", "z"]
        yield Table("Published numbers further than three combined standard errors away", header, found.beyond)


def opening(section: Section) -> Iterator[Block]:
    """What a reader needs to know before the numbers."""
    if section.results or section.refused:
        yield Text(selection(section))
    if not section.results:
        yield Text("No run of this experiment is finished yet.")
    if section.shortened:
        yield Text(f"Shortened: {', '.join(section.shortened)}.")
    if missing := incomplete(section):
        yield Text(f"Not complete: {missing}")
    if section.command:
        yield Text(f"Made by: {section.command}")


def _result_table(table: ResultTable, layout: Layout) -> Iterator[Block]:
    if not table.cells:
        return
    yield comparison(table, layout)
    for text in below(table):
        yield Text(text)
    yield evidence(table.cells, f"{table.stream}: the evidence for each cell", layout)
    for some in metric_tables(table):
        yield metrics(some, f"{table.stream}: metrics of {some.title}", layout)
        yield Text(some.legend)
    notes = table.explanations + [f"{DASH} {r.row}, {r.column}: {r.reason}" for r in table.refused]
    if notes:
        yield Items(notes)
    yield Text(f"Comparing methods. {PAIRED}")
    yield Items([column.sentence for column in table.significance])


def below(table: ResultTable) -> list[str]:
    """The notes below the comparison of methods: its legend, and how methods were interpreted."""
    return [text for text in (legend(table), footnote(table.section)) if text]


def legend(table: ResultTable) -> str:
    """The meanings of the signs that occur in a table."""
    signs = [f"{sign} {meaning}" for sign, meaning in SIGNS.items() if any(e.symbol == sign for e in table.cells)]
    if table.refused:
        signs.append(f"{DASH} cannot be used there")
    if len(table.rows) * len(table.columns) > len(table.at) + len(table.why_not):
        signs.append(f"{NOT_RUN} not run")
    return f"{'; '.join(signs)}." if signs else ""


SIGNS = {
    "✓": "agrees with the published number",
    "✗": "differs from the published number",
    "?": "too few seeds to tell",
}


def comparison(table: ResultTable, layout: Layout = "page") -> Table:
    """Methods × scenarios, our numbers next to the published ones, if any; in a narrow table above them."""
    published = any(e.paper for e in table.cells)
    beside = published and layout != "narrow"
    below = "; below: published" if published and layout == "narrow" else ""
    header = ["Method"]
    for column in table.columns:
        header += [column, "published"] if beside else [column]
    rows = []
    for _, row in table.rows:
        line = [row]
        for column in table.columns:
            found = table.at.get((row, column))
            empty = DASH if (row, column) in table.why_not else NOT_RUN
            ours = f"{plus_minus(found.accuracy)} {found.symbol}".rstrip() if found else empty
            line += [ours, _theirs(found)] if beside else [f"{ours}\n{_theirs(found)}".rstrip()]
        rows.append(line)
    seeds = seeds_of([e.accuracy for e in table.cells])
    caption = f"{table.heading}: average accuracy over all tasks, per cent (mean ± SEM of {seeds}{below})"
    groups = [strategy for strategy, _ in table.rows]
    if layout != "page":  # rules separate the groups
        return Table(caption, header, rows, groups)
    names = ["" if place and groups[place - 1] == name else name for place, name in enumerate(groups)]
    named = [[name, *row] for name, row in zip(names, rows, strict=True)]
    return Table(caption, ["Approach", *header], named, groups, left=2)


def _theirs(found: TableCell | None) -> str:
    """The paper's number, with any mark on a second line to save width."""
    return found.theirs.replace(" (", "\n(") if found else ""


def evidence(cells: Sequence[TableCell], caption: str, layout: Layout = "page") -> Table:
    """A row for each cell. A narrow table merges columns."""
    columns = {
        "Method": [e.row for e in cells],
        "Scenario": [e.column for e in cells],
        "Accuracy": [plus_minus(e.accuracy) for e in cells],
        "n": [str(e.accuracy.n) for e in cells],
        "SD": [number(e.spread) for e in cells],
        "Range": [_range(e) for e in cells],
        "Published": [e.theirs or DASH for e in cells],
        "Difference [95%]": [difference(e.verdict.difference) if e.verdict else DASH for e in cells],
        "Allowed": [number(e.verdict.allowed) if e.verdict else DASH for e in cells],
        "Verdict": [f"{e.symbol} {e.judgement}".strip() for e in cells],
    }
    if layout == "screen":  # it is in the table above
        del columns["Published"]
    if layout == "narrow":
        columns = {
            f"{above}\n{below}": [f"{one}\n{two}" for one, two in zip(columns[above], columns[below], strict=True)]
            for above, below in NARROW.items()
        }
    rows = list(zip(*columns.values(), strict=True))
    return Table(caption, list(columns), rows, [e.row for e in cells], left=1 if layout == "narrow" else 2)


def metrics(some: MetricTable, caption: str, layout: Layout = "page") -> Table:
    """A row for each cell; only means where a table must not be wide."""
    brief, narrow = layout != "page", layout == "narrow"
    rows = []
    for cell, values in some.rows:
        name = [f"{cell.row}\n{cell.column}"] if narrow else [cell.row, cell.column]
        rows.append([*name, *(_metric(value, brief=brief) for value in values)])
    header = [*(["Method\nScenario"] if narrow else ["Method", "Scenario"]), *some.columns]
    of = "means" if brief else "mean ± SEM"
    return Table(f"{caption} ({of})", header, rows, [cell.row for cell, _ in some.rows], left=1 if narrow else 2)


def _metric(value: Summary, *, brief: bool) -> str:
    if math.isnan(value.mean):
        return DASH
    return number(value.mean) if brief else plus_minus(value)


def _range(found: TableCell) -> str:
    return f"{number(found.lowest, 1)} – {number(found.highest, 1)}" if found.accuracy.n > 1 else DASH


def _chart(chart: Chart) -> Iterator[Block]:
    yield Text(chart.caption)
    if chart.selected:
        yield selected(chart)
    for panel in chart.panels:
        yield panel_table(chart, panel)


def selected(chart: Chart) -> Table:
    """The value that the paper chose, our best, and what a learner could have chosen, with the accuracy of each."""
    found = chart.selected
    columns = {
        "Paper selected": [s.paper for s in found],
        "Ours selects": [s.best for s in found],
        "By held-out data": [s.honest for s in found],
        "By the first task alone": [s.first for s in found],
    }
    shown = {name: choices for name, choices in columns.items() if any(choices)}
    rows = [[s.method, s.scenario, *(_choice(c[place]) for c in shown.values())] for place, s in enumerate(found)]
    notes = [f"{chart.title}: selected values and the accuracy they lead to"]
    if seen := max(s.seen for s in found):
        notes.append(f"by held-out data: training data held out of the first {count(seen, 'task')}")
    if any(s.first and s.first.text == ALL_ALIKE for s in found):
        notes.append("the first task alone leaves no choice where its training does not depend on the value")
    if any(choice and choice.elsewhere for s in found for choice in (s.paper, s.honest)):
        notes.append("†: not a point of the grid, so the seeds are those of the table")
    return Table("; ".join(notes), ["Method", "Scenario", *shown], rows, [s.method for s in found], left=2)


def _choice(choice: Choice | None) -> str:
    if choice is None:
        return DASH
    if choice.accuracy is None:
        return choice.text
    return f"{choice.text}: {plus_minus(choice.accuracy)}{' †' if choice.elsewhere else ''}"


def panel_table(chart: Chart, panel: Panel) -> Table:
    """The numbers behind a panel: a row for each x, a column for each line."""
    if panel.names:
        rows = [[name, *(_spread(line.values[x]) for line in panel.lines)] for x, name in enumerate(panel.names)]
        return Table(f"{chart.title}: {panel.title}", ["Method", *(line.label for line in panel.lines)], rows)
    if named := next((line for line in panel.lines if line.names), None):
        points = zip(named.names, named.values, named.x, strict=True)
        rows = [[name, number(value.mean), number(x)] for name, value, x in points]
        return Table(f"{chart.title}: {panel.title}", [named.label, panel.measured, panel.x_label], rows)
    if panel.lines and all(len(line.x) == 1 for line in panel.lines) and not panel.levels:
        rows = [[line.label, plus_minus(line.values[0]), f"{line.x[0]:.2e}".replace("e+", "e")] for line in panel.lines]
        return Table(f"{chart.title}: {panel.title}", ["Method", panel.measured, panel.x_label], rows)
    places = sorted({x for line in panel.lines for x in line.x if not chart.listed or x in chart.listed})
    by_line = [dict(zip(line.x, line.values, strict=True)) for line in panel.lines]
    rows = [[short(x), *(plus_minus(of[x]) if x in of else NOT_RUN for of in by_line)] for x in places]
    header = [panel.x_label, *(line.label for line in panel.lines)]
    rows += [[level.label, plus_minus(level.value), *[""] * (len(panel.lines) - 1)] for level in panel.levels]
    groups = [*["points"] * len(places), *["levels"] * len(panel.levels)]
    return Table(f"{chart.title}: {panel.title}", header, rows, groups)


def _spread(value: Summary) -> str:
    return f"{number(value.mean)} (SD {number(deviation(value))}, n = {value.n})"


def claims(found: Sequence[Statement]) -> Iterator[Block]:
    """The paper's statements, whether they hold, and the numbers behind that."""
    if found:
        yield Heading("What the paper says of it", 3)
    for statement in found:
        yield Text(f"{statement.sentence} {statement.rule}")
        if statement.rows:
            yield evidence_of(statement)


def evidence_of(statement: Statement) -> Table:
    return Table(f"{statement.title}: {statement.truth}", statement.header, statement.rows, left=statement.left)
