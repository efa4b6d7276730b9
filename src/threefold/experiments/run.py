"""Training from Python."""

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import nn

from threefold.engine import Optimizer, Schedule
from threefold.errors import ThreefoldError
from threefold.experiments.progress import Bars, fetching
from threefold.experiments.request import run_request
from threefold.experiments.result import Result
from threefold.experiments.scheduler import train_requests
from threefold.experiments.settings import settings_in
from threefold.methods import Method, Part
from threefold.networks import AnyNetwork
from threefold.streams import Boundaries, Stream


class PythonBars(Bars):
    """Progress bars, with warnings as Python warnings."""

    def warn(self, text: str) -> None:
        warnings.warn(text, stacklevel=2)


def run(
    stream: Stream | str,
    *,
    scenario: str,
    method: Method | Part | str = "none",
    seeds: str | int | Iterable[int] = 20,
    orders: str | int | Iterable[int] | None = None,
    tasks: int | None = None,
    boundaries: Boundaries | str | None = None,
    task_id_in: str | None = None,
    network: AnyNetwork | Callable[[Any], nn.Module] | str = "mlp",
    optimizer: Optimizer | str = "adam",
    schedule: Schedule | str = "constant",
    iters: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    batch: int | None = None,
    hidden: int | None = None,
    augment: bool = False,
    evaluate_every: int | None = None,
    evaluate_first: int = 0,
    evaluate_samples: int | str = 500,
    training_curves: bool = False,
    active: str = "seen",
    device: str = "auto",
    precision: str = "auto",
    store: str | Path | None = "threefold.db",
    keep: bool = False,
) -> Result:
    """Train one method in one scenario, one network for each seed, all as one stack.

    `stream` is a name such as "split-mnist:classes=5-3-2" or a stream over data of your own; `boundaries` says how
    one task gives way to the next, such as "blurred:width=500"; `seeds` is a number of them (20 means 1 to 20), a
    text such as "3-7", or a list; `orders`, written alike, are seeds for the tasks alone (their classes and order),
    each of them with every seed. `network` is a name such as "cnn:norm=group", or your own class or function that
    takes the setting and returns a module; `optimizer` a name such as "sgd:lr=0.1,momentum=0.9". `tasks`, `iters` or
    `epochs`, `lr`, `batch` and `hidden` default to the paper's values. `augment`: images are shifted and mirrored at
    random.

    `evaluate_every`: also test all tasks every so many steps, and after each of the first `evaluate_first` steps of a
    task, on `evaluate_samples` test samples of each task ("all": on all); `training_curves`: also record the loss and
    the accuracy on training data. `active`: which output units compete in Class-IL in training, those of the classes
    "seen" so far or "all" from the start. Runs that are in `store` are not trained again; `store=None` keeps nothing.

    `keep`: also keep each seed's network after each task, for `Result.network`, in files beside the store; runs that
    are in the store without are trained again.
    """
    settings = settings_in(locals())
    for name, value in (settings | {"tasks": tasks, "boundaries": boundaries}).items():
        if isinstance(value, list):
            raise ThreefoldError(f"{name} must be one value, as there is one result, got {value}.")
    with fetching() as report:
        request = run_request(
            stream,
            [str(scenario)],
            [method],
            seeds,
            orders=orders,
            tasks=tasks,
            boundaries=boundaries,
            task_id_in=task_id_in,
            settings=settings,
            report=report,
        )
    with PythonBars(1) as bars:
        ((result,),) = train_requests([request], store, bars, keep=keep)
    return result
