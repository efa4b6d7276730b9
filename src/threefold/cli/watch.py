"""`threefold watch`: the live page."""

from pathlib import Path
from typing import Annotated

import typer

from threefold.cli import options


def watch(
    store: options.StoreFile = Path("threefold.db"),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 8303,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own asks for a token.")] = (
        "127.0.0.1"
    ),
    plugin: options.Plugin = None,
) -> None:
    """Show in a browser what runs now and what is done, while it happens. Reads the store, changes nothing."""
    from threefold.extras import need

    need("watch", "watch", "starlette", "uvicorn")
    from threefold.watch import serve

    serve(store, host, port, typer.echo)
