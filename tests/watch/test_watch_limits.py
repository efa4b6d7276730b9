"""Too many connections, slow ones, no file descriptors left: the server stays reachable, logs nothing, and recovers."""

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fake_sections import a_table
from watch_lab import ask, asked, keep, watching

from threefold.watch import server

PROGRAM = Path(sys.executable).parent / "threefold"
PATIENCE = 60.0
DESCRIPTORS = 22  # so few that even those who are to be refused take the last one
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("limits") / "some.db"
    keep(path, a_table(methods=["none"], seeds=2))
    return path


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def plain(address: str) -> Iterator[socket.socket]:
    """A connection that has said nothing yet."""
    where = urlsplit(address)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=PATIENCE) as connection:
        yield connection


def seconds_until_closed(connection: socket.socket, drip: bytes = b"") -> float:
    """How long the server keeps a connection that says this again and again, or nothing."""
    begun = time.monotonic()
    connection.settimeout(0.02)
    while time.monotonic() - begun < PATIENCE:
        with suppress(TimeoutError):
            try:
                connection.sendall(drip)
                if not connection.recv(1 << 20):
                    return time.monotonic() - begun
            except (ConnectionResetError, BrokenPipeError):
                return time.monotonic() - begun
    raise AssertionError("it was never closed")


def test_a_connection_that_does_not_say_what_it_wants_is_closed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIME", 0.5)
    with watching(store) as address:
        with plain(address) as silent:
            assert 0.3 < seconds_until_closed(silent) < 9
        with plain(address) as slow:
            slow.sendall(GET)
            assert 0.3 < seconds_until_closed(slow, drip=b"X") < 9
        with plain(address) as second:  # the second request of a connection is as slow
            second.sendall(GET + b"\r\n")
            assert second.recv(9) == b"HTTP/1.1 "
            assert 0.3 < seconds_until_closed(second, drip=b"X") < 9
        assert ask(address)[0] == 200


def test_who_watches_is_not_closed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIME", 0.2)
    with watching(store) as address, asked(address, "/events") as stream:
        assert stream.readline() == b"event: parts\n"
        signs = 0
        while signs < 2:  # there is a sign of life every second
            line = stream.readline()
            assert line, "it was closed"
            signs += line == b":\n"


def test_who_does_not_take_the_answer_is_dropped(store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "REQUEST_TIME", 0.2)
    monkeypatch.setattr(server, "ANSWER_TIME", 0.5)
    closed = []
    lost = server.Connection.connection_lost
    monkeypatch.setattr(server.Connection, "connection_lost", lambda c, e: (closed.append(1), lost(c, e)))
    monkeypatch.setattr("threefold.watch.app.style", lambda: "x" * (1 << 24))
    with watching(store) as address, plain(address) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(GET.replace(b"/ ", b"/page.css ", 1) + b"\r\n")
        wait_until(lambda: closed)


def test_beyond_the_limit_it_says_so_and_then_serves_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST", 3)
    with watching(store) as address:
        with ExitStack() as watchers:
            for _ in range(3):
                stream = watchers.enter_context(asked(address, "/events"))
                assert stream.status == 200
            for _ in range(5):
                assert ask(address)[0] == 503
        wait_until(lambda: ask(address)[0] == 200)  # it notices within a second that nobody watches any more


def test_the_limit_leaves_descriptors_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {256: 176, 1024: 944, 1 << 20: 1000, resource.RLIM_INFINITY: 1000, 20: 4}
    for soft, connections in limits.items():
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert server.most_connections() == connections


def cpu_seconds(process: "subprocess.Popen[str]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_at_its_file_limit_it_is_quiet_and_recovers(store: Path, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    log = tmp_path / "log"
    with log.open("w") as file, ExitStack() as closing_all:
        process = subprocess.Popen(
            [PROGRAM, "watch", "--store", store, "--port", "0"],
            preexec_fn=limited,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
        closing_all.callback(process.communicate)
        closing_all.callback(process.kill)
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        assert ask(found[0])[0] == 200
        with ExitStack() as sockets:
            for _ in range(3 * DESCRIPTORS):
                sockets.enter_context(plain(found[0]))
            wait_until(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) == DESCRIPTORS)
            before = cpu_seconds(process)
            time.sleep(2)
            assert cpu_seconds(process) - before < 1, "it does not try again and again"
        wait_until(lambda: _answers(found[0]))
    assert log.stat().st_size < 2000


def _answers(address: str) -> bool:
    with closing(HTTPConnection(urlsplit(address).netloc, timeout=5)) as connection:
        try:
            connection.request("GET", "/")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
