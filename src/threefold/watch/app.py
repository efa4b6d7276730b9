"""The live page's web application."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from threefold.report.html import style, templates
from threefold.watch.auth import Access
from threefold.watch.view import View

BEAT = 1.0  # seconds between two reads of the store


def application(store: Path, token: str | None, stopping: Callable[[], bool]) -> Access:
    """The routes: the page, its parts as they change, and what is fetched when a cell is opened."""
    latest = _Latest(View(store))

    async def page(request: Request) -> Response:
        parts = await latest.parts()
        return HTMLResponse(
            templates.get_template("watch/page.html").render(
                store=store, parts=[(name, digest(html), html) for name, html in parts.items()]
            )
        )

    async def events(request: Request) -> Response:
        return StreamingResponse(_changes(latest, stopping), media_type="text/event-stream")

    async def later(request: Request) -> Response:
        """The content of a part that was opened."""
        html = await latest.unfold(request.path_params["name"])
        return PlainTextResponse("Not there.\n", 404) if html is None else HTMLResponse(html)

    async def css(request: Request) -> Response:
        return Response(style() + _file("watch.css"), media_type="text/css")

    async def script(request: Request) -> Response:
        return Response(_file("watch.js"), media_type="text/javascript")

    routes = [
        Route("/", page),
        Route("/events", events),
        Route("/unfold/{name}", later),
        Route("/page.css", css),
        Route("/watch.js", script),
    ]
    return Access(Starlette(routes=routes), token)  # around everything, errors too


class _Latest:
    """Reads the store once per beat, however many pages are open, and not at all if none is."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._lock = asyncio.Lock()
        self._parts: dict[str, str] = {}
        self._at = -BEAT

    async def parts(self) -> dict[str, str]:
        async with self._lock:
            if time.monotonic() - self._at >= BEAT / 2:
                self._parts = await run_in_threadpool(self.view.look)
                self._at = time.monotonic()
            return self._parts

    async def unfold(self, name: str) -> str | None:
        await self.parts()
        async with self._lock:
            return await run_in_threadpool(self.view.unfold, name)


async def _changes(latest: _Latest, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    """Server-sent events: the list of parts, and each part that is new or has changed."""
    sent: dict[str, str] = {}
    while not stopping():
        parts = await latest.parts()
        if list(parts) != list(sent):
            sent = {name: sent.get(name, "") for name in parts}
            yield _event("parts", list(parts))
        for name, html in parts.items():
            if html != sent[name]:
                sent[name] = html
                yield _event("part", {"name": name, "digest": digest(html), "html": html})
        yield ":\n\n"  # fails if the browser has disconnected, which ends the stream
        await asyncio.sleep(BEAT)


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def digest(html: str) -> str:
    return sha256(html.encode()).hexdigest()[:16]


@cache
def _file(name: str) -> str:
    return files("threefold.watch").joinpath(name).read_text(encoding="utf-8")
