"""The live page in a real browser, beside a real run."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_sections import a_table
from fake_training import stability
from playwright.sync_api import Browser, Page, expect, sync_playwright
from real_browser import QUIET, browser
from tiny_lab import write_npz
from watch_lab import PATIENCE, keep, watching

from threefold.results import Store

PROGRAM = Path(sys.executable).parent / "threefold"
COMMANDS = """
import sys
from threefold.cli import main

for words in {commands}:
    sys.argv = ["threefold", *words]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended
"""
RUN = ["run", "split", "--data", "tiny.npz", "--tasks", "3", "--hidden", "8", "--batch", "16", "--seeds", "2"]
RUN += ["--device", "cpu", "--store", "live.db", "--scenario", "class"]
SHORT = [*RUN, "--iters", "20", "--method", "none", "--method", "ewc", "--method", "xdg"]
ENDLESS = [*RUN, "--iters", "20000", "--method", "dgr"]
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser(), args=[*QUIET])
        yield opened
        opened.close()


@contextmanager
def visiting(chromium: Browser, address: str, **settings: object) -> Iterator[Page]:
    """The page, which must not complain, nor ask anyone else."""
    context = chromium.new_context(**settings)  # type: ignore[arg-type]
    page, complaints, requests = context.new_page(), [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    yield page
    assert complaints == []
    assert requests
    assert [url for url in requests if not url.startswith((address.partition("#")[0], "data:"))] == []
    context.close()


def without_store(words: list[str]) -> str:
    place = words.index("--store")
    return " ".join([*words[:place], *words[place + 2 :]])


@contextmanager
def started(folder: Path, *words: object) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=folder, env=environment, **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_run_starts_the_table_fills_a_cell_opens_and_the_run_is_killed(chromium: Browser, tmp_path: Path) -> None:
    write_npz(tmp_path / "tiny.npz", classes=6)
    script = COMMANDS.format(commands=[SHORT, ENDLESS])  # in one process, which takes seconds to start
    with watching(tmp_path / "live.db") as address, visiting(chromium, address) as page:
        now, running = page.locator("#now"), page.locator(".cohort:not(.killed)")
        expect(now).to_contain_text("There is no store")
        with started(tmp_path, sys.executable, "-c", script) as process:
            expect(page.locator("h2", has_text="split-tiny, 20 iterations")).to_be_visible()
            expect(page.locator("a.ours")).to_have_count(2)
            expect(page.locator("a.dash")).to_have_text("–")
            page.locator("a.ours").first.click()
            cell = page.locator(".cell", has_text="Accuracy of each seed")
            expect(cell.locator("svg")).to_have_count(3)
            cell.locator("summary", has_text="Spec").click()
            expect(cell.locator("pre")).to_contain_text('"iters": 20')
            expect(cell).to_contain_text(f"Made again by threefold {without_store(SHORT)}")
            expect(page.locator("h2", has_text="split-tiny, 20000 iterations")).to_be_visible()
            expect(page.locator("span.dash")).to_have_text("…")
            expect(running).to_contain_text("split-tiny Class-IL dgr ×2")
            expect(running).to_contain_text("task 1 of 3")
            expect(running).to_contain_text(re.compile(r"[\d.]+ steps per second\s*about .* left"))
            process.send_signal(signal.SIGKILL)
            killed = page.locator(".cohort.killed")
            expect(killed).to_contain_text(re.compile(r"✗ Killed in task 1 of 3, after \d+% of the steps"))
            expect(killed).to_contain_text(f"process {process.pid} on")
        expect(now).to_contain_text("Nothing is running.")
        expect(now).to_contain_text(f"2 runs left, time not known yet. threefold {without_store(ENDLESS)}")
        expect(cell.locator("pre")).to_be_visible()  # what the reader opened stays open


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "some.db"
    keep(path, a_table(methods=["none", "xdg", "dgr"], seeds=3))
    return path


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_a_desk_by_day_and_by_night(
    chromium: Browser, store: Path, width: int, scheme: str
) -> None:
    with (
        watching(store) as address,
        visiting(chromium, address, viewport={"width": width, "height": 900}, color_scheme=scheme) as page,
    ):
        expect(page.locator("a.ours")).to_have_count(7)
        page.locator("summary", has_text="Forgetting curves").click()
        expect(page.locator(".cards.later > div")).to_have_count(7)
        page.locator("summary", has_text="DGR").last.click()
        picture = page.locator("img.dreams")
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.complete && image.naturalWidth") == 8 * 29 - 1
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] > 128")
        assert light == (scheme == "light")


@pytest.mark.parametrize("width", [390, 1280])
def test_accuracy_during_training_is_drawn_across_the_page(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory, width: int
) -> None:
    path = tmp_path_factory.mktemp("training") / "some.db"
    keep(path, stability(seeds=2, iters=200))
    with watching(path) as address, visiting(chromium, address, viewport={"width": width, "height": 900}) as page:
        page.locator("summary", has_text="ER (budget=1000)").first.click()
        drawn = page.locator(".whole svg:visible")
        expect(drawn).to_have_count(1)
        expect(drawn).to_contain_text("steps of training")
        expect(page.locator(".whole")).to_contain_text("Rings: the lowest point of a gap that is made up later.")
        box = drawn.bounding_box()
        assert box
        assert 0.8 * width < box["width"] <= width
        page.locator("summary", has_text="All metrics").click()
        expect(page.locator("caption", has_text="Metrics of tests during training")).to_be_visible()
        expect(page.locator("h3", has_text="After a switch of tasks")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_opens_its_cell_and_it_stays_open_when_more_runs_come(chromium: Browser, tmp_path: Path) -> None:
    path, section = tmp_path / "some.db", a_table(methods=["none", "ewc"], seeds=3)
    keep(path, section, results=False)
    with Store(path) as opened:
        opened.add(section.results[0].records[:2])
    with watching(path) as address, visiting(chromium, address) as page:
        page.locator("a.ours").click()
        cell = page.locator(".cell")
        expect(cell).to_contain_text("over 2 seeds")
        with Store(path) as opened:
            opened.add(record for result in section.results for record in result.records)
        expect(page.locator("a.ours")).to_have_count(6)
        expect(cell.first).to_contain_text("over 3 seeds")
        with visiting(chromium, page.url) as other:  # the address leads to the cell
            expect(other.locator("details[open] .cell")).to_contain_text("over 3 seeds")


def test_when_the_watcher_is_gone_the_page_says_so(chromium: Browser, store: Path) -> None:
    context = chromium.new_context()
    page = context.new_page()
    with watching(store) as address:
        page.goto(address)
        expect(page.locator("#now")).to_contain_text("Nothing is running")
        expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("a.ours")).to_have_count(7)
    context.close()


def test_the_command_tells_its_address_and_ends_while_somebody_watches(store: Path) -> None:
    with started(store.parent, PROGRAM, "watch", "--store", store.name, "--port", "0") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.fullmatch(r"some\.db: (http://127\.0\.0\.1:\d+/) until you press Ctrl-C\n", said)
        assert found, said
        connection = HTTPConnection(urlsplit(found[1]).netloc, timeout=PATIENCE)
        connection.request("GET", "/events")
        assert connection.getresponse().readline() == b"event: parts\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        connection.close()
    assert (process.returncode, out, err) == (130, "", "threefold: stopped.\n")
