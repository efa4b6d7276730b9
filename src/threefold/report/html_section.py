"""One experiment as part of a page, the report's or the live one's: its tables, figures, and every cell in detail."""

import json
import math
from collections.abc import Callable, Sequence
from hashlib import sha256
from html import escape

from threefold.experiments import Section
from threefold.experiments.command import reproducing
from threefold.report import svg
from threefold.report.document import Table, evidence_of, panel_table, selected
from threefold.report.figures import dreams, mosaic
from threefold.report.formatting import DASH, NOT_RUN, count, difference, duration, moment, number, plus_minus, signed
from threefold.report.panels import WHO, By, Chart
from threefold.report.paper_statements import Statement, statements
from threefold.report.provenance import machine_seconds
from threefold.report.tables import PAIRED, ResultTable, TableCell, incomplete, remarks, selection
from threefold.results import Comparison

EFFECT = "Effect d: the mean difference in its own standard deviations over seeds."
MEASURES = {
    "learning_accuracy": ("Learning accuracy", "on each task right after it was learned"),
    "forgetting": ("Forgetting", "fall from the best accuracy ever had"),
    "backward_transfer": ("Backward transfer", "what later tasks did to earlier ones"),
    "forward_transfer": ("Forward transfer", "what earlier tasks did for later ones"),
}
SIGNS: dict[By, str] = {"paper": "○", "best": "●", "honest": "▾"}
Detail = Callable[[TableCell, str], str]
"""How a page shows a cell in detail, given the name that links lead to."""
More = Callable[[ResultTable], str]
"""What a page adds to a table."""


def whole(
    section: Section,
    tables: Sequence[ResultTable],
    charts: Sequence[Chart],
    detail: Detail,
    more: More = lambda table: "",
) -> str:
    """Title, tables, figures and remarks."""
    parts = [f"<h2>{escape(section.title)}</h2>", _opening(section)]
    parts += [_result_table(table, detail, more) for table in tables]
    parts += [_chart(drawing) + _statements(statements(section, drawing)) for drawing in charts]
    if section.notes:
        parts.append(f"<h3>Remarks</h3>{_list(remarks(section))}")
    return "".join(parts)


def anchor(*words: str) -> str:
    """A name for a place on the page, the same whenever the page is made: links to it last."""
    return f"c{sha256(repr(words).encode()).hexdigest()[:12]}"


def table_anchor(table: ResultTable, *words: str) -> str:
    return anchor(table.section.name, table.stream, *words)


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


def _result_table(table: ResultTable, detail: Detail, more: More) -> str:
    anchors = {place: table_anchor(table, *place) for place in (*table.at, *table.why_not)}
    head = "".join(f"<th>{escape(text)}</th>" for text in ("Method", *table.columns))
    rows, before = [], None
    for strategy, row in table.rows:
        if strategy != before:
            span = len(table.columns) + 1
            rows.append(f'<tr class="group"><th colspan="{span}" class="left">{escape(strategy)}</th></tr>')
            before = strategy
        cells = "".join(_place(table, row, column, anchors) for column in table.columns)
        rows.append(f"<tr><th>{escape(row)}</th>{cells}</tr>")
    told = table.explanations
    dashes = "".join(
        f'<li id="{anchors[place]}">{DASH} {escape(f"{r.row}, {r.column}: {r.reason}")}</li>'
        for place, r in table.why_not.items()
    )
    parts = [
        f'<h3>{escape(table.heading)}: average accuracy over all tasks, per cent</h3><table class="board">',
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>",
        f"<h3>Why a number is low</h3>{_list(told)}" if told else "",
        f"<h3>Dashes</h3><ul>{dashes}</ul>" if dashes else "",
        _significance(table),
        more(table),
        "<h3>Every cell in detail</h3>" if table.cells else "",
        *(detail(e, anchors[e.row, e.column]) for e in table.cells),
    ]
    return "".join(parts)


def _place(table: ResultTable, row: str, column: str, anchors: dict[tuple[str, str], str]) -> str:
    label, found = f'data-column="{escape(column)}"', table.at.get((row, column))
    if found:
        return f"<td {label}>{_number(found, anchors[row, column])}</td>"
    if (row, column) in table.why_not:
        why = f'<a class="dash" href="#{anchors[row, column]}" title="why there is no number">{DASH}</a>'
        return f"<td {label}>{why}</td>"
    return f'<td {label}><span class="dash" title="not run yet">{NOT_RUN}</span></td>'


