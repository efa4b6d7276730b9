"""Explains low accuracies where they are printed, if the paper or the run itself shows the reason."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from threefold.experiments import Cell, Result
from threefold.report.formatting import own_parts, paper_was, strategy
from threefold.results import FIRST, Outcome

LOW = 75.0
NEAR = 10.0  # points below the published number up to which it explains a shortened run


@dataclass(frozen=True)
class Explanation:
    """Why an accuracy is low although nothing is wrong."""

    published: str  # the paper's number, which is low as well; empty if that is not why
    paper: str  # the paper's explanation; may be empty
    seen: str  # what the run itself shows; may be empty

    def __str__(self) -> str:
        known = f"Low, and published as low: the paper reports {self.published}." if self.published else ""
        return " ".join(filter(None, (known, self.paper, self.seen)))


def explain(result: Result) -> Explanation | None:
    """The explanation; None if the accuracy is not low, or the reason is unknown.

    An accuracy further below the published one than the verdict's rule allows is not explained: it may be a fault.
    """
    cell, mean, judged = result.cell, result.accuracy.mean, result.verdict
    published = cell.published()
    if math.isnan(mean) or mean >= LOW:
        return None
    if judged and judged.outcome is Outcome.DIFFERS and published and mean < published.mean:
        return None
    seen = _last_task_only(result)
    all_tasks = cell.stream.tasks == cell.stream.usual_tasks  # accuracies over fewer tasks are not comparable
    if published and published.mean < LOW and (judged or (all_tasks and mean > published.mean - NEAR)):
        mark = paper_was(cell)
        number = f"{published.mean:.2f}{f', {mark}' if mark else ''}"
        return Explanation(number, _in_the_paper(cell), seen)
    if seen and strategy(own_parts(cell)) in ("Baselines", "Regularization"):
        return Explanation("", "", seen)
    return None


def together(found: Iterable[tuple[str, str, Explanation]]) -> list[str]:
    """Explanations of cells (row, column, why), each stated once for all cells of a column that share it."""
    shared: dict[tuple[str, str], list[str]] = {}
    alone = []
    for row, column, why in found:
        if not why.published:
            alone.append(f"{row}, {column}: {why}")
        else:
            shared.setdefault((column, why.paper), []).append(f"{row} ({why.published})")
    explained = [
        f"{column}, {', '.join(rows)}: low, and published as low (the paper's number in brackets). {why}".strip()
        for (column, why), rows in shared.items()
    ]
    return explained + alone


def _in_the_paper(cell: Cell) -> str:
    """The paper's explanation, from its results (section 5)."""
    kind, parts = strategy(own_parts(cell)), {part.name for part in cell.method.parts}
    if cell.paper != FIRST:
        return ""
    if not cell.method.parts:
        return "None is the lower bound: plain training on one task after another."
    if kind == "Regularization" and _all_compete(cell):
        return "Its section 5: methods that only regularise fail when the task must be inferred."
    if kind == "Regularization" and cell.scenario.name == "domain":
        return "Its section 5: methods that only regularise struggle here."
    if "lwf" in parts and cell.stream.name == "permuted":
        return (
            "Its section 5: LwF does not work on permuted images, presumably because the inputs of different tasks are"
            " uncorrelated."
        )
    if "lwf" in parts and _all_compete(cell):
        return "Its section 5: only methods that replay other data than the current task's do well here."
    if "lwf" in parts:
        return "Its section 5: LwF struggles here, though less than methods that only regularise."
    return ""


def _last_task_only(result: Result) -> str:
    """Class-IL: a sentence if the network only knows the last task."""
    if not _all_compete(result.cell) or result.cell.stream.tasks < 2:
        return ""
    final = np.asarray(result.matrix[:, -1].mean(axis=0))
    last, earlier = float(final[-1]), float(final[:-1].mean())
    if not (last > 60 and earlier < last / 5):
        return ""
    return (
        f"At the end it knows the last task ({last:.0f}% right) and little of the others ({earlier:.0f}%);"
        f" the last task alone would make {100 / len(final):.0f}% on average."
    )


def _all_compete(cell: Cell) -> bool:
    return cell.scenario.own_units and not cell.scenario.task_known
