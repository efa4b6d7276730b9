"""Every figure in matplotlib: curves over budgets and hyperparameters, forgetting curves, matrices, dreams.

Imported only when one is drawn: matplotlib takes a while.
"""

import math
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import IdentityTransform, ScaledTranslation

from threefold.report.figures import mosaic, pictures
from threefold.report.palette import HUES, LINES, STRATEGIES, legible_on, ramp
from threefold.report.panels import ACCURACY, WHO, By, Chart, Line, Mark, Panel, deviation, scattered
from threefold.report.svg import MANY, limits_of, log_ticks, spread
from threefold.report.tables import ResultTable, TableCell

WIDTH = 6.5  # inches: the text of a page
MARKERS = "osD^vP"
SCALE = LinearSegmentedColormap.from_list("threefold", [ramp(i / 19) for i in range(20)])
GRID = "#e4e4e4"
CROSS: dict[str, Any] = {"marker": "x", "color": "#777777", "markersize": 4, "linestyle": "none"}
MARKS: dict[By, dict[str, Any]] = {
    "paper": {"marker": "o", "markersize": 7.0, "markerfacecolor": "none", "markeredgecolor": "black"},
    "best": {"marker": "o", "markersize": 4.0, "markerfacecolor": "#555555", "markeredgecolor": "#555555"},
    "honest": {"marker": "v", "markersize": 3.8, "markerfacecolor": "black", "markeredgecolor": "black"},
}


def draw_chart(chart: Chart) -> Figure:
    """Rows and columns of panels, with the legend in an empty cell, or else above."""
    rows, columns = chart.rows, chart.columns
    tall = 2.45 if any(panel.levels or panel.measured != ACCURACY for panel in chart.panels) else 1.75
    figure = Figure(figsize=(WIDTH if len(columns) > 1 else 3.8, len(rows) * tall + 0.5), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.04)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    empty = {(row, column): axes[row, column] for row in range(len(rows)) for column in range(len(columns))}
    for panel in chart.panels:
        place = (rows.index(panel.row), columns.index(panel.column))
        _panel(panel, empty.pop(place))
        if place[1] == 0:
            axes[place].set_ylabel(panel.measured)
    for axis in empty.values():
        axis.set_axis_off()
    _legend(figure, chart, list(empty.values()))
    return figure


