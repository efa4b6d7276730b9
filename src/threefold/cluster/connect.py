"""Connects to a Ray cluster, as one that has its token; starts nothing and opens nothing."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from threefold.errors import ThreefoldError

PATIENCE = 5.0  # seconds for a machine to answer


@contextmanager
def connection(address: str) -> Iterator[None]:
    """Ray as this process sees it from now on; a connection that was there already is used, and stays."""
    if ray.is_initialized():
        yield
        return
    try:
        _check_port(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:  # ValueError, ConnectionError, AuthenticationError, RuntimeError: Ray is free in this
        raise ThreefoldError(
            f"cluster '{address}' cannot be reached ({first_sentence(error)}); use a node of it, with its token"
            " (docs/cluster.md)."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_port(address: str) -> None:
    """Ray would wait for minutes for an address that does not answer."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


def first_sentence(error: BaseException) -> str:
    return " ".join(str(error).split()).partition(". ")[0].rstrip(".")
