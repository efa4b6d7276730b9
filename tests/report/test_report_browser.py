"""The page in a real browser, which `make test` installs."""

import json
import subprocess
from pathlib import Path

import pytest
from fake_sections import a_table, budgets, grids
from hostile import hostile_section
from page_reader import Page
from real_browser import QUIET, browser

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
