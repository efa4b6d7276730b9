"""What `reproduce` and `experiment` print at the end: the numbers; details are in `threefold report`."""

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from threefold.cli.stdout import console
from threefold.experiments import Section
from threefold.experiments.command import at
from threefold.report.formatting import count
from threefold.report.tables import result_tables
from threefold.report.terminal import fitting
from threefold.text import printable


def show(sections: Sequence[Section], store: Path) -> None:
    """Print the tables, the verdicts, and where to find more."""
    with console(120) as screen:
        _print(screen, sections, store)


def _print(screen: Console, sections: Sequence[Section], store: Path) -> None:
    for section in sections:
        for table in result_tables(section) if section.kind == "table" else []:
            if table.cells:
                screen.print(fitting(screen, table.begun()))
        verdicts = Counter(str(v.outcome) for result in section.results if (v := result.verdict))
        words = [f"{number} of {verdicts.total()} cells: {outcome}" for outcome, number in verdicts.most_common()]
        runs = sum(len(result.records) for result in section.results)
        line = f"{section.title}: {count(runs, 'run')} in {count(len(section.results), 'cell')}."
        for text in (line, "; ".join(words), shortened(section, store)):
            if text:
                screen.print(printable(text), markup=False, highlight=False, soft_wrap=True)
    more = shlex.join(["threefold", "report", "--store", str(store), "--format", "html", "-o", "report.html"])
    line = printable(f"All the evidence, the figures and why a cell shows a dash: {more}")
    screen.print(line, markup=False, highlight=False, soft_wrap=True)


def shortened(section: Section, store: Path) -> str:
    """A sentence on what was shortened from the experiment's file, with the command that runs it in full."""
    if not section.shortened:
        return ""
    full = dict.fromkeys(map(_in_full, section.command.split(" && ")))
    commands = " && ".join(command + at(store) for command in full)
    return f"This was shortened: {', '.join(section.shortened)}. In full: {commands}"


def _in_full(command: str) -> str:
    """The command without the options that shorten it."""
    words = iter(shlex.split(command))
    kept = []
    for word in words:
        if word in ("--seeds", "--iters"):
            next(words, None)
        elif word != "--quick":
            kept.append(word)
    return shlex.join(kept)
