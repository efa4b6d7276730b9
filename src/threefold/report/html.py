"""The report as one page that opens offline: nothing is fetched, nothing is run, all text is escaped."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

from threefold.experiments import Section
from threefold.experiments.spec import PAPER
from threefold.report.charts import charts
from threefold.report.formatting import count, duration, moment
from threefold.report.html_section import detail, whole
from threefold.report.palette import HUES, LINES, ON_DARK, ramp
from threefold.report.panels import Chart
from threefold.report.provenance import distinct, machine_seconds, provenance
from threefold.report.svg import SHADES
from threefold.report.tables import RULE, ResultTable, result_tables
from threefold.results import Published, utc_now
from threefold.version import VERSION

JUDGED = {
    "agrees": "✓ agree",
    "differs": "✗ differ",
    "unsure": "? too few seeds",
    "unjudged": "not judged",
    "alone": "nothing published",
}


def render(sections: Sequence[Section]) -> str:
    found = arrange(sections)
    bodies = [
        f'<section id="{each.name}">{whole(each.section, each.tables, each.charts, detail)}</section>' for each in found
    ]
    return Template(_file("page.html")).substitute(
        title="threefold: results",
        style=style(),
        summary=summary(found),
        body="\n".join([*bodies, closing(sections)]),
        footer=f"Written by threefold {escape(VERSION)} on {escape(moment(utc_now()))}.",
    )


@dataclass(frozen=True, eq=False)
class Arranged:
    """An experiment with its tables and figures, and the name of its place on the page."""

    name: str
    section: Section
    tables: Sequence[ResultTable]
    charts: Sequence[Chart]


def arrange(sections: Sequence[Section]) -> list[Arranged]:
    drawn = charts(sections)
    return [
        Arranged(
            f"e{place}",
            section,
            result_tables(section) if section.kind == "table" else [],
            [drawing for of, drawing in drawn if of is section],
        )
        for place, section in enumerate(sections)
    ]


@cache
def _file(name: str) -> str:
    return files("threefold.report").joinpath(name).read_text(encoding="utf-8")


def style() -> str:
    """The style sheet, and the colours of curves in light and in dark."""
    light = [f".s{i} {{ --c: {color}; }}" for i, color in enumerate(HUES)]
    light += [f".r{i} {{ --c: {ramp(0.9 * i / (SHADES - 1), LINES)}; }}" for i in range(SHADES)]
    dark = [f".s{i} {{ --c: {color}; }}" for i, color in enumerate(ON_DARK)]
    dark += [f".r{i} {{ --c: {ramp(0.3 + 0.7 * i / (SHADES - 1), LINES)}; }}" for i in range(SHADES)]
    return f"{_file('page.css')}{' '.join(light)}\n@media (prefers-color-scheme: dark) {{ {' '.join(dark)} }}"


def summary(arranged: Sequence[Arranged]) -> str:
    """How many cells agree, for all experiments and for each."""
    sections = [each.section for each in arranged]
    counts = [Counter(cell.code for table in each.tables for cell in table.cells) for each in arranged]
    left = sum(section.left for section in sections)
    shown = [code for code in JUDGED if any(each[code] for each in counts)]
    rows = []
    for each, judged_so in zip(arranged, counts, strict=True):
        section = each.section
        numbers = [len(section.results), *(judged_so[code] for code in shown)] + ([section.left] if left else [])
        cells = "".join(f"<td>{number or ''}</td>" for number in numbers)
        rows.append(f'<tr><th><a href="#{each.name}">{escape(section.title)}</a></th>{cells}</tr>')
    records = distinct(sections)
    lede = f"{count(len(records), 'run')}, {duration(machine_seconds(records))} of machine time."
    if judged := _each_once(arranged):
        agree = sum(verdict == "agrees" for verdict in judged)
        lede = f"Of {count(len(judged), 'published number')} measured here, {count(agree, 'agrees', 'agree')}. {lede}"
    if left:
        lede += f" {count(left, 'run')} still to be trained."
    names = ["Experiment", "cells", *(JUDGED[code] for code in shown)] + (["runs left"] if left else [])
    head = "".join(f"<th>{escape(text)}</th>" for text in names)
    return (
        f'<p class="lede">{escape(lede)}</p><table class="summary"><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table><nav><ul><li><a href="#reading">How cells are judged</a></li>'
        '<li><a href="#places">What was run where</a></li></ul></nav>'
    )


def _each_once(arranged: Sequence[Arranged]) -> list[str]:
    """The verdicts on the published numbers. One that several experiments have is judged by the first of the paper's:
    others may take another reading on purpose."""
    by_paper = sorted(arranged, key=lambda each: each.section.name not in PAPER)
    found: dict[Published, str] = {}
    for each in by_paper:
        for cell in (cell for table in each.tables for cell in table.cells):
            if cell.verdict and cell.paper:
                found.setdefault(cell.paper, cell.code)
    return list(found.values())


def closing(sections: Sequence[Section]) -> str:
    """How cells are judged, and where everything was run."""
    places = ""
    for origin in provenance(sections):
        software = f"<br><small>{escape(origin.software)}</small>"
        places += f"<li><b>{escape(origin.device)}</b>: {escape(origin.sentence)}{software}</li>"
    return (
        f'<section id="reading"><h2>How cells are judged</h2><p>{escape(RULE)}</p></section>\n'
        '<section id="places"><h2>What was run where, when and for how long</h2><p>Networks trained as one stack share'
        f" the time of their cohort; each run is counted once.</p><ul>{places}</ul></section>"
    )
