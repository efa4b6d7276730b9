"""A live page for tests: its server in a thread, on a store of made-up runs."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from threefold.engine import Progress
from threefold.experiments import Asked, Request, Section
from threefold.results import Store
from threefold.watch.app import application
from threefold.watch.server import Server

PATIENCE = 60.0


def keep(path: Path, section: Section, *, results: bool = True) -> None:
    """A section in a store: what was asked for, and its runs."""
    with Store(path) as store:
        Request(
            section.name,
            section.title,
            [Asked(result.cell, tuple(section.results[0].seeds)) for result in section.results],
            section.refused,
            kind=section.kind,
            selected=section.selected,
            notes=section.notes,
            command=section.command,
        ).remember(store)
        if results:
            store.add(record for result in section.results for record in result.records)


@contextmanager
def watching(store: Path, token: str | None = None) -> Iterator[str]:
    """The page's address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(application(store, token, lambda: server.should_exit))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextmanager
def asked(address: str, path: str = "/", method: str = "GET", **headers: str) -> Iterator[HTTPResponse]:
    """An answer, while it may still be coming."""
    port = int(address.rstrip("/").rpartition(":")[2])
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request(method, path, headers=headers)
        yield connection.getresponse()


def ask(address: str, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    with asked(address, path, method, **headers) as answer:
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def events(answer: HTTPResponse, wanted: int) -> list[tuple[str, Any]]:
    """The first events of a stream."""
    found: list[tuple[str, Any]] = []
    kind = ""
    deadline = time.monotonic() + PATIENCE
    while len(found) < wanted and time.monotonic() < deadline:
        line = answer.readline().decode().rstrip("\n")
        name, _, rest = line.partition(": ")
        if name == "event":
            kind = rest
        elif name == "data":
            found.append((kind, json.loads(rest)))
    return found


def stale_lock(
    store: Path, name: str, title: str, progress: Progress | None, when: float = 0.0, machine: str = "m"
) -> Path:
    """What a process that was killed leaves behind. Its name is one hexadecimal digit, over and over."""
    folder = Path(f"{store}.checkpoints")
    folder.mkdir(exist_ok=True)
    lock = folder / f"{name * 32}.lock"
    cohort = {"title": title, "time": when, "progress": vars(progress) if progress else None}
    lock.write_text(json.dumps({"process": 77, "machine": machine, "cohorts": {"a": cohort}}))
    return lock


def names(parts: Sequence[tuple[str, Any]]) -> list[str]:
    return [data["name"] for kind, data in parts if kind == "part"]
