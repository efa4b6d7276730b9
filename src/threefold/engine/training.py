"""How a cohort is trained."""

from dataclasses import dataclass

from threefold.engine.schedule import CONSTANT, Schedule
from threefold.networks import AnyNetwork


@dataclass(frozen=True)
class Evaluation:
    """When all tasks are tested during training, and on what."""

    every: int  # steps between two tests
    first: int = 0  # they are also tested after each of the first so many steps of a task
    samples: int | None = 500  # test samples of each task; None: all
    training: bool = False  # also record the loss and the accuracy on training data?


@dataclass(frozen=True)
class Training:
    """The training settings, the same for all networks of a cohort."""

    iters: int | None  # steps of each task; None: as many as `epochs` take
    batch: int
    network: AnyNetwork
    precision: str = "fp32"
    device: str = "cpu"
    epochs: int | None = None  # passes through each task's data
    schedule: Schedule = CONSTANT
    augment: bool = False  # are images shifted and mirrored at random?
    evaluation: Evaluation | None = None  # during training; None: at the end of each task only

    @property
    def length(self) -> str:
        """How long each task is trained, in words."""
        number, unit = (self.epochs, "epoch") if self.epochs else (self.iters, "iteration")
        return f"{number} {unit}{'' if number == 1 else 's'}"

    def steps(self, samples: int) -> int:
        """How many steps are taken on so many samples."""
        return self.iters or (self.epochs or 1) * (samples // self.batch)
