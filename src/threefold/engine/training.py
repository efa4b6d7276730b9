"""How a cohort is trained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Training:
    """The same for all networks of a cohort."""

    iters: int
    batch: int
    hidden: int
    precision: str = "fp32"
    device: str = "cpu"
