"""One file over HTTP, into memory: what is not whole and verified never reaches the disk."""

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any

from threefold.data.progress import Report


class SourceFailed(Exception):
    """A source of a dataset could not deliver; the text says why."""


@dataclass(frozen=True)
class Patience:
    """How long a server may keep us waiting, in seconds.

    `silence` bounds connecting and each single wait for bytes. A server that trickles never runs into that, so in every
    `window` at least `least` bytes must also arrive; this covers name look-up, several dead addresses and slow headers,
    which no socket timeout sees as a whole.
    """

    silence: float = 10.0
    window: float = 20.0
    least: int = 20 * 1024
    total: float = 1800.0


PATIENCE = Patience()


def download(url: str, limit: int, report: Report, patience: Patience) -> bytes:
    """The body at `url`, at most `limit` bytes; `SourceFailed` for anything less than a whole answer in time.

    The transfer has its own thread, so that no blocking call (name look-up least of all) can outlast our patience.
    """
    transfer = _Transfer(url, limit, patience.silence)
    Thread(target=transfer.run, name="threefold-download", daemon=True).start()
    begun = since = monotonic()
    before = 0
    try:
        while not transfer.ended.wait(0.1):
            report(url, transfer.done, transfer.total)
            now, done = monotonic(), transfer.done
            if now - begun > patience.total:
                raise SourceFailed(f"was not done after {patience.total:g} s")
            if now - since > patience.window:
                if done - before < patience.least:
                    raise SourceFailed(f"sent only {done - before} bytes in {patience.window:g} s")
                since, before = now, done
    finally:
        transfer.abandoned = True
    body = transfer.result()
    report(url, len(body), len(body))
    return body


class StayEncrypted(urllib.request.HTTPRedirectHandler):
    """Follows a server that sends us elsewhere, but never from HTTPS to an address without it."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> urllib.request.Request | None:
        newurl = rest[-1]
        if req.type == "https" and not str(newurl).startswith("https:"):
            raise SourceFailed(f"leads to {newurl}, which is not encrypted")
        return super().redirect_request(req, *rest)


class _Transfer:
    """The thread's side of a download. Once abandoned it ends by itself at its next piece or timeout."""

    def __init__(self, url: str, limit: int, silence: float) -> None:
        self.url, self.limit, self.silence = url, limit, silence
        self.done = 0
        self.total: int | None = None
        self.abandoned = False
        self.ended = Event()
        self._pieces: list[bytes] = []
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._receive()
        except Exception as error:
            self._error = error
        finally:
            self.ended.set()

    def _receive(self) -> None:
        request = urllib.request.Request(self.url, headers={"User-Agent": "threefold"})
        opener = urllib.request.build_opener(StayEncrypted)
        with opener.open(request, timeout=self.silence) as response:
            length = response.headers.get("Content-Length", "")
            self.total = int(length) if length.isdecimal() else None
            while not self.abandoned and (piece := response.read1(1 << 16)):
                self._pieces.append(piece)
                self.done += len(piece)
                if self.done > self.limit:
                    raise SourceFailed(f"sent more than {self.limit} bytes, too many for this file")

    def result(self) -> bytes:
        match self._error:
            case None:
                if self.total is not None and self.done != self.total:
                    raise SourceFailed(f"broke off after {self.done} of {self.total} bytes")
                return b"".join(self._pieces)
            case SourceFailed() as error:
                raise error
            case urllib.error.HTTPError(code=code, reason=reason):
                raise SourceFailed(f"answered {code} {reason}")
            case TimeoutError() | urllib.error.URLError(reason=TimeoutError()):
                raise SourceFailed(f"said nothing for {self.silence:g} s")
            case http.client.IncompleteRead():
                raise SourceFailed(f"broke off after {self.done} bytes")
            case urllib.error.URLError(reason=reason):
                raise SourceFailed(_plain(reason))
            case OSError() | http.client.HTTPException() | ValueError() as error:
                raise SourceFailed(_plain(error)) from error
            case error:
                raise error


def _plain(reason: object) -> str:
    """An error in words, without numbers of the operating system's own."""
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return text or type(reason).__name__
