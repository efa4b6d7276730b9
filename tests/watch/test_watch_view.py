"""What the page shows of a store and its lock files, and which events it sends when they change."""

import fcntl
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_sections import a_table, grids
from page_reader import Page
from watch_lab import ask, asked, events, keep, names, stale_lock, watching

from threefold.engine import Progress
from threefold.experiments import Section, sections
from threefold.report import html
from threefold.results import Store
from threefold.results.cohort_table import claim, give_up
from threefold.watch.progress import Pace
from threefold.watch.view import View

TITLE = "split-mnist Class-IL ewc ×20"
PROGRESS = Progress(step=300, steps=1000, task=1, tasks=5, accuracy=97.25)


@pytest.fixture
def section() -> Section:
    return a_table(methods=["none", "xdg", "dgr"], seeds=3)


@pytest.fixture
def store(tmp_path: Path, section: Section) -> Path:
    path = tmp_path / "some.db"
    keep(path, section)
    return path


def words(parts: dict[str, str], name: str) -> str:
    return " ".join(" ".join(Page(parts[name]).texts).split())


def test_tables_are_those_of_the_report(store: Path) -> None:
    parts = View(store).look()
    with Store(store, readonly=True) as opened:
        report = html.render(sections(opened))
    assert list(parts) == ["now", "summary", "e0", "closing"]
    board = parts["e0"][parts["e0"].index("<table") : parts["e0"].index("</table>")]
    assert board in report
    assert parts["summary"] in report
    assert parts["closing"] in report


def test_a_cell_unfolds_to_all_that_the_report_has(store: Path) -> None:
    view = View(store)
    page = Page(view.look()["e0"])
    found = [attrs["data-from"] for tag, attrs in page.elements if tag == "details" and "data-from" in attrs]
    assert len(found) == 3 + 3 + 1 + 1  # none, dgr, xdg, and the forgetting curves
    inside = [view.unfold(name.removeprefix("unfold/")) for name in found]
    curves, *cells = [text or "" for text in inside]
    assert curves.count("<svg") == 7
    for text in cells:
        texts = " ".join(Page(text).texts)
        assert "Accuracy of each seed: 1: " in texts
        assert "Accuracy matrix" in texts
        assert '"fingerprint"' in texts or '"data":' in texts
        assert "threefold run split-mnist --scenario" in texts
    assert sum("What the generator dreams" in text for text in cells) == 3
    assert view.unfold("c0") is None


def test_cells_to_come_have_their_place(tmp_path: Path, section: Section) -> None:
    path = tmp_path / "some.db"
    keep(path, section, results=False)
    view = View(path)
    parts = view.look()
    assert parts["e0"].count("…</span>") == 7
    assert "Nothing is running" in parts["now"]
    assert "21 runs left, time not known yet" in words(parts, "now")
    with Store(path) as opened:
        opened.add(section.results[0].records)
    parts = view.look()
    assert parts["e0"].count("…</span>") == 6
    assert parts["e0"].count('class="ours"') == 1
    assert "18 runs left, about" in words(parts, "now")


def test_no_store_yet_then_one_then_another(tmp_path: Path, section: Section) -> None:
    path = tmp_path / "some.db"
    view = View(path)
    assert list(view.look()) == ["now"]
    assert "There is no store" in view.look()["now"]
    keep(path, section)
    assert "All that was asked for is done." in words(view.look(), "now")
    other = tmp_path / "other.db"
    keep(other, a_table(methods=["ewc"], seeds=2))
    other.replace(path)
    assert "6 runs" in words(view.look(), "summary")


def test_a_store_that_cannot_be_read_is_told_and_the_rest_stays(store: Path) -> None:
    view = View(store)
    before = view.look()
    store.write_bytes(b"not a database at all, but long enough to be looked at as one" * 20)
    after = view.look()
    assert "is not a database" in after["now"]
    assert after["e0"] == before["e0"]


def test_what_runs_how_fast_and_how_long(store: Path, section: Section) -> None:
    keep(store, a_table("table5", "permuted-mnist", methods=["none"], seeds=2), results=False)
    now = time.time()
    lock = stale_lock(store, "a", TITLE, PROGRESS, now - 4, "<b>here</b>")
    view = View(store)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "steps per second not known yet" in words(view.look(), "now")
        stale_lock(store, "a", TITLE, replace(PROGRESS, step=500), now, "<b>here</b>")
        text = words(view.look(), "now")
    assert "split-mnist Class-IL ewc ×20" in text
    assert "task 2 of 5" in text
    assert "50% of the steps 50 steps per second about 10 s left 97.2% so far process 77 on <b>here</b>" in text
    killed = words(view.look(), "now")
    assert "✗ Killed in task 2 of 5, after 50% of the steps: process 77 on <b>here</b> is gone" in killed
    assert "Nothing is running." in killed


