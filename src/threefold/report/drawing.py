"""How the figures are drawn. Imported only when one is: matplotlib takes a while."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import IdentityTransform, ScaledTranslation

from threefold.report.palette import HUES, LINES, STRATEGIES, ramp
from threefold.report.panels import WHO, By, Chart, Line, Mark, Panel, reach
from threefold.report.svg import limits, log_ticks, spread

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
    """Rows and columns of panels; the legend in places that are left empty, or else above."""
    rows, columns = chart.rows, chart.columns
    tall = 2.45 if any(panel.levels for panel in chart.panels) else 1.75
    figure = Figure(figsize=(WIDTH if len(columns) > 1 else 3.8, len(rows) * tall + 0.5), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.04)  # type: ignore[union-attr, call-arg]
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    empty = {(row, column): axes[row, column] for row in range(len(rows)) for column in range(len(columns))}
    for panel in chart.panels:
        place = (rows.index(panel.row), columns.index(panel.column))
        _panel(panel, empty.pop(place))
        if place[1] == 0:
            axes[place].set_ylabel("average accuracy (%)")
    for axis in empty.values():
        axis.set_axis_off()
    _legend(figure, chart, list(empty.values()))
    return figure


def _panel(panel: Panel, axis: Axes) -> None:
    axis.set_title(panel.title)
    axis.set_xlabel(fill(panel.x_label, 34))
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
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


def _mark(axis: Axes, panel: Panel, mark: Mark) -> None:
    """A ring, a dot, or a triangle that points down at the place; on the axis where there is no accuracy."""
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
    marker, size = _marker(line, bool(panel.marks) or len(x) > 30)
    width = 1.3 if line.shade is None else 0.9
    axis.plot(x, mean, color=color, marker=marker, markersize=size, zorder=3, linewidth=width)
    if banded:
        axis.fill_between(x, mean - sem, mean + sem, color=color, alpha=0.2, linewidth=0, zorder=2)


def _limits(axis: Axes, panel: Panel) -> None:
    low, high = limits(reach(panel))
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    if panel.lost:  # a line without points would have no size, and the layout none either
        axis.plot(panel.lost, [low] * len(panel.lost), clip_on=False, **CROSS)


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


def _legend(figure: Figure, chart: Chart, empty: Sequence[Axes]) -> None:
    """Curves and marks; shades apart from them."""
    lines = {line.label: line for panel in chart.panels for line in panel.lines}
    by = {mark.by for panel in chart.panels for mark in panel.marks}
    handles: list[Line2D] = []
    shades: list[Line2D] = []
    for name, line in sorted(lines.items(), key=lambda item: item[1].hue):
        marker, size = _marker(line, bool(by))
        handle = Line2D([], [], color=_color(line), marker=marker, markersize=size, label=name)
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
    """Small where selected values are marked on the same curve, none where there are many curves."""
    if line.shade is not None:
        return "", 0.0
    return (".", 2.5) if small else (MARKERS[line.hue % len(MARKERS)], 3.0)


def _in_any_font(value: float, text: str) -> str:
    """Few fonts have small digits above the line; matplotlib makes them of large ones."""
    return text if text.isascii() else rf"$\mathdefault{{10^{{{round(math.log10(value))}}}}}$"


def _color(line: Line) -> str:
    return HUES[line.hue % len(HUES)] if line.shade is None else ramp(0.9 * line.shade, LINES)


def _darker(color: str) -> str:
    return "#" + "".join(f"{int(int(color[i : i + 2], 16) * 0.72):02x}" for i in (1, 3, 5))
