"""Small charts as inline SVG. Colours are classes of the page's style sheet, so they follow light and dark mode."""

import math
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from threefold.report.during_training import SEEN, During, thinned
from threefold.report.formatting import short
from threefold.report.palette import HUES, STRATEGIES, legible_on, ramp
from threefold.report.panels import ACCURACY, WHO, Level, Line, Mark, Panel, deviation, reach, scattered
from threefold.report.tables import TableCell
from threefold.results import Published, Summary

WIDE, TALL = 340, 230
WHOLE = 1000  # width of a page
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 10, 36
PER_CENT = (0.0, 101.0)
SHADES = 10  # classes r0 … r9
MANY = 30  # points of a curve from which they have no markers
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shade(place: float) -> str:
    """The CSS class of a colour on a scale from 0 to 1."""
    return f"r{min(SHADES - 1, max(0, round(place * (SHADES - 1))))}"


def color(line: Line) -> str:
    """The CSS classes of a curve's colour; where there are more curves than hues, the further ones are dashed."""
    again = " again" if line.hue >= len(HUES) else ""
    return f"s{line.hue % len(HUES)}{again}" if line.shade is None else shade(line.shade)


class Frame:
    """A coordinate system with its axes."""

    def __init__(
        self, xs: Sequence[float], ys: tuple[float, float], log: bool, right: int = RIGHT, wide: int = WIDE
    ) -> None:
        self.log, self.low, self.high, self.edge = log, ys[0], ys[1], wide - right
        places = [self._scale(x) for x in xs]
        self.first, self.last = min(places), max(places)

    def _scale(self, x: float) -> float:
        return math.log10(x) if self.log else x

    def x(self, value: float) -> float:
        span = self.last - self.first
        share = (self._scale(value) - self.first) / span if span else 0.5
        return LEFT + 6 + share * (self.edge - LEFT - 12)

    def y(self, value: float) -> float:
        return TOP + (self.high - value) / (self.high - self.low) * (TALL - TOP - BOTTOM)

    def points(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))

    def band(self, xs: Sequence[float], means: Sequence[float], sems: Sequence[float]) -> str:
        upper = self.points(xs, [mean + sem for mean, sem in zip(means, sems, strict=True)])
        lower = self.points(xs[::-1], [mean - sem for mean, sem in zip(means, sems, strict=True)][::-1])
        return f'<polygon class="band" points="{upper} {lower}"/>'

    def bar(self, x: float, mean: float, sem: float) -> str:
        return f'<path class="line" d="M{self.x(x):.1f} {self.y(mean - sem):.1f}V{self.y(mean + sem):.1f}"/>'

    def axes(self, ticks: Sequence[tuple[float, str]], label: str, beside: str = "") -> str:
        """Ticks and grid lines, the label below, and the label of the vertical axis."""
        edge, floor = self.edge, TALL - BOTTOM
        parts = []
        for value in nice(self.low, self.high):
            y = self.y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{edge}"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{y + 3.5:.1f}" class="end">{short(value)}</text>')
        parts.append(f'<path class="axis" d="M{LEFT} {floor}H{edge}"/>')
        for value, text in ticks:
            parts.append(f'<text x="{self.x(value):.1f}" y="{floor + 13}" class="mid">{escape(text)}</text>')
        middle = (LEFT + edge) / 2
        parts.append(f'<text x="{middle:.0f}" y="{TALL - 6}" class="mid label">{escape(label)}</text>')
        if beside:
            turned = f'transform="translate(8 {(TOP + floor) / 2:.0f}) rotate(-90)"'
            parts.append(f'<text {turned} class="mid label">{escape(beside)}</text>')
        return "".join(parts)


