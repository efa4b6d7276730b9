"""An experiment as a file: which methods, in which scenarios, on which stream, with which seeds."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    model_validator,
)

from threefold import scenarios, streams
from threefold.engine import find_optimizer, find_schedule
from threefold.errors import ThreefoldError, as_value_error, unknown
from threefold.experiments.section import Kind
from threefold.experiments.seeds import parse_seeds, written_seeds
from threefold.experiments.settings import Settings, listed, ways
from threefold.experiments.spec_errors import sentence
from threefold.methods import Method, build
from threefold.methods.registry import METHODS
from threefold.networks import find_network
from threefold.reading import TOML_FILE, parse_toml, read_file
from threefold.results import FIRST, SUCCESSOR
from threefold.scenarios import Active, TaskIdIn

PAPER = ("table4", "table5", "tableB1", "figureC1", "figureD1", "figureD2")
FURTHER = ("taskfree", "stability", "orders")  # experiments of ours on the paper's benchmarks
SUCCESSORS = ("nmi-table2", "nmi-table3")  # of the paper's successor (2022)
STORED = ("nmi-budgets-mnist", "nmi-budgets-cifar")  # its curves over stored data, of which no numbers are published
Value = float | int | str | bool


def _of_ours(check: Any) -> AfterValidator:
    """Wrap one of our checks for pydantic, which collects the errors of the whole file."""

    def checked(value: Any) -> Any:
        with as_value_error():
            check(value)
        return value

    return AfterValidator(checked)


NetworkName = Annotated[str, _of_ours(find_network)]
OptimizerName = Annotated[str, _of_ours(find_optimizer)]
StreamName = Annotated[str, _of_ours(streams.find)]
BoundariesName = Annotated[str, _of_ours(streams.find_boundaries)]
ScenarioName = Annotated[str, _of_ours(scenarios.find)]


def _each_once(names: list[str]) -> list[str]:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"it names '{name}' twice; name it once")
    return names


Scenarios = Annotated[list[ScenarioName], AfterValidator(_each_once)]
T = TypeVar("T")
OneOrMore = Annotated[
    Annotated[T, Tag("<one>")] | Annotated[list[T], Field(min_length=1), Tag("<several>")],
    Discriminator(lambda given: "<several>" if isinstance(given, list) else "<one>"),
]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]
ScheduleName = Annotated[str, _of_ours(find_schedule)]


def _seeds_as_text(given: Any) -> str:
    """Seeds as text; TOML may also give a list or a number."""
    if not isinstance(given, list):
        return str(given)
    with as_value_error():
        return written_seeds(parse_seeds(given))


Seeds = Annotated[str, BeforeValidator(_seeds_as_text), _of_ours(parse_seeds)]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class MethodSpec(_Spec):
    """A method, or a grid of it: a hyperparameter that is a list takes every value in it."""

    method: str = Field(description="as on the command line: ewc, ewc+xdg")
    values: dict[str, Value | list[Value]] = Field(default_factory=dict, alias="with")
    scenarios: Scenarios | None = None
    task_id_in: TaskIdIn | None = None
    seeds: Seeds | None = Field(None, description="of this method; its part's if not given")
    note: str = ""

    @model_validator(mode="after")
    def _known(self) -> "MethodSpec":
        """Check each value once, not all combinations, as a short file can describe a grid of 10⁹ points."""
        with as_value_error():
            for key, value in self.values.items():
                if value == []:
                    raise ThreefoldError(f"{key} of {self.method} must have at least one value, got '[]'.")
            first = {key: value[0] if isinstance(value, list) else value for key, value in self.values.items()}
            self._build(first)
            for key, value in self.values.items():
                for each in value[1:] if isinstance(value, list) else ():
                    self._build(first | {key: each})
        return self

    @property
    def points(self) -> int:
        """The number of combinations of values."""
        return prod(len(value) for value in self.values.values() if isinstance(value, list))

    def variants(self) -> Iterator[Method]:
        """One method for each combination of values."""
        lists = [value if isinstance(value, list) else [value] for value in self.values.values()]
        for values in product(*lists):
            yield self._build(dict(zip(self.values, values, strict=True)))

    def _build(self, values: Mapping[str, Value]) -> Method:
        names = [name for name in self.method.split("+") if name != "none"]
        given: dict[str, dict[str, Value]] = {name: {} for name in names}
        for name in names:
            if name not in METHODS:
                raise unknown("method", name, METHODS)
        for key, value in values.items():
            given[self._owner(key, names)][key] = value
        parts = [build(name, given[name]) for name in names]
        return Method(*(part for part in parts if part is not None))

    def _owner(self, key: str, names: Sequence[str]) -> str:
        fields = {name: part.model_fields if (part := METHODS[name].part) else {} for name in names}
        for name, known in fields.items():
            if key in known:
                return name
        every = [key for part in fields.values() for key in part]
        if not every:
            raise ThreefoldError(f"method '{self.method}' has no hyperparameters, but '{key}' was given.")
        raise unknown(f"hyperparameter of {self.method}", key, every)


class RuleSpec(_Spec):
    """How ambiguous descriptions of methods are interpreted: stated once for a whole experiment, with its source."""

    text: str = Field(min_length=1, description="what is done so, and where that is from; with every option in it")
    values: dict[str, dict[str, Value]] = Field(alias="with", description="options by method")
    scenarios: Scenarios | None = None
    task_id_in: Literal["output", "hidden"] | None = None

    @model_validator(mode="after")
    def _known(self) -> "RuleSpec":
        with as_value_error():
            for name, options in self.values.items():
                build(name, options)
        return self

    def options(self, scenario: str, task_id_in: str | None) -> Mapping[str, Mapping[str, Value]]:
        """Its options for cells of this scenario, with the task used there."""
        fits = scenario in (self.scenarios or [scenario]) and self.task_id_in in (None, task_id_in or "output")
        return self.values if fits else {}

    def concerns(self, method: Method, scenario: str, task_id_in: str | None) -> bool:
        """Does it apply to such a cell?"""
        return any(part.name in self.options(scenario, task_id_in) for part in method.parts)

    def plain(self) -> dict[str, Any]:
        return {"text": self.text, "options": {name: dict(options) for name, options in self.values.items()}}


class TrainingSpec(_Spec):
    """How to train; what is not given defaults to the paper's value for the stream. A list stands for each value."""

    iters: OneOrMore[Count] | None = None
    epochs: OneOrMore[Count] | None = None
    lr: OneOrMore[Rate] | None = None
    batch: OneOrMore[Count] | None = None
    hidden: OneOrMore[Count] | None = None
    network: OneOrMore[NetworkName] | None = None
    optimizer: OneOrMore[OptimizerName] | None = None
    schedule: OneOrMore[ScheduleName] | None = None
    augment: OneOrMore[bool] = Field([False], description="shift and mirror images at random")
    active: OneOrMore[Active] = Field(
        ["seen"], description="Class-IL's output units in training: of classes seen, or all"
    )
    evaluate_every: int | None = Field(None, ge=1, description="steps between two tests of all tasks")
    evaluate_first: int = Field(0, ge=0, description="steps of each task after each of which they are tested as well")
    evaluate_samples: int | Literal["all"] = Field(500, description="of each task's test data")
    training_curves: bool = Field(False, description="keep the loss and the accuracy on training data, too")

    @model_validator(mode="after")
    def _consistent(self) -> "TrainingSpec":
        """Check each value once, not all combinations: there may be 10⁹ of them."""
        every = {name: listed(value) for name, value in self.model_dump().items()}
        first = {name: values[0] for name, values in every.items()}
        others = ({name: value} for name, values in every.items() for value in values[1:])
        for changed in ({}, *others):
            with as_value_error():
                Settings.checked(**first | changed)
        return self

    @property
    def points(self) -> int:
        """The number of combinations of values."""
        return prod(len(listed(value)) for value in self.model_dump().values())

    def ways(self) -> Iterator[dict[str, Any]]:
        """The settings of each combination."""
        return ways(self.model_dump())


