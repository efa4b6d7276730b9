"""Figures of single cells: forgetting curves, accuracy matrices, dreams. Imported only when one is drawn."""

import math
from collections.abc import Iterator
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator
from numpy.typing import NDArray

from threefold.report.drawing import GRID, WIDTH
from threefold.report.evidence import Board, Evidence
from threefold.report.figures import dreams, learned, mosaic
from threefold.report.palette import legible_on, ramp
from threefold.report.words import survivors

SCALE = LinearSegmentedColormap.from_list("threefold", [ramp(i / 19) for i in range(20)])


def draw_curves(board: Board) -> Figure:
    """Accuracy on each task as training goes on, a panel for each cell."""
    figure, axes = _cells(board, WIDTH, 0.92)
    for found, axis in _filled(board, axes):
        before, after = found.result.initial[:, None], found.result.matrix
        values = np.concatenate([before, after], axis=1)  # seeds × moments × tasks
        moments, tasks = np.arange(values.shape[1]), values.shape[2]
        for task in range(tasks):
            color = ramp(0.85 * task / max(1, tasks - 1))
            mean, sem = _mean_sem(values[:, :, task])
            axis.plot(moments[: task + 2], mean[: task + 2], color=color, linewidth=0.6, alpha=0.35)  # before its turn
            axis.plot(moments[task + 1 :], mean[task + 1 :], color=color, linewidth=1.0)
            axis.fill_between(moments, mean - sem, mean + sem, color=color, alpha=0.2, linewidth=0)
            axis.plot([task + 1], [mean[task + 1]], marker="o", markersize=2.4, color=color, clip_on=False)
        axis.set_ylim(-2, 102)
        axis.set_xlim(0, tasks)
        axis.set_yticks([0, 50, 100])
        axis.xaxis.set_major_locator(FixedLocator([0, tasks] if tasks > 5 else list(range(tasks + 1))))
        axis.grid(axis="y", color=GRID, linewidth=0.5)
        _say_who_survived(axis, found)
    tasks = board.cells[0].cell.stream.tasks
    handles = [
        Line2D([], [], color=ramp(0.85 * t / max(1, tasks - 1)), marker="o", markersize=2.5, label=f"task {t + 1}")
        for t in range(tasks)
    ]
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=min(tasks, 10 if len(board.columns) > 2 else 5),
        handlelength=1.2,
        columnspacing=1.0,
    )
    figure.supxlabel("tasks trained", fontsize=8)
    figure.supylabel("accuracy on each task (%)", fontsize=8)
    return figure


def draw_matrices(board: Board) -> Figure:
    """Accuracy after each task (down) on each task (across), averaged over seeds."""
    tasks = board.cells[0].cell.stream.tasks
    figure, axes = _cells(board, WIDTH * 0.75, 0.9)
    for axis in axes.values():
        axis.set_box_aspect(1)
    for found, axis in _filled(board, axes):
        mean = _mean_sem(found.result.matrix)[0]
        axis.imshow(mean, cmap=SCALE, vmin=0, vmax=100, aspect="equal", interpolation="nearest")
        shown = range(tasks) if tasks <= 5 else (0, tasks - 1)
        axis.set_xticks(shown, [str(t + 1) for t in shown])
        axis.set_yticks(shown, [str(t + 1) for t in shown])
        axis.tick_params(length=0, labelsize=5.5, pad=1)
        for spine in axis.spines.values():
            spine.set_visible(False)
        _say_who_survived(axis, found)
        if tasks <= 5:
            for (row, column), value in np.ndenumerate(mean):
                ink = legible_on(value / 100)
                axis.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=5, color=ink)
    bar = figure.colorbar(
        ScalarMappable(Normalize(0, 100), SCALE), ax=list(axes.values()), shrink=0.35, aspect=30, pad=0.02
    )
    bar.outline.set_visible(False)
    bar.set_label("accuracy (%)", fontsize=7.5)
    figure.supxlabel("accuracy on task", fontsize=8)
    figure.supylabel("after training on task", fontsize=8)
    return figure


