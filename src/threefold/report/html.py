"""The report as one page that opens offline: nothing is fetched, nothing is run, all text is escaped."""

import math
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

from threefold.experiments import Section
from threefold.report.document import Table, panel_table, selected
from threefold.report.evidence import RULE, Board, Evidence, boards, remarks, selection, shortened
from threefold.report.html_cell import detail
from threefold.report.palette import HUES, ON_DARK, ramp
from threefold.report.panels import Chart, charts
from threefold.report.provenance import distinct, machine_seconds, provenance
from threefold.report.svg import SHADES, chart, shade
from threefold.report.words import DASH, NOT_RUN, count, difference, duration, moment, theirs
from threefold.results import utc_now
from threefold.version import VERSION

JUDGED = {
    "agrees": "✓ agree",
    "differs": "✗ differ",
    "unsure": "? too few seeds",
    "unjudged": "not judged",
    "alone": "nothing published",
}


def render(sections: Sequence[Section]) -> str:
    drawn = charts(sections)
    ids = _Ids()
    arranged = [(section, boards(section) if section.kind == "table" else []) for section in sections]
    bodies = []
    for place, (section, found) in enumerate(arranged):
        parts = [f'<section id="e{place}"><h2>{escape(section.title)}</h2>', _opening(section)]
        parts += [_board(board, ids) for board in found]
        parts += [_chart(drawing) for of, drawing in drawn if of is section]
        if section.notes:
            parts.append(f"<h3>Remarks</h3>{_list(remarks(section))}")
        bodies.append("".join(parts) + "</section>")
    bodies += [_reading(), _places(sections)]
    return Template(_file("page.html")).substitute(
        title="threefold: results",
        style=_style(),
        summary=_summary(arranged, sections),
        body="\n".join(bodies),
        footer=f"Written by threefold {escape(VERSION)} on {escape(moment(utc_now()))}.",
    )


class _Ids:
    """Numbers for the places that are linked to."""

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> str:
        self.last += 1
        return f"c{self.last}"


@cache
def _file(name: str) -> str:
    return files("threefold.report").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    """The style sheet, and the colours of curves in light and in dark."""
    light = [f".s{i} {{ --c: {color}; }}" for i, color in enumerate(HUES)]
    light += [f".r{i} {{ --c: {ramp(0.82 * i / (SHADES - 1))}; }}" for i in range(SHADES)]
    dark = [f".s{i} {{ --c: {color}; }}" for i, color in enumerate(ON_DARK)]
    dark += [f".r{i} {{ --c: {ramp(0.38 + 0.62 * i / (SHADES - 1))}; }}" for i in range(SHADES)]
    return f"{_file('page.css')}{' '.join(light)}\n@media (prefers-color-scheme: dark) {{ {' '.join(dark)} }}"


def _summary(arranged: Sequence[tuple[Section, list[Board]]], sections: Sequence[Section]) -> str:
    counts = [{code: sum(board.counts[code] for board in found) for code in JUDGED} for _, found in arranged]
    totals = {code: sum(each[code] for each in counts) for code in JUDGED}
    left = sum(section.left for section in sections)
    shown = [code for code in JUDGED if totals[code]]
    rows = []
    for place, ((section, _), each) in enumerate(zip(arranged, counts, strict=True)):
        numbers = [len(section.results), *(each[code] for code in shown)] + ([section.left] if left else [])
        cells = "".join(f"<td>{number or ''}</td>" for number in numbers)
        rows.append(f'<tr><th><a href="#e{place}">{escape(section.title)}</a></th>{cells}</tr>')
    records = distinct(sections)
    judged = totals["agrees"] + totals["differs"] + totals["unsure"]
    lede = f"{count(len(records), 'run')}, {duration(machine_seconds(records))} of machine time."
    if judged:
        agree = "agrees" if totals["agrees"] == 1 else "agree"
        lede = f"{totals['agrees']} of {count(judged, 'judged cell')} {agree} with the published numbers. {lede}"
    if left:
        lede += f" {count(left, 'run')} still to be trained."
    names = ["Experiment", "cells", *(JUDGED[code] for code in shown)] + (["runs left"] if left else [])
    head = "".join(f"<th>{escape(text)}</th>" for text in names)
    return (
        f'<p class="lede">{escape(lede)}</p><table class="summary"><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table><nav><ul><li><a href="#reading">How cells are judged</a></li>'
        '<li><a href="#places">What was run where</a></li></ul></nav>'
    )