def _panel(panel: Panel, axis: Axes) -> None:
    axis.set_title(panel.title)
    axis.set_xlabel(fill(panel.x_label, 34))
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    if panel.names:
        _runs(panel, axis)
        return
    if panel.log:
        axis.set_xscale("log")
        ticks = log_ticks([x for line in panel.lines for x in line.x])
        axis.xaxis.set_major_locator(FixedLocator([value for value, _ in ticks]))
        axis.xaxis.set_major_formatter(FixedFormatter([_in_any_font(*tick) for tick in ticks]))
        for tick in axis.xaxis.get_major_ticks(len(ticks)):
            tick.label1.set_parse_math(True)
        axis.xaxis.set_minor_locator(LogLocator(numticks=99))
        axis.xaxis.set_minor_formatter(NullFormatter())
    for place, line in enumerate(panel.lines):
        _curve(axis, line, panel, panel.banded(place))
    for level in panel.levels:
        color = HUES[STRATEGIES.get(level.strategy, 6)]
        axis.axhline(level.value.mean, color=color, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        if not math.isnan(level.value.sem):
            low, high = level.value.mean - level.value.sem, level.value.mean + level.value.sem
            axis.axhspan(low, high, color=color, alpha=0.18, linewidth=0, zorder=0)
    _limits(axis, panel)
    _label_levels(axis, panel)
    for mark in sorted(panel.marks, key=lambda mark: mark.by):
        _mark(axis, panel, mark)


def _runs(panel: Panel, axis: Axes) -> None:
    """Each run as a dot, with mean and standard deviation, for each name on the horizontal axis."""
    for side, line in enumerate(panel.lines):
        for x, value in zip(line.x, line.values, strict=True):
            at = x + (side - (len(panel.lines) - 1) / 2) * 0.4
            known = [each for each in value.per_seed if not math.isnan(each)]
            where = [at + 0.25 * off for off in scattered(known)]
            dots: dict[str, Any] = {"color": _color(line), "markersize": 2.6, "markeredgewidth": 0}
            axis.plot(where, known, "o", alpha=0.45, zorder=2, **dots)
            if not math.isnan(value.mean):
                bar: dict[str, Any] = {"color": "black", "markersize": 3, "linewidth": 1.0, "zorder": 4}
                axis.errorbar([at], [value.mean], yerr=[deviation(value)], fmt="o", **bar)
    axis.set_xticks(range(len(panel.names)), [fill(name, 12) for name in panel.names])
    axis.set_xlim(-0.5, len(panel.names) - 0.5)
    _limits(axis, panel)


def _mark(axis: Axes, panel: Panel, mark: Mark) -> None:
    """A ring, a dot, or a triangle that points down at the value; on the axis if there is no accuracy."""
    color = _color(panel.lines[mark.line])
    known = mark.value is not None and not math.isnan(mark.value.mean)
    y = mark.value.mean if mark.value and known else axis.get_ylim()[0]
    style = dict(MARKS[mark.by])
    if mark.by == "best":
        style |= {"markerfacecolor": color, "markeredgecolor": color}
    elif not known:
        style["markeredgecolor"] = color
    lift = ScaledTranslation(0, 6.5 / 72, axis.figure.dpi_scale_trans) if mark.by == "honest" else IdentityTransform()
    axis.plot([mark.x], [y], linestyle="none", clip_on=False, zorder=6, transform=axis.transData + lift, **style)


def _curve(axis: Axes, line: Line, panel: Panel, banded: bool) -> None:
    x = np.array(line.x)
    mean = np.array([value.mean for value in line.values])
    sem = np.nan_to_num(np.array([value.sem for value in line.values]))
    color = _color(line)
    marker, size = _marker(line, bool(panel.marks))
    width = 1.3 if line.shade is None else 0.9
    style = "none" if line.names else "-"
    axis.plot(x, mean, color=color, marker=marker, markersize=size, zorder=3, linewidth=width, linestyle=style)
    if banded and len(x) == 1:
        axis.errorbar(x, mean, yerr=sem, color=color, linewidth=0.9, zorder=2)
    elif banded:
        axis.fill_between(x, mean - sem, mean + sem, color=color, alpha=0.2, linewidth=0, zorder=2)


def _limits(axis: Axes, panel: Panel) -> None:
    low, high = limits_of(panel)
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if panel.lost:  # a line without points has no extent, which breaks the layout
        axis.plot(panel.lost, [low] * len(panel.lost), clip_on=False, **CROSS)


def _label_levels(axis: Axes, panel: Panel) -> None:
    """Names of the horizontal lines at the right edge, moved apart where they would overlap."""
    if not panel.levels:
        return
    low, high = axis.get_ylim()
    step = (high - low) * 0.058
    wanted = sorted(panel.levels, key=lambda level: level.value.mean)
    places = spread([level.value.mean for level in wanted], step, low, high)
    across = axis.get_yaxis_transform()
    for level, y in zip(wanted, places, strict=True):
        color = HUES[STRATEGIES.get(level.strategy, 6)]
        axis.plot([1.0, 1.07], [level.value.mean, y], transform=across, color=color, linewidth=0.6, clip_on=False)
        axis.text(1.08, y, level.label, transform=across, va="center", fontsize=6.5, color=_darker(color))


def _legend(figure: Figure, chart: Chart, empty: Sequence[Axes]) -> None:
    """A legend of curves and marks, and a separate one of shades."""
    by = chart.selected_by
    handles: list[Line2D] = []
    shades: list[Line2D] = []
    for name, line in sorted(chart.lines.items(), key=lambda item: item[1].hue):
        marker, size = _marker(line, bool(by))
        handle = Line2D([], [], color=_color(line), marker=marker, markersize=size, label=name)
        if line.names or len(line.x) == 1 or any(panel.names for panel in chart.panels):
            handle.set(linestyle="none", marker=marker or "o")
        (handles if line.shade is None else shades).append(handle)
    handles += [Line2D([], [], linestyle="none", label=WHO[who], **MARKS[who]) for who in MARKS if who in by]
    if any(panel.lost for panel in chart.panels):
        handles.append(Line2D([], [], label="diverged", **CROSS))
    if len(empty) > bool(shades):
        empty[0].legend(handles=handles, loc="center left", handlelength=1.6)
        if shades:
            empty[1].legend(handles=shades, loc="center left", ncols=2, handlelength=1.2)
        return
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 5), handlelength=1.6)
    if shades:
        figure.legend(handles=shades, loc="outside lower center", ncols=min(len(shades), 10), handlelength=1.2)


