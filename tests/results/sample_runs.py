"""Small records for the tests of the store."""

import math

from threefold.results import Record, run_key


def a_run(seed: int, *, method: object = "none", scenario: str = "class", **changes: object) -> Record:
    """A finished run of three tasks whose numbers follow from its seed, so that a mixed-up row shows."""
    spec = {"protocol": "split-mnist", "scenario": scenario, "method": method, "seed": seed}
    fields = {
        "key": run_key(spec),
        "spec": spec,
        "status": "finished",
        "initial": [seed % 7 + 0.1, 10.0, 10.0],
        "matrix": [[seed % 100 + j / 3 for j in range(3)] for _ in range(3)],
        "metrics": {"average_accuracy": seed / 3, "forgetting": math.nan},
        "timings": {"train": 1.5},
        "environment": {"device": "cpu", "git": None},
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Record(**(fields | changes))


def a_diverged_run(seed: int) -> Record:
    nothing = [math.nan] * 3
    return a_run(seed, status="diverged", diverged_at=1, matrix=[[1.0, 2.0, 3.0], nothing, nothing])
