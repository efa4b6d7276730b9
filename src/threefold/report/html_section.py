"""One experiment as part of a page: the report's, and the live one's."""

import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from html import escape

from threefold.experiments import Section
from threefold.report.document import Table, evidence_of, panel_table, selected
from threefold.report.evidence import PAIRED, Board, Evidence, incomplete, remarks, selection
from threefold.report.palette import HUES
from threefold.report.panels import WHO, By, Chart, Panel
from threefold.report.statements import Statement, statements
from threefold.report.svg import chart, shade
from threefold.report.words import DASH, NOT_RUN, difference, effect

Detail = Callable[[Evidence, str], str]
"""How a page shows a cell in detail, given the name that links lead to."""
More = Callable[[Board], str]
"""What a page adds to a table."""


def whole(
    section: Section,
    boards: Sequence[Board],
    charts: Sequence[Chart],
    detail: Detail,
    more: More = lambda board: "",
) -> str:
    """Title, tables, figures and remarks."""
    parts = [f"<h2>{escape(section.title)}</h2>", _opening(section)]
    parts += [_board(board, detail, more) for board in boards]
    parts += [_chart(drawing) + _statements(statements(section, drawing)) for drawing in charts]
    if section.notes:
        parts.append(f"<h3>Remarks</h3>{_list(remarks(section))}")
    return "".join(parts)


def name(*words: str) -> str:
    """A name for a place on the page, the same whenever the page is made: links to it last."""
    return f"c{sha256(repr(words).encode()).hexdigest()[:12]}"


def name_of(board: Board, *words: str) -> str:
    return name(board.section.name, board.stream, *words)


def _opening(section: Section) -> str:
    parts = [f"<p>{escape(selection(section))}</p>"]
    if not section.results:
        parts.append("<p>No run of this experiment is finished yet.</p>")
    if section.shortened:
        parts.append(f"<p><b>Shortened: {escape(', '.join(section.shortened))}.</b></p>")
    if missing := incomplete(section):
        parts.append(f"<p><b>Not complete:</b> {escape(missing)}</p>")
    if section.command:
        parts.append(f"<p>Made by <code>{escape(section.command)}</code></p>")
    return "".join(parts)


def _board(board: Board, detail: Detail, more: More) -> str:
    named = {place: name_of(board, *place) for place in (*board.at, *board.why_not)}
    head = "".join(f"<th>{escape(text)}</th>" for text in ("Method", *board.columns))
    rows, before = [], None
    for strategy, row in board.rows:
        if strategy != before:
            span = len(board.columns) + 1
            rows.append(f'<tr class="group"><th colspan="{span}" class="left">{escape(strategy)}</th></tr>')
            before = strategy
        cells = "".join(_place(board, row, column, named) for column in board.columns)
        rows.append(f"<tr><th>{escape(row)}</th>{cells}</tr>")
    told = board.explanations
    dashes = "".join(
        f'<li id="{named[place]}">{DASH} {escape(f"{r.row}, {r.column}: {r.reason}")}</li>'
        for place, r in board.why_not.items()
    )
    parts = [
        f'<h3>{escape(board.stream)}: average accuracy over all tasks, per cent</h3><table class="board">',
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>",
        f"<h3>Why a number is low</h3>{_list(told)}" if told else "",
        f"<h3>Dashes</h3><ul>{dashes}</ul>" if dashes else "",
        _significance(board),
        more(board),
        "<h3>Every cell in detail</h3>" if board.cells else "",
        *(detail(e, named[e.row, e.column]) for e in board.cells),
    ]
    return "".join(parts)


def _place(board: Board, row: str, column: str, named: dict[tuple[str, str], str]) -> str:
    label, found = f'data-column="{escape(column)}"', board.at.get((row, column))
    if found:
        return f"<td {label}>{_number(found, named[row, column])}</td>"
    if (row, column) in board.why_not:
        why = f'<a class="dash" href="#{named[row, column]}" title="why there is no number">{DASH}</a>'
        return f"<td {label}>{why}</td>"
    return f'<td {label}><span class="dash" title="not run yet">{NOT_RUN}</span></td>'