def test_a_lock_left_behind_is_no_news_once_everything_is_done(store: Path) -> None:
    stale_lock(store, "a", TITLE, PROGRESS)
    assert "Killed" not in View(store).look()["now"]


def test_a_process_that_says_nothing_is_told_of(tmp_path: Path) -> None:
    lock = stale_lock(tmp_path / "some.db", "a", TITLE, PROGRESS, 100.0)
    begun = stale_lock(tmp_path / "some.db", "b", TITLE, None, 185.0)
    with lock.open() as held, begun.open() as also:
        fcntl.flock(held, fcntl.LOCK_EX)
        fcntl.flock(also, fcntl.LOCK_EX)
        first, second = Pace(Path(f"{tmp_path / 'some.db'}.checkpoints")).look(now=190.0)
    assert first.silent == "no word for 2 min"
    assert (second.note.progress, second.note.alive, second.silent) == (None, True, "")


def test_a_run_that_goes_on_from_its_last_task_is_measured_anew(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    pace = Pace(Path(f"{path}.checkpoints"))
    rates = []
    for step, when in ((100, 1.0), (300, 2.0), (200, 50.0), (210, 51.0), (210, 51.0)):
        stale_lock(path, "a", TITLE, replace(PROGRESS, step=step), when)
        rates.append(pace.look(when)[0].rate)
    assert rates == [None, 200.0, None, 10.0, 10.0]


def test_a_note_that_cannot_be_read_is_told_and_the_others_are_shown(store: Path) -> None:
    keep(store, a_table("table5", "permuted-mnist", methods=["none"], seeds=2), results=False)
    good, bad = (stale_lock(store, name, TITLE, PROGRESS, time.time()) for name in "ab")
    bad.write_bytes(b"[" * 100_000)
    with good.open() as held, bad.open() as also:
        fcntl.flock(held, fcntl.LOCK_EX)
        fcntl.flock(also, fcntl.LOCK_EX)
        text = words(View(store).look(), "now")
    assert f"{TITLE} task 2 of 5" in text
    assert "a cohort whose progress note cannot be read" in text


def test_changes_are_sent_and_nothing_else(tmp_path: Path, section: Section) -> None:
    path = tmp_path / "some.db"
    keep(path, section, results=False)
    with watching(path) as address, asked(address, "/events") as stream:
        assert stream.getheader("content-type", "").startswith("text/event-stream")
        first = events(stream, 5)
        assert first[0] == ("parts", ["now", "summary", "e0", "closing"])
        assert names(first) == ["now", "summary", "e0", "closing"]
        with Store(path) as opened:
            opened.add(section.results[0].records)
        assert names(events(stream, 4)) == ["now", "summary", "e0", "closing"]
        keep(path, grids(seeds=1, decays=[1.0]), results=False)
        again = events(stream, 4)
        assert again[0] == ("parts", ["now", "summary", "e0", "e1", "closing"])
        assert names(again) == ["now", "summary", "e1"]
        status, _, text = ask(address)
        digests = {attrs["id"]: attrs["data-digest"] for tag, attrs in Page(text).elements if "data-digest" in attrs}
        sent = {data["name"]: data["digest"] for kind, data in [*first, *again] if kind == "part"}
        assert (status, digests["e1"]) == (200, sent["e1"])


def test_a_cohort_that_was_given_up_is_told_until_its_runs_are_there(tmp_path: Path, section: Section) -> None:
    path = tmp_path / "some.db"
    keep(path, section, results=False)
    records = section.results[0].records
    reason = "3 times, at last by <b>a node that died</b>"
    with Store(path) as opened:
        claim(opened, "abc", "split-mnist Task-IL none ×3", [r.key for r in records], "me", lambda owner: False)
        give_up(opened, "abc", reason)
    view = View(path)
    now = view.look()["now"]
    assert "Given up" in now
    assert "&lt;b&gt;a node that died" in now
    with Store(path) as opened:
        opened.add(records)
    assert "Given up" not in view.look()["now"]
