"""Where cohorts are trained: in this process, or (`threefold.cluster`) on other machines."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from threefold.engine import train
from threefold.errors import ThreefoldError
from threefold.experiments.cohort import Cohort
from threefold.experiments.records import records_of
from threefold.fingerprint import is_ours
from threefold.methods import Part

if TYPE_CHECKING:
    from threefold.experiments.scheduler import Job


class Executor(Protocol):
    """Trains the cohorts that the scheduler passes to it."""

    @property
    def largest_first(self) -> bool:
        """Should the largest cohorts be trained first, not the cheapest?"""

    @property
    def memory(self) -> Callable[[str], int] | None:
        """The bytes that a cohort may use, by device; None: what is free here."""

    def room(self) -> int:
        """How many more cohorts can be started now."""

    def idle(self) -> int:
        """How many would start training immediately if they were started now."""

    def begin(self, job: "Job") -> None:
        """Start training a cohort; its progress and outcome are reported to the job, now or in `attend`."""

    def attend(self) -> None:
        """Wait a moment for reports on started cohorts, and pass them on."""

    def abandon(self) -> None:
        """Cancel started cohorts: their results are no longer needed."""


class Local:
    """This process: it trains one cohort after the other."""

    largest_first = False
    memory = None

    def room(self) -> int:
        return 1

    def idle(self) -> int:
        return 1

    def begin(self, job: "Job") -> None:
        cohort = job.cohort
        stream, training = cohort.cell.stream, cohort.cell.training
        try:
            found = train(stream, cohort.replicas, training, job.checkpoint, job.progress, job.keeper)
        except Exception as error:
            if not (isinstance(error, MemoryError | RuntimeError) and out_of_memory(error)):
                name_hook(error)
                raise
            if len(cohort.runs) == 1:
                raise ThreefoldError(f"{too_large(cohort)}; use smaller numbers.") from error
            found = None
        if found is None:  # outside the handler, as the error keeps the failed attempt's memory alive
            job.too_large()
        else:
            job.finished(records_of(cohort, found))

    def attend(self) -> None: ...
    def abandon(self) -> None: ...


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or bool(re.search("allocate memory|out of memory", str(error)))


def too_large(cohort: Cohort) -> str:
    training = cohort.cell.training
    return f"{cohort.cell.name} does not fit into memory (network {training.network.written()}, batch {training.batch})"


def name_hook(error: BaseException) -> None:
    """Add a note to an error that a user's hook raised, naming the hook, as tracebacks through vmap are long."""
    trace = error.__traceback__
    found = None
    while trace:
        part = trace.tb_frame.f_locals.get("self")
        if isinstance(part, Part) and not is_ours(type(part)):
            found = found or f"In {trace.tb_frame.f_code.co_name} of {part.name}"
        trace = trace.tb_next
    if found and not isinstance(error, ThreefoldError):
        error.add_note(f"{found}; what often goes wrong there is listed in docs/your-own-method.md, Mistakes.")