def draw_dreams(board: Board) -> Figure:
    """Images of the generator after each task (down), always of the same latent variables (across); first seed."""
    shown = [(found, images) for found in board.cells if (images := dreams(found)) is not None]
    columns = min(2, len(shown))
    rows = math.ceil(len(shown) / columns)
    tasks, across = shown[0][1].shape[:2]
    width = WIDTH / columns
    figure = Figure(figsize=(WIDTH, rows * (width * 0.88 * tasks / across + 0.35)), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for (found, images), axis in zip(shown, axes.flat, strict=False):
        axis.imshow(mosaic(images), cmap="gray_r", vmin=0, vmax=255, interpolation="nearest")
        axis.set_title(_name(found))
        side = images.shape[2] + 1
        for task in range(len(images)):
            axis.text(-2, (task + 0.5) * side, f"task {task + 1}", ha="right", va="center", fontsize=6)
    return figure


def _cells(board: Board, wide: float, height: float) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """A panel for each place of the table."""
    methods = [row for _, row in board.rows]
    figure = Figure(figsize=(max(3.6, wide * min(1, len(board.columns) / 3)), len(methods) * height + 0.8))
    figure.set_layout_engine(ConstrainedLayoutEngine(h_pad=0.02, w_pad=0.03, hspace=0.02))
    axes = figure.subplots(len(methods), len(board.columns), squeeze=False)
    placed = {}
    for row, method in enumerate(methods):
        for column, scenario in enumerate(board.columns):
            axis = placed[method, scenario] = axes[row, column]
            if row == 0:
                axis.set_title(scenario.replace(", ", "\n"), loc="center", fontsize=8.5)
            if column == 0:
                beside = {"xytext": (-24, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
                axis.annotate(_folded(method), (0, 0.5), xycoords="axes fraction", fontsize=7.5, **beside)
    return figure, placed


def _filled(board: Board, axes: dict[tuple[str, str], Axes]) -> Iterator[tuple[Evidence, Axes]]:
    """The panels with something to draw. Numbers stand at the outermost of them only; the rest says why it is empty."""
    drawn = {(e.row, e.column) for e in learned(board)}
    methods = [row for _, row in board.rows]
    for place, axis in axes.items():
        if place not in drawn:
            _nothing(axis, "–" if place in board.why_not else "diverged" if place in board.at else "…")
            continue
        row, column = methods.index(place[0]), board.columns.index(place[1])
        lowest = not any((method, place[1]) in drawn for method in methods[row + 1 :])
        first = not any((place[0], other) in drawn for other in board.columns[:column])
        axis.tick_params(labelbottom=lowest, labelleft=first)
        yield board.at[place], axis


def _say_who_survived(axis: Axes, found: Evidence) -> None:
    """Below a panel that is a mean over some of the seeds only."""
    seeds = len(found.result.records)
    if note := survivors(seeds - len(found.result.diverged), seeds):
        axis.set_xlabel(fill(note, 22), fontsize=5.5, labelpad=1)


def _nothing(axis: Axes, text: str) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color="#777777")


def _mean_sem(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Over the seeds that did not diverge."""
    kept = values[~np.isnan(values).reshape(len(values), -1).any(axis=1)]
    sem = kept.std(axis=0, ddof=1) / math.sqrt(len(kept)) if len(kept) > 1 else np.zeros(kept.shape[1:])
    return kept.mean(axis=0), sem


def _name(found: Evidence) -> str:
    return f"{found.row}, {found.column}"


def _folded(name: str) -> str:
    if len(name) < 16:
        return name
    pieces = name.replace(" (", "\n(").replace(" + ", "\n+ ").splitlines()
    return "\n".join(fill(piece, 24) for piece in pieces)
