"""How a cohort is trained."""

from dataclasses import dataclass

from threefold.engine.schedule import CONSTANT, Schedule
from threefold.networks import AnyNetwork


@dataclass(frozen=True)
class Training:
    """The same for all networks of a cohort."""

    iters: int | None  # steps of each task; None: as many as `epochs` take
    batch: int
    network: AnyNetwork
    precision: str = "fp32"
    device: str = "cpu"
    epochs: int | None = None  # passes through each task's data
    schedule: Schedule = CONSTANT
    augment: bool = False  # are images shifted and mirrored at random?

    @property
    def length(self) -> str:
        """How long each task is trained, in words."""
        return f"{self.epochs} epochs" if self.epochs else f"{self.iters} iterations"

    def steps(self, samples: int) -> int:
        """How many steps are taken on so many samples."""
        return self.iters or (self.epochs or 1) * (samples // self.batch)
