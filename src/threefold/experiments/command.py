"""The command that trains a cell again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from threefold.data import names as datasets
from threefold.engine import Adam
from threefold.engine.schedule import CONSTANT
from threefold.experiments.cell import Cell, same_value, written
from threefold.experiments.seeds import written_seeds
from threefold.methods import METHODS
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS


def run_command(
    cells: Sequence[Cell],
    seeds: Sequence[int],
    *,
    device: str | None = None,
    in_full: bool = False,
) -> str:
    """`threefold run` for cells that differ in scenario and method alone. What is the paper's is left out.

    `in_full`: what is less than in the paper becomes the paper's.
    """
    cell = cells[0]
    stream, training, paper = cell.stream, cell.training, cell.stream.defaults
    names = list(dict.fromkeys(each.scenario.name for each in cells))
    words = ["threefold", "run", stream.title]
    for name in names if len(names) < len(SCENARIOS) else ["all"]:
        words += ["--scenario", name]
    for method in dict.fromkeys(written(each.method) for each in cells):
        words += ["--method", method]
    length = ("--epochs", training.epochs, 0)
    if training.iters:
        length = ("--iters", max(training.iters, paper.iters if in_full else 0), paper.iters)
    network = ("--network", training.network.written(), "")
    if cell.hidden and same_value(training.network, MLPNetwork(width=cell.hidden)):
        network = ("--hidden", max(cell.hidden, paper.hidden if in_full else 0), paper.hidden)  # type: ignore[assignment]
    optimizer = ("--optimizer", cell.optimizer.written(), "")
    if same_value(cell.optimizer, Adam(lr=cell.lr)):
        optimizer = ("--lr", cell.lr, paper.lr)  # type: ignore[assignment]
    for option, value, usual in (
        ("--tasks", max(stream.tasks, stream.default_tasks if in_full else 0), stream.default_tasks),
        length,
        network,
        optimizer,
        ("--schedule", training.schedule.written(), CONSTANT.name),
        ("--batch", training.batch, paper.batch),
        ("--device", device, None),
        ("--precision", training.precision, "tf32" if training.device == "cuda" else "fp32"),
    ):
        if value != usual:
            words += [option, str(value)]
    if stream.data.is_normalized:
        words.append("--normalize")
    if stream.data.features:
        words += ["--features", stream.data.encoder]
    if training.augment:
        words.append("--augment")
    if cell.task_id_in == "hidden":  # the others follow from the method
        words += ["--task-id-in", "hidden"]
    return shlex.join([*words, "--seeds", written_seeds(seeds)])


def at(store: Path) -> str:
    """What a command needs to find a store; nothing where it looks anyway."""
    return "" if store == Path("threefold.db") else f" --store {shlex.quote(str(store))}"


def reproducing(cells: Sequence[Cell], seeds: Sequence[int]) -> str | None:
    """The command that trains these runs and no others; None where they need a file that is not known here, be it
    data, a method or an experiment that learns the first of its tasks alone."""
    return run_command(cells, seeds, device=cells[0].training.device) if all(map(_known, cells)) else None


def _known(cell: Cell) -> bool:
    stream, spec = cell.stream, cell.spec()
    ours = all(part.name in METHODS for part in cell.method.parts) and "code" not in spec["method"] | spec["stream"]
    if "code" in spec["network"]:  # the command line can name one that is in a file
        ours = ours and ":" in cell.training.network.written()
    if (init := cell.training.network.init) and not init.file:
        return False
    if stream.data.features and not (":" in stream.data.encoder or stream.data.encoder.endswith(".pt")):
        return False
    return stream.data.name in datasets() and ours and stream.tasks == stream.cut
