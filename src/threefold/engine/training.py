"""How a cohort is trained."""

from dataclasses import dataclass

from threefold.networks import AnyNetwork


@dataclass(frozen=True)
class Training:
    """The same for all networks of a cohort."""

    iters: int
    batch: int
    network: AnyNetwork
    precision: str = "fp32"
    device: str = "cpu"
