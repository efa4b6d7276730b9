"""Cohorts: runs that are trained together. Runs that differ only in seeds and numbers form one stack.

Stacks that share trained networks (`engine.sharing`) form one cohort.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import chain

from threefold.engine import Replicas
from threefold.experiments.cell import Cell
from threefold.experiments.limits import CurveSizes, Sizes, free_on
from threefold.memory import memory_limit
from threefold.results import Ordered, Seed, run_key

SHARE_OF_MEMORY = 0.7  # of free memory: evaluation and consolidation need some, too
COPIES = 12  # of the parameters: weights, gradient, Adam's moments, a method's memory, and a copy of it all being saved


@dataclass(frozen=True)
class Run:
    """One network to be trained: a cell and a seed."""

    cell: Cell
    seed: Seed

    @cached_property
    def key(self) -> str:
        return run_key(self.cell.run_spec(self.seed))


@dataclass(frozen=True)
class Cohort:
    """Runs that are trained together, in this order."""

    runs: tuple[Run, ...]

    @property
    def cell(self) -> Cell:
        """The first run's: stream and training are the same for all."""
        return self.runs[0].cell

    @property
    def seeds(self) -> list[Seed]:
        return [run.seed for run in self.runs]

    @cached_property
    def stacks(self) -> "list[tuple[Run, ...]]":
        """The runs of each stack: they differ in seeds and numbers at most."""
        return [tuple(runs) for runs in _grouped(self.runs).values()]

    @property
    def replicas(self) -> list[Replicas]:
        """The stacks in the engine's form."""
        return [replicas_of(runs) for runs in self.stacks]

    @property
    def stored(self) -> bool:
        """Are its runs stored? Not if no key can cover what they depend on."""
        return not any(run.cell.not_covered for run in self.runs)

    @property
    def keys(self) -> list[str]:
        return [run.key for run in self.runs]

    @cached_property
    def name(self) -> str:
        """A name derived from its runs, so that the same command finds its checkpoint again."""
        return name_of(self.keys)

    @property
    def weight(self) -> int:
        """Its approximate cost, in weight updates, by which cohorts are ordered."""
        cell, runs = self.cell, self.runs
        return sum(run.cell.numbers for run in runs) * cell.training.steps(cell.stream.samples) * cell.stream.tasks

    def without(self, done: Container[str]) -> "Cohort":
        """The cohort of those runs that are not done."""
        return Cohort(tuple(run for run in self.runs if run.key not in done))

    def halves(self) -> "list[Cohort]":
        """Two halves of the cohort; stacks are only split when there is one."""
        stacks = self.stacks if len(self.stacks) > 1 else [(run,) for run in self.runs]
        middle = len(stacks) // 2
        return [Cohort(tuple(chain(*stacks[:middle]))), Cohort(tuple(chain(*stacks[middle:])))]


def name_of(keys: Iterable[str]) -> str:
    """The name of a cohort whose runs have these keys."""
    return sha256(" ".join(keys).encode()).hexdigest()[:32]


def replicas_of(runs: Sequence[Run]) -> Replicas:
    """The runs of a stack, in the engine's form."""
    cells = [run.cell for run in runs]
    return Replicas(
        cells[0].scenario,
        [cell.method for cell in cells],
        [run.seed.seed if isinstance(run.seed, Ordered) else run.seed for run in runs],
        [cell.optimizer for cell in cells],
        [run.seed.order if isinstance(run.seed, Ordered) else run.seed for run in runs],
    )


def described(cohort: Cohort) -> str:
    """A cohort in a few words."""
    return f"{cohort.cell.name}{and_others(cohort)}"


def and_others(cohort: Cohort) -> str:
    """The text that follows the name of a cohort's first cell."""
    others = len(cohort.stacks) - 1
    return f"{f' and {others} more' if others else ''} ×{len(cohort.runs)}"


