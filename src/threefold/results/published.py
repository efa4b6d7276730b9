"""The 59 accuracies printed in "Three scenarios for continual learning" (2019), 54 of its successor's, "Three types of
incremental learning" (2022), and the rule that judges ours by them.
"""

import csv
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files

from threefold.results.statistics import FEWEST_SEEDS, Difference, Estimate, Summary, welch

COMBINED_ERRORS = 3.0
HALF_A_POINT = 0.5
FIRST, SUCCESSOR = "2019", "2022"  # papers


@dataclass(frozen=True)
class Published:
    """One cell of a paper's table: mean accuracy in per cent and its standard error over n runs, NaN if not known.

    Of the successor Tables 2 and 3; where a standard error is missing, only the mean was found, quoted by others.

    `task_id_in` says where a Task-IL network uses the task. "output": a head for each task. "hidden" (the second
    column of Table B.1): hidden units gated by task as in XdG, *instead of* separate heads. So `none` with "hidden"
    (90.41) is XdG on one shared head, and is not the `xdg` of Table 5 (91.40), which has a head for each task as well.
    It is None in Domain-IL and Class-IL, where the task is not given.
    """

    table: str
    stream: str
    scenario: str
    method: str
    task_id_in: str | None
    mean: float
    sem: float
    n: int
    paper: str = FIRST


@cache
def published_cells(paper: str = FIRST) -> tuple[Published, ...]:
    """Every published cell of a paper, in its order."""
    text = files("threefold.results").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            table=row["table"],
            stream=row["stream"],
            scenario=row["scenario"],
            method=row["method"],
            task_id_in=row["task_id_in"] or None,
            mean=float(row["mean"]),
            sem=float(row["sem"] or "nan"),
            n=int(row["runs"]),
            paper=row["paper"],
        )
        for row in csv.DictReader(text.splitlines())
        if row["paper"] == paper
    )


def lookup(
    stream: str, scenario: str, method: str, task_id_in: str | None = None, paper: str = FIRST
) -> Published | None:
    """The published cell of this combination; None where the paper prints none.

    In Task-IL `task_id_in` defaults to "output".
    """
    if scenario == "task" and task_id_in is None:
        task_id_in = "output"
    wanted = (stream, scenario, method, task_id_in)
    return next((c for c in published_cells(paper) if (c.stream, c.scenario, c.method, c.task_id_in) == wanted), None)


class Outcome(StrEnum):
    AGREES = "agrees"
    DIFFERS = "differs"
    TOO_FEW = "too few seeds to tell"


@dataclass(frozen=True)
class Verdict:
    """The outcome, ours − published with its 95% interval, the largest difference that would have agreed, and the
    difference in combined standard errors (z).

    Show `allowed` with "agrees": five noisy seeds may agree with almost anything, and this number reveals it.
    `sem_assumed`: no standard error was published with the mean, so ours was used for it.
    """

    outcome: Outcome
    difference: Difference
    allowed: float
    z: float
    sem_assumed: bool = False

    @property
    def words(self) -> str:
        return f"{self.outcome} (mean published without SEM, ours stands for it)" if self.sem_assumed else self.outcome


def verdict(ours: Estimate, published: Estimate) -> Verdict:
    """Does our mean agree with the published one? This is the only place that decides.

    1. Fewer than five seeds: too few to tell, whatever the difference. Three standard errors are a strict bound only
       where the standard errors are well known; from three or four seeds they are not (Student's factor is 4.3 and 3.2
       then), and one cell in ten would be called different for no reason.
    2. |difference| ≤ 3 √(sem² + sem²), or ≤ half a point: agrees. The half point is there because accuracies near
       99% have standard errors of 0.02, and a difference of no importance should not fail.
    3. Otherwise: differs, and zero is outside the difference's 95% interval, as Student's factor is below 3 from five
       seeds on. So does a mean that is not a number: some of our seeds diverged, none of theirs did.
    """
    if assumed := math.isnan(published.sem):
        published = Summary(published.mean, ours.sem, published.n, ())
    difference = welch(ours, published)
    allowed = max(COMBINED_ERRORS * math.hypot(ours.sem, published.sem), HALF_A_POINT)
    if min(ours.n, published.n) < FEWEST_SEEDS:
        outcome, allowed = Outcome.TOO_FEW, math.nan
    elif abs(difference.value) <= allowed + 1e-9:  # 97.90 − 97.40 is half a point, also in binary
        outcome = Outcome.AGREES
    else:
        outcome = Outcome.DIFFERS
    return Verdict(outcome, difference, allowed, z(ours, published), assumed)


def z(ours: Estimate, published: Estimate) -> float:
    """(ours − published) / √(sem² + sem²): the statistic of Welch's test. NaN where a standard error is not known."""
    error = math.hypot(ours.sem, published.sem)
    return (ours.mean - published.mean) / error if error else math.nan
