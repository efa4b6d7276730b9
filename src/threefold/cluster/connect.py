"""Connects to an existing Ray cluster with its token; starts no processes and opens no ports."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from threefold.errors import ThreefoldError

PATIENCE = 5.0  # seconds for a machine to answer


@contextmanager
def connection(address: str) -> Iterator[None]:
    """A connection to Ray for this process; an existing connection is used, and left open."""
    if ray.is_initialized():
        yield
        return
    try:
        _check_port(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:  # Ray may raise ValueError, ConnectionError, AuthenticationError, RuntimeError
        raise ThreefoldError(
            f"cluster '{address}' cannot be reached ({first_sentence(error)}); use a node of it, with its token"
            " (docs/cluster.md)."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_port(address: str) -> None:
    """Check that an address answers, as Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


def first_sentence(error: BaseException) -> str:
    return " ".join(str(error).split()).partition(". ")[0].rstrip(".")
