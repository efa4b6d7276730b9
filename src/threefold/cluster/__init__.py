"""Cohorts as Ray tasks on many machines; one process, the driver, plans and stores. How to: docs/cluster.md."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from threefold.extras import need

if TYPE_CHECKING:
    from threefold.cluster.driver import Cluster


SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "2",  # else a wrong token is tried for twenty seconds
}


@contextmanager
def connected(address: str, device: str = "auto", share: float | None = None) -> "Iterator[Cluster]":
    """The Ray cluster at an address ("auto": the one that this machine is part of).

    Every cohort gets `share` CPUs or GPUs: a whole number, or a fraction below 1; one if it is not given.
    """
    need(f"cluster '{address}'", "cluster", "ray")
    for name, value in SETTINGS.items():  # Ray reads them when it is imported
        os.environ.setdefault(name, value)
    from threefold.cluster.connect import connection
    from threefold.cluster.driver import Cluster

    with connection(address):
        yield Cluster(device, 1.0 if share is None else share)
