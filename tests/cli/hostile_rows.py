"""Files of rows with hostile content, and every command that reads a store."""

import copy
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from tiny_lab import Ended

from threefold.results import pack

File = list[dict[str, Any]]  # the lines: first what was asked for, then a cohort each
Place = tuple[str | int, ...]
METHODS = {
    "none": {},
    "ewc:strength=5.0": {"ewc": {"strength": 5.0, "labels": "predicted", "fisher_samples": None}},
    "er": {"er": {"budget": 20, "selection": "random", "unit_length": True, "use": "training"}},
    "another": {"another": {"strength": 2}},  # a plug-in of theirs
}
KINDS = {"mine": "table", "stored": "budgets", "chosen": "grids"}


def good_file() -> File:
    """Three experiments of the same eight cells, of which one has no runs yet and two are a plug-in's."""
    cells, cohorts = [], []
    for scenario, task_id_in in (("task", "output"), ("class", None)):
        for method, hyperparameters in METHODS.items():
            spec = {
                "stream": {"name": "split-theirs", "tasks": 2, "data": "0" * 64} | _stream(method),
                "scenario": {"name": scenario, "task_id_in": task_id_in},
                "method": {"name": method.partition(":")[0], "hyperparameters": hyperparameters},
                **_trained(method),
            }
            seeds = [[1, 5], [2, 5]] if method == "er" else [1, 2]
            cells.append({"spec": spec, "method": method, "seeds": seeds, "validation": False})
            if (scenario, method) != ("class", "none"):
                cohorts.append(_cohort(spec))
    refused = [{"spec": cells[0]["spec"], "method": "none", "reason": "It cannot be."}]
    asked = {"title": "Theirs", "selected": "oracle", "cells": cells, "refused": refused}
    asked |= {"notes": {"er": "As it is."}, "command": "threefold experiment theirs.toml"}
    runs = sum(len(cohort["runs"]) for cohort in cohorts)
    experiments = {name: asked | {"kind": kind} for name, kind in KINDS.items()}
    return copy.deepcopy([{"format": "threefold rows 2", "experiments": experiments, "runs": runs}, *cohorts])


def _stream(method: str) -> dict[str, Any]:
    """On which stream each is trained, where it is not the first."""
    blurred = {"name": "blurred", "hyperparameters": {"every": 100, "width": 2}}
    turned = {"name": "rotated-theirs", "options": {"angles": [0.0, 30.0]}, "boundaries": blurred}
    theirs = {
        "name": "Theirs-theirs",
        "code": "2" * 64,
        "boundaries": {"name": "none", "hyperparameters": {"every": 1}},
    }
    return {"er": turned, "another": theirs}.get(method, {})


def _trained(method: str) -> dict[str, Any]:
    """How each is trained: one like the paper, the others with what else there is."""
    mlp = {"name": "mlp", "hyperparameters": {"depth": 2, "width": 8, "activation": "relu"}}
    cnn = {"name": "cnn", "hyperparameters": {"channels": [4, 8], "norm": "batch"}}
    theirs = {"name": "Theirs", "hyperparameters": {}, "code": "1" * 64}
    adam = {"lr": 0.1, "reset": False, "betas": [0.9, 0.999], "weight_decay": 0.0}
    sgd = {"lr": 0.1, "reset": True, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}
    steps = {"name": "step", "hyperparameters": {"at": [0.5, 0.75], "factor": 0.1}}
    usual = {"batch": 4, "precision": "fp32", "device": "cpu"}
    if method == "er":
        optimizer = {"name": "sgd", "hyperparameters": sgd}
        return {"network": cnn, "optimizer": optimizer, "training": {"epochs": 2, **usual, "schedule": steps}}
    network = theirs if method == "another" else mlp
    tested = {"evaluation": {"every": 2, "first": 1, "samples": 500, "training": True}} if "ewc" in method else {}
    return {
        "network": network,
        "optimizer": {"name": "adam", "hyperparameters": adam},
        "training": {"iters": 5, **usual, **tested},
    }


def _cohort(spec: dict[str, Any]) -> dict[str, Any]:
    run = {"status": "finished", "diverged_at": None, "initial": [50.0, 25.0], "matrix": [[90.0, 30.0], [70.5, 95.0]]}
    lost = {"status": "diverged", "diverged_at": 1, "matrix": [[90.0, 30.0], [None, None]]}
    runs = [{"seed": 1, **run}, {"seed": 2, **run, **(lost if "ewc" in spec["method"]["name"] else {})}]
    if "evaluation" in spec["training"]:
        runs = [each | {"curves": _curves()} for each in runs]
    if spec["method"]["name"] == "er":
        runs = [each | {"order": 5} for each in runs]
    return {
        "spec": spec,
        "timings": {"cohort_train": 1.5, "cohort_evaluate": 0.5},
        "environment": {"device": "a computer", "git": None, "threads": 2, "cohort": 2},
        "created": "2026-01-31T12:00:00+00:00",
        "runs": runs,
    }


def _curves() -> dict[str, Any]:
    points = [(task, step, task + 1) for task in range(2) for step in (0, 1, 2, 4, 5) if (task, step) != (1, 0)]
    accuracy = np.linspace(20, 90, 2 * len(points), dtype="f4").reshape(-1, 2)
    found = {"accuracy": accuracy, "training accuracy": accuracy[::-1], "loss": np.ones(len(points), "f4")}
    return {name: pack(np.array(values)) for name, values in ({"points": np.array(points)} | found).items()}


def written(lines: File, path: Path) -> Path:
    """The file, each line with a sum that fits. What JSON does not have (NaN) is written as Python does."""
    path.write_bytes(b"".join(map(_line, lines)))
    return path


def _line(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, separators=(",", ":"))
    return f'{text[:-1]},"sum":"{sha256(text.encode()).hexdigest()[:16]}"}}\n'.encode()


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Every place inside plain data."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield (*here, step)
        yield from places(item, (*here, step))


def changed(lines: File, place: Place, value: Any) -> File:
    """The same lines with another value in one place; with none there, if that is `...`."""
    *outer, last = place
    inside: Any = lines
    for step in outer:
        inside = inside[step]
    if value is ...:
        del inside[last]
    else:
        inside[last] = value
    return lines


def apart() -> File:
    """A good file in which nothing is shared: what is changed here stays as it is there."""
    return json.loads(json.dumps(good_file()))  # type: ignore[no-any-return]


def read_by_all(cli: Callable[..., Ended], store: str, *, drawn: bool = False) -> None:
    """Every command that shows a store, and the live page: none may fail, whatever a merge let in."""
    from threefold.experiments import sections
    from threefold.report import save_figures
    from threefold.results import Store
    from threefold.watch.view import View

    formats = ("terminal", "markdown", "latex", "csv", "html")
    commands = [["status"], *(["report", "--format", form] for form in formats)]
    commands += [["export", kind, f"out.{kind}"] for kind in ("csv", "npz", "parquet", "tensorboard")]
    commands += [["export", "rows", "out.jsonl"]]
    with Store(store, readonly=True) as opened:
        nothing = not any(section.results for section in sections(opened))
    for words in commands:
        ended = cli(*words, "--store", store)
        if nothing and (words[0] == "report" or "holds no runs" in ended.err):
            assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1), (words, ended)
        else:
            assert (ended.status, ended.err) == (0, ""), (words, ended)
    view = View(Path(store))
    assert "damaged" not in view.look()["now"]
    for name in list(view._folded):
        assert view.unfold(name) is not None
    if drawn:
        with Store(store, readonly=True) as opened:
            assert nothing or save_figures(sections(opened), "drawn", ["svg"])
