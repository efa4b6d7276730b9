"""Results in notebooks: pandas tables, matplotlib plots, HTML."""

from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from threefold.errors import ThreefoldError
from threefold.extras import need
from threefold.results import Curve, Record
from threefold.results.metrics import METRICS
from threefold.results.statistics import mean_sem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from threefold.experiments.result import Result

Rows = Literal["runs", "accuracies", "curves"]
Kind = Literal["tasks", "curves", "matrix"]


def table(result: "Result", of: Rows) -> "DataFrame":
    """One row for each run, for each accuracy at the end of a task, or for each accuracy during training."""
    if of not in get_args(Rows):
        raise ThreefoldError(f"of must be {_either(Rows)}, got '{of}'.")
    need("to_pandas", "pandas", "pandas")
    from pandas import DataFrame

    rows = {"runs": _run, "accuracies": _accuracies, "curves": _curve}[of]
    return DataFrame([row for record in result.records for row in rows(record)])


def _seed(record: Record) -> dict[str, Any]:
    return {"seed": record.spec["seed"], **({"order": record.spec["order"]} if "order" in record.spec else {})}


def _run(record: Record) -> list[dict[str, Any]]:
    return [_seed(record) | {"status": record.status} | dict(record.metrics) | {"seconds": record.seconds}]


def _accuracies(record: Record) -> list[dict[str, Any]]:
    """The accuracies before training (after task 0) and after each task."""
    return [
        _seed(record) | {"after_task": after, "on_task": task, "accuracy": accuracy}
        for after, row in enumerate([record.initial, *record.matrix])
        for task, accuracy in enumerate(row, 1)
    ]


def _curve(record: Record) -> list[dict[str, Any]]:
    curve = _tested(record)
    return [
        _seed(record) | {"in_task": int(task) + 1, "step": int(step), "on_task": on + 1, "accuracy": float(accuracy)}
        for task, step, row in zip(curve.task, curve.total, curve.accuracy, strict=True)
        for on, accuracy in enumerate(row)
    ]


def _tested(record: Record) -> Curve:
    if record.curve is None:
        raise ThreefoldError("curves need tests during training, and this was run without evaluate_every.")
    return record.curve


def plot(result: "Result", kind: Kind, ax: "Axes | None") -> "Axes":
    """Plot on these axes, or on those of a new figure. Means over seeds of which some diverged are left out."""
    if kind not in get_args(Kind):
        raise ThreefoldError(f"kind must be {_either(Kind)}, got '{kind}'.")
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(layout="constrained")[1]
    {"tasks": _plot_tasks, "curves": _plot_curves, "matrix": _plot_matrix}[kind](result, ax)
    lost = f"\n{len(result.diverged)} of {len(result.seeds)} seeds diverged" if result.diverged else ""
    ax.set_title(f"{result.cell.name}{lost}")
    return ax


def _plot_tasks(result: "Result", ax: "Axes") -> None:
    """Accuracy on each task after each task."""
    every = np.concatenate([result.initial[:, None], result.matrix], 1)
    _lines(ax, np.arange(every.shape[1]), every)
    ax.set_xlabel("tasks learned")
    ax.set_xticks(range(every.shape[1]))


def _plot_curves(result: "Result", ax: "Axes") -> None:
    """Accuracy on each task at each tested step."""
    found = [_tested(record).complete() for record in result.records]
    steps = sorted(set.intersection(*({int(step) for step in curve.total} for curve in found)))
    rows = [curve.accuracy[np.searchsorted(curve.total, steps)] for curve in found]
    _lines(ax, np.array(steps), np.array(rows))
    ax.set_xlabel("training steps")
    for end in np.cumsum(found[0].lengths)[:-1]:
        ax.axvline(end, color="0.8", linewidth=0.8, zorder=0)


def _lines(ax: "Axes", x: "np.typing.NDArray[Any]", accuracies: "np.typing.NDArray[np.float64]") -> None:
    """A line for each task: the mean over seeds, with a band of one standard error."""
    tasks = accuracies.shape[2]
    for task in range(tasks):
        pairs = [mean_sem(values) for values in accuracies[:, :, task].T]
        mean, sem = np.array(pairs).T
        (line,) = ax.plot(x, mean, label=f"task {task + 1}")
        ax.fill_between(x, mean - sem, mean + sem, color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set_ylim(-2, 102)
    ax.set_ylabel("accuracy on each task (%)")
    ax.legend(ncols=1 + tasks // 6)


def _plot_matrix(result: "Result", ax: "Axes") -> None:
    """The mean accuracy after each task (down) on each task (across)."""
    mean = result.matrix.mean(0)
    tasks = len(mean)
    shown = ax.imshow(mean, vmin=0, vmax=100, cmap="cividis")
    ax.figure.colorbar(shown, ax=ax, label="accuracy (%)")
    ax.set_xticks(range(tasks), [str(task + 1) for task in range(tasks)])
    ax.set_yticks(range(tasks), [str(task + 1) for task in range(tasks)])
    ax.set_xlabel("accuracy on task")
    ax.set_ylabel("after task")
    if tasks <= 10:
        for (row, column), value in np.ndenumerate(mean):
            ink = "white" if value < 55 else "black"
            ax.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink)


def html(result: "Result") -> str:
    """The metrics as a table, and accuracy on each task after each task as a picture."""
    from matplotlib.figure import Figure

    rows = "".join(
        f"<tr><td>{escape(metric.title)} ({escape(metric.short)})</td><td>{result.metrics[metric.name]}</td></tr>"
        for metric in METRICS
        if metric.name in result.metrics and not np.isnan(result.metrics[metric.name].mean)
    )
    figure = Figure(figsize=(5, 3), layout="constrained")
    ax = plot(result, "tasks", figure.subplots())
    ax.set_title("")
    drawn = StringIO()
    figure.savefig(drawn, format="svg")
    picture = drawn.getvalue()
    return f"<div><b>{escape(repr(result))}</b><table>{rows}</table>{picture[picture.index('<svg') :]}</div>"


def _either(kinds: Any) -> str:
    *names, last = (f"'{name}'" for name in get_args(kinds))
    return f"{', '.join(names)} or {last}"