def nice(low: float, high: float) -> list[float]:
    """Four to six round numbers between two limits."""
    rough = (high - low) / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough * 0.8)
    return [round(step * i, 6) for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def limits(values: Sequence[float], least: float = 10.0, within: tuple[float, float] = PER_CENT) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return 0.0, 100.0
    room = max((max(known) - min(known)) * 0.08, (least - max(known) + min(known)) / 2)
    return max(within[0], min(known) - room), min(within[1], max(known) + room)


def limits_of(panel: Panel) -> tuple[float, float]:
    """The limits of the vertical axis: accuracies are percentages, other numbers are unbounded."""
    return limits(reach(panel), within=PER_CENT if panel.measured == ACCURACY else (-math.inf, math.inf))


def chart(panel: Panel) -> str:
    """One panel of curves, or of runs."""
    if panel.names:
        return _runs(panel)
    xs = sorted({x for line in panel.lines for x in line.x} | {mark.x for mark in panel.marks})
    frame = Frame(xs, limits_of(panel), panel.log, right=88 if panel.levels else RIGHT)
    ticks = log_ticks(xs) if panel.log else [(value, short(value)) for value in nice(xs[0], xs[-1])]
    parts = [frame.axes(ticks, panel.x_label, panel.measured)]
    edge = frame.edge
    names = sorted(panel.levels, key=lambda level: level.value.mean)
    places = spread([-frame.y(level.value.mean) for level in names], 11.5, -(TALL - BOTTOM), -TOP)
    for level, place in zip(names, places, strict=True):
        parts.append(_level(frame, level, -place, edge))
    for place, line in enumerate(panel.lines):
        parts.append(_curve(frame, line, panel.banded(place), dots=not panel.marks))
    floor = TALL - BOTTOM
    parts += [f'<path class="lost" d="M{frame.x(x) - 3:.1f} {floor - 3}l6 6m0 -6l-6 6"/>' for x in panel.lost]
    parts += [_mark(frame, panel, mark) for mark in sorted(panel.marks, key=lambda mark: mark.by)]
    return _figure(WIDE, TALL, f"{panel.title}: {panel.measured} over {panel.x_label}", "".join(parts))


def _runs(panel: Panel) -> str:
    """Each run as a dot, with mean and standard deviation, for each name on the horizontal axis."""
    frame = Frame([-0.5, len(panel.names) - 0.5], limits_of(panel), False)
    parts = [frame.axes([], panel.x_label, panel.measured)]
    apart = len(panel.names) * max(map(len, panel.names)) * 6 > WIDE  # stagger names that would overlap
    for place, name in enumerate(panel.names):
        low = TALL - BOTTOM + 13 + 12 * (apart and place % 2)
        parts.append(f'<text x="{frame.x(place):.1f}" y="{low}" class="mid">{escape(name)}</text>')
    for side, line in enumerate(panel.lines):
        body = ""
        for x, value in zip(line.x, line.values, strict=True):
            at = x + (side - (len(panel.lines) - 1) / 2) * 0.4
            known = [each for each in value.per_seed if not math.isnan(each)]
            dots = zip(scattered(known), known, strict=True)
            body += f'<path class="runs" d="{"".join(_dot(frame, at + 0.25 * off, each) for off, each in dots)}"/>'
            if math.isnan(value.mean):
                continue
            own = deviation(value)
            tip = escape(f"{panel.names[int(x)]}, {line.label}: {value.mean:.2f}, standard deviation {own:.2f}")
            body += f'<g><title>{tip}</title><path class="range" d="M{frame.x(at):.1f} {frame.y(value.mean - own):.1f}'
            body += f'V{frame.y(value.mean + own):.1f}"/><circle class="mean" cx="{frame.x(at):.1f}"'
            body += f' cy="{frame.y(value.mean):.1f}" r="2.6"/></g>'
        parts.append(f'<g class="{color(line)}">{body}</g>')
    return _figure(WIDE, TALL, f"{panel.title}: average accuracy of each run", "".join(parts))


def _dot(frame: Frame, x: float, y: float) -> str:
    return f"M{frame.x(x):.1f} {frame.y(y):.1f}h0"


def _level(frame: Frame, level: Level, at: float, edge: int) -> str:
    """A horizontal line with its band, and its name at the right at height `at`."""
    mean, sem = level.value.mean, level.value.sem
    y = frame.y(mean)
    band = ""
    if not math.isnan(sem):
        top, height = frame.y(mean + sem), frame.y(mean - sem) - frame.y(mean + sem)
        band = f'<path class="band" d="M{LEFT} {top:.1f}H{edge}v{height:.1f}H{LEFT}z"/>'
    line = (
        f'<path class="level" d="M{LEFT} {y:.1f}H{edge}"/><path class="lead" d="M{edge} {y:.1f}L{edge + 6} {at:.1f}"/>'
    )
    label = level.label if len(level.label) <= 15 else f"{level.label[:14]}…"
    name = f'<text x="{edge + 8}" y="{at + 3.5:.1f}" class="own">{escape(label)}</text>'
    tip = f"<title>{escape(f'{level.label}: {mean:.2f}')}</title>"
    return f'<g class="s{STRATEGIES.get(level.strategy, 6)}">{tip}{band}{line}{name}</g>'


def _mark(frame: Frame, panel: Panel, mark: Mark) -> str:
    """A ring, a dot, or a triangle that points down at the value; on the axis if there is no accuracy."""
    known = mark.value is not None and not math.isnan(mark.value.mean)
    x, y = frame.x(mark.x), frame.y(mark.value.mean) if mark.value and known else TALL - BOTTOM
    line = panel.lines[mark.line]
    tip = f"{WHO[mark.by]}: {short(mark.x)}" + (f", {line.label}" if line.shade is not None else "")
    title = f"<title>{escape(tip)}</title>"
    if mark.by == "honest":
        return f'<path class="peekless" d="M{x - 4:.1f} {y - 13:.1f}h8l-4 7z">{title}</path>'
    drawn = ("ring" if known else "ring untried") if mark.by == "paper" else "dot"
    shape = f'cx="{x:.1f}" cy="{y:.1f}" r="{6 if mark.by == "paper" else 3.5}"'
    return f'<circle class="{drawn} {color(line)}" {shape}>{title}</circle>'


def spread(wanted: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Positions at least `step` apart, each near its wanted one (in ascending order): overlapping labels form a block
    around their middle, and overlapping blocks merge."""
    blocks: list[list[float]] = []

    def start(block: list[float]) -> float:
        first = sum(block) / len(block) - step * (len(block) - 1) / 2
        return max(low, min(first, high - step * (len(block) - 1)))

    for value in wanted:
        blocks.append([value])
        while len(blocks) > 1 and start(blocks[-2]) + step * len(blocks[-2]) > start(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [start(block) + step * i for block in blocks for i in range(len(block))]


def _curve(frame: Frame, line: Line, banded: bool, dots: bool) -> str:
    body = ""
    for xs, values in _stretches(line):
        means, sems = [value.mean for value in values], [value.sem for value in values]
        if banded and not any(map(math.isnan, sems)):
            body += frame.band(xs, means, sems) if len(line.x) > 1 else frame.bar(xs[0], means[0], sems[0])
        body += "" if line.names else f'<polyline class="line" points="{frame.points(xs, means)}"/>'
        named = line.names or [f"{line.label}, {short(x)}" for x in xs]
        marked = line.names or (dots and len(xs) <= MANY) or len(xs) == 1
        for name, x, mean in zip(named, xs, means, strict=True) if marked else ():
            tip = escape(f"{name}: {mean:.2f}")
            where = f'cx="{frame.x(x):.1f}" cy="{frame.y(mean):.1f}"'
            body += f'<circle class="dot" {where} r="2.4"><title>{tip}</title></circle>'
    return f'<g class="{color(line)}"><title>{escape(line.label)}</title>{body}</g>' if body else ""


def _stretches(line: Line) -> list[tuple[list[float], list[Summary]]]:
    """The segments of a curve, which is interrupted where a point diverged."""
    found: list[tuple[list[float], list[Summary]]] = [([], [])]
    for x, value in zip(line.x, line.values, strict=True):
        if math.isnan(value.mean):
            found.append(([], []))
        else:
            found[-1][0].append(x)
            found[-1][1].append(value)
    return [stretch for stretch in found if stretch[0]]


def log_ticks(xs: Sequence[float]) -> list[tuple[float, str]]:
    """At most six decades, written as powers of ten if they span more than five."""
    first = math.ceil(math.log10(min(xs)) - 1e-9)
    last = math.floor(math.log10(max(xs)) + 1e-9)
    if last - first < 1:  # at most one whole power
        near = [m * 10.0**power for power in range(first - 1, last + 2) for m in (1, 2, 5)]
        return [(value, short(value)) for value in near if min(xs) * 0.999 <= value <= max(xs) * 1.001]
    step = max(1, math.ceil((last - first) / 5))
    powers = range(first, last + 1, step)
    if last - first > 4:
        return [(10.0**power, f"10{str(power).translate(SUPERSCRIPTS)}") for power in powers]
    return [(10.0**power, short(10.0**power)) for power in powers]


def forgetting(found: TableCell) -> str:
    """Accuracy on each task in the course of training: the mean over seeds that did not diverge, and their number."""
    means, sems = found.curves
    tasks = means.shape[1]
    moments = list(range(tasks + 1))
    frame = Frame(moments, (0.0, 101.0), False, right=46)
    ticks = [(float(m), str(m)) for m in moments if tasks <= 6 or m % 2 == 0]
    parts = [frame.axes(ticks, found.after)]
    ends = sorted(range(tasks), key=lambda task: means[-1, task])
    places = spread([-frame.y(means[-1, task]) for task in ends], 10.5, -(TALL - BOTTOM), -TOP)
    for task in range(tasks):
        ys = means[:, task].tolist()
        turn = task + 1 if found.ends else 0
        before = frame.points(moments[: turn + 1], ys[: turn + 1])
        after = frame.points(moments[turn:], ys[turn:])
        learned = f'<circle class="dot" cx="{frame.x(turn):.1f}" cy="{frame.y(ys[turn]):.1f}" r="2.4"/>' if turn else ""
        y = -places[ends.index(task)]
        parts.append(
            f'<g class="{shade(task / max(1, tasks - 1))}"><title>task {task + 1}: {ys[-1]:.1f} at the end</title>'
            f"{frame.band(moments, ys, sems[:, task].tolist())}"
            f'<polyline class="line faint" points="{before}"/><polyline class="line" points="{after}"/>'
            f"{learned}"
            f'<text x="{WIDE - 44}" y="{y + 3:.1f}" class="own">task {task + 1}</text></g>'
        )
    return _figure(WIDE, TALL, "Accuracy on each task as training goes on", "".join(parts), found.survivors)


def training(found: TableCell, shown: During, wide: int = WIDE) -> str:
    """Accuracy on each task over all steps, the switches of tasks, the average over earlier tasks, and its gaps."""
    tasks, xs = shown.mean.shape[1], shown.steps
    frame = Frame([0, xs[-1]], (0.0, 101.0), False, right=46, wide=wide)
    parts = [frame.axes([(step, short(step)) for step in nice(0, xs[-1])], "steps of training")]
    top, floor = f"{TOP}", f"{TALL - BOTTOM}"
    parts += [f'<path class="switch" d="M{frame.x(step):.1f} {top}V{floor}"/>' for step in shown.switches]
    ends = sorted(range(tasks), key=lambda task: shown.mean[-1, task])
    places = spread([-frame.y(shown.mean[-1, task]) for task in ends], 10.5, -(TALL - BOTTOM), -TOP)
    for task in range(tasks):
        mean = shown.mean[:, task]
        kept = thinned([frame.x(x) for x in xs], mean)
        own = [xs[place] for place in kept]
        parts.append(
            f'<g class="{shade(task / max(1, tasks - 1))}"><title>task {task + 1}: {mean[-1]:.1f} at the end</title>'
            f"{frame.band(own, mean[kept].tolist(), shown.sem[kept, task].tolist())}"
            f'<polyline class="line thin" points="{frame.points(own, mean[kept].tolist())}"/>'
            f'<text x="{wide - 44}" y="{-places[ends.index(task)] + 3:.1f}" class="own">task {task + 1}</text></g>'
        )
    earlier = shown.earlier()
    for first, last in pairwise([*shown.switches, xs[-1]] if shown.gaps else []):
        within = [place for place, x in enumerate(xs) if first < x <= last]
        own = [within[place] for place in thinned([frame.x(xs[place]) for place in within], earlier[within])]
        points = frame.points([xs[place] for place in own], earlier[own].tolist())
        parts.append(f'<polyline class="earlier" points="{points}"/>')
    for gap in shown.gaps:
        if gap.depth >= SEEN:
            switch = shown.switches[gap.task - 1]
            tip = f"gap of {gap.depth:.1f} points, nine tenths of it made up after {gap.recovered} steps"
            where = f'cx="{frame.x(switch + gap.at):.1f}" cy="{frame.y(gap.lowest):.1f}"'
            parts.append(f'<circle class="ring" {where} r="3.5"><title>{tip}</title></circle>')
    label = "Accuracy on each task during training"
    return _figure(wide, TALL, label, "".join(parts), found.survivors)


def heat_map(found: TableCell) -> str:
    """Accuracy after each task (down) on each task (across): mean over the seeds that did not diverge."""
    matrix = found.curves[0][1:]
    tasks = len(matrix)
    side = 200 / tasks
    parts = []
    for task in range(tasks):
        at = (task + 0.5) * side
        parts.append(f'<text x="{at + 28:.1f}" y="212" class="mid">{task + 1}</text>')
        parts.append(f'<text x="22" y="{at + 3.5:.1f}" class="end">{task + 1}</text>')
    size = 9 if tasks <= 6 else 7.5
    for (row, column), value in np.ndenumerate(matrix):
        x, y = 28 + column * side, row * side
        parts.append(f'<path d="M{x:.1f} {y:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z" fill="{ramp(value / 100)}"/>')
        ink = "in light" if legible_on(value / 100) == "#ffffff" else "in"
        where = f'x="{x + side / 2:.1f}" y="{y + side / 2 + 3:.1f}" font-size="{size}"'
        parts.append(f'<text {where} class="{ink}">{value:.0f}</text>')
    parts.append('<text x="128" y="226" class="mid label">accuracy on task</text>')
    beside = "after training on task" if found.ends else "after stretch of training"
    parts.append(f'<text transform="translate(8 100) rotate(-90)" class="mid label">{beside}</text>')
    label = f"Accuracy after each {'task' if found.ends else 'stretch'} on each task, per cent"
    return _figure(232, 230, label, "".join(parts), found.survivors, ' class="square"')


def seeds(accuracy: Summary, published: Published | None) -> str:
    """Each seed as a dot, the mean with its standard error, and the published mean with its own."""
    values = [v for v in accuracy.per_seed if not math.isnan(v)]
    shown = list(values)
    if published:
        error = 0.0 if math.isnan(published.sem) else published.sem
        shown += [published.mean - error, published.mean + error]
    if not shown:
        return ""
    low, high = limits(shown, 2.0)

    def x(value: float) -> float:
        return 60 + (value - low) / (high - low) * (WIDE - 72)

    parts = ['<text x="0" y="19">seeds</text><text x="0" y="37">mean</text>']
    parts += [f'<circle class="seed" cx="{x(v):.1f}" cy="15" r="3.2"><title>{v:.2f}</title></circle>' for v in values]
    rows: list[tuple[float, float, int, str]] = [(accuracy.mean, accuracy.sem, 33, "s0")]
    if published:
        rows.append((published.mean, published.sem, 51, "s1"))
        parts.append('<text x="0" y="55">published</text>')
    for mean, sem, y, kind in rows:
        if math.isnan(mean):
            continue
        error = 0.0 if math.isnan(sem) else sem
        parts.append(f'<g class="{kind}"><path class="line" d="M{x(mean - error):.1f} {y}H{x(mean + error):.1f}"/>')
        parts.append(f'<circle class="dot" cx="{x(mean):.1f}" cy="{y}" r="3.2"/></g>')
    for value in nice(low, high):
        parts.append(f'<text x="{x(value):.1f}" y="76" class="mid">{short(value)}</text>')
        parts.append(f'<path class="grid" d="M{x(value):.1f} 4V64"/>')
    return _figure(WIDE, 80, "Accuracy of each seed, the mean, and the published mean", "".join(parts))


def _figure(width: int, height: int, label: str, body: str, note: str = "", kind: str = "") -> str:
    """An SVG element with its label for screen readers, and a note below it."""
    if note:
        body += f'<text x="{width / 2:.0f}" y="{height + 8}" class="mid label">{escape(note)}</text>'
        height, label = height + 14, f"{label} ({note})"
    return f'<svg{kind} viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'


def picture(pixels: NDArray[np.uint8]) -> str:
    """An image as a data URL of a PNG: in colour, or in sixteen shades of grey, two pixels per byte."""
    image, file = Image.fromarray(pixels), BytesIO()
    if pixels.ndim == 2:
        image = Image.fromarray(pixels >> 4)
        image.putpalette([17 * shade for shade in range(16) for _ in "RGB"])
    image.save(file, "PNG", compress_level=9, bits=8 if pixels.ndim > 2 else 4)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
