"""A cell of a table: a stream, a scenario and a method, trained in one way. A cell and a seed make a run."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from operator import index
from typing import Any, NamedTuple
from uuid import uuid4

import torch

from threefold.engine import OPTIMIZERS, SCHEDULES, Adam, Evaluation, Optimizer, Training
from threefold.engine.flow import Flow
from threefold.engine.schedule import CONSTANT
from threefold.errors import ThreefoldError
from threefold.experiments.description import (
    described_value,
    method_again,
    network_again,
    same_value,
    value_again,
    written,
)
from threefold.experiments.limits import check_curve, check_networks, check_numbers, check_sizes
from threefold.experiments.settings import Settings, task_used_in
from threefold.experiments.successor import trained_as_in_successor
from threefold.fingerprint import NotCovered, code_of, is_ours
from threefold.methods import Method, Part, paper, resolve
from threefold.methods.learner import Setting
from threefold.networks import MLPNetwork, OwnNetwork, written_shape
from threefold.results import FIRST, SUCCESSOR, Published, Seed, in_spec, lookup, published_cells
from threefold.scenarios import Outputs, Scenario
from threefold.scenarios import find as find_scenario
from threefold.streams import SHARP, OwnStream, RecordedStream, Stream
from threefold.streams.checks import in_brief
from threefold.version import NUMERICS

ACTIVE_ALL = "active all"
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
    stored_spec: Mapping[str, Any] | None = None  # in reports, what was run, whatever code is loaded now
    paper: str = FIRST  # the paper whose numbers it is judged by

    @classmethod
    def of(
        cls,
        stream: Stream,
        scenario: Scenario,
        method: Method,
        settings: Settings,
        task_id_in: Any = None,
        paper: str = FIRST,
    ) -> "Cell":
        """The cell, with everything that was not given set to the paper's value if the method can be used."""
        defaults, settings = stream.defaults, settings.filled(stream.defaults)
        network, optimizer = settings.network, settings.optimizer
        training = Training(
            iters=None if settings.epochs else settings.iters or defaults.iters,
            epochs=settings.epochs,
            batch=settings.batch or defaults.batch,
            network=network,
            schedule=settings.schedule,
            augment=settings.augment,
            evaluation=settings.evaluation,
            precision=settings.resolved_precision(),
            device=settings.resolved_device(),
        )
        where = task_used_in(scenario, method, task_id_in)
        if not method.over_seen:
            scenario = scenario.with_active(settings.active)
        cell = cls(stream, scenario.using_task_in(where), method, training, optimizer, where, paper=paper)
        check_numbers(method, training, stream)
        check_curve(stream, training)
        Flow.of(stream, training)  # raises for boundaries that tasks of this length cannot have
        if refused := cell._refused_inputs():
            raise ThreefoldError(refused)
        check_sizes(cell.setting, device=training.device, elsewhere=settings.is_elsewhere)
        if isinstance(network, OwnNetwork):
            _ = cell.setting.structure  # raises for an unusable module before anything is written
        if cell.refusal():
            return cell
        sizes = cell.numbers, cell.remembered
        check_networks(lambda: cell.name, *sizes, device=training.device, elsewhere=settings.is_elsewhere)
        resolved = replace(cell, method=resolve(method, stream.name, scenario.name))
        vars(resolved)["setting"] = cell.setting  # which is the same for any method
        return resolved

    def _refused_inputs(self) -> str | None:
        """Why the network cannot use the data, or they cannot be augmented."""
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
        return " ".join([self.stream.written, self.scenario.title, written(self.method), *self.unlike_the_paper])

    @property
    def unlike_the_paper(self) -> list[str]:
        """What differs in kind from the paper's training (not just in numbers), as the command line writes it."""
        training, data = self.training, self.stream.data
        kinds = {
            training.network.written(): not same_value(training.network, MLPNetwork(width=self.hidden)),
            self.optimizer.written(): not same_value(self.optimizer, Adam(lr=self.lr)),
            training.schedule.written(): training.schedule != CONSTANT,
            "augment": training.augment,
            "normalize": data.is_normalized,
            f"features {data.encoder or data.features[:8]}": bool(data.features),
            self.stream.boundaries.written(): self.stream.boundaries != SHARP,
            ACTIVE_ALL: self.scenario.active == "all",
        }
        return [text for text, unlike in kinds.items() if unlike]

    @property
    def as_published(self) -> bool:
        """Does it differ from a cell of the paper only in numbers, if at all?"""
        return not (self.unlike_the_paper or self.own_code or self.stream.details())

    @property
    def comparable(self) -> bool:
        """Is it trained as in the paper, so that its accuracy can be compared with the published one?"""
        if self.paper == SUCCESSOR:
            return trained_as_in_successor(self)
        stream, training, defaults = self.stream, self.training, self.stream.defaults
        ours = (training.iters, training.batch, self.hidden, self.lr, stream.tasks)
        theirs = (defaults.iters, defaults.batch, defaults.hidden, defaults.lr, stream.usual_tasks)
        return (
            self.as_published
            and ours == theirs
            and all(paper.trained_so(part, stream.name, self.scenario.name) for part in self.method.parts)
        )

    @property
    def on_the_papers_data(self) -> bool:
        return self.stream.title in {cell.stream for cell in published_cells()}

    def cuts(self) -> list[str]:
        """What is smaller or shorter than in the paper, in words; other data have no such reference."""
        if not self.on_the_papers_data:
            return []
        paper = self.stream.defaults
        counts = (
            ("iterations per task", self.training.iters, paper.iters),
            ("tasks", self.stream.tasks, self.stream.usual_tasks or 0),
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

    @cached_property
    def setting(self) -> Setting:
        """What a method may know before training."""
        outputs = Outputs.of(self.scenario, self.stream)
        shape = tuple(self.stream.inputs(self.stream.data.test_x[:1]).shape[1:])
        training = self.training
        ends = self.stream.boundaries.clock is None
        return Setting(outputs, shape, training.batch, training.network, self.stream.data.in_unit_interval, ends)

    @cached_property
    def numbers(self) -> int:
        """The number of parameters of all networks that one run trains.

        Hyperparameters that may differ between replicas change no shape, so this is cached across the cells of a grid.
        """
        setting, parts = self.setting, self.method.parts
        shapes = tuple((type(part), part.model_dump_json(exclude=set(part.per_replica()))) for part in parts)
        counted = _NUMBERS.get((setting, shapes))
        if counted is None:
            counted = _NUMBERS[setting, shapes] = self._count()
        return counted

    @property
    def remembered(self) -> int:
        """How many numbers its method remembers for one network, if many."""
        with self._no_overflow():
            return sum(_size(part, self.setting) for part in self.method.parts)

    def _count(self) -> int:
        with self._no_overflow(), torch.device("meta"):  # shapes without memory
            nets = {"classifier": self.setting.classifier()}
            for part in self.method.parts:
                nets |= part.networks(self.setting)
        return sum(p.numel() for net in nets.values() for p in net.parameters())

    @contextmanager
    def _no_overflow(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if "overflow" not in str(error):
                raise
            raise ThreefoldError(f"{self.name} has networks larger than any memory; use smaller numbers.") from error

    def refusal(self) -> str | None:
        """Why this method cannot be used here; None if it can."""
        return self.method.refuse(self.setting)

    def published(self) -> Published | None:
        """What the paper reports for this cell, even if it is trained shorter or with other hyperparameters."""
        if self.paper == SUCCESSOR:
            return lookup(self.stream.title, self.scenario.name, self.method.name, paper=SUCCESSOR)
        if not self.as_published or not self.training.iters:
            return None
        name = self.method.name
        if self.task_id_in == "hidden":  # Table B.1 lists methods combined with XdG under the method's name
            name = Method(*(part for part in self.method.parts if not part.uses_task)).name
        used_in = "output" if self.task_id_in == "both" else self.task_id_in  # as the paper lists XdG
        return lookup(self.stream.title, self.scenario.name, name, used_in)

    def spec(self) -> dict[str, Any]:
        """The cell as plain data, which together with a seed determines a run; not to be changed."""
        return self._spec

    @cached_property
    def _spec(self) -> dict[str, Any]:
        if self.stored_spec is not None:
            return dict(self.stored_spec)
        training = self.training
        stream: dict[str, object] = {
            "name": self.stream.title,
            "tasks": self.stream.cut,
            "data": self.stream.data.fingerprint,
            **self.stream.details(),
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
        if code.stream and self.stream.data.columns:  # which a user's code may read
            stream["columns"] = self.stream.data.columns_sum
        method = {"name": self.method.name, "hyperparameters": self.method.hyperparameters()}
        return {
            "stream": stream | ({"code": code.stream} if code.stream else {}),
            "scenario": {
                "name": self.scenario.name,
                "task_id_in": self.task_id_in,
                **({"active": "all"} if self.scenario.active == "all" else {}),
            },
            "method": method | ({"code": code.parts} if code.parts else {}),
            "network": described_value(training.network) | ({"code": code.network} if code.network else {}),
            "optimizer": described_value(self.optimizer),
            "training": {
                **length,
                "batch": training.batch,
                **schedule,
                **({"augment": True} if training.augment else {}),
                **({"evaluation": asdict(training.evaluation)} if training.evaluation else {}),
                "precision": training.precision,
                "device": training.device,
            },
            "numerics": NUMERICS,
        }

    @cached_property
    def _code(self) -> "_Code":
        """Fingerprints of the user's code, computed once, as files may be edited meanwhile."""
        network, stream_of, name = self.training.network, self.stream, self.stream.name
        try:
            if isinstance(stream_of, OwnStream):
                stream = code_of(stream_of.function)
            else:
                stream = code_of(type(stream_of), stream_of.held())
            parts = {}
            for part in self.method.parts:
                name = type(part).__name__
                if code := code_of(type(part), part.__pydantic_private__):
                    parts[part.name] = code
            name = network.name
            return _Code(stream, parts, code_of(network.function) if isinstance(network, OwnNetwork) else None)
        except NotCovered as error:  # a key that is never equal to another
            return _Code(uuid4().hex, {}, None, f"{name} depends on {error}")

    def __getstate__(self) -> dict[str, Any]:
        """Drop what was computed, fingerprints too: another machine may have another version of the code."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return state | ({"_code": self._code} if self.not_covered else {})

    @property
    def not_covered(self) -> str | None:
        """What in a user's code cannot be fingerprinted, so that its runs are neither stored nor looked up."""
        return self._code.not_covered

    def described(self) -> dict[str, Any]:
        """The cell as plain data, from which it can be rebuilt without its dataset."""
        network = self.training.network
        texts = {"network": network.text if isinstance(network, OwnNetwork) else None, "stream": self.stream.text}
        found = {what: text for what, text in texts.items() if text}
        found |= {"paper": self.paper} if self.paper != FIRST else {}
        return {"spec": self.spec(), "method": written(self.method), **found}

    @classmethod
    def of_description(cls, described: Mapping[str, Any]) -> "Cell":
        """A cell for reports: it has everything but the dataset, and cannot be trained."""
        spec = described["spec"]
        training = spec["training"]
        scenario, where = find_scenario(spec["scenario"]["name"]), spec["scenario"]["task_id_in"]
        scenario = scenario.with_active(spec["scenario"].get("active", "seen"))
        return cls(
            RecordedStream(spec["stream"], described.get("stream")),
            scenario.using_task_in(where),
            method_again(described["method"], spec["method"]["hyperparameters"]),
            Training(
                iters=training.get("iters"),
                epochs=training.get("epochs"),
                batch=training["batch"],
                network=network_again(spec["network"], described.get("network")),
                schedule=value_again(SCHEDULES, training.get("schedule", {"name": CONSTANT.name})),
                augment=training.get("augment", False),
                evaluation=Evaluation(**wanted) if (wanted := training.get("evaluation")) else None,
                precision=training["precision"],
                device=training["device"],
            ),
            value_again(OPTIMIZERS, spec["optimizer"]),
            where,
            spec,
            described.get("paper", FIRST),
        )

    @property
    def own_code(self) -> set[str]:
        """Which of its components a user wrote: the stream, the method, the network."""
        spec = self.spec()
        return {part for part in ("stream", "method", "network") if "code" in spec[part]}

    def run_spec(self, seed: Seed) -> dict[str, Any]:
        return self.spec() | in_spec(seed)

    @cached_property
    def shape(self) -> str:
        """What cells of one stack have in common: everything but learning rates and numeric hyperparameters."""
        optimizer, method = self.spec()["optimizer"], self.spec()["method"]
        fixed = {
            part.name: _without(method["hyperparameters"][part.name], part.per_replica()) for part in self.method.parts
        }
        rate = _without(optimizer["hyperparameters"], ["lr", *self.optimizer.per_replica()])
        optimizer, method = optimizer | {"hyperparameters": rate}, method | {"hyperparameters": fixed}
        return json.dumps([{**self.spec(), "optimizer": optimizer, "method": method}, id(self.stream)], sort_keys=True)


class _Code(NamedTuple):
    """Fingerprints of a user's stream, parts and network, and the reason if one has none."""

    stream: str | None
    parts: Mapping[str, str]
    network: str | None
    not_covered: str | None = None


def _size(part: Part, setting: Setting) -> int:
    """How many numbers a part remembers; a user's may raise anything, long before it would be trained."""
    if is_ours(type(part)):
        return part.size(setting)
    try:
        return index(part.size(setting))
    except (ThreefoldError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ThreefoldError(f"size of {part.name} must give a whole number ({in_brief(error)}).") from error


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
