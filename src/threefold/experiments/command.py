"""The command that trains a cell again."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from threefold.data import names as datasets
from threefold.engine import Adam, Evaluation
from threefold.engine.schedule import CONSTANT
from threefold.experiments.cell import Cell
from threefold.experiments.description import same_value, written
from threefold.experiments.seeds import written_seeds
from threefold.methods import METHODS
from threefold.networks import MLPNetwork
from threefold.results import Ordered, Seed
from threefold.scenarios import SCENARIOS
from threefold.streams import SHARP, Stream


def run_command(
    cells: Sequence[Cell],
    seeds: Sequence[Seed],
    *,
    device: str | None = None,
    in_full: bool = False,
) -> str:
    """`threefold run` for every combination of the cells' scenarios, methods and settings, which these must be; the
    paper's values are left out.

    `in_full`: what is smaller or shorter than in the paper is raised to the paper's value.
    """
    cell, training = cells[0], cells[0].training
    words = ["threefold", "run", cell.stream.written]
    names = list(dict.fromkeys(each.scenario.name for each in cells))
    for name in names if len(names) < len(SCENARIOS) else ["all"]:
        words += ["--scenario", name]
    for method in dict.fromkeys(written(each.method) for each in cells):
        words += ["--method", method]
    found: dict[str, dict[str, bool]] = {}  # the values of each option, and whether it is the default
    plain = all(_is_plain_mlp(each) for each in cells), all(_is_plain_adam(each) for each in cells)
    for each in cells:
        for option, value, usual in _options(each, device, in_full, *plain):
            found.setdefault(option, {})[str(value)] = value == usual
    for option, values in found.items():
        if not all(values.values()):
            words += [word for value in values for word in (option, value)]
    if cell.stream.data.is_normalized:
        words.append("--normalize")
    if cell.stream.data.features:
        words += ["--features", cell.stream.data.encoder]
    if training.augment:
        words.append("--augment")
    if training.evaluation and training.evaluation.training:
        words.append("--training-curves")
    if cell.task_id_in == "hidden":  # other values follow from the method
        words += ["--task-id-in", "hidden"]
    seeds_alone = dict.fromkeys(seed.seed if isinstance(seed, Ordered) else seed for seed in seeds)
    words += ["--seeds", written_seeds(list(seeds_alone))]
    if orders := dict.fromkeys(seed.order for seed in seeds if isinstance(seed, Ordered)):
        words += ["--orders", written_seeds(list(orders))]
    return shlex.join(words)


def _is_plain_mlp(cell: Cell) -> bool:
    return bool(cell.hidden) and same_value(cell.training.network, MLPNetwork(width=cell.hidden))


def _is_plain_adam(cell: Cell) -> bool:
    return same_value(cell.optimizer, Adam(lr=cell.lr))


def _options(
    cell: Cell, device: str | None, in_full: bool, mlp: bool, adam: bool
) -> Iterator[tuple[str, object, object]]:
    """The options of a cell that take a value, each with its value and its default.

    `mlp`, `adam`: a width and a learning rate are enough for the network and the optimiser.
    """
    stream, training, paper = cell.stream, cell.training, cell.stream.defaults
    yield "--data", stream.data.name if stream.text else None, None
    yield "--tasks", *_tasks(stream, in_full)
    yield "--boundaries", stream.boundaries.written(), SHARP.name
    if training.iters:
        yield "--iters", max(training.iters, paper.iters if in_full else 0), paper.iters
    else:
        yield "--epochs", training.epochs, None
    if mlp and cell.hidden:
        yield "--hidden", max(cell.hidden, paper.hidden if in_full else 0), paper.hidden
    else:
        yield "--network", training.network.written(), None
    if adam:
        yield "--lr", cell.lr, paper.lr
    else:
        yield "--optimizer", cell.optimizer.written(), None
    yield "--schedule", training.schedule.written(), CONSTANT.name
    yield "--batch", training.batch, paper.batch
    yield from _tests(training.evaluation)
    if cell.scenario.infers_task and not cell.method.over_seen:
        yield "--active", cell.scenario.active, "seen"
    yield "--device", device, None
    yield "--precision", training.precision, "tf32" if training.device == "cuda" else "fp32"


def _tests(evaluation: Evaluation | None) -> list[tuple[str, object, object]]:
    """The options for tests during training, each with its value and its default."""
    if evaluation is None:
        return []
    samples = "all" if evaluation.samples is None else evaluation.samples
    return [
        ("--evaluate-every", evaluation.every, None),
        ("--evaluate-first", evaluation.first, 0),
        ("--evaluate-samples", samples, Evaluation(1).samples),
    ]


def _tasks(stream: Stream, in_full: bool) -> tuple[int | None, int | None]:
    """The number of tasks, and the default number."""
    usual = stream.usual_tasks
    if usual is None:  # determined by the stream; a user's may depend on the number given
        return (stream.cut if stream.text else None), None
    return max(stream.tasks, usual if in_full else 0), usual


def at(store: Path) -> str:
    """The option that a command needs to find a store; empty for the default store."""
    return "" if store == Path("threefold.db") else f" --store {shlex.quote(str(store))}"


def reproducing(cells: Sequence[Cell], seeds: Sequence[Seed]) -> str | None:
    """The command that trains exactly these runs. None if they need a file that is not known here (data, a method, or
    an experiment that only learns its first tasks), or are not a product of seeds and orders."""
    ordered = [seed for seed in seeds if isinstance(seed, Ordered)]
    product = len({seed.seed for seed in ordered}) * len({seed.order for seed in ordered})
    if ordered and not len(ordered) == len(seeds) == product:
        return None
    return run_command(cells, seeds, device=cells[0].training.device) if all(map(_known, cells)) else None


def _known(cell: Cell) -> bool:
    stream, own = cell.stream, cell.own_code
    ours = all(part.name in METHODS for part in cell.method.parts) and "method" not in own
    if "stream" in own:
        ours = ours and stream.text is not None
    if "network" in own:  # the command line can name one in a file
        ours = ours and ":" in cell.training.network.written()
    if (init := cell.training.network.init) and not init.file:
        return False
    if stream.data.features and not (":" in stream.data.encoder or stream.data.encoder.endswith(".pt")):
        return False
    return set(stream.data.name.split("+")) <= set(datasets()) and ours and stream.tasks == stream.cut
