"""Downloads a file over HTTP into memory: only complete and verified content is ever written to disk."""

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from time import monotonic
from typing import Any

from threefold.data.progress import Report


class SourceFailed(Exception):
    """A source of a dataset could not deliver; the text says why."""


@dataclass(frozen=True)
class Patience:
    """Time limits for a server, in seconds.

    `silence` limits connecting and each wait for bytes. A server that only trickles would never exceed it, so at least
    `least` bytes must also arrive in every `window`.
    """

    silence: float = 10.0
    window: float = 20.0
    least: int = 20 * 1024
    total: float = 1800.0


PATIENCE = Patience()


class StayEncrypted(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from HTTPS to an unencrypted address."""

    def redirect_request(self, req: urllib.request.Request, *rest: Any) -> urllib.request.Request | None:
        newurl = rest[-1]
        if req.type == "https" and not str(newurl).startswith("https:"):
            raise SourceFailed(f"leads to {newurl}, which is not encrypted")
        return super().redirect_request(req, *rest)


def download(url: str, limit: int, report: Report, patience: Patience) -> bytes:
    """The body at `url`, at most `limit` bytes; `SourceFailed` unless it arrives completely and in time."""
    body = bytearray()
    try:
        _receive(url, limit, report, patience, body)
    except urllib.error.HTTPError as error:
        raise SourceFailed(f"answered {error.code} {error.reason}") from error
    except http.client.IncompleteRead as error:
        raise SourceFailed(f"broke off after {len(body)} bytes") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, TimeoutError):
            raise SourceFailed(f"said nothing for {patience.silence:g} s") from error
        raise SourceFailed(_plain(reason)) from error
    return bytes(body)


def _receive(url: str, limit: int, report: Report, patience: Patience, body: bytearray) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "threefold"})
    begun = since = monotonic()
    before = 0
    with urllib.request.build_opener(StayEncrypted).open(request, timeout=patience.silence) as response:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        while piece := response.read1(1 << 16):
            body += piece
            report(url, len(body), total)
            if len(body) > limit:
                raise SourceFailed(f"sent more than {limit} bytes, too many for this file")
            now = monotonic()
            if now - begun > patience.total:
                raise SourceFailed(f"was not done after {patience.total:g} s")
            if now - since > patience.window:
                if len(body) - before < patience.least:
                    raise SourceFailed(f"sent only {len(body) - before} bytes in {patience.window:g} s")
                since, before = now, len(body)
    if total is not None and len(body) != total:
        raise SourceFailed(f"broke off after {len(body)} of {total} bytes")
    report(url, len(body), len(body))


def _plain(reason: object) -> str:
    """An error in words, without the operating system's error number."""
    text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return text or type(reason).__name__