def _marker(line: Line, small: bool) -> tuple[str, float]:
    """A small marker if selected values are marked on the same curve; none with many curves or joined points."""
    if line.names:
        return "o", 2.2
    if line.shade is not None or len(line.x) > MANY:
        return "", 0.0
    return (".", 2.5) if small else (MARKERS[line.hue % len(MARKERS)], 3.0)


def _in_any_font(value: float, text: str) -> str:
    """Few fonts have superscript digits, so matplotlib typesets them."""
    return text if text.isascii() else rf"$\mathdefault{{10^{{{round(math.log10(value))}}}}}$"


def _color(line: Line) -> str:
    return HUES[line.hue % len(HUES)] if line.shade is None else ramp(0.9 * line.shade, LINES)


def _darker(color: str) -> str:
    return "#" + "".join(f"{int(int(color[i : i + 2], 16) * 0.72):02x}" for i in (1, 3, 5))


def draw_curves(table: ResultTable) -> Figure:
    """Accuracy on each task in the course of training, a panel for each cell."""
    tasks = table.cells[0].cell.stream.tasks
    figure, axes = panels_of(table, WIDTH, 0.92)
    for found, axis in filled(table, axes):
        means, sems = found.curves
        moments = np.arange(tasks + 1)
        for task, (mean, sem) in enumerate(zip(means.T, sems.T, strict=True)):
            color = task_color(task, tasks)
            turn = task + 1 if found.ends else 0
            axis.plot(moments[: turn + 1], mean[: turn + 1], color=color, linewidth=0.6, alpha=0.35)  # before its turn
            axis.plot(moments[turn:], mean[turn:], color=color, linewidth=1.0)
            axis.fill_between(moments, mean - sem, mean + sem, color=color, alpha=0.2, linewidth=0)
            if turn:
                axis.plot([turn], [mean[turn]], marker="o", markersize=2.4, color=color, clip_on=False)
        axis.set_ylim(-2, 102)
        axis.set_xlim(0, tasks)
        axis.set_yticks([0, 50, 100])
        axis.xaxis.set_major_locator(FixedLocator([0, tasks] if tasks > 5 else list(range(tasks + 1))))
        axis.grid(axis="y", color=GRID, linewidth=0.5)
        say_who_survived(axis, found)
    handles = [
        Line2D([], [], color=task_color(task, tasks), marker="o", markersize=2.5, label=f"task {task + 1}")
        for task in range(tasks)
    ]
    across = min(tasks, 10 if len(table.columns) > 2 else 5)
    figure.legend(handles=handles, loc="outside upper center", ncols=across, handlelength=1.2, columnspacing=1.0)
    figure.supxlabel(", ".join(dict.fromkeys(found.after for found in table.cells)), fontsize=8)
    figure.supylabel("accuracy on each task (%)", fontsize=8)
    return figure


