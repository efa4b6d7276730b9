"""A cell of a table: a stream, a scenario and a method, trained in one way. A cell and a seed make a run."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn
from uuid import uuid4

import torch

from threefold.engine import OPTIMIZERS, SCHEDULES, Adam, Optimizer, Training
from threefold.engine.schedule import CONSTANT
from threefold.errors import ThreefoldError
from threefold.experiments.absent import absent
from threefold.experiments.limits import check_networks, check_numbers, check_sizes
from threefold.experiments.settings import Settings
from threefold.fingerprint import NotCovered, code_of
from threefold.methods import METHODS, Method, Part, paper, resolve
from threefold.methods.learner import Setting
from threefold.methods.registry import split_parts
from threefold.networks import NETWORKS, AnyNetwork, MLPNetwork, OwnNetwork, Weights, written_shape
from threefold.results import Published, lookup, published_cells
from threefold.scenarios import Outputs, Scenario, TaskIdIn
from threefold.scenarios import find as find_scenario
from threefold.streams import Stream
from threefold.streams import find as find_stream
from threefold.values import V, Value, build
from threefold.version import NUMERICS

_NUMBERS: dict[tuple[Setting, tuple[tuple[type[Part], str], ...]], int] = {}


@dataclass(frozen=True, eq=False)
class Cell:
    """Everything that determines a run but its seed."""

    stream: Stream
    scenario: Scenario
    method: Method
    training: Training
    optimizer: Optimizer
    task_id_in: str | None = None
    stored_spec: Mapping[str, Any] | None = None  # of a cell to report on: what was run, whatever is loaded now

    @classmethod
    def of(
        cls, stream: Stream, scenario: Scenario, method: Method, settings: Settings, task_id_in: Any = None
    ) -> "Cell":
        """The cell with everything that was not given set to the paper's value, as far as the method can be used."""
        defaults = stream.defaults
        network, optimizer = settings.network, settings.optimizer
        if isinstance(network, MLPNetwork) and not network.width:
            network = network.model_copy(update={"width": settings.hidden or defaults.hidden})
        if not optimizer.lr:
            optimizer = optimizer.model_copy(update={"lr": settings.lr or defaults.lr})
        training = Training(
            iters=None if settings.epochs else settings.iters or defaults.iters,
            epochs=settings.epochs,
            batch=settings.batch or defaults.batch,
            network=network,
            schedule=settings.schedule,
            augment=settings.augment,
            precision=settings.resolved_precision(),
            device=settings.resolved_device(),
        )
        where = _task_used_in(scenario, method, task_id_in)
        cell = cls(stream, scenario.using_task_in(where), method, training, optimizer, where)
        check_numbers(method, training, stream.tasks)
        if refused := cell._refused_inputs():
            raise ThreefoldError(refused)
        check_sizes(cell.setting, device=training.device, elsewhere=settings.is_elsewhere)
        if isinstance(network, OwnNetwork):
            _ = cell.setting.structure  # a module that cannot be trained is refused before anything is written
        if cell.refusal():
            return cell
        check_networks(cell.name, cell.numbers, device=training.device, elsewhere=settings.is_elsewhere)
        return replace(cell, method=resolve(method, stream.name, scenario.name))

    def _refused_inputs(self) -> str | None:
        """Why the data are of no use to the network, or cannot be augmented."""
        shape, data = self.setting.shape, self.stream.data
        if self.training.augment and data.features:
            return f"augment is set, but the data are features of {data.encoder}, which are computed once; give one."
        if self.training.augment and len(shape) != 3:
            return f"augment needs images, channels × height × width, and the data have {written_shape(shape)}."
        network = self.training.network
        if network.init and not network.refuse(shape):
            network.init.fitting(self.setting.classifier(), network.name)
        return network.refuse(shape)

    @property
    def name(self) -> str:
        return " ".join([self.stream.title, self.scenario.title, written(self.method), *self.unlike_the_paper])

    @property
    def unlike_the_paper(self) -> list[str]:
        """What it is trained with that is of another kind than in the paper, as the command line writes it."""
        training, data = self.training, self.stream.data
        told = {
            training.network.written(): not same_value(training.network, MLPNetwork(width=self.hidden)),
            self.optimizer.written(): not same_value(self.optimizer, Adam(lr=self.lr)),
            training.schedule.written(): training.schedule != CONSTANT,
            "augment": training.augment,
            "normalize": data.is_normalized,
            f"features {data.encoder or data.features[:8]}": bool(data.features),
        }
        return [text for text, unlike in told.items() if unlike]

    @property
    def comparable(self) -> bool:
        """Is it trained as in the paper, so that its accuracy may be judged by the published one?"""
        data = self.stream.data
        if data.is_normalized or data.features or self.training.augment:
            return False
        if not all(paper.trained_so(part, self.stream.name, self.scenario.name) for part in self.method.parts):
            return False
        defaults, training = self.stream.defaults, self.training
        ours = (training.iters, training.batch, training.schedule, self.stream.tasks)
        return (
            ours == (defaults.iters, defaults.batch, CONSTANT, self.stream.default_tasks)
            and same_value(training.network, MLPNetwork(width=defaults.hidden))
            and same_value(self.optimizer, Adam(lr=defaults.lr))
        )

    @property
    def on_the_papers_data(self) -> bool:
        return self.stream.title in {cell.stream for cell in published_cells()}

    def cuts(self) -> list[str]:
        """What is less than in the paper, in words; data that are not the paper's have no length but their own."""
        if not self.on_the_papers_data:
            return []
        paper = self.stream.defaults
        counts = (
            ("iterations per task", self.training.iters, paper.iters),
            ("tasks", self.stream.tasks, self.stream.default_tasks),
            ("units per layer", self.hidden, paper.hidden),
        )
        return [f"{ours} of {theirs} {what}" for what, ours, theirs in counts if ours and ours < theirs]

    @property
    def hidden(self) -> int | None:
        """How many units each hidden layer has; None where the network is no MLP."""
        network = self.training.network
        return network.width if isinstance(network, MLPNetwork) else None

    @property
    def lr(self) -> float:
        assert self.optimizer.lr is not None
        return self.optimizer.lr

    @property
    def setting(self) -> Setting:
        """What the method may know before training."""
        outputs = Outputs(self.scenario, self.stream.tasks, self.stream.classes_per_task)
        shape = tuple(self.stream.inputs(self.stream.data.test_x[:1]).shape[1:])
        training = self.training
        return Setting(outputs, shape, training.batch, training.network, self.stream.data.in_unit_interval)

    @cached_property
    def numbers(self) -> int:
        """Parameters of all networks that one run trains.

        Numbers that may differ between replicas change no shape, so the cells of a grid are counted once.
        """
        setting, parts = self.setting, self.method.parts
        shapes = tuple((type(part), part.model_dump_json(exclude=set(part.per_replica()))) for part in parts)
        if (setting, shapes) not in _NUMBERS:
            _NUMBERS[setting, shapes] = self._count()
        return _NUMBERS[setting, shapes]

    def _count(self) -> int:
        try:
            with torch.device("meta"):  # has shapes, and no memory
                nets = {"classifier": self.setting.classifier()}
                for part in self.method.parts:
                    nets |= part.networks(self.setting)
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            raise ThreefoldError(f"{self.name} has networks larger than any memory; use smaller numbers.") from error
        return sum(p.numel() for net in nets.values() for p in net.parameters())

    def refusal(self) -> str | None:
        """Why this method cannot be used here; None if it can."""
        return self.method.refuse(self.setting)

    def published(self) -> Published | None:
        """What the paper reports for this cell, if only its length is another: never beside other networks or steps."""
        training = self.training
        plain = same_value(training.network, MLPNetwork(width=self.hidden)) and training.schedule == CONSTANT
        if (
            training.augment
            or self.stream.data.features
            or not (plain and training.iters and same_value(self.optimizer, Adam(lr=self.lr)))
        ):
            return None
        name = self.method.name
        if self.task_id_in == "hidden":  # Table B.1 names a method combined with XdG by the method alone
            name = Method(*(part for part in self.method.parts if not part.uses_task)).name
        used_in = "output" if self.task_id_in == "both" else self.task_id_in  # so does the paper's XdG
        return lookup(self.stream.title, self.scenario.name, name, used_in)

    def spec(self) -> dict[str, Any]:
        """The cell as plain data: with a seed, everything that determines a run."""
        if self.stored_spec is not None:
            return deepcopy(dict(self.stored_spec))
        training = self.training
        stream: dict[str, object] = {
            "name": self.stream.title,
            "tasks": self.stream.cut,
            "data": self.stream.data.fingerprint,
        }
        if self.stream.data.is_normalized:
            stream["normalized"] = True
        if self.stream.data.features:
            stream["features"] = self.stream.data.features
        if self.stream.tasks < self.stream.cut:
            stream["first"] = self.stream.tasks
        length = {"epochs": training.epochs} if training.epochs else {"iters": training.iters}
        schedule = {} if training.schedule == CONSTANT else {"schedule": described_value(training.schedule)}
        code = self._code
        method = {"name": self.method.name, "hyperparameters": self.method.hyperparameters()}
        return {
            "stream": stream | ({"code": code.stream} if code.stream else {}),
            "scenario": {"name": self.scenario.name, "task_id_in": self.task_id_in},
            "method": method | ({"code": code.parts} if code.parts else {}),
            "network": described_value(training.network) | ({"code": code.network} if code.network else {}),
            "optimizer": described_value(self.optimizer),
            "training": {
                **length,
                "batch": training.batch,
                **schedule,
                **({"augment": True} if training.augment else {}),
                "precision": training.precision,
                "device": training.device,
            },
            "numerics": NUMERICS,
        }

    @cached_property
    def _code(self) -> "_Code":
        """Taken once: code may be edited meanwhile."""
        network, state = self.training.network, {n: v for n, v in vars(self.stream).items() if n != "data"}
        name = type(self.stream).__name__
        try:
            stream = code_of(type(self.stream), state)
            parts = {}
            for part in self.method.parts:
                name = type(part).__name__
                if code := code_of(type(part), part.__pydantic_private__):
                    parts[part.name] = code
            name = network.name
            return _Code(stream, parts, code_of(network.function) if isinstance(network, OwnNetwork) else None)
        except NotCovered as error:  # a key that nothing else has
            return _Code(uuid4().hex, {}, None, f"{name} depends on {error}")

    def __getstate__(self) -> dict[str, Any]:
        """On another machine the code is summed up anew: it may have another version of it."""
        return {name: value for name, value in vars(self).items() if name != "_code" or value.not_covered}

    @property
    def not_covered(self) -> str | None:
        """What of a user's code no key can cover, so that its runs are neither stored nor looked up."""
        return self._code.not_covered

    def described(self) -> dict[str, Any]:
        """The cell as plain data from which it can be made again without its data."""
        network = self.training.network
        told = {"network": network.text} if isinstance(network, OwnNetwork) and network.text else {}
        return {"spec": self.spec(), "method": written(self.method), **told}

    @classmethod
    def of_description(cls, described: Mapping[str, Any]) -> "Cell":
        """A cell to report on: it knows everything but the data themselves, and cannot be trained."""
        spec = described["spec"]
        stream, training = spec["stream"], spec["training"]
        kind, data = find_stream(stream["name"])
        scenario, where = find_scenario(spec["scenario"]["name"]), spec["scenario"]["task_id_in"]
        return cls(
            kind.without_data(
                data or "",
                stream["data"],
                stream["tasks"],
                stream.get("first"),
                stream.get("normalized", False),
                stream.get("features") or "",
            ),
            scenario.using_task_in(where),
            _method_again(described["method"], spec["method"]["hyperparameters"]),
            Training(
                iters=training.get("iters"),
                epochs=training.get("epochs"),
                batch=training["batch"],
                network=_network_again(spec["network"], described.get("network")),
                schedule=value_again(SCHEDULES, training.get("schedule", {"name": CONSTANT.name})),
                augment=training.get("augment", False),
                precision=training["precision"],
                device=training["device"],
            ),
            value_again(OPTIMIZERS, spec["optimizer"]),
            where,
            spec,
        )

    def run_spec(self, seed: int) -> dict[str, Any]:
        return self.spec() | {"seed": seed}


