"""Accuracy during training, drawn for a page."""

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from threefold.report.drawing import GRID, WIDTH, filled, panels_of, say_who_survived
from threefold.report.during_training import SEEN, During, during, thinned
from threefold.report.palette import LINES, ramp
from threefold.report.tables import ResultTable

RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 4.0,
    "markerfacecolor": "none",
    "markeredgecolor": "black",
    "markeredgewidth": 0.7,
}
COLUMNS = 400  # of distinguishable points in a printed panel


def draw_training(table: ResultTable) -> Figure:
    """Accuracy on each task over all steps, a panel for each cell."""
    tasks = table.cells[0].cell.stream.tasks
    figure, axes = panels_of(table, WIDTH, 1.1)
    for found, axis in filled(table, axes):
        if shown := during(found.result):
            _panel(axis, shown)
        axis.set_ylim(-2, 102)
        axis.set_yticks([0, 50, 100])
        axis.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 4, 5, 10], prune="upper"))
        axis.grid(axis="y", color=GRID, linewidth=0.5)
        say_who_survived(axis, found)
    handles = [Line2D([], [], color=_color(task, tasks), label=f"task {task + 1}") for task in range(tasks)]
    handles.append(Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (3, 2)), label="earlier tasks"))
    handles.append(Line2D([], [], linestyle="none", label="lowest of a gap", **RING))
    across = 7 if len(table.columns) > 2 else 4
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), across), handlelength=1.4)
    figure.supxlabel("steps of training", fontsize=8)
    figure.supylabel("accuracy on each task (%)", fontsize=8)
    return figure


def _panel(axis: Axes, shown: During) -> None:
    xs, tasks = np.array(shown.steps), shown.mean.shape[1]
    pixels = xs / max(1, xs[-1]) * COLUMNS
    for step in shown.switches:
        axis.axvline(step, color="#999999", linewidth=0.5, linestyle=(0, (1, 2)), zorder=1)
    for task in range(tasks):
        kept = thinned(pixels, shown.mean[:, task])
        mean, sem, color = shown.mean[kept, task], shown.sem[kept, task], _color(task, tasks)
        axis.plot(xs[kept], mean, color=color, linewidth=0.8)
        axis.fill_between(xs[kept], mean - sem, mean + sem, color=color, alpha=0.2, linewidth=0)
    earlier = shown.earlier()
    for first, last in pairwise([*shown.switches, xs[-1]] if shown.gaps else []):
        within = np.flatnonzero((xs > first) & (xs <= last))
        within = within[thinned(pixels[within], earlier[within])]
        axis.plot(xs[within], earlier[within], color="black", linewidth=0.7, linestyle=(0, (3, 2)))
    for gap in shown.gaps:
        if gap.depth >= SEEN:
            axis.plot([shown.switches[gap.task - 1] + gap.at], [gap.lowest], linestyle="none", zorder=5, **RING)
    axis.set_xlim(0, xs[-1])


def _color(task: int, tasks: int) -> str:
    return ramp(0.9 * task / max(1, tasks - 1), LINES)
