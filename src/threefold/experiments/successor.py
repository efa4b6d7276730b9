"""How "Three types of incremental learning" (van de Ven, Tuytelaars and Tolias 2022) was trained: Tables 2 and 3.

A method's hyperparameters are in the files `nmi-table2.toml` and `nmi-table3.toml`, and only cells of these are judged
by its numbers; whatever can be changed on the command line is checked here.
"""

from typing import TYPE_CHECKING, NamedTuple

from threefold.engine import Adam
from threefold.engine.schedule import CONSTANT
from threefold.experiments.description import same_value
from threefold.networks import AnyNetwork, CNNNetwork, MLPNetwork
from threefold.streams import SHARP

if TYPE_CHECKING:
    from threefold.experiments.cell import Cell


class Protocol(NamedTuple):
    """The training of one of its benchmarks."""

    iters: int
    batch: int
    hidden: int
    lr: float
    tasks: int
    features: bool  # frozen features, instead of images


ON_PIXELS = ("dgr",)  # what generated images there; all others learned from features

PROTOCOLS = {
    "split-mnist": Protocol(2000, 128, 400, 0.001, 5, features=False),
    "split-cifar-100": Protocol(5000, 256, 2000, 0.0001, 10, features=True),
}


def trained_as_in_successor(cell: "Cell") -> bool:
    """Is a cell of its files trained exactly as in that paper, in length, size and everything else?"""
    theirs, stream, training = PROTOCOLS.get(cell.stream.title), cell.stream, cell.training
    if theirs is None:
        return False
    usual = training.schedule == CONSTANT and stream.boundaries == SHARP and not training.augment
    features = theirs.features and cell.method.name not in ON_PIXELS
    network: AnyNetwork = MLPNetwork(width=theirs.hidden)
    if theirs.features and not features:
        network = CNNNetwork(norm="batch", hidden=(theirs.hidden, theirs.hidden), last="linear", frozen=True)
        network = network.model_copy(update={"init": training.network.init})  # any weights, as any features
    ours = (training.iters, training.batch, cell.lr, stream.tasks, bool(stream.data.features))
    return (
        usual
        and not cell.own_code
        and not stream.details()
        and ours == (theirs.iters, theirs.batch, theirs.lr, theirs.tasks, features)
        and same_value(training.network, network)
        and same_value(cell.optimizer, Adam(lr=theirs.lr))
        and (cell.scenario.active == "all") == (cell.scenario.infers_task and not cell.method.over_seen)
    )
