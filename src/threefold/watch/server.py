"""The live page's HTTP server: uvicorn, with limits on connections and on the times for requests and responses.

Without them a few hundred silent sockets use up all file descriptors; then asyncio's accept loop keeps a core busy, and
logs each attempt.
"""

import asyncio
import resource
import socket
from asyncio import Task, TimerHandle, Transport
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 1000  # connections that are served at once; every open page has one or two
REFUSED = 16  # more connections that are refused with status 503; further ones wait to be accepted
RESERVED = 64  # file descriptors for everything else: the store, the locks, Python's own
REQUEST_TIME = 10.0  # seconds for a client to send its request
ANSWER_TIME = 60.0  # seconds for a client to receive the response, or the next piece of it
PAUSE = 0.1  # seconds until the next try if no connection can be accepted


def most_connections() -> int:
    """How many connections this process has file descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(4, soft - RESERVED - REFUSED))


class Connection(H11Protocol):
    """A connection that is closed on a timeout."""

    _request: TimerHandle | None = None
    _answer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        self._expect_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client reads too slowly, so writing is paused."""
        super().pause_writing()
        self._answer = self.loop.call_later(ANSWER_TIME, self.transport.abort)

    def resume_writing(self) -> None:
        _cancel(self._answer)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._request, self._answer)
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        _cancel(self._request)
        self._request = self.loop.call_later(REQUEST_TIME, self._too_slow)

    def _too_slow(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else it is being answered
            self.transport.close()  # after pending data are sent; in case they are not:
            self._request = self.loop.call_later(ANSWER_TIME, self.transport.abort)


def _cancel(*timers: TimerHandle | None) -> None:
    for timer in timers:
        if timer:
            timer.cancel()


class Server(uvicorn.Server):
    """Accepts connections only while it can serve or refuse them."""

    def __init__(self, app: Any) -> None:
        self.most = most_connections()
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                limit_concurrency=self.most + 1,  # from that number on connections are refused with 503
                log_config=None,
                log_level="error",
                access_log=False,
                lifespan="off",
                ws="none",
                loop="asyncio",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._accepting: list[Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._accepting = [asyncio.create_task(self._accept(listening)) for listening in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            if len(self.server_state.connections) >= self.most + REFUSED:
                await asyncio.sleep(PAUSE)
                continue
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # no file descriptor is left, or the client has disconnected
                await asyncio.sleep(PAUSE)
                continue
            try:
                await loop.connect_accepted_socket(self._connection, connection)
            except OSError:
                connection.close()

    def _connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)
