"""The seed of a run, and the seed of its tasks if that is different."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Ordered(NamedTuple):
    """A seed of everything but the tasks, and the seed that determines the tasks: their classes and order."""

    seed: int
    order: int

    def __str__(self) -> str:
        return f"{self.seed} in order {self.order}"


Seed = int | Ordered


def read_seed(given: Any) -> Seed:
    """A seed from JSON: a number, or two."""
    return Ordered(*given) if isinstance(given, list | tuple) else given


def in_spec(seed: Any) -> dict[str, int]:
    """The fields of a run's spec that hold its seed."""
    seed = read_seed(seed)
    return {"seed": seed.seed, "order": seed.order} if isinstance(seed, Ordered) else {"seed": seed}


def seed_of(spec: Mapping[str, Any]) -> Seed:
    """The seed in a run's spec."""
    return Ordered(spec["seed"], spec["order"]) if "order" in spec else spec["seed"]


def united(*several: Iterable[Any]) -> list[Seed]:
    """The union of these seeds, in order of first appearance."""
    every = {read_seed(seed) for seeds in several for seed in seeds}
    return sorted(every, key=lambda seed: seed if isinstance(seed, Ordered) else (seed, -1))
