"""Terminal, Markdown, LaTeX and CSV."""

import csv
import io
import re
from dataclasses import replace

import pytest
from fake_sections import a_cell, a_result, a_table, budgets, grids, stream
from hostile import NAME, hostile_section
from rich.cells import cell_len

from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Result, Section
from threefold.report import FORMATS, latex, markdown, render
from threefold.report.tables import result_tables


@pytest.fixture(scope="module")
def table() -> Section:
    return a_table(seeds=5)


def rows_of(text: str) -> list[list[str]]:
    """The rows of every Markdown table."""
    split = [re.split(r"(?<!\\)\|", line) for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells[1:-1]] for cells in split]


def test_markdown_shows_ours_beside_the_published(table: Section) -> None:
    rows = rows_of(markdown.render([table]))
    board = result_tables(table)[0]
    header = ["Approach", "Method", "Task-IL", "published", "Domain-IL", "published", "Class-IL", "published"]
    assert rows[0] == header
    ewc = board.at["EWC", "Class-IL"]
    (row,) = [row for row in rows if row[1] == "EWC" and len(row) == len(header)]
    assert row[0] == "Regularization"
    assert row[6:] == [f"{ewc.accuracy.mean:.2f} ± {ewc.accuracy.sem:.2f} {ewc.symbol}", "20.01 ± 0.06"]
    (xdg,) = [row for row in rows if row[1] == "XdG" and len(row) == len(header)]
    assert xdg[4:] == ["–", "", "–", ""]


def test_every_cell_has_its_evidence(table: Section) -> None:
    rows = [row for row in rows_of(markdown.render([table])) if len(row) == 10]
    assert len(rows) == len(table.results) + 2  # the header and the rule below it
    for row in rows[2:]:
        assert re.fullmatch(r"[+−]\d+\.\d\d \\\[[+−]\d+\.\d\d, [+−]\d+\.\d\d\\\]", row[7]), row
        assert row[9] in ("✓ agrees", "✗ differs", "? too few seeds to tell")


def test_a_cell_that_was_not_run_is_no_dash() -> None:
    results = [a_result(a_cell(stream(), scenario, "none"), 50.0) for scenario in ("task", "class")]
    results.append(a_result(a_cell(stream(), "task", "ewc"), 50.0))
    text = markdown.render([Section("mine", "Mine", "table", results, left=3)])
    (ewc,) = [row for row in rows_of(text) if row[1] == "EWC" and len(row) == 6]
    assert (ewc[0], ewc[4], ewc[5]) == ("Regularization", "…", "")
    assert "… not run" in text
    assert "3 runs still to be trained" in text


@pytest.fixture(scope="module")
def made() -> list[Section]:
    return [a_table(seeds=3), budgets(seeds=2), grids(seeds=2, decays=[0.8, 1.0])]


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_needs_no_data(name: str, made: list[Section]) -> None:
    """Cells that were read back from a store know the name of their data only."""
    again = []
    for section in made:
        results = [Result(Cell.of_description(r.cell.described()), r.records) for r in section.results]
        refused = [(Cell.of_description(cell.described()), reason) for cell, reason in section.refused]
        again.append(replace(section, results=results, refused=refused))
    first, second = (re.sub(r"Written by .*", "", render(each, name)) for each in (made, again))
    assert first == second


def test_a_shortened_experiment_says_so() -> None:
    section = replace(a_table(methods=["none"], seeds=2, iters=40), shortened=["40 of 2000 iterations per task"])
    assert "Shortened: 40 of 2000 iterations per task." in markdown.render([section])
    assert "Shortened" not in markdown.render([a_table(methods=["none"], seeds=2)])


def test_remarks_use_the_names_of_the_table() -> None:
    section = replace(a_table(methods=["lwf:reduction=mean"], seeds=2), notes={"lwf:reduction=mean": "Averaged."})
    assert "- LwF (reduction=mean): Averaged." in markdown.render([section])


def test_nothing_yet() -> None:
    for name in FORMATS:
        text = render([Section("mine", "Mine", "table", [], left=3)], name)
        assert name in ("csv", "json", "bibtex") or "No run of this experiment is finished yet." in text


def test_an_unknown_format_is_a_sentence() -> None:
    with pytest.raises(ThreefoldError, match="format 'htm' is not known; did you mean 'html'"):
        render([], "htm")


@pytest.mark.parametrize("name", ["markdown", "latex"])
def test_budgets_and_grids_are_tables_too(name: str) -> None:
    text = render([budgets(seeds=3), grids(seeds=2, decays=[0.8])], name)
    assert "stored data in execution" in text
    assert "5000" in text
    assert "Ours selects" in text
    assert "diverged" in text  # one cell of the grid


