"""docs/your-own-network.md: its code and commands run as they stand, and what it says of modules is so."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from doc_pages import DOCS, Desk, blocks, code_in, following, kept, numbers_of, rows
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import threefold
from threefold import Dataset, Part, Split, ThreefoldError
from threefold.engine.optimizer import OPTIMIZERS, find_optimizer
from threefold.engine.schedule import SCHEDULES, find_schedule
from threefold.experiments import Cell, Settings
from threefold.experiments.cohort import Run, plan
from threefold.methods import Method
from threefold.networks import NETWORKS, find_network
from threefold.scenarios import SCENARIOS

PAGE = "your-own-network.md"
QUICK = {"scenario": "class", "seeds": 2, "iters": 2, "batch": 16, "store": None, "device": "cpu"}
followed = following(PAGE)


@pytest.fixture(scope="module")
def tiles(followed: Desk) -> Dataset:
    return threefold.load(followed.folder / "tiles.npz")


def test_a_module_is_short(followed: Desk) -> None:
    code = (followed.folder / "my_nets.py").read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 15


def test_the_page_names_every_network_and_what_it_says_is_understood() -> None:
    table = rows(PAGE, "network", "is", "for example")
    assert [code_in(name)[0] for name, _, _ in table] == list(NETWORKS)
    for name, _, example in table:
        assert find_network(code_in(example)[0]).name == code_in(name)[0]


def test_the_page_names_every_optimizer_and_schedule_and_all_they_take() -> None:
    table = [(code_in(option), code_in(told)) for option, told, _ in rows(PAGE, "option", "is", "if not given")]
    optimizers = {words[0].removeprefix("--optimizer "): told for words, told in table if "--optimizer" in words[0]}
    assert optimizers.keys() == OPTIMIZERS.keys()
    assert {"reset", *optimizers["adam"]} == OPTIMIZERS["adam"].model_fields.keys()
    assert {"reset", *optimizers["sgd"]} == OPTIMIZERS["sgd"].model_fields.keys()
    assert OPTIMIZERS["adamw"].model_fields.keys() == OPTIMIZERS["adam"].model_fields.keys()
    schedules = {find_schedule(words[0].removeprefix("--schedule ")) for words, _ in table if "--sch" in words[0]}
    assert {each.name for each in schedules} == SCHEDULES.keys() - {"constant"}


def test_python_prints_what_the_command_line_shows(followed: Desk) -> None:
    (block,) = [block for block in blocks(PAGE) if "from my_nets import Net" in block.code]
    lines = [line.split() for line in followed.printed[block.line].splitlines()]
    (shown,) = [block.code for block in blocks(PAGE) if "--method xdg" in block.code and block.language == "console"]
    means = [numbers_of(line)[0] for line in shown.splitlines() if line.startswith("│")]
    assert [line[0] for line in lines] == ["none", "ewc:strength=100", "er:budget=60", "xdg:share=0.2"]
    assert [float(mean) for _, mean in lines] == pytest.approx(means, abs=10)


def test_text_and_class_find_the_command_lines_runs(followed: Desk, tiles: Dataset) -> None:
    names = followed.namespace
    stored = kept(followed)
    assert names["named"].records[0].spec in stored
    assert names["same"].records[0].spec in stored
    own = [spec["network"] for spec in stored if spec["network"]["name"] == "Net"]
    assert len({spec["code"] for spec in own}) == 1
    for network in (names["Net"], "my_nets.py:Net", "my_nets:Net"):
        assert threefold.run(Split(tiles, 3), **QUICK, network=network).cell.spec()["network"] == own[0]


def test_the_file_trains_every_network_with_every_optimizer(followed: Desk) -> None:
    pairs = {(s["network"]["name"], s["optimizer"]["name"]) for s in kept(followed) if s["training"].get("epochs") == 1}
    assert {(n, o) for n in ("mlp", "cnn", "Net") for o in ("adam", "sgd")} <= pairs


def test_optimizers_of_one_kind_are_one_stack(tiles: Dataset) -> None:
    stream, method = Split(tiles, 3), Method()
    written = [
        "sgd:lr=0.1,momentum=0.9",
        "sgd:lr=0.01,weight_decay=0.1",
        "sgd:lr=0.01,momentum=0.9,nesterov=true",
        "adam:lr=0.1",
    ]
    settings = [Settings.checked(optimizer=each, device="cpu", batch=16, epochs=1) for each in written]
    cells = [Cell.of(stream, SCENARIOS["class"], method, each) for each in settings]
    cohorts = plan([Run(cell, seed) for cell in cells for seed in (1, 2)])
    assert sorted(len(cohort.runs) for cohort in cohorts) == [2, 2, 4]


# what a module may be


class Fits(nn.Module):
    """What every mistake begins with."""

    def __init__(self, setting: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(setting.shape[0], 8, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.output = nn.Linear(8 * 4 * 4, setting.units)

    def forward(self, x: Tensor) -> Any:
        return self.output(self.body(x))


class Spy(Part):
    """Keeps the weights and what `features` gives, as a task ends."""

    name = "spy"

    def consolidate(self, stack: Any, memory: Any, task: int) -> Any:
        batch, _ = next(iter(stack.training_data()))
        found = stack.map(lambda learner, x: learner.features(x, batch.task), batch.x)
        SEEN.update(params=stack.params["classifier"], features=found, gates=stack.setting.structure.units)
        return memory


SEEN: dict[str, Any] = {}


def seen(tiles: Dataset, network: Callable[[Any], nn.Module]) -> dict[str, Any]:
    """What a network is when the last task ends."""
    threefold.run(Split(tiles, 3), **QUICK, method=Spy(), network=network)
    return SEEN


def test_features_are_those_of_the_page(tiles: Dataset) -> None:
    class Named(Fits):
        def __init__(self, setting: Any) -> None:
            super().__init__(setting)
            self.features = nn.Linear(128, 5)
            self.output = nn.Linear(5, setting.units)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.output(self.features(self.body(x)).relu())
            return found

    assert seen(tiles, Fits)["features"].shape[-1] == 128
    assert SEEN["features"].min() >= 0, "the input of the last linear layer, after the activation"
    named = seen(tiles, Named)
    assert named["features"].shape[-1] == 5
    assert named["features"].min() < 0, "the output of the submodule, before the activation"
    assert named["gates"] == (8, 5), "what XdG gates: all but the last linear layer"


def test_first_weights_are_the_modules_own_for_each_seed(tiles: Dataset) -> None:
    class Set(Fits):
        def __init__(self, setting: Any) -> None:
            super().__init__(setting)
            with torch.no_grad():
                self.output.bias.fill_(3.0)
            self.scale = nn.Parameter(torch.ones(1))  # of no layer

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = super().forward(x) * self.scale
            return found

    class First(Spy):
        name = "first"

        def start(self, setting: Any, seed: int, params: Any) -> Any:
            starts[seed] = params
            return {}

    starts: dict[int, Any] = {}
    threefold.run(Split(tiles, 3), **QUICK, method=First(), network=Set)
    assert all((params["output.bias"] == 3).all() for params in starts.values())
    assert not torch.equal(starts[1]["output.weight"], starts[2]["output.weight"])
    before = dict(starts)
    threefold.run(Split(tiles, 3), **QUICK, method=First(), network=Set)
    assert all(torch.equal(starts[1][name], p) for name, p in before[1].items()), "the same seed, the same weights"


def test_numbers_of_your_own_are_arguments(tiles: Dataset) -> None:
    def net(setting: Any, width: int = 4) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, width), nn.ReLU(), nn.Linear(width, setting.units))

    found = [seen(tiles, given)["gates"] for given in (partial(net, width=32), lambda setting: net(setting, width=32))]
    assert found == [(32,), (32,)]


def test_code_that_changes_is_another_run_and_comments_are_not(tiles: Dataset, tmp_path: Path) -> None:
    source = next(block.code for block in blocks(PAGE) if block.code.startswith("# my_nets.py"))
    stream, keys = Split(tiles, 3), []
    for place, code in enumerate(
        (source, source + "# a comment\n", source.replace("BatchNorm2d(16)", "GroupNorm(4, 16)"))
    ):
        (tmp_path / f"nets_{place}.py").write_text(code, encoding="utf-8")
        cell = threefold.run(stream, **QUICK, network=f"{tmp_path}/nets_{place}.py:Net").cell
        keys.append(cell.spec()["network"]["code"])
    assert keys[0] == keys[1] != keys[2]


def test_passes_and_online_are_what_the_page_says(tiles: Dataset) -> None:
    class Counts(Spy):
        name = "counts"

        def after_step(self, learner: Any, step: Any) -> Any:
            batches.append(step.batch.indices)
            return {}

    batches: list[Tensor] = []
    given = {**QUICK, "iters": None, "seeds": 1, "network": Fits, "method": Counts()}
    stepped = threefold.run(Split(tiles, 3), **given, epochs=3)
    assert stepped.cell.training.steps(160) == 3 * (160 // 16)
    assert stepped.cell.training.length == "3 epochs"
    batches.clear()
    threefold.run(Split(tiles, 3), **given | {"batch": 50}, epochs=1)
    tried = [batch.flatten() for batch in batches]  # the engine tries the hook with the first batch of a task
    taken = [b for place, b in enumerate(tried) if not place or not torch.equal(b, tried[place - 1])]
    samples = torch.cat(taken[:3])  # of the first task
    assert len(samples) == len(samples.unique()) == 150, "160 samples, the last 10 left out"


# what is refused


def wrong(body: Any = None, **forward: Any) -> type[nn.Module]:
    """A module with something done after it was built, or with another `forward`."""

    class Wrong(Fits):
        def __init__(self, setting: Any) -> None:
            super().__init__(setting)
            if body:
                body(self, setting)

    Wrong.__qualname__ = "Wrong"
    if forward:
        Wrong.forward = forward["forward"]  # type: ignore[method-assign]
    return Wrong


class Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


def with_parts(**parts: Callable[[Any], nn.Module]) -> Any:
    def body(self: Any, setting: Any) -> None:
        for name, part in parts.items():
            setattr(self, name, part(setting))

    return body


def tied(self: Any, setting: Any) -> None:
    self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(8, 8)
    self.decoder.weight = self.encoder.weight


def without_setting() -> Any:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()

    Wrong.__init__.__qualname__ = "Wrong.__init__"
    Wrong.__qualname__ = "Wrong"
    return Wrong


def gives_a_list(setting: Any) -> Any:
    return []


gives_a_list.__qualname__ = "wrong"

WRONG: dict[str, list[Any]] = {
    "other than `setting.units` logits": [wrong(with_parts(output=lambda s: nn.Linear(128, 7)))],
    "`forward` gives a tuple": [wrong(forward=lambda self, x: (self.output(self.body(x)), x))],
    "layers that do not fit the samples": [wrong(with_parts(output=lambda s: nn.Linear(100, s.units)))],
    "`__init__` takes no setting": [without_setting()],
    "a function that gives no module": [gives_a_list],
    "tied parameters": [wrong(tied)],
    "a frozen parameter": [wrong(lambda self, setting: self.body.requires_grad_(False))],
    "a parameter that is not float32": [wrong(lambda self, setting: self.output.double())],
    "a parameter without a shape, as in `nn.LazyLinear`": [
        wrong(lambda self, setting: self.body.insert(0, nn.LazyConv2d(3, 1)))
    ],
    "a layer that is called twice": [
        wrong(
            with_parts(shared=lambda s: nn.Linear(128, 128)),
            forward=lambda self, x: self.output(self.shared(self.shared(self.body(x)))),
        )
    ],
    "`functional.dropout(x)` in `forward`": [
        wrong(forward=lambda self, x: self.output(functional.dropout(self.body(x))))
    ],
    "`torch.randn_like(x)` in a submodule": [
        wrong(with_parts(noise=lambda s: Noise()), forward=lambda self, x: self.output(self.noise(self.body(x))))
    ],
    "no linear layer, and no `features`": [
        wrong(with_parts(output=lambda s: nn.Identity()), forward=lambda self, x: self.body(x)[:, :6])
    ],
    "`features` that gives a tuple, or is called twice": [
        wrong(
            with_parts(features=lambda s: nn.GRU(128, 128)),
            forward=lambda self, x: self.output(self.features(self.body(x))[0]),
        ),
        wrong(
            with_parts(features=lambda s: nn.ReLU()),
            forward=lambda self, x: self.output(self.features(self.features(self.body(x)))),
        ),
    ],
    "an output layer whose rows are no samples": [
        wrong(
            with_parts(output=lambda s: nn.Linear(32, s.units)),
            forward=lambda self, x: self.output(self.body(x).view(-1, 32)).view(-1, 4, 6).mean(1),
        )
    ],
    "a buffer that changes in `eval` mode": [
        wrong(
            lambda self, setting: self.register_buffer("seen", torch.zeros(())),
            forward=lambda self, x: self.output(self.body(x + self.seen.add_(1))),
        )
    ],
    "batch norm without running statistics": [
        wrong(
            with_parts(norm=lambda s: nn.BatchNorm1d(128, track_running_stats=False)),
            forward=lambda self, x: self.output(self.norm(self.body(x))),
        )
    ],
    "`x - x.mean(0)` in `forward`": [wrong(forward=lambda self, x: self.output(self.body(x - x.mean(0))))],
    "what `torch.func.grad` cannot take, such as `torch.utils.checkpoint`": [
        wrong(forward=lambda self, x: self.output(checkpoint(self.body, x, use_reentrant=False))),
    ],
    "`cnn` or `resnet18` for data that are no images": ["cnn"],
    "a file that is not there": ["no_nets.py:Net"],
    "a file without a name": ["my_nets.py"],
    "a name that the file does not have": ["my_nets.py:Nets"],
    "a name that is not known": ["vgg"],
    "`--hidden` with another network than `mlp`": ["cnn"],
}


def test_every_refusal_of_the_page_is_tried() -> None:
    assert [what for what, _ in rows(PAGE, "what", "the sentence")] == list(WRONG)


@pytest.mark.parametrize(("what", "sentence"), rows(PAGE, "what", "the sentence"))
def test_a_refusal_is_the_pages_sentence(what: str, sentence: str, tiles: Dataset) -> None:
    flat = Dataset.from_arrays(tiles.train_x.flatten(1), tiles.train_y, tiles.test_x.flatten(1), tiles.test_y)
    data = flat if "no images" in what else tiles
    for network in WRONG[what]:
        further = {"hidden": 100} if "--hidden" in what else {}
        with pytest.raises(ThreefoldError) as refused:
            threefold.run(Split(data, 3), **QUICK, network=network, **further)
        told = str(refused.value)
        assert told.startswith(sentence.removesuffix("REASON.")) if "REASON" in sentence else told == sentence


@pytest.mark.usefixtures("followed")
def test_on_the_command_line_a_refusal_is_one_sentence(followed: Desk) -> None:
    shown = followed.run("threefold run split --data tiles.npz --tasks 3 --network my_nets.py:Nets --seeds 1 --iters 1")
    assert followed.status == 2
    (sentence,) = [told for what, told in rows(PAGE, "what", "the sentence") if "does not have" in what]
    assert shown == f"threefold: {sentence}\n"


def test_every_optimizer_that_the_page_writes_is_understood() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    for written in re.findall(r"(?:--optimizer |\")((?:adamw?|sgd):[\w.=,]+)", text):
        assert find_optimizer(written).lr
