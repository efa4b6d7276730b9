"""What `reproduce` and `experiment` print when they end: the numbers; all the evidence is in `threefold report`."""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from threefold.experiments import Section
from threefold.report.terminal import comparison
from threefold.results import published_cells

PAPER_SEEDS = max(cell.n for cell in published_cells())


def show(sections: Sequence[Section], store: Path) -> None:
    """The tables, what they came to, and where to find more."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for section in sections:
        if section.kind == "table" and section.results:
            console.print(comparison(section.results, section.refused, narrow=console.width < 110))
        verdicts = Counter(str(v.outcome) for result in section.results if (v := result.verdict))
        words = [f"{count} of {verdicts.total()} cells: {outcome}" for outcome, count in verdicts.most_common()]
        runs = sum(len(result.records) for result in section.results)
        line = f"{section.title}: {runs} runs in {len(section.results)} cells."
        for text in (line, "; ".join(words), shortened(section)):
            if text:
                console.print(text, markup=False, highlight=False, soft_wrap=True)
    more = shlex.join(["threefold", "report", "--store", str(store), "--format", "html", "-o", "report.html"])
    console.print(f"All the evidence, the figures and why a cell shows a dash: {more}", highlight=False, soft_wrap=True)


def shortened(section: Section) -> str:
    """A sentence that says what was cut short, and the command that runs it in full."""
    cut = []
    for result in section.results:
        seeds = len(result.records)
        cut += result.cell.cuts()
        if section.selected == "oracle" and section.kind == "table" and seeds < PAPER_SEEDS:
            cut.append(f"{seeds} of {PAPER_SEEDS} seeds")
    if not cut:
        return ""
    words = shlex.split(section.command)
    name = words[2] if len(words) > 2 else section.name
    return f"This was shortened: {', '.join(dict.fromkeys(cut))}. In full: {shlex.join([*words[:2], name])}"
