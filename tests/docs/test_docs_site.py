"""The pages as a site: it builds without a warning, fetches nothing from elsewhere, and says what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
