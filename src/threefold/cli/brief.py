"""What `reproduce` and `experiment` print when they end: the numbers; all the evidence is in `threefold report`."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from threefold.cli.stdout import console
from threefold.experiments import Section
from threefold.experiments.command import at
from threefold.report.terminal import fitting
from threefold.report.words import count
from threefold.results import published_cells
from threefold.text import printable

PAPER_SEEDS = max(cell.n for cell in published_cells())


def show(sections: Sequence[Section], store: Path) -> None:
    """The tables, what they came to, and where to find more."""
    with console(120) as screen:
        _print(screen, sections, store)


def _print(screen: Console, sections: Sequence[Section], store: Path) -> None:
    for section in sections:
        for protocol in dict.fromkeys(result.cell.protocol.title for result in section.results):
            if section.kind == "table":
                mine = [result for result in section.results if result.cell.protocol.title == protocol]
                refused = [pair for pair in section.refused if pair[0].protocol.title == protocol]
                screen.print(fitting(screen, mine, refused))
        verdicts = Counter(str(v.outcome) for result in section.results if (v := result.verdict))
        words = [f"{number} of {verdicts.total()} cells: {outcome}" for outcome, number in verdicts.most_common()]
        runs = sum(len(result.records) for result in section.results)
        line = f"{section.title}: {count(runs, 'run')} in {count(len(section.results), 'cell')}."
        for text in (line, "; ".join(words), shortened(section, store)):
            if text:
                screen.print(printable(text), markup=False, highlight=False, soft_wrap=True)
    more = shlex.join(["threefold", "report", "--store", str(store), "--format", "html", "-o", "report.html"])
    told = printable(f"All the evidence, the figures and why a cell shows a dash: {more}")
    screen.print(told, markup=False, highlight=False, soft_wrap=True)


def shortened(section: Section, store: Path) -> str:
    """A sentence that says what is less than in the paper, and the command that runs all of it, if there is one."""
    cut = []
    for result in section.results:
        seeds = len(result.records)
        cut += result.cell.cuts()
        if section.selected == "oracle" and section.kind == "table" and seeds < PAPER_SEEDS:
            cut.append(f"{seeds} of {PAPER_SEEDS} seeds")
    if not cut:
        return ""
    told = f"This was shortened: {', '.join(dict.fromkeys(cut))}."
    commands = section.command.split(" && ")
    full = dict.fromkeys(map(_in_full, commands))
    if list(full) == commands:  # so says the experiment's own file
        return told
    return f"{told} In full: {' && '.join(command + at(store) for command in full)}"


def _in_full(command: str) -> str:
    """The same command without what makes it shorter."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in ("--seeds", "--iters"):
            next(words, None)
        elif word != "--quick":
            kept.append(word)
    return shlex.join(kept)
