"""The page in a real browser, which `make test` installs."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_sections import a_cell, a_result, a_table, budgets, grids, stream
from fake_training import a_tested_result, stability
from hostile import hostile_section
from page_reader import Page
from playwright.sync_api import Browser, sync_playwright
from real_browser import QUIET, browser

from threefold.experiments import Section
from threefold.report import render


def open_page(text: str, folder: Path) -> tuple[str, list[str]]:
    """The page as the browser understood it, and the addresses that the page asked for."""
    file, log = folder / "report.html", folder / "net.json"
    file.write_text(text, encoding="utf-8")
    command = [browser(), *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
    ran = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout, requested(log)


def requested(log: Path) -> list[str]:
    """The page's requests in the browser's log of its network: those of the browser's own services have no origin."""
    text = log.read_text()
    try:
        events = json.loads(text)["events"]
    except json.JSONDecodeError:  # the browser ended while it wrote
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    found = [event["params"] for event in events if "initiator" in (event.get("params") or {})]
    return [params["url"] for params in found if params["initiator"] != "not an origin"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, list[str]]:
    sections = [a_table(methods=["none", "ewc", "xdg", "dgr"], seeds=3), budgets(seeds=2), grids(seeds=2, decays=[1.0])]
    text = render([*sections, hostile_section()], "html")
    dom, addresses = open_page(text, tmp_path_factory.mktemp("browser"))
    return Page(dom), addresses


def test_tables_and_figures_are_there(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    assert page.count("table", "board") == 2
    assert page.count("a", "ours") == 10 + 4
    assert page.count("svg") > 3 * (10 + 4) + 3 + 6  # panels, and samples of lines in the legends
    assert page.count("img", "dreams") == 3
    assert page.count("polyline") > 100
    assert "How cells are judged" in page.texts


def test_nothing_is_fetched_from_outside(opened: tuple[Page, list[str]]) -> None:
    page, addresses = opened
    assert page.outside() == []
    assert page.count("script") == 0
    assert addresses == []


def test_a_page_that_fetches_would_be_caught(tmp_path: Path) -> None:
    _, addresses = open_page('<!doctype html><img src="https://evil.example/x.png">', tmp_path)
    assert addresses == ["https://evil.example/x.png"]


def training() -> list[Section]:
    """Every way in which what happens during training is drawn, long names, and cells that are judged differently."""
    flows = [
        a_tested_result("class", method, 40.0, iters=100, every=10, seeds=2, boundaries="blurred:width=25")
        for method in ("none", "er:budget=500,selection=reservoir")
    ]
    short = a_result(a_cell(stream(), "class", "ewc", iters=100), 30.0, seeds=5)
    return [stability(seeds=5), Section("mixed", "With ends and without", "table", [*flows, short], left=2)]


def overlapping(boxes: list[dict[str, float]]) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Pairs of words that cover each other by more than a hair."""
    return [
        (one, other)
        for one, other in itertools.combinations(boxes, 2)
        if min(one["right"], other["right"]) - max(one["left"], other["left"]) > 1
        and min(one["bottom"], other["bottom"]) - max(one["top"], other["top"]) > 3
    ]


TEXTS = "svg => [...svg.querySelectorAll('text')].map(t => t.getBoundingClientRect().toJSON())"
WIDTHS = {390: "phone", 700: "phone", 1280: "desk"}


@pytest.fixture(scope="module")
def drawn_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("training") / "report.html"
    file.write_text(render(training(), "html"), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser(), args=[*QUIET])
        yield opened
        opened.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_training_fits_and_can_be_read(width: int, chromium: Browser, drawn_training: Path) -> None:
    with chromium.new_page(viewport={"width": width, "height": 900}) as page:
        page.goto(drawn_training.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "folded"
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "unfolded"
        drawn = page.locator(".whole svg:visible")
        assert drawn.count() == 10 + 2
        for place in range(drawn.count()):
            svg = drawn.nth(place)
            assert svg.locator("xpath=..").get_attribute("class") == WIDTHS[width]
            box = svg.bounding_box()
            assert box
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            boxes = svg.evaluate(TEXTS)
            assert min(each["height"] for each in boxes) >= 9, "letters that can be read"
            assert all(each["left"] >= 0 and each["right"] <= width for each in boxes)
            assert overlapping(boxes) == []
        names = page.locator(".scroll td:first-child").first
        table = page.locator(".scroll").filter(has=page.locator("caption", has_text="Metrics of tests")).first
        table.evaluate("each => { each.scrollLeft = 200 }")
        assert names.bounding_box(), "the methods' names"
        left = table.locator("tbody td:first-child").first.bounding_box()
        place = table.bounding_box()
        assert left
        assert place
        assert left["x"] == pytest.approx(place["x"], abs=1), "names stay in sight when a table is moved"