def plan(runs: Iterable[Run], memory: Callable[[str], int] | None = None) -> list[Cohort]:
    """Group runs into cohorts that fit into memory, cheap ones first, so that early results cover the table."""
    stacks: list[list[Run]] = []
    for group in _grouped(runs).values():
        most = capacity(group[0].cell, memory)
        stacks += [group[start : start + most] for start in range(0, len(group), most)]
    joined: dict[Hashable, list[list[Run]]] = {}
    for stack in stacks:
        joined.setdefault(_shared(stack), []).append(stack)
    cohorts = [Cohort(tuple(chain(*together))) for some in joined.values() for together in _fitting(some, memory)]
    return sorted(cohorts, key=lambda cohort: cohort.weight)


def _grouped(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups of runs that can form one stack, in the order of their first runs."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.cell.shape, []).append(run)
    return groups


def _fitting(stacks: Sequence[list[Run]], memory: Callable[[str], int] | None) -> list[list[list[Run]]]:
    """Stacks that share something, together as far as they fit into memory."""
    together: list[list[list[Run]]] = []
    left = 0.0
    for stack in stacks:
        share = len(stack) / capacity(stack[0].cell, memory) if len(stacks) > 1 else 1.0
        if not together or share > left:
            together, left = [*together, []], 1.0
        together[-1].append(stack)
        left -= share
    return together


def cut(cohorts: Sequence[Cohort], number: int, begun: Set[str] = frozenset()) -> list[Cohort]:
    """Halve the largest cohorts until there are `number`, or no more runs to split; those in `begun` are kept."""
    if len(cohorts) >= number:
        return list(cohorts)
    whole = [cohort for cohort in cohorts if len(cohort.runs) == 1 or cohort.name in begun]
    weighed = [(cohort.weight, cohort) for cohort in cohorts if cohort not in whole]
    while weighed and len(weighed) + len(whole) < number:
        largest = max(weighed, key=lambda pair: pair[0])
        weighed.remove(largest)
        for half in largest[1].halves():
            if len(half.runs) == 1:
                whole.append(half)
            else:
                weighed.append((half.weight, half))
    pieces = [*(cohort for _, cohort in weighed), *whole]
    return sorted(pieces, key=lambda cohort: cohort.weight, reverse=True)


def plan_around(
    runs: Iterable[Run], in_progress: Iterable[Cohort], done: Container[str], memory: Callable[[str], int] | None = None
) -> list[Cohort]:
    """Cohorts of those runs that are not done, cheap ones first. Cohorts in progress keep their runs.

    If several cohorts in progress have runs in common, the first one continues, even if some of its runs are done. One
    that no longer fits into memory starts again.
    """
    every = list(runs)
    shortened = (cohort.without(done) for cohort in plan(every, memory))
    planned = [cohort for cohort in shortened if cohort.runs]
    left = {run.key: run for run in every if run.key not in done}
    kept: list[Cohort] = []
    for cohort in in_progress:
        missing = cohort.without(done).keys
        if missing and left.keys() >= set(missing) and _can_fit(cohort, memory):
            kept.append(cohort)
            for key in missing:
                del left[key]
    if not {cohort.name for cohort in kept} <= {cohort.name for cohort in planned}:
        planned = [*kept, *plan(left.values(), memory)]
    return sorted(planned, key=lambda cohort: cohort.weight)


def _can_fit(cohort: Cohort, memory: Callable[[str], int] | None) -> bool:
    """Does it fit into all of the free memory, not just the share that cohorts are planned for?"""
    shares = (len(stack) / capacity(stack[0].cell, memory) for stack in cohort.stacks)
    return len(cohort.runs) == 1 or sum(shares) <= 1 / SHARE_OF_MEMORY


def _shared(stack: Sequence[Run]) -> Hashable:
    """A key, equal for stacks that share trained networks."""
    cell = stack[0].cell
    return cell.stream, cell.training, replicas_of(stack).shares()


def capacity(cell: Cell, memory: Callable[[str], int] | None = None) -> int:
    """How many networks fit at once into a device's free memory."""
    setting = cell.setting
    activations = setting.batch * (4 * setting.inputs + 3 * setting.structure.activations)
    each = max(4 * (COPIES * cell.numbers + cell.remembered + activations), Sizes.of(cell.setting).tables)
    each += CurveSizes.of(cell.stream, cell.training).bytes
    free = (memory or _free_memory)(cell.training.device)
    return max(1, int(free * SHARE_OF_MEMORY / each))


def _free_memory(device: str) -> int:
    return free_on(device) or memory_limit()