class _Code(NamedTuple):
    """Sums of what a user wrote: of the stream, of each part and of the network; and what of it has none."""

    stream: str | None
    parts: Mapping[str, str]
    network: str | None
    not_covered: str | None = None


def described_value(value: Value | OwnNetwork) -> dict[str, Any]:
    """A network, an optimiser or a schedule as plain data."""
    init = getattr(value, "init", None)
    told = {"name": value.name, "hyperparameters": value.model_dump(mode="json")}
    return told | ({"init": init.sum} if init else {})


def same_value(one: Value | OwnNetwork, other: Value | OwnNetwork) -> bool:
    """Whether they were given or are defaults, are these the same values?"""
    return described_value(one) == described_value(other)


def value_again(kinds: Mapping[str, type[V]], told: Mapping[str, Any]) -> V:
    """What `described_value` described."""
    return build(kinds, "value", told["name"], told.get("hyperparameters", {}))


def _network_again(told: Mapping[str, Any], text: str | None) -> AnyNetwork:
    """A network to report on; one of a user's is its name, and the text that the command line finds it by."""
    if told["name"] in NETWORKS and "code" not in told:
        network = value_again(NETWORKS, told)
        return network.model_copy(update={"init": Weights(told["init"])}) if told.get("init") else network
    own = OwnNetwork(_not_loaded, text)
    own.name = told["name"]
    return own


