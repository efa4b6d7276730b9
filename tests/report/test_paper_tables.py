"""Tables for papers: the columns that were asked for, the best in bold, and what a real LaTeX makes of them."""

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sections import a_cell, a_result, a_table, budgets, stream
from hostile import hostile_section
from rich.cells import cell_len
from rich.console import Console
from scipy import stats
from tiny_lab import Ended

from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Result, Section
from threefold.experiments.costs import costs
from threefold.experiments.selection import Selection
from threefold.fingerprint import is_ours
from threefold.methods import METHODS, Method, Part, citation_of, entries, parse
from threefold.report import HEADS, render, terminal
from threefold.report.charts import charts
from threefold.report.document import panel_table
from threefold.report.figures import save_chart
from threefold.report.metric_table import COSTS, chosen, columns
from threefold.report.paper_tables import bests_of, paper_table
from threefold.report.tables import incomplete, result_tables
from threefold.results import Summary, best, summarize

ASKED = ["acc", "forgetting", "bwt", "fwt", "params", "memory", "flops", "seconds"]


@pytest.fixture(scope="module")
def section() -> Section:
    return a_table(methods=["none", "offline", "xdg", "ewc", "si", "lwf", "icarl"], seeds=8)


def values(*numbers: float, seeds: range | None = None) -> Summary:
    return summarize(numbers, seeds or range(len(numbers)))


# which are the best


def test_what_is_not_significantly_worse_is_best_too() -> None:
    """Paired: EWC is worse for every seed, however much seeds differ; SI now better, now worse."""
    column = {
        "LwF": values(90, 50, 70, 30, 80, 60),
        "EWC": values(89, 48.9, 69.2, 29, 78.9, 59.1),
        "SI": values(80, 60, 60, 40, 70, 69),
    }
    found = best(column)
    assert found.names == {"LwF", "SI"}
    assert found.tests == {"paired"}
    p = stats.ttest_rel(column["LwF"].per_seed, column["EWC"].per_seed).pvalue
    assert 2 * p < 0.05 < stats.ttest_rel(column["LwF"].per_seed, column["SI"].per_seed).pvalue


def test_holm_corrects_for_the_number_of_comparisons() -> None:
    top, other = values(*([2.0, 1.0] * 3)), values(*([1.0, 0.7] * 2), 1.9, 0.9)
    p = stats.ttest_rel(top.per_seed, other.per_seed).pvalue
    assert 0.05 / 3 < p < 0.05
    assert best({"a": top, "b": other}).names == {"a"}
    assert best({"a": top, "b": other, "c": other, "d": other}).names == {"a", "b", "c", "d"}


def test_other_seeds_are_compared_by_welch() -> None:
    column = {"a": values(9, 8, 9, 8, 9), "b": values(7, 6, 7, 6, 7, seeds=range(10, 15))}
    assert best(column) == best(column)
    assert best(column).names == {"a"}
    assert best(column).tests == {"Welch"}
    assert best(column, high=False).names == {"b"}


def test_few_seeds_decide_nothing_and_the_diverged_do_not_count() -> None:
    column = {"a": values(9, 8), "b": values(8.9, 7.9), "c": values(float("nan"), 99)}
    assert best(column).names == {"a"}
    assert best(column).tests == {"none"}
    assert best({"a": values(9, 8), "b": values(8, 9)}).names == {"a", "b"}, "equal means"
    assert best({"c": column["c"]}).names == set()


# tables