def _opening(section: Section) -> str:
    parts = [f"<p>{escape(selection(section))}</p>"]
    if not section.results:
        parts.append("<p>No run of this experiment is finished yet.</p>")
    if cut := shortened(section):
        parts.append(f"<p><b>{escape(cut)}</b></p>")
    if section.left:
        parts.append(f"<p><b>Not complete:</b> {count(section.left, 'run')} still to be trained.</p>")
    if section.command:
        parts.append(f"<p>Made by <code>{escape(section.command)}</code></p>")
    return "".join(parts)


def _board(board: Board, ids: _Ids) -> str:
    named = {place: ids.next() for place in (*board.at, *board.why_not)}
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
        f'<h3>{escape(board.protocol)}: average accuracy over all tasks, per cent</h3><table class="board">',
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>",
        f"<h3>Why a number is low</h3>{_list(told)}" if told else "",
        f"<h3>Dashes</h3><ul>{dashes}</ul>" if dashes else "",
        _significance(board),
        "<h3>Every cell in detail</h3>",
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
    return f'<td {label}><span class="dash" title="not run">{NOT_RUN}</span></td>'


def _number(found: Evidence, name: str) -> str:
    accuracy, judged = found.accuracy, found.verdict
    if math.isnan(accuracy.mean):
        text = "diverged"
    else:
        text = f"{accuracy.mean:.2f}" + (
            f" <small>± {accuracy.sem:.2f}</small>" if accuracy.sem == accuracy.sem else ""
        )
    parts = [f'<a class="ours" href="#{name}">{text}</a>']
    if found.published:
        parts.append(f"<span>paper {theirs(found.published)}</span>")
    if judged:
        parts.append(f"<span>{difference(judged.difference)}</span>")
    parts.append(f'<span class="verdict {found.code}">{escape(f"{found.symbol} {found.judgement}".strip())}</span>')
    if found.explanation:
        parts.append(
            f"<span>{'low, as published' if found.explanation.published is not None else 'low: see why'}</span>"
        )
    return "".join(parts)


def _significance(board: Board) -> str:
    told = _list([column.sentence for column in board.significance])
    tables = []
    for column in board.significance:
        rows = [
            [c.first, c.second, difference(c.difference), f"{c.p_holm:.2g}", "yes" if c.significant else "no"]
            for c in column.tested
        ]
        if rows:
            header = ["First", "Second", "First − second [95%]", "p (Holm)", "Differs"]
            tables.append(table(Table(column.title, header, rows, left=2)))
    more = f"<details><summary>All pairs</summary>{''.join(tables)}</details>" if tables else ""
    return f"<h3>Methods beside each other</h3><p>Welch's test at 5%, corrected by Holm over a column.</p>{told}{more}"


def _chart(drawing: Chart) -> str:
    panels = "".join(f"<div><h4>{escape(panel.title)}</h4>{chart(panel)}</div>" for panel in drawing.panels)
    numbers = "".join(table(panel_table(drawing, panel)) for panel in drawing.panels)
    return (
        f'<h3>{escape(drawing.title)}</h3>{_legend(drawing)}<div class="cards">{panels}</div>'
        f"<p><small>{escape(drawing.caption)} {escape(drawing.key)}</small></p>"
        f"{table(selected(drawing)) if drawing.selected else ''}"
        f"<details><summary>The numbers</summary>{numbers}</details>"
    )


def _legend(drawing: Chart) -> str:
    lines = {line.label: line for panel in drawing.panels for line in panel.lines}
    items = []
    for label, line in lines.items():
        kind = f"s{line.hue % len(HUES)}" if line.shade is None else shade(line.shade)
        sample = f'<svg viewBox="0 0 24 8" class="{kind}" aria-hidden="true"><path class="line" d="M0 4H24"/></svg>'
        items.append(f"<li>{sample}{escape(label)}</li>")
    if any(panel.marks for panel in drawing.panels):
        items.append("<li>○ paper's choice</li><li>● best of ours</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def _reading() -> str:
    return f'<section id="reading"><h2>How cells are judged</h2><p>{escape(RULE)}</p></section>'


def _places(sections: Sequence[Section]) -> str:
    rows = [
        f"<li><b>{escape(batch.device)}</b>: {escape(batch.sentence)}<br><small>{escape(batch.software)}</small></li>"
        for batch in provenance(sections)
    ]
    text = "Networks trained in lockstep share the time of their cohort; each run is counted once."
    head = '<section id="places"><h2>What was run where, when and for how long</h2>'
    return f"{head}<p>{text}</p><ul>{''.join(rows)}</ul></section>"


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
