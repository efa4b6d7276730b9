"""Small records and a request, for the tests of the store."""

import math

from threefold.results import Record, run_key


def a_run(seed: int, *, method: object = "none", scenario: str = "class", **changes: object) -> Record:
    """A finished run of three tasks whose numbers follow from its seed, so that a mixed-up row shows."""
    if isinstance(method, str):
        own = {"ewc": {"ewc": {"strength": 5.0, "fisher_samples": None}}}.get(
            method, {} if method == "none" else {method: {}}
        )
        method = {"name": method, "hyperparameters": own}
    spec = {
        "stream": {"name": "split-mnist", "tasks": 3, "data": "a fingerprint"},
        "scenario": {"name": scenario, "task_id_in": "output" if scenario == "task" else None},
        "method": method,
        "network": {"name": "mlp", "hyperparameters": {"depth": 2, "width": 3, "activation": "relu"}},
        "optimizer": {
            "name": "adam",
            "hyperparameters": {"lr": 0.1, "reset": False, "betas": [0.9, 0.999], "weight_decay": 0.0},
        },
        "training": {"iters": 5, "batch": 2, "precision": "fp32", "device": "cpu"},
        "seed": seed,
    }
    fields = {
        "key": run_key(spec),
        "spec": spec,
        "status": "finished",
        "initial": [seed % 7 + 0.1, 10.0, 10.0],
        "matrix": [[seed % 100 + j / 3 for j in range(3)] for _ in range(3)],
        "timings": {"train": 1.5},
        "environment": {"device": "cpu", "git": None},
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Record(**(fields | changes))


def a_diverged_run(seed: int) -> Record:
    nothing = [math.nan] * 3
    return a_run(seed, status="diverged", diverged_at=1, matrix=[[1.0, 2.0, 3.0], nothing, nothing])


def asked_for(*runs: Record, **changes: object) -> dict[str, object]:
    """An experiment of these runs, as a store remembers it."""
    cells: dict[str, dict[str, object]] = {}
    for run in runs:
        spec = {name: value for name, value in run.spec.items() if name != "seed"}
        method = run.spec["method"]["name"]
        cell = cells.setdefault(run_key(spec), {"spec": spec, "method": method, "seeds": [], "validation": False})
        cell["seeds"].append(run.spec["seed"])
    asked = {"title": "Mine", "kind": "table", "selected": "as given", "cells": list(cells.values()), "refused": []}
    return asked | {"notes": {}, "command": "threefold experiment mine.toml"} | changes
