"""How the figures are drawn. Imported only when one is: matplotlib takes a while."""

import math
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from threefold.report.palette import HUES, STRATEGIES, ramp
from threefold.report.panels import Chart, Line, Panel
from threefold.report.svg import limits, spread
from threefold.report.words import short

WIDTH = 7.2  # inches: the text of a page
MARKERS = "osD^vP"
SCALE = LinearSegmentedColormap.from_list("threefold", [ramp(i / 19) for i in range(20)])
GRID = "#e4e4e4"


def draw_chart(chart: Chart) -> Figure:
    """Panels in rows of three, one legend below."""
    columns = min(3, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    levels = any(panel.levels for panel in chart.panels)
    tall = 2.7 if levels else 2.1
    figure = Figure(figsize=(WIDTH if columns > 1 else 4.2, rows * tall + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(chart.panels) :]:
        axis.set_visible(False)
    for place, (panel, axis) in enumerate(zip(chart.panels, axes.flat, strict=False)):
        _panel(panel, axis)
        if place % columns == 0:
            axis.set_ylabel("average accuracy (%)")
    _legend(figure, chart)
    return figure


def _panel(panel: Panel, axis: Axes) -> None:
    axis.set_title(panel.title)
    axis.set_xlabel(fill(panel.x_label, 34))
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    if panel.log:
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(numticks=6))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _power(x)))
    for line in panel.lines:
        _curve(axis, line, panel)
    for level in panel.levels:
        color = HUES[STRATEGIES.get(level.strategy, 6)]
        axis.axhline(level.value.mean, color=color, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        if not math.isnan(level.value.sem):
            low, high = level.value.mean - level.value.sem, level.value.mean + level.value.sem
            axis.axhspan(low, high, color=color, alpha=0.18, linewidth=0, zorder=0)
    _limits(axis, panel)
    _label_levels(axis, panel)
    bottom = axis.get_ylim()[0]
    for mark in sorted(panel.marks, key=lambda mark: mark.by):
        color = _color(panel.lines[mark.line])
        ring = mark.by == "paper"
        on_axis = mark.value is None or math.isnan(mark.value.mean)
        y = bottom if mark.value is None or on_axis else mark.value.mean
        axis.plot(
            [mark.x],
            [y],
            marker="o",
            markersize=7.5 if ring else 4.5,
            markerfacecolor="none" if ring else color,
            markeredgecolor="black" if ring and not on_axis else color,
            markeredgewidth=1.0,
            linestyle="none",
            clip_on=False,
            zorder=6,
        )


def _curve(axis: Axes, line: Line, panel: Panel) -> None:
    x = np.array(line.x)
    mean = np.array([value.mean for value in line.values])
    sem = np.nan_to_num(np.array([value.sem for value in line.values]))
    color = _color(line)
    marker = "" if panel.marks or len(x) > 30 else MARKERS[line.hue % len(MARKERS)]
    if len(x) == 1:
        marker = "o"
    axis.plot(x, mean, color=color, marker=marker, markersize=3, zorder=3, linewidth=1.4 if line.shade is None else 1.0)
    if line.shade is None:  # the bands of many shades would hide each other
        axis.fill_between(x, mean - sem, mean + sem, color=color, alpha=0.2, linewidth=0, zorder=2)


def _limits(axis: Axes, panel: Panel) -> None:
    values = [v.mean for line in panel.lines for v in line.values] + [level.value.mean for level in panel.levels]
    low, high = limits(values)
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    lost = [x for line in panel.lines for x, v in zip(line.x, line.values, strict=True) if math.isnan(v.mean)]
    if lost:
        axis.plot(lost, [low] * len(lost), marker="x", color="#777777", markersize=4, linestyle="none", clip_on=False)


def _label_levels(axis: Axes, panel: Panel) -> None:
    """Names of the horizontal lines at the right edge, pushed apart where they would overlap."""
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


def _legend(figure: Figure, chart: Chart) -> None:
    """Curves and marks above the panels, shades below."""
    lines = {line.label: line for panel in chart.panels for line in panel.lines}
    marked = any(panel.marks for panel in chart.panels)
    handles: list[Line2D] = []
    shades: list[Line2D] = []
    for name, line in sorted(lines.items(), key=lambda item: item[1].hue):
        marker = "" if marked else MARKERS[line.hue % len(MARKERS)]
        handle = Line2D([], [], color=_color(line), marker=marker, markersize=3, label=name)
        (handles if line.shade is None else shades).append(handle)
    if marked:
        for name, size, face in (("paper's choice", 6.5, "none"), ("best of ours", 4.5, "#555555")):
            edge = "black" if face == "none" else face
            point = Line2D([], [], marker="o", linestyle="none", markersize=size, markeredgecolor=edge, label=name)
            point.set_markerfacecolor(face)
            handles.append(point)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 6), handlelength=1.6)
    if shades:
        figure.legend(handles=shades, loc="outside lower center", ncols=min(len(shades), 11), handlelength=1.2)


def _color(line: Line) -> str:
    return HUES[line.hue % len(HUES)] if line.shade is None else ramp(0.82 * line.shade)


def _darker(color: str) -> str:
    return "#" + "".join(f"{int(int(color[i : i + 2], 16) * 0.72):02x}" for i in (1, 3, 5))


def _power(value: float) -> str:
    return short(value) if value < 1e5 and value >= 1e-2 else f"1e{round(math.log10(value))}"