def _number(found: TableCell, name: str) -> str:
    judged = found.verdict
    mean, _, sem = plus_minus(found.accuracy).partition(" ± ")
    text = f"{mean} <small>± {sem}</small>" if sem else mean
    parts = [f'<a class="ours" href="#{name}">{text}</a>']
    if found.paper:
        kind = "" if judged else ' class="apart"'
        parts.append(f"<span{kind}>paper {escape(found.theirs)}</span>")
    if judged:
        parts.append(f"<span>{difference(judged.difference)}</span>")
    parts.append(_verdict(found))
    if found.explanation:
        as_published = judged and found.explanation.published
        parts.append(f"<span>{'low, as published' if as_published else 'low: see why'}</span>")
    return "".join(parts)


def _verdict(found: TableCell) -> str:
    return f'<span class="verdict {found.code}">{escape(f"{found.symbol} {found.judgement}".strip())}</span>'


def _significance(table: ResultTable) -> str:
    if not table.cells:
        return ""
    told = _list([column.sentence for column in table.significance])
    header = ["First", "Second", "First − second [95%]", "Effect d", "Seeds", "p (Holm)", "Differs"]
    tables = []
    for column in table.significance:
        rows = [[c.first, c.second, *_tested(c)] for c in column.tested]
        if rows:
            tables.append(plain_table(Table(column.title, header, rows, left=2)))
    pairs = ""
    if tables:
        name = table_anchor(table, "pairs")
        pairs = f'<details id="{name}"><summary>All pairs</summary>{"".join(tables)}</details>'
    return f"<h3>Methods beside each other</h3><p>{escape(PAIRED)} {EFFECT}</p>{told}{pairs}"


def _tested(pair: Comparison) -> list[str]:
    found = pair.difference
    effect = signed(found.effect).replace("inf", "∞")  # the difference is the same for every seed
    decided = "yes" if pair.significant else "no"
    return [difference(found), effect, str(found.seeds), f"{pair.p_holm:.2g}", decided]


def _chart(drawing: Chart) -> str:
    rows = "".join(
        f'<div class="cards">{"".join(card(p.title, svg.chart(p)) for p in drawing.panels if p.row == row)}</div>'
        for row in drawing.rows
    )
    numbers = "".join(plain_table(panel_table(drawing, panel)) for panel in drawing.panels)
    return (
        f"<h3>{escape(drawing.title)}</h3>{_legend(drawing)}{rows}"
        f"<p><small>{escape(drawing.caption)} {escape(drawing.key)}</small></p>"
        f"{plain_table(selected(drawing)) if drawing.selected else ''}"
        f'<details id="{anchor("numbers", drawing.name)}"><summary>The numbers</summary>{numbers}</details>'
    )


def _statements(found: Sequence[Statement]) -> str:
    told = "".join(
        f"<p>{escape(each.sentence)} <small>{escape(each.rule)}</small></p>{plain_table(evidence_of(each))}"
        for each in found
    )
    return f"<h3>What the paper says of it</h3>{told}" if told else ""


