"""Access: this machine under its own host names, read-only; other machines with a token."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_sections import a_table
from hostile import NAME, hostile_section
from page_reader import Page
from watch_lab import ask, asked, keep, watching

ONLY_SCRIPT = ["script", "script src=watch.js"]
PATHS = ("/", "/events", "/page.css", "/watch.js", "/unfold/c0", "/nowhere")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guard") / "some.db"
    keep(path, a_table(methods=["none"], seeds=2))
    keep(path, hostile_section(NAME.replace(":", "")))  # a colon has a meaning in names of methods
    return path


@pytest.fixture(scope="module")
def address(store: Path) -> Iterator[str]:
    with watching(store) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(store: Path) -> Iterator[str]:
    with watching(store, token="a secret") as found:
        yield found


@pytest.mark.parametrize("path", PATHS)
def test_another_sites_name_is_not_served(address: str, path: str) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "192.168.0.7", "a b", ""):
        status, _, text = ask(address, path, Host=host)
        assert status in (400, 403), host
        assert "some.db" not in text


def test_names_of_this_machine_are(address: str) -> None:
    for host in ("localhost", "LOCALHOST:8303", "127.0.0.1", "127.0.0.1:1", "[::1]:8303"):
        assert ask(address, Host=host)[0] == 200, host


@pytest.mark.parametrize("path", PATHS)
def test_nothing_inline_may_run_and_nothing_outside_is_asked(address: str, path: str) -> None:
    with asked(address, path) as answer:
        headers = {name.lower(): value for name, value in answer.getheaders()}
    policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"


def test_it_can_only_be_read(address: str, store: Path) -> None:
    before = store.read_bytes()
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/", "/events", "/unfold/c0"):
            assert ask(address, path, method)[0] == 405
    ask(address)
    assert store.read_bytes() == before


def test_all_text_is_escaped(address: str) -> None:
    status, _, text = ask(address)
    assert status == 200
    page = Page(text)
    assert NAME in "".join(page.texts)
    assert sorted(page.outside()) == [*("link",) * 2, "link href=data:,", "link href=page.css", *ONLY_SCRIPT]
    assert [attrs for tag, attrs in page.elements if "style" in attrs or tag == "style"] == []
    for folded in re.findall(r'data-from="([^"]*)"', text):
        status, _, inside = ask(address, f"/{folded}")
        assert status == 200
        assert Page(inside).outside() == []


def test_without_the_token_nothing_is_told(guarded: str) -> None:
    for path in PATHS:
        for given in ("", "?token=", "?token=a+secre", "?token=wrong"):
            status, headers, text = ask(guarded, path + given)
            assert status == 403
            assert "set-cookie" not in headers
            assert "some.db" not in text
        assert ask(guarded, path, Cookie="threefold-token=wrong")[0] == 403


def test_the_token_becomes_a_cookie_that_opens_everything(guarded: str) -> None:
    status, headers, _ = ask(guarded, "/?token=a+secret")
    assert (status, headers["location"]) == (303, ".")
    assert "httponly" in headers["set-cookie"].lower()
    assert "samesite" in headers["set-cookie"].lower()
    cookie = headers["set-cookie"].partition(";")[0]
    assert "some.db" in ask(guarded, Cookie=cookie)[2]
    assert ask(guarded, "/page.css", Cookie=cookie)[0] == 200


def test_with_a_token_addresses_and_this_machines_name_are_served_too(guarded: str) -> None:
    for host in ("192.168.0.7:8303", socket.gethostname(), "localhost"):
        assert ask(guarded, "/?token=a+secret", Host=host)[0] == 303
    assert ask(guarded, "/?token=a+secret", Host="evil.example")[0] == 403
