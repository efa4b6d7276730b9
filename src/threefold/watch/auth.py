"""Access control for the page, and its security headers."""

import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "threefold-token"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Access:
    """Rejects requests whose Host header names another site, or that lack the token.

    Another site can make its own name resolve to this machine (DNS rebinding); its requests carry that name, so only
    addresses and this machine's own names are served. `token` is None if only this machine can connect.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the live page speaks HTTP, not {scope['type']}")
        answer = self._answer(scope) or self.app

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await answer(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._ours(headers.getlist("host")):
            return PlainTextResponse("This address is not served: its name is not one of this machine.\n", 403)
        if self.token is None or self._same(_cookie(headers.get("cookie", ""))):
            return None
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
        if not self._same(given):
            return PlainTextResponse("Use the address that 'threefold watch' printed, with its token.\n", 403)
        answer = RedirectResponse(".", 303)  # so that the token does not stay in the address bar
        answer.set_cookie(COOKIE, self.token, httponly=True, samesite="lax")
        return answer

    def _same(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())

    def _ours(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        name = _without_port(hosts[0]).lower()
        try:
            return ip_address(name).is_loopback or self.token is not None
        except ValueError:
            own = () if self.token is None else (socket.gethostname().lower(), socket.getfqdn().lower())
            return name in ("localhost", *own)


def _without_port(host: str) -> str:
    if host.startswith("["):  # [::1]:8303
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _cookie(text: str) -> str:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""
