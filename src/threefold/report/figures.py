"""Figures for a paper: SVG, PDF and PNG at page width."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from threefold.errors import ThreefoldError, unknown
from threefold.experiments import Section
from threefold.report.agreement import Agreement
from threefold.report.charts import charts
from threefold.report.during_training import during
from threefold.report.panels import Chart
from threefold.report.tables import TableCell, result_tables
from threefold.results import shown_images
from threefold.results.output import check_output, contains, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
MARKS = {  # by which a later command recognises a figure that it may replace
    "svg": b"<dc:title>threefold</dc:title>",
    "pdf": b"/Creator (threefold)",
    "png": b"Software\0threefold",
}
LONGEST = 120  # characters of a file's name


class Caption(NamedTuple):
    """The captions of pictures on a page."""

    title: str
    alt: str  # the alternative text, followed by the number of tasks
    permuted: str  # what looks like noise if pixels are permuted


PICTURES = {  # images that methods keep after each task, by the name in `keep`
    "dreams": Caption(
        "What the generator dreams after each task (down)", "Images of the generator after", "a good dream"
    ),
    "exemplars": Caption("What is stored first of each task (down)", "Stored images of", "an image"),
}

STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.2,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "path",
    "svg.hashsalt": "threefold",  # the same figure is the same file
    "pdf.fonttype": 42,
    "savefig.facecolor": "white",
    "text.parse_math": False,  # a name with two dollar signs is a name
}


def save(sections: Sequence[Section], folder: str | Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw all figures; returns the files: `FIGURE-STREAM.svg` and so on."""
    import matplotlib

    for kind in formats:
        if kind not in FORMATS:
            raise unknown("format of figures", kind, FORMATS)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ThreefoldError(f"figures '{place}' cannot be a folder: {error.strerror}; give another name.") from error
    figures = [([place / f"{name}.{kind}" for kind in formats], draw) for name, draw in drawings(sections)]
    written = [path for paths, _ in figures for path in paths]
    for path in written:
        check_output(path, contains(MARKS[path.suffix[1:]]))
    with matplotlib.rc_context(STYLE):
        for paths, draw in figures:
            figure = draw()
            for path in paths:
                _write(figure, path)
    return written


def save_chart(chart: Chart, path: Path) -> None:
    """One figure over budgets or hyperparameters; the file carries the chart's fingerprint."""
    import matplotlib

    from threefold.report.drawing import draw_chart

    with matplotlib.rc_context(STYLE):
        _write(draw_chart(chart), path, chart.fingerprint)


def _write(figure: "Figure", path: Path, shown: str | None = None) -> None:
    """Write a figure without a date, so that the same results give the same bytes."""
    kind = path.suffix[1:]
    about: dict[str, dict[str, str | None]] = {
        "svg": {"Creator": "threefold", "Date": None, "Description": shown},
        "pdf": {"Creator": "threefold", "CreationDate": None},
        "png": {"Software": "threefold"},
    }
    with replacing(path, contains(MARKS[kind])) as stream:
        figure.savefig(stream, format=kind, dpi=200, metadata=about[kind])


def drawings(sections: Sequence[Section]) -> "Iterator[tuple[str, Callable[[], Figure]]]":
    """Every figure, by its file name, drawn when called."""
    from threefold.report.drawing import draw_chart, draw_curves, draw_matrices, draw_pictures
    from threefold.report.drawing_training import draw_training

    taken: set[str] = set()

    def named(name: str) -> str:
        unique = name = file_name(name)
        while unique in taken:
            unique += "-2"
        taken.add(unique)
        return unique

    for _, chart in charts(sections):
        yield named(chart.name), partial(draw_chart, chart)
    if (agreement := Agreement.of(sections)).plotted:
        yield named(agreement.chart.name), partial(draw_chart, agreement.chart)
    for section in sections:
        for table in result_tables(section) if section.kind == "table" else []:
            if not any(e.learned for e in table.cells):
                continue
            base = f"{section.name}-{table.stream}"
            yield named(f"{base}-forgetting"), partial(draw_curves, table)
            yield named(f"{base}-matrices"), partial(draw_matrices, table)
            if any(during(e.result) for e in table.cells):
                yield named(f"{base}-training"), partial(draw_training, table)
            for kept in PICTURES:
                if any(pictures(e, kept) is not None for e in table.cells):
                    yield named(f"{base}-{kept}"), partial(draw_pictures, table, kept)


def pictures(found: TableCell, kept: str) -> NDArray[np.uint8] | None:
    """Images kept in the first seed's run: tasks × images × rows × columns (× 3 in colour); None if there are none."""
    try:
        images = found.result.kept(kept)[0]
    except (KeyError, ValueError):  # not kept, or not of one shape
        return None
    return shown_images(images)


def mosaic(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images arranged in rows and columns, one pixel apart."""
    padded = np.pad(images, ((0, 0), (0, 0), (0, 1), (0, 1), (0, 0))[: images.ndim])
    rows, columns, height, width, *colours = padded.shape
    return padded.swapaxes(1, 2).reshape(rows * height, columns * width, *colours)[:-1, :-1]


def file_name(name: str) -> str:
    """A safe file name, whatever the data are called."""
    safe = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.") or "figure"
    return safe if len(safe) <= LONGEST else f"{safe[: LONGEST - 9]}-{sha256(name.encode()).hexdigest()[:8]}"