def _number(found: Evidence, name: str) -> str:
    accuracy, judged = found.accuracy, found.verdict
    if math.isnan(accuracy.mean):
        text = "diverged"
    else:
        text = f"{accuracy.mean:.2f}" + (
            f" <small>± {accuracy.sem:.2f}</small>" if accuracy.sem == accuracy.sem else ""
        )
    parts = [f'<a class="ours" href="#{name}">{text}</a>']
    if found.paper:
        kind = "" if judged else ' class="apart"'
        parts.append(f"<span{kind}>paper {escape(found.theirs)}</span>")
    if judged:
        parts.append(f"<span>{difference(judged.difference)}</span>")
    parts.append(f'<span class="verdict {found.code}">{escape(f"{found.symbol} {found.judgement}".strip())}</span>')
    if found.explanation:
        parts.append(
            f"<span>{'low, as published' if judged and found.explanation.published else 'low: see why'}</span>"
        )
    return "".join(parts)


def _significance(board: Board) -> str:
    if not board.cells:
        return ""
    told = _list([column.sentence for column in board.significance])
    tables = []
    for column in board.significance:
        rows = [
            [
                *(c.first, c.second, difference(c.difference), effect(c.difference.effect), str(c.difference.seeds)),
                *(f"{c.p_holm:.2g}", "yes" if c.significant else "no"),
            ]
            for c in column.tested
        ]
        if rows:
            header = ["First", "Second", "First − second [95%]", "Effect d", "Seeds", "p (Holm)", "Differs"]
            tables.append(table(Table(column.title, header, rows, left=2)))
    pairs = (
        f'<details id="{name_of(board, "pairs")}"><summary>All pairs</summary>{"".join(tables)}</details>'
        if tables
        else ""
    )
    return f"<h3>Methods beside each other</h3><p>{escape(PAIRED)} {escape(EFFECT)}</p>{told}{pairs}"


EFFECT = "Effect d: the mean difference in its own standard deviations over seeds."


def _chart(drawing: Chart) -> str:
    rows = "".join(
        f'<div class="cards">{"".join(_panel(panel) for panel in drawing.panels if panel.row == row)}</div>'
        for row in drawing.rows
    )
    numbers = "".join(table(panel_table(drawing, panel)) for panel in drawing.panels)
    return (
        f"<h3>{escape(drawing.title)}</h3>{_legend(drawing)}{rows}"
        f"<p><small>{escape(drawing.caption)} {escape(drawing.key)}</small></p>"
        f"{table(selected(drawing)) if drawing.selected else ''}"
        f'<details id="{name("numbers", drawing.name)}"><summary>The numbers</summary>{numbers}</details>'
    )


def _statements(found: Sequence[Statement]) -> str:
    told = "".join(
        f"<p>{escape(each.sentence)} <small>{escape(each.rule)}</small></p>{table(evidence_of(each))}" for each in found
    )
    return f"<h3>What the paper says of it</h3>{told}" if told else ""


def _panel(panel: Panel) -> str:
    return f"<div><h4>{escape(panel.title)}</h4>{chart(panel)}</div>"


SIGNS: dict[By, str] = {"paper": "○", "best": "●", "honest": "▾"}


def _legend(drawing: Chart) -> str:
    lines = {line.label: line for panel in drawing.panels for line in panel.lines}
    items = []
    for label, line in lines.items():
        kind = f"s{line.hue % len(HUES)}" if line.shade is None else shade(line.shade)
        sample = f'<svg viewBox="0 0 24 8" class="{kind}" aria-hidden="true"><path class="line" d="M0 4H24"/></svg>'
        items.append(f"<li>{sample}{escape(label)}</li>")
    by = {mark.by for panel in drawing.panels for mark in panel.marks}
    items += [f"<li>{sign} {escape(WHO[who])}</li>" for who, sign in SIGNS.items() if who in by]
    if any(panel.lost for panel in drawing.panels):
        items.append("<li>× diverged</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def table(block: Table) -> str:
    """A plain table."""

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = [' class="left"' if place < block.left else "" for place in range(len(row))]
        return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for text, kind in zip(row, kinds, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in block.rows)
    head = f"<thead><tr>{cells(block.header, 'th')}</tr></thead>"
    caption = f"<caption>{escape(block.caption)}</caption>"
    return f'<div class="scroll"><table class="small-table">{caption}{head}<tbody>{body}</tbody></table></div>'


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"
