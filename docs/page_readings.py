"""What each reading of the paper's text comes to: the table of docs/readings.md."""

from collections.abc import Mapping

from threefold.experiments import Cell, Section
from threefold.experiments.description import written
from threefold.report.formatting import plus_minus, theirs
from threefold.results import Outcome

READINGS = (  # of a method: the option, its value by the text, and what else is given with both
    ("xdg", "gate_on", "activation", {}),
    ("lwf", "reduction", "sum", {"replayed_for": "one"}),
    ("lwf", "replayed_for", "one", {"reduction": "mean"}),
    ("dgr", "replayed_for", "one", {}),
    ("dgr-distill", "reduction", "sum", {"replayed_for": "one"}),
    ("icarl", "temperature", 1, {}),
)


def readings(by_name: Mapping[str, Section]) -> str:
    """What each reading of the text comes to."""
    marks = {Outcome.AGREES: " ✓", Outcome.DIFFERS: " ✗"}
    section = by_name["readings"]
    measured = {(written(result.cell.method), *place(result.cell)): result for result in section.results}
    lines = [["method", "option", "stream", "scenario", "seeds", "published", "by the text", "by the departure"]]
    lines.append([":--"] * 4 + ["--:"] * 4)
    for name, option, text, given in READINGS:
        pairs: dict[tuple[str, str], dict[bool, Cell]] = {}
        for cell in section.cells:
            part = next((part for part in cell.method.parts if part.name == name), None)
            if part and all(getattr(part, key) == value for key, value in given.items()):
                pairs.setdefault(place(cell), {})[getattr(part, option) == text] = cell
        for both in (pair for pair in pairs.values() if len(pair) == 2):
            shown, seeds = [], []
            for by_the_text in (True, False):
                cell = both[by_the_text]
                found = measured.get((written(cell.method), *place(cell)))
                mark = marks.get(found.verdict.outcome, "") if found and found.verdict else ""
                shown.append(plus_minus(found.accuracy) + mark if found else "…")
                seeds += [str(found.accuracy.n)] if found else []
            where = [*place(cell), " and ".join(dict.fromkeys(seeds)), theirs(cell.published())]
            lines.append([f"`{name}`", f"`{option}`", *where, *shown])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def place(cell: Cell) -> tuple[str, str]:
    gated = ", task in hidden layers" if cell.task_id_in == "hidden" else ""
    return cell.stream.title, cell.scenario.title + gated
