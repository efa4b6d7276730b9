"""Pretraining: ordinary training on all classes at once, with the networks saved to a file."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import PrivateAttr
from torch import Tensor, nn

from threefold import scenarios
from threefold.data import Dataset, Report, load
from threefold.engine import Optimizer, Schedule
from threefold.errors import ThreefoldError
from threefold.experiments.cell import Cell
from threefold.experiments.description import described_value
from threefold.experiments.limits import check_runs
from threefold.experiments.progress import fetching
from threefold.experiments.records import environment
from threefold.experiments.request import Asked, Request
from threefold.experiments.result import Result
from threefold.experiments.run import PythonBars
from threefold.experiments.scheduler import Watcher, train_requests
from threefold.experiments.seeds import parse_seeds
from threefold.experiments.settings import Settings, settings_in
from threefold.methods import Method, Part
from threefold.methods.learner import Memory, Params, Stack
from threefold.networks import AnyNetwork, OwnNetwork
from threefold.networks.weights import FORMAT
from threefold.results import utc_now
from threefold.results.output import contains, replacing, try_output
from threefold.streams import Split

IS_OURS = contains(FORMAT.encode())


class Pretraining(Part):
    """Not a method: it only captures each network at the end of training."""

    name = "pretraining"
    _networks: dict[int, Params] = PrivateAttr(default_factory=dict)  # by seed

    def keep(self, stack: Stack, memory: Memory) -> dict[str, Tensor]:
        stacked = stack.snapshot()
        for place, seed in enumerate(stack.seeds):
            self._networks[seed] = {name: value[place].cpu() for name, value in stacked.items()}
        return {}


@dataclass(frozen=True)
class PretrainRequest:
    """A checked request, and the file that the networks will be written to."""

    request: Request
    file: Path

    def train(self, watcher: Watcher | None = None, stop: Callable[[], bool] = lambda: False) -> Result:
        """Train all networks, then write all of them."""
        ((result,),) = train_requests([self.request], None, watcher, stop)
        if result.diverged:
            seed = result.diverged[0]
            raise ThreefoldError(f"pretraining diverged for seed {seed}, so nothing was written; use a smaller lr.")
        (part,) = result.cell.method.parts
        assert isinstance(part, Pretraining)
        with replacing(self.file, IS_OURS) as opened:
            torch.save(_content(result, [part._networks[seed] for seed in _seeds(result)]), opened)
        return result


def pretrain_request(
    data: Dataset | str,
    output: str | Path,
    seeds: str | int | Iterable[int],
    *,
    normalize: bool,
    settings: Mapping[str, Any],
    report: Report | None = None,
) -> PretrainRequest:
    """The request of `threefold pretrain` and `threefold.pretrain`: networks of all classes at once."""
    # everything that needs no data is checked before any are fetched
    checked, chosen, file = Settings.checked(**settings), parse_seeds(seeds), _checked(Path(output))
    checked.resolved_device()
    check_runs(1, len(chosen), confirmed=False)
    found = load(data, report=report) if isinstance(data, str) else data
    stream = Split(found.normalized() if normalize else found, 1)
    cell = Cell.of(stream, scenarios.find("class"), Method(Pretraining()), checked)
    request = Request(f"pretrain {found.name}", found.name, [Asked(cell, chosen)])
    request.check(None)
    return PretrainRequest(request, file)


def pretrain(
    data: Dataset | str,
    *,
    output: str | Path,
    network: AnyNetwork | Callable[[Any], nn.Module] | str = "mlp",
    seeds: str | int | Iterable[int] = 1,
    optimizer: Optimizer | str = "adam",
    schedule: Schedule | str = "constant",
    iters: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    batch: int | None = None,
    hidden: int | None = None,
    augment: bool = False,
    normalize: bool = False,
    device: str = "auto",
    precision: str = "auto",
) -> Result:
    """Train one network for each seed on all classes of the data at once, as one stack, and write them to a file.

    `data` is a dataset or the name of one; the rest is as in `threefold.run`. The file can be given to networks to
    begin with, `cnn:init=FILE.pt`, or as frozen features.
    """
    settings = settings_in(locals())
    with fetching() as report:
        request = pretrain_request(data, output, seeds, normalize=normalize, settings=settings, report=report)
    with PythonBars(1) as bars:
        return request.train(bars)


def _checked(file: Path) -> Path:
    """Check before training that the file can be written."""
    if file.suffix != ".pt":
        raise ThreefoldError(f"output must be a file that ends in .pt, got '{file}'.")
    try_output(file, IS_OURS)
    return file


def _content(result: Result, networks: list[Params]) -> dict[str, Any]:
    cell, setting = result.cell, result.cell.setting
    network = described_value(cell.training.network) | {"shape": list(setting.shape), "units": setting.units}
    about = {
        "format": FORMAT,
        "network": network,
        "own": isinstance(cell.training.network, OwnNetwork),
        "normalized": cell.stream.data.is_normalized,
        "seeds": _seeds(result),
        "classes": [list(cell.stream.sequence(seed)[0].classes) for seed in _seeds(result)],  # of each output unit
        "accuracy": [record.matrix[-1][-1] for record in result.records],
        "spec": cell.spec(),
        "environment": environment(cell.training.device),
        "created": utc_now(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(about))  # PyTorch's version is no plain str and would not load
    return plain | {"state": {name: torch.stack([each[name] for each in networks]) for name in networks[0]}}


def _seeds(result: Result) -> list[int]:
    return [record.spec["seed"] for record in result.records]
