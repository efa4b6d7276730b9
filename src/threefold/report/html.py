"""The report as one self-contained page: nothing is fetched, no script runs, all text is escaped.

The templates are `page.html`, and `parts.html`, which the live page uses too.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from threefold.experiments import Result, Section
from threefold.experiments.command import reproducing
from threefold.report import svg
from threefold.report.agreement import Agreement, judged_once
from threefold.report.charts import charts
from threefold.report.document import Table, agreement, evidence_of, metrics, panel_table, selected
from threefold.report.during_training import during, key_of
from threefold.report.figures import PICTURES, mosaic, pictures
from threefold.report.formatting import DASH, NOT_RUN, count, difference, duration, moment, number, plus_minus, signed
from threefold.report.metric_table import metric_tables
from threefold.report.palette import HUES, LINES, ON_DARK, ramp
from threefold.report.panels import WHO, By, Chart, runs_of
from threefold.report.paper_statements import statements
from threefold.report.provenance import distinct, machine_seconds, provenance
from threefold.report.rules import footnote
from threefold.report.tables import PAIRED, RULE, Column, ResultTable, incomplete, remarks, result_tables, selection
from threefold.results import utc_now
from threefold.results.metrics import METRICS
from threefold.version import VERSION

JUDGED = {
    "agrees": "✓ agree",
    "differs": "✗ differ",
    "unsure": "? too few seeds",
    "unjudged": "not judged",
    "alone": "nothing published",
}
SIGNS: dict[By, str] = {"paper": "○", "best": "●", "honest": "▾"}


@dataclass(frozen=True, eq=False)
class Arranged:
    """An experiment with its tables and figures, and its anchor on the page."""

    name: str
    section: Section
    tables: Sequence[ResultTable]
    charts: Sequence[Chart]

    @cached_property
    def judged(self) -> Counter[str]:
        """How many cells have each judgement."""
        return Counter(cell.code for table in self.tables for cell in table.cells)


def arrange(sections: Sequence[Section]) -> list[Arranged]:
    drawn = charts(sections)
    return [
        Arranged(
            f"e{place}",
            section,
            result_tables(section) if section.kind == "table" else [],
            [chart for of, chart in drawn if of is section],
        )
        for place, section in enumerate(sections)
    ]


def render(sections: Sequence[Section]) -> str:
    page = templates.get_template("report/page.html")
    return page.render(arranged=arrange(sections), style=style(), version=VERSION, now=utc_now())


def part(name: str, *given: object) -> str:
    """One of the macros of `parts.html`."""
    return str(getattr(templates.get_template("report/parts.html").module, name)(*given))


def style() -> str:
    """The style sheet, with the colours of curves in light and dark mode."""
    shades = range(svg.SHADES)
    light = [f".s{i} {{ --c: {color}; }}" for i, color in enumerate(HUES)]
    light += [f".r{i} {{ --c: {ramp(0.9 * i / (svg.SHADES - 1), LINES)}; }}" for i in shades]
    dark = [f".s{i} {{ --c: {color}; }}" for i, color in enumerate(ON_DARK)]
    dark += [f".r{i} {{ --c: {ramp(0.3 + 0.7 * i / (svg.SHADES - 1), LINES)}; }}" for i in shades]
    sheet = files("threefold.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"{sheet}{' '.join(light)}\n@media (prefers-color-scheme: dark) {{ {' '.join(dark)} }}"


def anchor(*words: str) -> str:
    """An anchor on the page, the same each time, so that links to it stay valid."""
    return f"c{sha256(repr(words).encode()).hexdigest()[:12]}"


def table_anchor(table: ResultTable, *words: str) -> str:
    return anchor(table.section.name, table.stream, *words)


def judgements(arranged: Sequence[Arranged]) -> dict[str, str]:
    """The judgements that occur, and their meanings."""
    return {code: meaning for code, meaning in JUDGED.items() if any(each.judged[code] for each in arranged)}


def lede(arranged: Sequence[Arranged]) -> str:
    """How many published numbers agree, and the computing time."""
    sections = [each.section for each in arranged]
    records, left = distinct(sections), sum(section.left for section in sections)
    text = f"{count(len(records), 'run')}, {duration(machine_seconds(records))} of machine time."
    if judged := judged_once(table for each in arranged for table in each.tables):
        agree = sum(cell.code == "agrees" for cell in judged.values())
        text = f"Of {count(len(judged), 'published number')} measured here, {count(agree, 'agrees', 'agree')}. {text}"
    return text + (f" {count(left, 'run')} still to be trained." if left else "")


def agreed(arranged: Sequence[Arranged]) -> Agreement:
    """The agreement of all numbers by standard errors alone."""
    return Agreement.of([each.section for each in arranged])


def pairs(column: Column) -> Table:
    """Pairwise comparisons of the methods in a column."""
    rows = []
    for pair in column.tested:
        found = pair.difference
        effect = signed(found.effect).replace("inf", "∞")  # the difference is the same for every seed
        tested = [str(found.seeds), f"{pair.p_holm:.2g}", "yes" if pair.significant else "no"]
        rows.append([pair.first, pair.second, difference(found), effect, *tested])
    header = ["First", "Second", "First − second [95%]", "Effect d", "Seeds", "p (Holm)", "Differs"]
    return Table(column.title, header, rows, left=2)


def measures(result: Result) -> list[tuple[str, str, str]]:
    """The metrics other than accuracy: names, meanings and values."""
    known = {name: value for name, value in result.metrics.items() if not math.isnan(value.mean)}
    return [
        (metric.title, metric.meaning, plus_minus(known[metric.name]))
        for metric in METRICS
        if metric.name in known and metric.name != "average_accuracy"
    ]


def metric_sheets(table: ResultTable) -> list[tuple[Table, str]]:
    """Tables of all metrics, each with its legend."""
    return [(metrics(some, f"Metrics of {some.title}"), some.legend) for some in metric_tables(table)]


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def spec_text(result: Result) -> str:
    """Everything that determines the runs, with the seeds on one line."""
    spec = json.dumps(result.cell.spec(), ensure_ascii=False, indent=2).removesuffix("\n}")
    return f'{spec},\n  "seeds": {json.dumps(result.seeds)}\n}}'


templates = Environment(
    loader=PackageLoader("threefold", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
templates.globals |= {
    **{
        "DASH": DASH,
        "PICTURES": PICTURES,
        "NOT_RUN": NOT_RUN,
        "PAIRED": PAIRED,
        "RULE": RULE,
        "SIGNS": SIGNS,
        "WHO": WHO,
        "svg": svg,
    },
    **{
        function.__name__: function
        for function in (
            *(count, difference, duration, moment, number, plus_minus, incomplete, remarks, selection, reproducing),
            footnote,
            *(pictures, mosaic, provenance, machine_seconds, statements, selected, panel_table, evidence_of),
            *(
                anchor,
                table_anchor,
                judgements,
                lede,
                agreed,
                agreement,
                pairs,
                measures,
                metric_sheets,
                as_json,
                spec_text,
            ),
            *(during, key_of, runs_of),
        )
    },
}