def draw_matrices(table: ResultTable) -> Figure:
    """Accuracy after each task (down) on each task (across), averaged over seeds."""
    tasks = table.cells[0].cell.stream.tasks
    figure, axes = panels_of(table, WIDTH * 0.75, 0.9)
    for axis in axes.values():
        axis.set_box_aspect(1)
    for found, axis in filled(table, axes):
        mean = found.curves[0][1:]
        axis.imshow(mean, cmap=SCALE, vmin=0, vmax=100, aspect="equal", interpolation="nearest")
        shown = range(tasks) if tasks <= 5 else (0, tasks - 1)
        axis.set_xticks(shown, [str(t + 1) for t in shown])
        axis.set_yticks(shown, [str(t + 1) for t in shown])
        axis.tick_params(length=0, labelsize=5.5, pad=1)
        axis.spines[:].set_visible(False)
        say_who_survived(axis, found)
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
    ends = dict.fromkeys("task" if found.ends else "stretch of training" for found in table.cells)
    figure.supylabel(f"after {' or '.join(ends)}", fontsize=8)
    return figure


def draw_pictures(table: ResultTable, kept: str) -> Figure:
    """Images that methods kept after each task (down); first seed."""
    shown = [(found, images) for found in table.cells if (images := pictures(found, kept)) is not None]
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
        axis.set_title(f"{found.row}, {found.column}")
        side = images.shape[2] + 1
        for task in range(len(images)):
            axis.text(-2, (task + 0.5) * side, f"task {task + 1}", ha="right", va="center", fontsize=6)
    return figure


def panels_of(table: ResultTable, wide: float, height: float) -> tuple[Figure, dict[tuple[str, str], Axes]]:
    """A panel for each cell of the table."""
    methods = [row for _, row in table.rows]
    figure = Figure(figsize=(max(3.6, wide * min(1, len(table.columns) / 3)), len(methods) * height + 0.8))
    figure.set_layout_engine(ConstrainedLayoutEngine(h_pad=0.02, w_pad=0.03, hspace=0.02))
    axes = figure.subplots(len(methods), len(table.columns), squeeze=False)
    placed = {}
    for row, method in enumerate(methods):
        for column, scenario in enumerate(table.columns):
            axis = placed[method, scenario] = axes[row, column]
            if row == 0:
                axis.set_title(scenario.replace(", ", "\n"), loc="center", fontsize=8.5)
            if column == 0:
                beside = {"xytext": (-24, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
                axis.annotate(_folded(method), (0, 0.5), xycoords="axes fraction", fontsize=7.5, **beside)
    return figure, placed


def filled(table: ResultTable, axes: dict[tuple[str, str], Axes]) -> Iterator[tuple[TableCell, Axes]]:
    """The panels with something to draw. Only the outermost have tick labels; empty ones show the reason."""
    drawn = {(e.row, e.column) for e in table.cells if e.learned}
    methods = [row for _, row in table.rows]
    for place, axis in axes.items():
        if place not in drawn:
            _nothing(axis, "–" if place in table.why_not else "diverged" if place in table.at else "…")
            continue
        row, column = methods.index(place[0]), table.columns.index(place[1])
        lowest = not any((method, place[1]) in drawn for method in methods[row + 1 :])
        first = not any((place[0], other) in drawn for other in table.columns[:column])
        axis.tick_params(labelbottom=lowest, labelleft=first)
        yield table.at[place], axis


def say_who_survived(axis: Axes, found: TableCell) -> None:
    """Note below a panel that its mean is over some of the seeds only."""
    if found.survivors:
        axis.set_xlabel(fill(found.survivors, 22), fontsize=5.5, labelpad=1)


def _nothing(axis: Axes, text: str) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color="#777777")


def task_color(task: int, tasks: int) -> str:
    return ramp(0.85 * task / max(1, tasks - 1))


def _folded(name: str) -> str:
    if len(name) < 16:
        return name
    pieces = name.replace(" (", "\n(").replace(" + ", "\n+ ").splitlines()
    return "\n".join(fill(piece, 24) for piece in pieces)