class ValidationSpec(_Spec):
    """Choosing hyperparameters without test data (appendix D): on training data held out of the first tasks only."""

    share: float = Field(0.1, gt=0, lt=1, description="of the training data, held out")
    tasks: int = Field(2, ge=1, description="that are learned before the choice")


class QuickSpec(_Spec):
    """What `--quick` reduces an experiment to: all of it in minutes on two cores, with numbers that prove nothing."""

    iters: int = Field(40, ge=1)
    hidden: int | None = Field(None, ge=1)
    tasks: int | None = Field(None, ge=1, description="of the sequence that are learned; all if not given")
    seeds: Seeds = "2"
    boundaries: BoundariesName | None = Field(None, description="between shorter tasks; the same if not given")
    points: int = Field(3, ge=2, description="values kept of a grid")
    only: list[str] = Field(default_factory=list, description="methods and scenarios that are kept; all if not given")


class PartSpec(_Spec):
    """Methods on one stream."""

    stream: StreamName
    data: str | None = None
    normalize: bool = Field(False, description="with the training data's mean and deviation")
    features: str | None = Field(None, description="FILE.py:FUNCTION or FILE.pt: what makes features of the data")
    network: str | None = Field(None, description="of this part, in place of the training's; read when it is planned")
    tasks: OneOrMore[Count] | None = None
    boundaries: OneOrMore[BoundariesName] = Field(["sharp"], description="between the tasks")
    seeds: Seeds | None = Field(None, description="of this part; the experiment's if not given")
    orders: Seeds | None = Field(None, description="of the tasks, each with every seed; a seed's own if not given")
    scenarios: Scenarios = Field(default_factory=lambda: list(scenarios.SCENARIOS), min_length=1)
    methods: list[MethodSpec] = Field(min_length=1)

    @property
    def streams(self) -> list[tuple[int | None, str]]:
        """Each number of tasks with each of the boundaries."""
        return list(product(listed(self.tasks), listed(self.boundaries)))


