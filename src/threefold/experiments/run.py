"""Runs cells: what is in the store is taken from there, the rest is trained in cohorts and stored."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from threefold import protocols, scenarios
from threefold.data import load
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell, Settings
from threefold.experiments.execute import execute, out_of_memory, too_large
from threefold.experiments.result import Result
from threefold.experiments.scheduler import Place, Scheduler, Watcher, Work
from threefold.experiments.seeds import parse_seeds
from threefold.fingerprint import is_ours
from threefold.methods import Method, Part, parse
from threefold.results import Store


def run(
    protocol: "protocols.Protocol | str",
    *,
    scenario: str,
    method: "Method | Part | str" = "none",
    seeds: str | int | Iterable[int] = 20,
    store: str | Path | None = "threefold.db",
    task_id_in: str | None = None,
    tasks: int | None = None,
    **settings: Any,
) -> Result:
    """Train one method in one scenario, one network for each seed, all in lockstep.

    `protocol` is a name such as "split-mnist" or a protocol over data of your own. Settings (`iters`, `lr`, `batch`,
    `hidden`, `device`, `precision`) that are not given are the paper's. Runs that are in `store` are not trained again;
    `store=None` keeps nothing.
    """
    # everything that needs no data is checked before any is fetched
    if isinstance(method, str):
        method = parse(method)
    elif isinstance(method, Part):
        method = Method(method)
    elif not isinstance(method, Method):
        raise ThreefoldError(f"method is {method!r}; right would be 'offline', Offline() or Method(Offline()).")
    wanted, checked, chosen = scenarios.find(str(scenario)), Settings.checked(**settings), parse_seeds(seeds)
    if isinstance(protocol, str):
        kind, data = protocols.find(protocol)
        protocol = kind(load(data or "mnist"), tasks)
    elif not isinstance(protocol, protocols.Protocol):
        raise ThreefoldError(f"protocol is {protocol!r}; right would be 'split-mnist' or Split(data).")
    elif tasks is not None:
        raise ThreefoldError(f"tasks is {tasks}, but the protocol has its own; right would be to give one of them.")
    cell = Cell.of(protocol, wanted, method, checked, task_id_in)
    reason = cell.refusal()
    if reason:
        raise ThreefoldError(reason)
    return run_cells([cell], chosen, store)[0]


def run_cells(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    store: str | Path | None,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
    place: Place | None = None,
) -> list[Result]:
    """Every cell with every seed. `stop` is asked often; when it says so, `Stopped` is raised and nothing is lost."""
    check_batches(cells, seeds)  # before the store is there
    with ExitStack() as closing:
        opened = closing.enter_context(Store(store)) if store is not None else None
        return Scheduler(cells, seeds, opened, place or Here(), watcher or Watcher(), stop).run()


class Here:
    """This process: it trains one cohort after the other."""

    largest_first = False
    memory = None

    def room(self) -> int:
        return 1

    def idle(self) -> int:
        return 1

    def begin(self, work: Work) -> None:
        try:
            records = execute(work.cohort, work.checkpoint, work.progress)
        except Exception as error:
            if not (isinstance(error, MemoryError | RuntimeError) and out_of_memory(error)):
                tell_hook(error)
                raise
            if len(work.cohort.runs) == 1:
                raise ThreefoldError(f"{too_large(work.cohort)}; use smaller numbers.") from error
            records = None
        if records is None:  # only now, as the error holds the memory of what did not fit
            work.too_large()
        else:
            work.finished(records)

    def attend(self) -> None: ...
    def abandon(self) -> None: ...


def tell_hook(error: BaseException) -> None:
    """Add to an error where it comes from, if that is a hook of a user's part: tracebacks through vmap are long."""
    trace = error.__traceback__
    found = None
    while trace:
        part = trace.tb_frame.f_locals.get("self")
        if isinstance(part, Part) and not is_ours(type(part)):
            found = found or f"In {trace.tb_frame.f_code.co_name} of {part.name}"
        trace = trace.tb_next
    if found and not isinstance(error, ThreefoldError):
        error.add_note(f"{found}; what often goes wrong there is listed in docs/your-own-method.md, Mistakes.")


def check_batches(cells: Sequence[Cell], seeds: Sequence[int]) -> None:
    """A batch has no sample twice, so no task may be smaller."""
    for protocol in dict.fromkeys(cell.protocol for cell in cells):
        smallest = min(map(protocol.smallest_task, seeds))
        batch = max(cell.training.batch for cell in cells if cell.protocol is protocol)
        if batch > smallest:
            raise ThreefoldError(
                f"batch must be at most {smallest}, got {batch}: the smallest task has {smallest} training samples, and"
                " no sample is twice in a batch."
            )
