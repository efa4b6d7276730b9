"""The result of a cell: its runs, summarised."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from threefold.engine import KeptNetwork
from threefold.errors import ThreefoldError, unknown
from threefold.experiments import display
from threefold.experiments.cell import Cell
from threefold.experiments.examples import Examples, stored_examples, test_examples
from threefold.experiments.keeping import network_of
from threefold.experiments.seeds import how_many
from threefold.results import (
    KeptNetworks,
    Ordered,
    Paired,
    Published,
    Record,
    Seed,
    Summary,
    Verdict,
    load_kept,
    paired,
    seed_of,
    summarize,
    unpack,
    verdict,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

Summaries = dict[str, Summary]


@dataclass(frozen=True, eq=False)
class Result:
    """A cell and its runs, one for each seed. Accuracies are in per cent."""

    cell: Cell
    records: Sequence[Record]
    store: Path | None = None  # beside which its networks are kept

    @property
    def seeds(self) -> list[Seed]:
        return [seed_of(record.spec) for record in self.records]

    @property
    def diverged(self) -> list[Seed]:
        """Seeds whose training diverged to numbers that are not finite."""
        return [seed_of(record.spec) for record in self.records if record.status == "diverged"]

    @property
    def accuracy(self) -> Summary:
        """Average test accuracy over all tasks at the end of training: the number in the paper's tables."""
        return self.metrics["average_accuracy"]

    @cached_property
    def metrics(self) -> Summaries:
        names = self.records[0].metrics
        return {name: summarize((record.metrics[name] for record in self.records), self.seeds) for name in names}

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Accuracy after each task (axis 1) on each task (axis 2), for each seed (axis 0)."""
        return np.array([record.matrix for record in self.records])

    @property
    def initial(self) -> NDArray[np.float64]:
        """Accuracy on each task before any training, for each seed."""
        return np.array([record.initial for record in self.records])

    def __repr__(self) -> str:
        return f"Result({self.cell.name}: {self.accuracy} per cent, {how_many(self.seeds)})"

    def _repr_html_(self) -> str:
        return display.html(self)

    def to_pandas(self, of: display.Rows = "accuracies") -> "DataFrame":
        """The numbers as a pandas table of one kind.

        "accuracies": a row for each accuracy, after each task (0: before training) on each task; "runs": a row for
        each seed, with its metrics; "curves": a row for each accuracy during training (`evaluate_every`).
        """
        return display.table(self, of)

    def plot(self, kind: display.Kind = "tasks", ax: "Axes | None" = None) -> "Axes":
        """Draw on `ax`, or on a new figure; returns the matplotlib axes.

        "tasks": accuracy on each task after each task, mean and standard error over seeds; "curves": the same at each
        tested step (`evaluate_every`); "matrix": the mean accuracy after each task on each task.
        """
        return display.plot(self, kind, ax)

    def compare(self, other: "Result", metric: str = "average_accuracy") -> Paired:
        """This minus the other over the seeds that both have, by the paired t test: difference, 95% interval, p, effect
        size. With fewer than five seeds in common, the interval and p are NaN."""
        for result in (self, other):
            if metric not in result.metrics:
                raise unknown("metric", metric, result.metrics)
        return paired(self.metrics[metric], other.metrics[metric])

    def network(self, seed: Seed, after: int | None = None) -> KeptNetwork:
        """The network of a seed after so many tasks (all if not given), which a run with `keep=True` kept."""
        file, content = self._kept_content(seed, after)
        return network_of(file, content, self.cell.method, self.cell.training.network)

    def exemplars(self, seed: Seed, after: int | None = None) -> Examples:
        """The training samples that the method stored, as they were after so many tasks (all if not given), if the run
        kept its networks."""
        _, content = self._kept_content(seed, after)
        if not content["stored"]:
            raise ThreefoldError(f"method {self.cell.method.name} stores no samples, or none that can be told.")
        (held, *_) = content["stored"].values()
        return stored_examples(self.cell, seed, held["task"], held["place"])

    def test_examples(self, seed: Seed, task: int) -> Examples:
        """The test samples of a seed's task, counted from 1, as its network saw them."""
        return test_examples(self.cell, seed, _number("task", task, self.cell.stream.tasks))

    def _kept_content(self, seed: Seed, after: int | None) -> tuple[Path, dict[str, Any]]:
        """A kept network's file, and its content."""
        if self.store is None:
            raise ThreefoldError("networks are kept in a folder beside a store, and this result has none.")
        if seed not in self.seeds:
            raise unknown("seed", str(seed), map(str, self.seeds))
        tasks = self.cell.stream.tasks
        after = tasks if after is None else _number("after", after, tasks)
        file = KeptNetworks(self.store).file(self.records[self.seeds.index(seed)].key, after)
        return file, load_kept(file)

    def kept(self, name: str) -> NDArray[Any]:
        """What the method kept to look at later, for each seed and task, as it was: "dreams" are generated images,
        "exemplars" stored ones."""
        return np.stack([unpack(record.kept[name]) for record in self.records])

    @property
    def published(self) -> Published | None:
        """What the paper reports for this; None if it reports nothing or trained differently.

        Each of its runs had its own tasks: if tasks are chosen independently of the seed, the spread is not comparable.
        """
        as_paper = self.cell.comparable and not any(isinstance(seed, Ordered) for seed in self.seeds)
        return self.cell.published() if as_paper else None

    @property
    def verdict(self) -> Verdict | None:
        """How the accuracy compares with the published one; None if there is none."""
        return verdict(self.accuracy, self.published) if self.published else None

    def to_json(self) -> dict[str, Any]:
        published, judged = self.published, self.verdict
        return {
            "spec": self.cell.spec() | {"seeds": self.seeds},
            "accuracy": _summary(self.accuracy),
            "accuracy_matrix": [record.to_json()["matrix"] for record in self.records],
            "initial_accuracy": [record.to_json()["initial"] for record in self.records],
            "metrics": {name: _summary(summary) for name, summary in self.metrics.items()},
            "diverged_seeds": self.diverged,
            "published": {"mean": published.mean, "sem": _json(published.sem), "n": published.n} if published else None,
            "verdict": str(judged.words) if judged else None,
        }


def _number(name: str, given: int, most: int) -> int:
    if not isinstance(given, int) or not 1 <= given <= most:
        raise ThreefoldError(f"{name} must be a number from 1 to {most}, got {given!r}.")
    return given


def _summary(summary: Summary) -> dict[str, Any]:
    return {
        "mean": _json(summary.mean),
        "sem": _json(summary.sem),
        "per_seed": [_json(value) for value in summary.per_seed],
    }


def _json(value: float) -> float | None:
    return None if math.isnan(value) else value
