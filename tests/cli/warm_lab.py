"""Imported once by the server that test processes are forked from, so that none has to import torch again."""

from importlib import import_module

from tiny_lab import arrays

from threefold import Dataset, Split, run

for _name in (
    "experiments.progress",
    "cli.reports",
    "cli.stopping",
    "experiments.request",
    "experiments.status",
    "report",
):
    import_module(f"threefold.{_name}")
_data = Dataset.from_arrays(**arrays())
for _method in ("none", "ewc", "lwf", "er:budget=8", "dgr"):
    run(Split(_data, 2), scenario="class", method=_method, seeds=1, iters=1, hidden=8, batch=16, store=None)
