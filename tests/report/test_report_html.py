"""The page, read as text."""

import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from fake_sections import a_cell, a_result, a_table, everything, stream
from hostile import NAME, REASON, hostile_section
from page_reader import Page
from PIL import Image

from threefold.experiments import Result, Section
from threefold.report import html
from threefold.report.figures import mosaic, pictures
from threefold.report.svg import picture
from threefold.report.tables import result_tables


@pytest.fixture(scope="module")
def sections() -> list[Section]:
    return everything()


@pytest.fixture(scope="module")
def text(sections: list[Section]) -> str:
    return html.render(sections)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_a_full_report_is_of_sensible_size(text: str) -> None:
    assert len(text.encode()) < 3_000_000


def test_nothing_is_fetched_or_run(page: Page, text: str) -> None:
    assert page.outside() == []
    assert "default-src 'none'" in text


def test_names_are_unique_and_links_lead_somewhere(page: Page) -> None:
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_every_cell_has_its_number_verdict_and_detail(page: Page, text: str, sections: list[Section]) -> None:
    tables = [section for section in sections if section.kind == "table"]
    cells = [e for section in tables for board in result_tables(section) for e in board.cells]
    assert page.count("a", "ours") == len(cells)
    assert page.count("div", "cell") == len(cells)
    assert page.count("a", "dash") == sum(len(section.refused) for section in tables)
    for found in cells:
        assert f"{found.accuracy.mean:.2f} <small>± {found.accuracy.sem:.2f}</small>" in text
    assert text.count("✗ differs</span>") == 2 * sum(e.judgement == "differs" for e in cells)  # table and detail


def test_figures_are_present(page: Page, sections: list[Section]) -> None:
    cells = sum(len(section.results) for section in sections if section.kind == "table")
    pictures = [attrs for tag, attrs in page.elements if tag == "svg" and attrs.get("role") == "img"]
    panels = 3 + 3 + 10 + 10 + 1  # the last: how far all numbers are from the published ones
    assert len(pictures) == 3 * cells + panels
    assert page.count("img", "dreams") == 6 + 6 + 4


def test_a_dash_leads_to_its_reason(text: str) -> None:
    (name,) = set(re.findall(r'data-column="Class-IL"><a class="dash" href="#(c\w+)"', text.split('id="e1"')[0]))
    assert re.search(rf'<li id="{name}">– XdG, Class-IL: XdG chooses its gates by the task', text)


def test_pairs_are_shown_with_their_test_interval_effect_and_seeds(sections: list[Section], text: str) -> None:
    """By hand: EWC and SI of the first table's Domain-IL."""
    assert "Paired t test at 5% over the seeds that both methods have, Holm&#39;s correction over the pairs" in text
    results = {r.cell.method.name: r for r in sections[0].results if r.cell.scenario.name == "domain"}
    differences = np.subtract(results["ewc"].accuracy.per_seed, results["si"].accuracy.per_seed)
    mean, deviation = differences.mean(), differences.std(ddof=1)
    reach = 2.09302 * deviation / 20**0.5  # 19 degrees of freedom
    shown = [f"{value:+.2f}".replace("-", "−") for value in (mean, mean - reach, mean + reach, mean / deviation)]
    cells = ["EWC", "SI", f"{shown[0]} [{shown[1]}, {shown[2]}]", shown[3], "20"]
    row = r"\s*".join(rf"<td[^>]*>{re.escape(cell)}</td>" for cell in cells)
    assert re.search(row, text)


def test_low_numbers_and_selection_are_explained(text: str) -> None:
    assert "low, as published" in text
    assert "methods that only regularise fail when the task must be inferred" in text
    assert "selected: oracle" in text
    assert "test sets of all tasks" in text


def test_where_and_for_how_long(text: str) -> None:
    places = text.split('id="places"')[1]
    assert "NVIDIA H200" in places
    assert "of machine time (fp32), from 2026-03-01 12:00 UTC to 2026-03-03 12:00 UTC" in places


def test_hostile_names_are_text() -> None:
    text = html.render([hostile_section()])
    page = Page(text)
    assert page.outside() == []
    assert page.count("script") == 0
    words = "".join(page.texts)
    assert NAME in words
    assert REASON in words


def test_curves_are_safe_from_hostile_names_too() -> None:
    section = hostile_section()
    for kind in ("budgets", "grids"):
        made = Section(NAME, NAME, kind, section.results, section.refused)
        assert Page(html.render([made])).outside() == []


def test_diverged_and_single_seeds_have_their_place() -> None:
    results = [
        a_result(a_cell(stream(), "task", "ewc"), 90.0, seeds=3, diverged=[2]),
        a_result(a_cell(stream(), "task", "si"), 90.0, seeds=1, diverged=[1]),
        a_result(a_cell(stream(), "task", "none"), 90.0, seeds=1),
    ]
    text = html.render([Section("a", "A", "table", results, left=4)])
    Page(text)
    assert "nan" not in re.sub(r"<style>.*?</style>|explanation", "", text, flags=re.DOTALL)
    assert "1 of 3 seeds diverged (2)" in text
    assert "4 runs" in text


def test_nothing_yet_is_a_page() -> None:
    assert "No run of this experiment is finished yet." in html.render([Section("a", "A", "table", [], left=1)])
    Page(html.render([]))


def test_a_picture_holds_its_pixels() -> None:
    found = result_tables(a_table(methods=["dgr"], seeds=2))[0].cells[0]
    images = pictures(found, "dreams")
    assert images is not None
    assert images.shape == (5, 8, 28, 28)
    address = picture(mosaic(images))
    pixels = np.asarray(Image.open(BytesIO(b64decode(address.partition(",")[2]))).convert("L"))
    assert np.array_equal(pixels // 17, mosaic(images) // 16)  # sixteen shades are enough to look at
    assert np.array_equal(pixels[29:57, 58:86] // 17, images[1, 2] // 16)


def test_a_picture_in_colour_holds_its_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 32, 32, 3), dtype=np.uint8)
    picture_shown = Image.open(BytesIO(b64decode(picture(mosaic(images)).partition(",")[2])))
    assert (picture_shown.mode, picture_shown.size) == ("RGB", (8 * 33 - 1, 5 * 33 - 1))
    for task, image in np.ndindex(5, 8):
        down, across = 33 * task, 33 * image
        assert np.array_equal(np.asarray(picture_shown)[down : down + 32, across : across + 32], images[task, image])


def test_a_published_number_is_counted_once_and_the_papers_own_experiment_decides() -> None:
    def lwf(reduction: str, mean: float) -> Result:
        return a_result(a_cell(stream(), "class", f"lwf:reduction={reduction}"), mean, 0.5, 20)

    none = a_result(a_cell(stream(), "class", "none"), 19.9, 0.05, 20)
    readings = Section("readings", "Readings", "table", [lwf("sum", 20.2), none])
    table = Section("table4", "Table 4", "table", [lwf("mean", 24.0), none])
    for sections in ([table, readings], [readings, table]):
        assert "Of 2 published numbers measured here, 2 agree." in html.render(sections)
    assert "Of 2 published numbers measured here, 1 agrees." in html.render([readings])
