"""Keeps networks in files, and reads them back."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FunctionType
from typing import Any

from threefold.engine import KeptNetwork, Measured, ReplicaStack, state_of
from threefold.errors import ThreefoldError
from threefold.experiments.cohort import Cohort, Run
from threefold.experiments.description import described_value, value_again
from threefold.fingerprint import NotCovered, code_of
from threefold.methods import METHODS, Method, Part, Setting
from threefold.networks import NETWORKS, AnyNetwork, OwnNetwork
from threefold.own_code import imported
from threefold.results import KeptNetworks, load_kept
from threefold.scenarios import Outputs, Scenario


class Files:
    """Keeps the networks of a cohort's runs as files beside the store."""

    def __init__(self, cohort: Cohort, networks: KeptNetworks) -> None:
        self.cohort, self.networks = cohort, networks

    def holds(self, tasks: int) -> bool:
        return all(self.networks.complete(key, tasks) for key in self.cohort.keys)

    def keep(self, tasks: int, stacks: Sequence[ReplicaStack], measured: Sequence[Measured]) -> None:
        for runs, stack, found in zip(self.cohort.stacks, stacks, measured, strict=True):
            for replica, run in enumerate(runs):
                about = {"after": tasks, "accuracies": found.matrix[replica, tasks - 1].tolist()}
                self.networks.save(run.key, tasks, about | _described(run) | state_of(stack, replica))


def _described(run: Run) -> dict[str, Any]:
    """Everything that the module is built from, as plain data."""
    setting, network = run.cell.setting, run.cell.training.network
    own = network.function if isinstance(network, OwnNetwork) else None
    spec = run.cell.run_spec(run.seed)
    sums = spec["method"].get("code", {})
    parts = [
        {"name": part.name, "hyperparameters": part.model_dump(), "code": _code(type(part), sums.get(part.name))}
        for part in run.cell.method.parts
    ]
    return {
        "spec": spec,
        "outputs": asdict(setting.outputs),  # the scenario too
        "setting": {name: getattr(setting, name) for name in ("shape", "batch", "unit_interval", "tasks_end")},
        "network": described_value(network) | {"code": _code(own, spec["network"].get("code"))},
        "parts": parts,
        "precision": run.cell.training.precision,
    }


def _code(thing: Any, fingerprint: str | None) -> dict[str, Any] | None:
    """Where a user's class or function is, and its fingerprint; None for ours."""
    if fingerprint is None:
        return None
    named = isinstance(thing, type | FunctionType)
    module = thing.__module__ if named else None
    file = getattr(sys.modules.get(module), "__file__", None) if module else None
    return {"module": module, "file": file, "name": thing.__qualname__ if named else repr(thing), "sum": fingerprint}


def load_network(file: str | Path) -> KeptNetwork:
    """A network from its file alone, beside the store or wherever it was copied to.

    Own code is needed only where the run used own code: in the file where it was, or of the same name in the current
    folder, and unchanged. `Result.network` takes it from the result.
    """
    return network_of(file, load_kept(Path(file)))


def network_of(
    file: str | Path, content: Mapping[str, Any], method: Method | None = None, network: AnyNetwork | None = None
) -> KeptNetwork:
    """The module of a file's content; the method and the network are loaded if they are not given."""
    try:
        network = network or _network(file, content["network"])
        method = method or Method(*(_part(file, plain) for plain in content["parts"]))
        outputs = dict(content["outputs"])
        outputs["scenario"] = Scenario(**outputs["scenario"])
        shape = tuple(content["setting"]["shape"])
        setting = Setting(Outputs(**outputs), network=network, **dict(content["setting"]) | {"shape": shape})
        return KeptNetwork(setting, method, content, content["precision"])
    except (KeyError, TypeError, IndexError, RuntimeError) as error:
        raise ThreefoldError(
            f"network '{file}' does not fit its method or network ({type(error).__name__}: {error}); delete it, and"
            " give the run again with networks to keep."
        ) from error


def _network(file: str | Path, plain: Mapping[str, Any]) -> AnyNetwork:
    if plain["code"] is None:
        return value_again(NETWORKS, plain)
    function = _own(file, "network", plain["code"])
    _check_unchanged(file, plain["code"], lambda: code_of(function))
    return OwnNetwork(function)


def _part(file: str | Path, plain: Mapping[str, Any]) -> Part:
    if plain["code"] is None:
        known = METHODS[plain["name"]].part
        assert known is not None
        return known(**plain["hyperparameters"])
    kind = _own(file, "method", plain["code"])
    part: Part = kind(**plain["hyperparameters"])
    _check_unchanged(file, plain["code"], lambda: code_of(kind, part.__pydantic_private__))
    return part


def _own(network: str | Path, what: str, code: Mapping[str, Any]) -> Any:
    """A user's class or function, where it is imported already, or from its file."""
    module, file, name = code["module"], code["file"], code["name"]
    if module and (found := getattr(sys.modules.get(module), name, None)):
        return found
    places = [Path(file), Path(Path(file).name)] if file and module != "__main__" and "<locals>" not in name else []
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        where = f"from '{file}', which is not there" if places else "which is in no module that can be imported"
        raise ThreefoldError(f"network '{network}' needs the {what} '{name}' {where}; Result.network needs no file.")
    return imported(str(place), name, what)


def _check_unchanged(file: str | Path, code: Mapping[str, Any], now: Any) -> None:
    try:
        same = now() == code["sum"]
    except NotCovered:
        same = False
    if not same:
        raise ThreefoldError(
            f"network '{file}' was trained with other code of '{code['name']}' than '{code['file']}' holds now; give"
            " the file as it was."
        )