def bold(text: str) -> list[tuple[str, str, str]]:
    """Scenario, method and column of the cells in bold of a Markdown table."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    header, scenario, found = lines[0], "", []
    for row in lines[2:]:
        scenario = row[0] or scenario
        found += [(scenario, row[1], name) for name, cell in zip(header, row, strict=True) if cell.startswith("**")]
    return found


def test_the_best_of_each_scenario(section: Section) -> None:
    """By the tests themselves; baselines and costs have no best."""
    text = render([section], "markdown", columns=ASKED)
    (table,) = result_tables(section)
    for scenario in table.columns:
        own = {cell.row: cell.result for cell in table.cells if cell.column == scenario}
        own = {name: result for name, result in own.items() if name not in ("None", "Offline")}
        for short, name, sign in (
            ("ACC", "average_accuracy", 1),
            ("F", "forgetting", -1),
            ("BWT", "backward_transfer", 1),
        ):
            top = max(own, key=lambda row: sign * own[row].metrics[name].mean)
            marked = {method for where, method, what in bold(text) if (where, what) == (scenario, short)}
            assert top in marked
            for row in own.keys() - {top}:
                p = stats.ttest_rel(own[top].metrics[name].per_seed, own[row].metrics[name].per_seed).pvalue
                assert (row in marked) or p < 0.05
                assert (row not in marked) or p * (len(own) - 1) >= 0.05
    assert {what for *_, what in bold(text)} == {"ACC", "F", "BWT", "FWT"}
    assert "not significantly worse at the level 0.05 (paired t test over seeds; Holm's correction)" in text


def test_costs_stand_beside(section: Section) -> None:
    rows = {tuple(row[:7]): row for row in csv.reader(io.StringIO(render([section], "csv", columns=ASKED)))}
    header = next(iter(rows.values()))
    assert header[7:] == [
        *("seeds", "average_accuracy", "average_accuracy_sem", "forgetting", "forgetting_sem", "backward_transfer"),
        *("backward_transfer_sem", "forward_transfer", "forward_transfer_sem", *COSTS, "best"),
    ]
    (table,) = result_tables(section)
    for cell in table.cells:
        (row,) = [row for row in rows.values() if (row[2], row[5]) == (cell.column, cell.row)]
        found, known = dict(zip(header, row, strict=True)), costs(cell.cell)
        assert (float(found["params"]), float(found["memory"])) == (known.parameters, known.memory)
        assert float(found["flops"]) == known.flops
        assert float(found["seconds"]) == pytest.approx((31.5 + len(cell.cell.method.parts)) / 8)
        among = bests_of(table, chosen(["acc"]))[cell.column, "average_accuracy"].names
        assert ("average_accuracy" in found["best"]) == (cell.row in among)


def test_the_whole_csv_says_it_too(section: Section) -> None:
    (table,) = result_tables(section)
    for row in csv.DictReader(io.StringIO(render([section], "csv"))):
        if not row["refused"]:
            names = bests_of(table, chosen(["gap", "f"]))[row["scenario"], "forgetting"].names
            assert ("forgetting" in row["best"].split("; ")) == (row["method"] in names)


def test_one_column_is_methods_by_scenarios(section: Section) -> None:
    made = paper_table(result_tables(section)[0], chosen(["ACC"]))
    assert made.header == ["Method", "Task-IL", "Domain-IL", "Class-IL"]
    assert [row[0] for row in made.rows] == ["None", "Offline", "XdG", "EWC", "SI", "LwF", "iCaRL"]
    assert made.rows[2][2:] == ["–", "–"]
    assert all(row > 1 for row, _ in made.bold)


def test_the_terminal_has_them_in_bold_and_fits(section: Section) -> None:
    plain = render([section], "terminal", columns=ASKED, plain=True)
    assert max(map(cell_len, plain.splitlines())) <= 120
    assert "\x1b[1m" not in plain
    console = Console(file=(text := io.StringIO()), width=80)
    console.print(terminal.render([section], narrow=True, columns=chosen(ASKED)))
    assert "…" not in text.getvalue(), "no number is cut off"
    assert max(map(cell_len, text.getvalue().splitlines())) <= 80


def test_what_is_left_of_a_selection() -> None:
    whole = a_table(methods=["none", "ewc"], seeds=2)
    cells = [result.cell for result in whole.results]
    whole = replace(whole, cells=cells, lacking=dict.fromkeys(cells, 3), left=18)
    (some,) = Selection((), ("class", "ewc")).sections([whole])
    assert incomplete(some) == "3 runs still to be trained (split-mnist: EWC 3)."


def test_budgets_and_grids_have_such_tables_too() -> None:
    assert "iCaRL (budget=10)" in render([budgets(seeds=2)], "markdown", columns=["acc"])


def test_unknown_columns_and_what_does_not_go_together(section: Section) -> None:
    with pytest.raises(ThreefoldError, match="column 'forgeting' is not known; did you mean 'forgetting'"):
        render([section], "latex", columns=["forgeting"])
    with pytest.raises(ThreefoldError, match="columns are for terminal, markdown, latex and csv"):
        render([section], "html", columns=["acc"])
    with pytest.raises(ThreefoldError, match="cite is for tables in LaTeX"):
        render([section], "markdown", columns=["acc"], cite=True)
    assert len({column.short for column in columns().values()}) == len(columns())


def test_a_method_that_is_not_loaded_has_a_dash_with_its_reason() -> None:
    class Away(Part):
        name = "away"

    result = a_result(a_cell(stream(), "task", Method(Away())), 50.0)
    as_stored = Result(Cell.of_description(result.cell.described()), result.records)
    text = render([Section("a", "A", "table", [as_stored])], "markdown", columns=["acc", "flops", "seconds"])
    assert "| – | 6.5 s |" in text
    assert "– away: method away is not loaded; give its file by --plugin." in text


# citations


def test_each_method_has_one_key_and_each_entry_a_method() -> None:
    kinds = {name: entry.part for name, entry in METHODS.items() if not entry.part or is_ours(entry.part)}
    keys = {name: citation_of(Method(*([kind.model_construct()] if kind else []))) for name, kind in kinds.items()}
    assert all(len(each) == 1 for each in keys.values())
    assert {each[0] for each in keys.values()} == entries().keys()
    assert keys["ewc"] == ["kirkpatrick2017"]
    assert citation_of(parse("ewc:strength=1+xdg:share=0.5")) == ["kirkpatrick2017", "masse2018"]


@pytest.mark.parametrize("key", entries())
def test_an_entry_is_whole(key: str) -> None:
    entry = entries()[key]
    assert entry.count("{") == entry.count("}")
    fields = dict(re.findall(r"^  (\w+) = \{(.*?)\},?$", entry, flags=re.MULTILINE | re.DOTALL))
    assert {"author", "title", "year"} <= fields.keys()
    assert fields.keys() & {"journal", "booktitle"}
    assert key.endswith(fields["year"])
    surname = fields["author"].split(",")[0]
    assert key.startswith(re.sub("[^a-z]", "", surname.lower()))


def test_a_users_key_is_a_key() -> None:
    class Mine(Part):
        name = "mine"
        citation = "me2026"

    class Odd(Part):
        name = "odd"
        citation = r"}\input{x}"

    assert citation_of(Method(Mine())) == ["me2026"]
    assert citation_of(Method(Odd())) == []


def test_the_reports_bibliography(section: Section, cli: Callable[..., Ended]) -> None:
    text = render([section], "bibtex")
    assert text.count("@") == 6
    assert "@article{kirkpatrick2017," in text
    assert "shin2017" not in text
    assert cli("list", "citations").out.count("\n@") == len(entries()) - 1


# LaTeX


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no LaTeX here")
def test_a_real_latex_compiles_it(section: Section, tmp_path: Path) -> None:
    """Hostile names too, in the whole report and in tables for papers; each \\cite finds its entry."""
    odd = Section(
        "o_", "50% & #1 ± ~^", "table", [a_result(a_cell(stream(), "task", m), 50.0) for m in ("none", "ewc")]
    )
    many = [section, hostile_section(), odd]
    body = [render(many, "latex"), render(many, "latex", columns=ASKED, cite=True)]
    uses = r"\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{booktabs,longtable}"
    end = "\\bibliographystyle{plain}\\bibliography{refs}\\end{document}"
    text = "\n".join([r"\documentclass{article}", uses, r"\begin{document}", *body, end])
    (tmp_path / "a.tex").write_text(text, encoding="utf-8")
    (tmp_path / "refs.bib").write_text(render(many, "bibtex"), encoding="utf-8")
    for command in ("pdflatex -draftmode -halt-on-error a", "bibtex a", "pdflatex -draftmode -halt-on-error a"):
        made = subprocess.run([*command.split()], cwd=tmp_path, capture_output=True, text=True, errors="replace")
        assert made.returncode == 0, made.stdout[-2000:]
    assert "Warning" not in (tmp_path / "a.blg").read_text()


# figures


def test_accuracy_over_operations(section: Section) -> None:
    asked = replace(section, matched=True)
    (chart,) = [chart for of, chart in charts([asked]) if of is asked]
    assert [panel.column for panel in chart.panels] == ["Task-IL", "Domain-IL", "Class-IL"]
    (table,) = result_tables(section)
    for panel in chart.panels:
        for line in panel.lines:
            cell = table.at[line.label, panel.column]
            assert (line.x, line.values) == ([costs(cell.cell).flops], [cell.accuracy])
        rows = panel_table(chart, panel).rows
        assert [row[0] for row in rows] == [line.label for line in panel.lines]
    for kind in ("html", "markdown", "terminal"):
        assert "Accuracy and compute on split-mnist" in render([asked], kind, plain=True)
    assert charts([section]) == []


def test_fonts_are_embedded(section: Section, tmp_path: Path) -> None:
    """In PDF as TrueType, which journals ask for; in SVG text is drawn as paths, so that it needs no font."""
    (_, chart), *_ = charts([replace(section, matched=True)])
    for kind in ("pdf", "svg"):
        save_chart(chart, tmp_path / f"a.{kind}")
    pdf, svg = (tmp_path / "a.pdf").read_bytes(), (tmp_path / "a.svg").read_text()
    assert b"/Subtype /Type3" not in pdf
    assert pdf.count(b"/FontFile2") == pdf.count(b"/Type /FontDescriptor") > 0
    assert "<text" not in svg
    assert "<path" in svg


def test_the_bibtex_head_is_its_own() -> None:
    assert sum(head.startswith("% threefold report") for head in HEADS.values()) == 1
