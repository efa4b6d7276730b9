"""The pages as a site: it builds without a warning, fetches nothing from elsewhere, and says what the code does."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from playwright.sync_api import sync_playwright
from real_browser import QUIET, browser
from typer.core import TyperGroup

import threefold
from threefold.cli.app import app
from threefold.results import Summary, verdict
from threefold.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f'href="{page.stem}.html"' in start, page.name
    for page in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        assert f'href="notebooks/{page.stem}.html"' in start, page.name


def test_a_notebook_is_a_page_with_its_tables_and_figures(site: Path) -> None:
    page = (site / "notebooks" / "first-steps.html").read_text(encoding="utf-8")
    assert re.search(r'<div class="output">.*<td>Forgetting \(F\)</td><td>[\d.]+ ± [\d.]+</td>.*<svg', page, re.DOTALL)
    assert 'src="data:image/png;base64,' in page
    assert 'href="../which-scenario.html"' in page
    assert 'href="own-method.html"' in page
    assert (site / "notebooks" / "first-steps.ipynb").is_file()


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|link rel="(?:stylesheet|preload|icon)")[^>]*(?:src|href)="([^"]+)"', text)
        assert fetched, page.name
        assert not [each for each in fetched if each.startswith(("http", "//"))], page.name


def test_the_reference_has_signatures_and_docstrings(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "python.html").read_text(encoding="utf-8"))
    for said in ("evaluate_every", "Draw on", "by the paired t test", "A regularisation term"):
        assert said in text


def test_the_reference_has_everything_that_threefold_exports(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "python.html").read_text(encoding="utf-8"))
    headings = set(re.findall(r"threefold\.(\w+)[\s\w]*&para;", text))
    assert headings == set(threefold.__all__)


def test_no_page_is_wider_than_the_screen(site: Path) -> None:
    """Wide tables and lines of code scroll within themselves."""
    names = ("index", "reproduction", "gallery", "metrics", "python", "notebooks/first-steps")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser(), args=[*QUIET])
        for width in (390, 1280):
            page = opened.new_page(viewport={"width": width, "height": 900})
            for name in names:
                page.goto((site / f"{name}.html").as_uri())
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        table = page.goto((site / "index.html").as_uri()) and page.locator("table").nth(1)
        assert table
        assert table.evaluate("each => each.scrollWidth <= each.parentElement.clientWidth"), "Table 4 is seen whole"
        opened.close()


def test_the_first_page_is_short_and_looks_at_a_table_and_a_figure() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert "![" in text
    assert "per cent (mean ± SEM" in text


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md"])
def test_commands_on_pages_are_commands(page: str) -> None:
    """Their names, arguments and options are known; nothing is run."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("    threefold ")]
    assert len(lines) > 5
    for line in lines:
        _, name, *words = shlex.split(line, comments=True)
        command = root.commands[name]
        if isinstance(command, TyperGroup):
            command = command.commands[words.pop(0)]
        command.make_context(name, words)


def test_pictures_of_the_first_page_are_there(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    pictures = [each for each in re.findall(r'<img[^>]*src="([^"]+)"', start) if each.startswith("figures")]
    assert pictures
    assert all((site / each).is_file() for each in pictures)


def test_the_scenarios_are_as_the_page_says() -> None:
    text = (ROOT / "docs" / "which-scenario.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\S+-IL) \| (yes|no) \|.*`--scenario", text, re.MULTILINE))
    assert rows == {scenario.title: "yes" if scenario.task_known else "no" for scenario in SCENARIOS.values()}


def test_the_verdict_is_as_the_page_says() -> None:
    text = (ROOT / "docs" / "reading-a-verdict.md").read_text(encoding="utf-8")
    said = re.search(r"ours is ([\d.]+) ± ([\d.]+) and the published number ([\d.]+) ± (\d+\.\d+)", text)
    allowed = re.search(r"= ([\d.]+),", text)
    assert said is not None
    assert allowed is not None
    mean, sem, theirs, their_sem = map(float, said.groups())
    found = verdict(Summary(mean, sem, 20, ()), Summary(theirs, their_sem, 20, ()))
    assert str(found.outcome) == "agrees"
    assert found.allowed == pytest.approx(float(allowed[1]), abs=0.005)