def _legend(drawing: Chart) -> str:
    lines = {line.label: line for panel in drawing.panels for line in panel.lines}
    items = []
    for label, line in lines.items():
        sample = f'<svg viewBox="0 0 24 8" class="{svg.color(line)}" aria-hidden="true">'
        items.append(f'<li>{sample}<path class="line" d="M0 4H24"/></svg>{escape(label)}</li>')
    by = {mark.by for panel in drawing.panels for mark in panel.marks}
    items += [f"<li>{sign} {escape(WHO[who])}</li>" for who, sign in SIGNS.items() if who in by]
    if any(panel.lost for panel in drawing.panels):
        items.append("<li>× diverged</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def plain_table(block: Table) -> str:
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


def detail(found: TableCell, name: str) -> str:
    """A cell that unfolds. The name stands inside, so that a link to it opens what hides it."""
    return (
        f'<details><summary>{line(found)}</summary><div class="cell" id="{name}">{inside(found, name)}</div></details>'
    )


def line(found: TableCell) -> str:
    """What is seen of a cell that is folded."""
    name = f"<b>{escape(found.row)}</b>, {escape(found.column)}"
    return f"{name} <span>{plus_minus(found.accuracy)}</span> {_verdict(found)}"


def inside(found: TableCell, name: str) -> str:
    """Everything about a cell's runs."""
    texts = [_text(found)]
    if found.explanation:
        texts.append(f"<p>{escape(str(found.explanation))}</p>")
    if found.diverged:
        texts.append(f"<p>{escape(found.diverged)}.</p>")
    cards = [card("Seeds", svg.seeds(found.accuracy, found.result.published) + _measures(found))]
    if found.learned:
        cards.append(card("Accuracy on each task as training goes on", svg.forgetting(found)))
        cards.append(card("Accuracy matrix", svg.heat_map(found)))
    images = dreams(found)
    if images is not None:
        alt = f"Images of the generator after each of {count(len(images), 'task')}, a row for each"
        shown = f'<img class="dreams" src="{svg.picture(mosaic(images))}" alt="{escape(alt)}">'
        if found.cell.stream.name == "permuted":
            shown += "<p><small>Pixels are permuted, so that a good dream looks like noise.</small></p>"
        cards.append(card("What the generator dreams after each task (down), first seed", shown))
    return f'{"".join(texts)}<div class="cards">{"".join(cards)}</div>{_runs(found)}{_again(found, name)}'


def card(title: str, body: str) -> str:
    return f"<div><h4>{escape(title)}</h4>{body}</div>"


def _text(found: TableCell) -> str:
    accuracy, judged = found.accuracy, found.verdict
    parts = [f"{plus_minus(accuracy)} over {count(accuracy.n, 'seed')}"]
    if accuracy.n > 1 and accuracy.mean == accuracy.mean:
        parts.append(
            f"standard deviation {number(found.spread)}, from {number(found.lowest)} to {number(found.highest)}"
        )
    if found.paper:
        parts.append(f"published {found.theirs} ({found.paper.table}, n = {found.paper.n})")
    if judged:
        parts.append(f"difference {difference(judged.difference)}, allowed {number(judged.allowed)}")
    return f"<p>{escape('; '.join(parts))}.</p>"


def _measures(found: TableCell) -> str:
    known = {name: value for name, value in found.result.metrics.items() if not math.isnan(value.mean)}
    rows = "".join(
        f'<tr><td title="{escape(meaning)}">{escape(title)}</td><td>{plus_minus(known[name])}</td></tr>'
        for name, (title, meaning) in MEASURES.items()
        if name in known
    )
    return f'<table class="small-table"><tbody>{rows}</tbody></table>' if rows else ""


def _runs(found: TableCell) -> str:
    """Per seed accuracies, hyperparameters, and when it was trained."""
    result, cell, training = found.result, found.cell, found.cell.training
    created = sorted(record.created for record in result.records)
    each = ", ".join(f"{seed}: {number(v)}" for seed, v in zip(result.seeds, found.accuracy.per_seed, strict=True))
    chosen = cell.method.hyperparameters()
    told = [
        f"Accuracy of each seed: {each}.",
        f"{training.length} per task, batch {training.batch}, network {training.network.written()},"
        f" optimiser {cell.optimizer.written()}, {training.precision}.",
        f"{duration(machine_seconds(result.records))} of machine time, {moment(created[0])} to {moment(created[-1])}.",
    ]
    if any(chosen.values()):
        told.append(f"Hyperparameters: {json.dumps(chosen, ensure_ascii=False)}.")
    return "".join(f"<p><small>{escape(text)}</small></p>" for text in told)


def _again(found: TableCell, name: str) -> str:
    """All that determines the runs, and the command that trains them."""
    command = reproducing([found.cell], found.result.seeds) or found.made_by  # these runs alone, if that can be said
    told = f"<p><small>Made again by</small> <code>{escape(command)}</code></p>" if command else ""
    spec = json.dumps(found.cell.spec(), ensure_ascii=False, indent=2).removesuffix("\n}")
    spec += f',\n  "seeds": {json.dumps(found.result.seeds)}\n}}'  # on one line
    return f'{told}<details id="{name}-spec"><summary>Spec</summary><pre>{escape(spec)}</pre></details>'
