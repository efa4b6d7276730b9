"""The report's tables on a phone and a desk: none runs off the page, and the summary is seen whole."""

from pathlib import Path

from fake_sections import a_table, table_b1
from playwright.sync_api import sync_playwright
from real_browser import QUIET, browser

from threefold.experiments import Section
from threefold.report import render

LONG = [f"{name}:reduction={how},replayed_for=every" for name in ("lwf", "dgr-distill") for how in ("sum", "mean")]


def test_tables_stay_on_the_page(tmp_path: Path) -> None:
    named, hidden = a_table(of="permuted-mnist", name="table5", methods=LONG, seeds=2), table_b1(seeds=2)
    both = Section("readings", "Readings of the text", "table", [*named.results, *hidden.results])
    file = tmp_path / "report.html"
    file.write_text(render([both, hidden], "html"), encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser(), args=[*QUIET])
        for width in (390, 800, 1280):
            page = opened.new_page(viewport={"width": width, "height": 900})
            page.goto(file.as_uri())
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            summary = page.locator("table.summary")
            assert summary.evaluate("each => each.getBoundingClientRect().right <= innerWidth"), width
        board = page.locator("table.board").first
        assert board.evaluate("each => each.getBoundingClientRect().right <= innerWidth"), "with long names"
        opened.close()
