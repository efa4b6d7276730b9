"""`threefold.run`: the command line's work in a few lines of Python."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_cells import small_split
from torch import Tensor, nn

import threefold
from threefold import Dataset, Offline, Part, Split, Store, ThreefoldError
from threefold.engine import Adam
from threefold.engine.schedule import CONSTANT
from threefold.experiments import Cell, Result, Settings, executor, run_request, train_requests
from threefold.experiments.description import written
from threefold.methods import EWC, METHODS, Method, hyper, parse
from threefold.methods.part import Learner, Setting
from threefold.methods.registry import Entry
from threefold.networks import MLPNetwork
from threefold.results import Record, run_key
from threefold.scenarios import SCENARIOS
from threefold.streams import SHARP, Task

QUICK = {"iters": 6, "hidden": 8, "batch": 16, "device": "cpu"}


class Homely(Part):
    """A method that works in Task-IL only."""

    name = "homely"
    strength: float = hyper("does nothing", 1.0, gt=0)

    def refuse(self, setting: Setting) -> str | None:
        return None if setting.outputs.scenario.task_known else "Homely must be told the task."


class Double(nn.Module):
    """Computes in float64."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.output = nn.Linear(setting.inputs, setting.units).double()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(x.flatten(1).double())
        return logits


class Shifted(nn.Module):
    """Has float32 weights, and adds a buffer of float64."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.output = nn.Linear(setting.inputs, setting.units)
        self.register_buffer("shift", torch.zeros(setting.units, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.output(x.flatten(1)) + self.shift
        return logits


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def split() -> Split:
    return small_split()


def test_a_result_has_accuracies_with_their_error_and_a_matrix(split: Split) -> None:
    result = threefold.run(split, scenario="class", method="offline", seeds=3, **QUICK)
    assert isinstance(result, threefold.Result)
    assert result.seeds == [1, 2, 3]
    assert result.matrix.shape == (3, 2, 2)
    assert result.initial.shape == (3, 2)
    last = result.matrix[:, -1].mean(axis=1)
    assert result.accuracy.per_seed == pytest.approx(last)
    assert result.accuracy.mean == pytest.approx(last.mean())
    assert result.accuracy.sem == pytest.approx(last.std(ddof=1) / math.sqrt(3))
    assert result.diverged == []
    assert result.verdict is None
    assert ((result.matrix >= 0) & (result.matrix <= 100)).all()


def test_it_is_the_document_of_the_command_line(split: Split) -> None:
    result = threefold.run(split, scenario="task", seeds=[4, 2], store=None, **QUICK)
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["spec"]["seeds"] == [4, 2]
    assert document["accuracy_matrix"] == result.matrix.tolist()
    assert document["accuracy"]["mean"] == result.accuracy.mean


def test_finished_runs_are_kept_and_used_again(split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = threefold.run(split, scenario="class", seeds=2, **QUICK)
    with Store(tmp_path / "threefold.db", readonly=True) as store:
        assert [record.spec["seed"] for record in store.all()] == [1, 2]
    monkeypatch.setattr(executor, "train", None)
    again = threefold.run(split, scenario="class", seeds="1-2", **QUICK)
    assert again.to_json() == first.to_json()


def test_without_a_store_nothing_is_written(split: Split, tmp_path: Path) -> None:
    threefold.run(split, scenario="class", seeds=1, store=None, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_with_and_without_a_store_it_is_the_same(split: Split) -> None:
    kept = threefold.run(split, scenario="domain", seeds=2, **QUICK)
    loose = threefold.run(split, scenario="domain", seeds=2, store=None, **QUICK)
    assert kept.to_json() == loose.to_json()


def test_methods_may_be_named_built_or_combined(split: Split) -> None:
    asked = {"scenario": "task", "seeds": 1, "store": None} | QUICK
    assert threefold.run(split, method=Offline(), **asked).cell.method.name == "offline"
    assert threefold.run(split, method=Method(), **asked).cell.method.name == "none"
    both = threefold.run(split, method=Homely(strength=2) + Offline(), **asked)
    assert both.cell.method.name == "homely+offline"
    assert both.cell.spec()["method"]["hyperparameters"] == {"homely": {"strength": 2.0}, "offline": {}}


def test_settings_not_given_are_the_papers(split: Split) -> None:
    cell = Cell.of(split, SCENARIOS["class"], Method(), Settings.checked(device="cpu"))
    assert (cell.training.iters, cell.training.batch, cell.hidden, cell.lr) == (2000, 128, 400, 0.001)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"scenario": "clas"}, ["scenario 'clas'", "'class'"]),
        ({"scenario": None}, ["scenario 'None'"]),
        ({"method": "ofline"}, ["method 'ofline'", "'offline'"]),
        ({"method": Offline}, ["method must be a name such as 'ewc'", "got <class"]),
        ({"method": 5}, ["method must be a name", "got 5."]),
        ({"method": type("Mine", (Method,), {})()}, ["method must be a name", "got Method()"]),
        ({"optimizer": type("Mine", (Adam,), {})()}, ["optimizer must be one of adam, ", "got a Mine"]),
        ({"schedule": type("Mine", (type(CONSTANT),), {})()}, ["schedule must be one of constant, ", "got a Mine"]),
        ({"network": type("Mine", (MLPNetwork,), {})()}, ["network must be one of mlp, ", "a function of the setting"]),
        ({"method": Homely()}, ["Homely must be told the task."]),
        ({"seeds": 0}, ["seeds is '0'"]),
        ({"seeds": []}, ["seeds is '[]'"]),
        ({"iters": 0}, ["iters must be ", "got '0'", "at least 1"]),
        ({"iters": "many"}, ["iters must be ", "got 'many'", "whole number"]),
        ({"iters": 2.5}, ["iters must be ", "got '2.5'", "whole number"]),
        ({"lr": math.nan}, ["lr must be ", "got 'nan'", "above 0"]),
        ({"lr": -1}, ["lr must be ", "got '-1'", "above 0"]),
        ({"hidden": 0}, ["hidden must be ", "got '0'", "at least 1"]),
        ({"batch": 81}, ["batch must be at most 80, got 81", "80 training samples"]),
        ({"hidden": 5 * 10**9}, ["hidden must be at most", "got 5000000000", "400 EB", "are free"]),
        ({"batch": 10**12}, ["batch must be at most", "got 1000000000000", "are free"]),
        ({"hidden": 10**400}, ["hidden must be at most 1000000000000, got one of about 398 digits"]),
        ({"network": f"mlp:width={10**13}"}, [f"hidden must be at most 1000000000000, got {10**13}"]),
        ({"network": f"cnn:channels=4-{10**13}"}, [f"channels of cnn must be at most 1000000000000, got {10**13}"]),
        ({"network": "cnn:channels=0"}, ["channels of cnn", "greater than 0"]),
        ({"network": "cnn:norm=layer"}, ["norm of cnn is 'layer'", "'none', 'group' or 'batch'"]),
        ({"network": "mlp:depth=0"}, ["depth of mlp is '0'", "greater than or equal to 1"]),
        ({"network": "lstm"}, ["network 'lstm'", "cnn, mlp, resnet18"]),
        ({"network": 5}, ["network must be a name", "got 5"]),
        ({"network": id}, ["network id must give an nn.Module, got a int"]),
        ({"network": max}, ["network max cannot be built: 'Setting' object is not iterable"]),
        ({"optimizer": "sgd:lr=0"}, ["lr of sgd is '0'", "greater than 0"]),
        ({"optimizer": "sgd:betas=0.9-0.9"}, ["betas", "sgd"]),
        ({"optimizer": "adam:betas=0.9"}, ["betas of adam must be two numbers such as 0.9-0.999, got '0.9'."]),
        ({"network": Double, "method": "ewc"}, ["output.weight of Double must be float32, got float64"]),
        ({"network": Shifted}, ["logits of network Shifted must be float32, got float64"]),
        ({"optimizer": "adam:betas=0.9-1"}, ["betas of adam is '1'", "less than 1"]),
        ({"optimizer": "adamw:weight_decay=-1"}, ["weight_decay of adamw is '-1'"]),
        ({"optimizer": "sgd:nesterov=true"}, ["nesterov of sgd", "momentum"]),
        ({"optimizer": "adam:lr=0.1", "lr": 0.1}, ["lr is 0.1, but optimizer is 'adam:lr=0.1'"]),
        ({"schedule": "linear"}, ["schedule 'linear'", "constant, cosine, step"]),
        ({"schedule": "step:at=0.5-2"}, ["at of step is '2'", "less than or equal to 1"]),
        ({"schedule": "step:factor=2"}, ["factor of step is '2'", "less than or equal to 1"]),
        ({"epochs": 0}, ["epochs must be ", "got '0'", "at least 1"]),
        ({"epochs": 1, "iters": 5}, ["iters is 5, but epochs is 1"]),
        ({"network": "cnn", "hidden": 5}, ["hidden is 5, but network is 'cnn'"]),
        ({"iters": 10**13}, ["iters must be at most 1000000000000, got 10000000000000"]),
        ({"method": "er:budget=10000000000000000000"}, ["budget of er must be at most 1000000000000, got 1000"]),
        ({"boundaries": type("Mine", (type(SHARP),), {})()}, ["boundaries must be one of sharp, ", "got a Mine"]),
        ({"boundaries": 5}, ["boundaries must be a name", "got 5"]),
        ({"seeds": [10**50]}, ["cannot be stored (it has a number of more than 40 digits)"]),
        ({"orders": [10**50]}, ["cannot be stored (it has a number of more than 40 digits)"]),
        ({"seeds": range(10**12)}, ["seeds is 'range(0, 1000000000000)'", "10000 at most"]),
        ({"device": "gpu"}, ["device 'gpu'", "'cpu'"]),
        ({"device": None}, ["device 'None'", "auto, cpu, cuda"]),
        ({"precision": "fp16"}, ["precision 'fp16'", "fp32, tf32"]),
        ({"tasks": 2}, ["tasks is 2", "the stream has its own"]),
        ({"task_id_in": "hidden"}, ["task-id-in is 'hidden'", "Class-IL"]),
        ({"stream": Split}, ["stream must be", "Split(data), got <class"]),
        ({"stream": "spilt-mnist"}, ["stream 'spilt-mnist'", "'split-mnist'"]),
        ({"store": "no/such.db"}, ["store 'no/such.db'", "existing folder"]),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_every_mistake_is_a_threefold_error_and_writes_nothing(
    split: Split, tmp_path: Path, changes: dict[str, object], named: list[str]
) -> None:
    instead = {"hidden": None} if "network" in changes else {"iters": None} if "epochs" in changes else {}
    asked = {"stream": split, "scenario": "class", "seeds": 1} | QUICK | instead | changes
    with pytest.raises(ThreefoldError) as caught:
        threefold.run(asked.pop("stream"), **asked)  # type: ignore[arg-type]
    for piece in named:
        assert piece in str(caught.value)
    assert list(tmp_path.iterdir()) == []


class Listed(Homely):
    name = "listed"
    numbers: list[int] = hyper("do nothing", [], per_replica=False)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (Listed(numbers=[2**70]), r"cannot be stored .*1180591620717411303424 is beyond 64 bits"),
        (Listed().model_copy(update={"strength": math.inf}), "strength of listed must be a finite number, got inf"),
    ],
)
def test_every_cell_is_checked_also_beside_others_like_it(split: Split, tmp_path: Path, bad: Part, said: str) -> None:
    """A request is checked by one cell of those that differ in numbers only."""
    with pytest.raises(ThreefoldError, match=said):
        train_requests([run_request(split, ["task"], [Listed(), Listed(strength=2), bad], 1, settings=QUICK)], "a.db")
    assert list(tmp_path.iterdir()) == []


def test_a_stream_with_a_long_name_can_be_reported_on(split: Split) -> None:
    """Such as one of hundreds of angles. What differs in the end only is another request."""
    for last in ("a", "b"):
        data = replace(split.data, name="x" * 1500 + last, fingerprint=last)
        threefold.run(Split(data, 2), scenario="class", seeds=1, **QUICK)
    with Store("threefold.db", readonly=True) as store:
        assert store.unreadable() == {}
        assert [len(name) for name in store.experiments()] == [1000, 1000]


def test_methods_are_written_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "homely", Entry("homely", "Homely", "Tests", "", Homely))
    for text in ("none", "offline", "homely", "homely:strength=2.5", "homely:strength=1e-07+offline"):
        assert written(parse(text)) == text
    assert written(parse("homely:strength=1e-07+offline")) == written(Homely(strength=1e-7) + Offline())
    assert written(parse("ewc:fisher_samples=10")) == "ewc:fisher_samples=10"
    assert written(Method(EWC(fisher_samples=None))) == "ewc", "as if it had not been given"


def a_record(spec: Any, initial: Any, matrix: Any) -> Record:
    return Record(
        key=run_key(spec),
        spec=spec,
        status="finished",
        initial=initial,
        matrix=matrix,
        timings={},
        environment={},
    )


def test_metrics_are_those_of_a_matrix_worked_out_by_hand(split: Split) -> None:
    cell = Cell.of(Split(split.data, 1), SCENARIOS["class"], Method(), Settings.checked(device="cpu"))
    by_hand = {
        #        matrix after 1, 2, 3 tasks; before any training
        1: ([[90, 30, 20], [60, 80, 40], [50, 70, 100]], [10, 20, 30]),
        2: ([[100, 0, 0], [100, 100, 0], [100, 100, 100]], [0, 0, 0]),
    }
    records = []
    for seed, (matrix, initial) in by_hand.items():
        spec = cell.run_spec(seed)
        records.append(a_record(spec, initial, matrix))
    metrics = Result(cell, records).to_json()["metrics"]
    expected = {
        "average_accuracy": [(50 + 70 + 100) / 3, 100],
        "learning_accuracy": [(90 + 80 + 100) / 3, 100],
        "forgetting": [((90 - 50) + (80 - 70)) / 2, 0],
        "backward_transfer": [((50 - 90) + (70 - 80)) / 2, 0],
        "forward_transfer": [((30 - 20) + (40 - 30)) / 2, 0],
        "average_incremental_accuracy": [(90 + 70 + 220 / 3) / 3, 100],
    }
    assert {name for name, summary in metrics.items() if summary["mean"] is not None} == set(expected)
    for name, (one, other) in expected.items():
        assert metrics[name]["per_seed"] == pytest.approx([one, other])
        assert metrics[name]["mean"] == pytest.approx((one + other) / 2)
        assert metrics[name]["sem"] == pytest.approx(abs(one - other) / 2)


X, Y = np.zeros((20, 2, 2), np.float32), np.arange(20) % 10
MNIST = Dataset.from_arrays(X, Y, X, Y, name="mnist")


class Backwards(Split):
    def sequence(self, seed: int) -> list[Task]:
        return super().sequence(seed)[::-1]


class Weaker(EWC):
    def penalty(self, learner: Learner) -> None:
        return None


@pytest.mark.parametrize(
    ("kind", "method", "published"),
    [(Split, EWC(), True), (Backwards, EWC(), False), (Split, Weaker(), False)],
    ids=["the paper's", "a stream of one's own", "a method of one's own"],
)
def test_nothing_is_published_of_a_users_code(kind: type[Split], method: Part, published: bool) -> None:
    """Whatever name it has."""
    cell = Cell.of(kind(MNIST), SCENARIOS["class"], Method(method), Settings.checked(device="cpu"))
    for each in (cell, Cell.of_description(cell.described())):
        assert each.comparable == published
        assert (each.published() is not None) == published


def test_full_length_runs_are_judged_and_others_are_not() -> None:
    mnist = Split(MNIST)

    def judged(*accuracies: float, **settings: object) -> object:
        cell = Cell.of(mnist, SCENARIOS["class"], Method(), Settings.checked(device="cpu", **settings))
        records = []
        for seed, accuracy in enumerate(accuracies, start=1):
            spec = cell.run_spec(seed)
            matrix = [[accuracy] * 5] * 5
            records.append(a_record(spec, [0.0] * 5, matrix))
        document = Result(cell, records).to_json()
        assert document["published"] == (None if settings else {"mean": 19.9, "sem": 0.02, "n": 20})
        return document["verdict"]

    assert judged(19.8, 19.9, 20.0, 19.9, 19.9) == "agrees"
    assert judged(29.8, 29.9, 30.0, 29.9, 29.9) == "differs"
    assert judged(19.9, 19.9, 19.9, 19.9) == "too few seeds to tell"
    assert judged(19.8, 19.9, 20.0, iters=100) is None
    assert judged(19.8, 19.9, 20.0, hidden=8) is None
    assert judged(19.8, 19.9, 20.0, lr=0.01) is None