def test_latex_is_balanced(table: Section) -> None:
    text = latex.render([table, budgets(seeds=3), grids(seeds=2), hostile_section()])
    for kind in ("table", "tabular", "longtable", "itemize"):
        assert text.count(rf"\begin{{{kind}}}") == text.count(rf"\end{{{kind}}}")
    plain = re.sub(r"\\[{}\\]", "", text)
    assert plain.count("{") == plain.count("}")
    for columns, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        for line in re.findall(r"^(.*) \\\\", body, flags=re.MULTILINE):
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1, line


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("50% & 3_2 #1 $x$ {y}", r"50\% \& 3\_2 \#1 \$x\$ \{y\}"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("1 ± 2 ✓", r"1 $\pm$ 2 $\surd$"),
        ("naïve 学 \x1b", "naïve U+5B66 U+001B"),
        ("a\nb", "a b"),
    ],
)
def test_latex_escapes(text: str, escaped: str) -> None:
    assert latex.escape(text) == escaped


def test_csv_is_exact(table: Section) -> None:
    rows = list(csv.DictReader(io.StringIO(render([table], "csv"))))
    assert len(rows) == len(table.results) + len(table.refused)
    for row, result in zip(rows, table.results, strict=False):
        assert float(row["mean"]) == result.accuracy.mean
        assert tuple(map(float, row["per_seed"].split())) == result.accuracy.per_seed
        assert result.verdict
        assert float(row["difference_low"]) == result.verdict.difference.low
        assert row["verdict"] == str(result.verdict.outcome)
        assert row["selected"] == "oracle"
    assert "task must be given" in rows[-4]["refused"]


def test_csv_leaves_what_does_not_exist_empty() -> None:
    cell = a_cell(stream(), "task", "er")
    (row,) = csv.DictReader(io.StringIO(render([Section("a", "A", "table", [a_result(cell, 50.0, seeds=1)])], "csv")))
    assert (row["sem"], row["published_mean"], row["difference"]) == ("", "", "")


OTHER_WAYS = [("ewc", {"iters": 5}, "full length"), ("ewc:strength=3", {}, "paper's settings")]


@pytest.mark.parametrize(("method", "settings", "mark"), OTHER_WAYS)
def test_a_published_number_is_a_cells_own_only_where_it_was_trained_so(
    method: str, settings: dict[str, object], mark: str
) -> None:
    """87.19 beside two tasks and five iterations would be read as what these should have come to."""
    result = a_result(a_cell(stream(), "class", method, **settings), 20.0)
    section = Section("a", "A", "table", [result])
    (row,) = csv.DictReader(io.StringIO(render([section], "csv")))
    assert [row[f"published_{name}"] for name in ("mean", "sem", "n")] == ["", "", ""]
    assert (result.to_json()["published"], result.published) == (None, None)
    for kind in ("markdown", "latex", "html"):
        text = render([section], kind)
        after = [text[found.end() : found.end() + 60] for found in re.finditer(r"20\.01", text)]
        assert len(after) >= 2, "in the table, and among the reasons"
        assert all(mark.split()[-1] in each for each in after), (kind, after)
    assert "published</text>" not in render([section], "html"), "nor is it drawn beside the seeds"
    again = render([Section("a", "A", "table", [a_result(a_cell(stream(), "class", "ewc"), 20.0)])], "html")
    assert "published</text>" in again
    assert mark not in again


def test_no_name_is_mark_up() -> None:
    section = hostile_section()
    text = markdown.render([section])
    assert "<script" not in text
    assert {len(row) for row in rows_of(text)} == {5, 8, 10}  # the table, the metrics, the evidence
    tex = latex.render([section])
    assert r"\input" not in tex
    assert "$x^2$" not in tex
    assert NAME in {
        row["stream"].removeprefix("split-") for row in csv.DictReader(io.StringIO(render([section], "csv")))
    }
    assert "\x1b" not in render([section], "terminal", plain=True)


def test_a_spreadsheet_computes_nothing() -> None:
    text = render([hostile_section(method="=HYPERLINK(1)")], "csv")
    assert all(not row["method"].startswith("=") for row in csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(("narrow", "width"), [(False, 120), (True, 80)])
def test_the_terminals_tables_fit(table: Section, narrow: bool, width: int) -> None:
    from rich.console import Console

    from threefold.report import terminal

    console = Console(width=width, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(terminal.render([table], narrow=narrow))
    lines = captured.get().splitlines()
    assert max(map(cell_len, lines)) <= width
    assert not any("…" in line for line in lines)
    (dgr,) = [line for line in lines if re.match(r"│ DGR  ", line) and ("90.79" in line or "✓" in line)][:1]
    mean = result_tables(table)[0].at["DGR", "Class-IL"].accuracy.mean
    assert f"{mean:.2f} ±" in dgr  # not broken over lines
