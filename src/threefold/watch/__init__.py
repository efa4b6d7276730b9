"""The live page: a store's results and the training in progress, in a browser.

It only reads: the store for what is done, the locks next to it for what runs. So it can watch any process, and be
opened and closed at any time.
"""

import secrets
import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from threefold.errors import ThreefoldError
from threefold.results import Store
from threefold.results.database import explained


def serve(store: Path, host: str, port: int, say: Callable[[str], object]) -> None:
    """Serve a store's page until interrupted. Addresses other than localhost require a token."""
    from threefold.watch.app import application
    from threefold.watch.server import Server

    with explained(store, 0):
        there = store.exists()
    if there:
        Store(store, readonly=True).close()  # raises if it is not a store
    elif not store.absolute().parent.is_dir():
        raise ThreefoldError(f"store '{store}' is in a folder that does not exist; give the file of a store.")
    listening = _listen(host, port)
    address, port = listening.getsockname()[:2]
    local = ip_address(address).is_loopback
    token = None if local else secrets.token_urlsafe(24)
    named = socket.gethostname() if ip_address(address).is_unspecified else address
    shown = f"[{named}]" if ":" in named else named
    missing = "" if there else " (it does not exist yet; the page fills when a command makes it)"
    say(f"{store}{missing}: http://{shown}:{port}/{f'?token={token}' if token else ''} until you press Ctrl-C")
    server = Server(application(store, token, lambda: server.should_exit))
    server.run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:
        raise ThreefoldError(f"port must be from 1 to 65535, or 0 for any that is free, got {port}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server((host, port), family=found[0][0])
    except (OSError, UnicodeError) as error:
        why = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise ThreefoldError(
            f"host '{host}', port {port} cannot be listened on ({why}); use an address of this machine and a port that"
            " is free, or port 0 for any."
        ) from error