def _not_loaded(setting: Setting) -> NoReturn:
    raise ThreefoldError("a network that is read from a store has no code; give it again.")


def _task_used_in(scenario: Scenario, method: Method, wanted: TaskIdIn | None) -> TaskIdIn | None:
    """Where the task is used in Task-IL: in the output layer by separate heads, in the hidden layers by gates."""
    if not scenario.task_known:
        scenario.using_task_in(wanted)  # refuses anything but None
        return None
    gated = any(part.uses_task for part in method.parts)
    if wanted is None:
        return "both" if gated else "output"
    if gated and wanted == "output":
        raise ThreefoldError(
            f"task-id-in is 'output', but {written(method)} uses the task in the hidden layers; use 'hidden' or 'both'."
        )
    if not gated and wanted in ("hidden", "both"):
        raise ThreefoldError(
            f"task-id-in is '{wanted}', but nothing in {written(method)} uses the task in the hidden layers; use"
            f" {written(method)}+xdg."
        )
    return wanted


def _method_again(text: str, hyperparameters: Mapping[str, Any]) -> Method:
    """The method that was written so, with the values it had, also of a part that is not known here or has changed."""
    parts = []
    for piece in split_parts(text):
        name = piece.partition(":")[0]
        if name == "none":
            continue
        kind = METHODS[name].part if name in METHODS else None
        given = {pair.partition("=")[0] for pair in piece.partition(":")[2].split(",") if pair}
        if kind is None or kind.model_fields.keys() != hyperparameters[name].keys():
            kind = absent(name)
        parts.append(kind.model_construct(_fields_set=given, **hyperparameters[name]))
    return Method(*parts)


def written(method: Method) -> str:
    """A method as the command line writes it, with the hyperparameters that were given: `ewc:strength=100.0+xdg`."""
    return (
        "+".join(part.name + (f":{','.join(chosen(part))}" if chosen(part) else "") for part in method.parts) or "none"
    )


def chosen(part: Part) -> list[str]:
    """The hyperparameters of a part that were given, as key=value."""
    return [f"{name}={value}" for name, value in given(part).items()]


def given(part: Part) -> dict[str, Any]:
    """The hyperparameters of a part that were given."""
    every = part.model_dump().items()
    return {name: value for name, value in every if name in part.model_fields_set and value is not None}