class Experiment(_Spec):
    """A whole experiment. A file with one part may give the part's fields at the top."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$")
    title: str = ""
    kind: Kind = "table"
    seeds: Seeds = "20"
    selected: str = Field("as given", description="how the hyperparameters were chosen")
    training: TrainingSpec = Field(default_factory=lambda: TrainingSpec.model_validate({}))
    quick: QuickSpec = Field(default_factory=lambda: QuickSpec.model_validate({}))
    validation: ValidationSpec | None = None
    rules: list[RuleSpec] = Field(default_factory=list)
    parts: list[PartSpec] = Field(min_length=1)
    _paper: str = PrivateAttr(FIRST)  # the paper whose numbers its cells are judged by; files cannot set it

    @property
    def paper(self) -> str:
        return self._paper

    def ruled(self, method: Method, scenario: str, task_id_in: str | None) -> Method:
        """The method with the options that the rules give it there, except those that were given explicitly."""
        parts = []
        for part in method.parts:
            own = {name: getattr(part, name) for name in part.model_fields_set}
            for rule in self.rules:
                own = {**rule.options(scenario, task_id_in).get(part.name, {}), **own}
            parts.append(type(part)(**own))
        return Method(*parts)

    @model_validator(mode="before")
    @classmethod
    def _one_part(cls, given: Any) -> Any:
        own = PartSpec.model_fields.keys() - cls.model_fields.keys()
        if not isinstance(given, Mapping) or "parts" in given:
            return given
        fields = own & given.keys()
        rest = {key: value for key, value in given.items() if key not in fields}
        return rest | {"parts": [{key: given[key] for key in fields}]}


def load_experiment(path: str | Path) -> Experiment:
    """The experiment in a TOML file; the error names every mistake in it."""
    path = Path(path)
    try:
        content = read_file(path, TOML_FILE)
    except OSError as error:
        why = error.strerror or error
        raise ThreefoldError(f"experiment '{path}' cannot be read ({why}); give a TOML file.") from error
    return _parsed(content, str(path), path.stem)


def paper_experiment(name: str) -> Experiment:
    """One of the built-in experiments: the paper's, its successor's, or ours."""
    if name not in PAPER + FURTHER + SUCCESSORS + STORED:
        raise unknown("experiment", name, [*PAPER, *FURTHER, *SUCCESSORS, *STORED, "all"])
    content = files("threefold.experiments").joinpath("paper", f"{name}.toml").read_bytes()
    found = _parsed(content, name, name)
    found._paper = SUCCESSOR if name in SUCCESSORS else FIRST
    return found


def _parsed(content: bytes, source: str, name: str) -> Experiment:
    try:
        given = parse_toml(content)
    except tomllib.TOMLDecodeError as error:
        raise ThreefoldError(f"experiment '{source}' is not TOML: {error}.") from error
    except ValueError as error:
        raise ThreefoldError(f"experiment '{source}' cannot be read ({error}); give a TOML file.") from error
    try:
        return Experiment.model_validate({"name": name} | given)
    except ValidationError as error:
        wrong = sentence(error.errors(), _known(), several="parts" in given)
        raise ThreefoldError(f"experiment '{source}' has {wrong}") from error


def _known() -> dict[str, dict[str, str]]:
    """The fields of every table, with suggestions, including fields often put one level too high."""
    tables: dict[str, type[_Spec]] = {
        "": Experiment,
        "parts": PartSpec,
        "methods": MethodSpec,
        "rules": RuleSpec,
        "training": TrainingSpec,
        "quick": QuickSpec,
        "validation": ValidationSpec,
    }
    known = {
        table: {own: own for name, field in spec.model_fields.items() for own in [field.alias or name]}
        for table, spec in tables.items()
    }
    parts = [entry.part for entry in METHODS.values() if entry.part]
    known[""] = {name: f"training.{name}" for name in known["training"]} | known[""]
    known["methods"] = {name: f"with.{name}" for part in parts for name in part.model_fields} | known["methods"]
    return known
