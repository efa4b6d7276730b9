"""docs/your-own-stream.md: its code and commands run as they stand, and what it says of streams is so."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doc_pages import DOCS, Desk, blocks, code_in, following, kept, numbers_of, rows

import threefold
from threefold import Dataset, OwnStream, Rotated, Several, Split, Stream, Task, ThreefoldError, Timed
from threefold.data.catalog import CATALOG
from threefold.experiments import run_request
from threefold.methods import METHODS, Method, Setting, parse
from threefold.networks import MLPNetwork
from threefold.scenarios import SCENARIOS, Outputs
from threefold.streams import BOUNDARIES, STREAMS, find, find_boundaries

PAGE = "your-own-stream.md"
QUICK: dict[str, Any] = {"iters": 2, "hidden": 4, "batch": 16, "device": "cpu"}
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")
followed = following(PAGE)


@pytest.fixture(scope="module")
def signs(followed: Desk) -> Dataset:
    return threefold.load(followed.folder / "signs.npz")


@pytest.fixture(scope="module")
def mine(followed: Desk) -> dict[str, Any]:
    """What the page's files define."""
    return {**vars(__import__("my_streams")), **vars(__import__("my_classes"))}


def test_the_first_stream_is_ten_lines(followed: Desk) -> None:
    code = (followed.folder / "my_streams.py").read_text(encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 10


def test_the_page_names_every_stream_with_all_its_options() -> None:
    options: dict[str, list[str]] = {}
    for name, _, option, example in rows(PAGE, "stream", "its tasks are", "options", "for example"):
        if name:
            options[code_in(name)[0]] = []
        kind = list(options)[-1]
        options[kind] += code_in(option)[:1]
        (text,) = code_in(example)
        found = find(text)
        assert found.kind is STREAMS[kind]
        assert set(found.options) >= set(code_in(option)[:1]), text
        assert {*(found.data or "mnist").split("+")} <= CATALOG.keys()
        if found.data and "+" not in found.data and "column" not in text:
            assert found.of(tens()).tasks > 1, text
    assert {name: set(given) for name, given in options.items()} == {
        name: set(kind.options_type.model_fields) for name, kind in STREAMS.items()
    }


def tens() -> Dataset:
    """Data of ten classes, as many as MNIST has."""
    y = torch.arange(50_000) % 10
    return Dataset.from_arrays(torch.zeros(50_000, 1, 1), y, torch.zeros(50_000, 1, 1), y)


def test_what_python_is_told_is_what_the_text_says(signs: Dataset) -> None:
    for made, text in (
        (Split(signs, classes=[3, 2, 2]), "split:classes=3-2-2"),
        (Rotated(signs, angles=[0, 45]), "rotated:angles=0-45"),
        (Timed(signs, column="year"), "timed:column=year"),
    ):
        assert made.details() == find(text).of(signs).details()
    assert Several([signs, signs]).tasks == 2
    for written in re.findall(r"`(\w+\(data, .*?\)|\w+\(\[data, other\]\))`", TEXT):
        names = {name: getattr(threefold, name) for name in ("Split", "Rotated", "Several", "Timed")}
        assert eval(written, names | {"data": tens_with_years(), "other": tens()}).tasks > 1


def tens_with_years() -> Dataset:
    y = torch.arange(100) % 10
    x = torch.zeros(100, 2, 2)
    return Dataset.from_arrays(x, y, x, y, columns={"year": (y, y)})


def test_python_prints_what_the_command_line_shows_and_trains_nothing_again(followed: Desk) -> None:
    (block,) = [block for block in blocks(PAGE) if "OwnStream(chain" in block.code]
    lines = [line.split() for line in followed.printed[block.line].splitlines()]
    (shown,) = [b.code for b in blocks(PAGE) if b.language == "console" and "chain-signs: average" in b.code]
    (er,) = [numbers_of(line)[::2] for line in shown.splitlines() if line.startswith("│ ER")]
    assert [line[0] for line in lines] == list(SCENARIOS)
    assert [float(mean) for _, mean in lines] == pytest.approx(er, abs=10)
    stored = kept(followed)
    result = followed.namespace["result"]
    assert result.records[0].spec in stored
    chain = Counter(
        (spec["scenario"]["name"], spec["method"]["name"])
        for spec in stored
        if spec["stream"]["name"] == "chain-signs"
        and spec["training"].get("iters") == 80
        and "boundaries" not in spec["stream"]
    )
    assert chain == {(scenario, method): 3 for scenario in SCENARIOS for method in ("none", "er")}


def test_a_file_a_module_and_a_function_are_the_same_run(signs: Dataset, mine: dict[str, Any]) -> None:
    def key(stream: Stream) -> Any:
        return run_request(stream, ["class"], ["none"], 1, settings=QUICK).asked[0].cell.spec()

    texts = ("my_streams.py:chain", "my_streams:chain")
    assert [key(find(text).of(signs)) for text in texts] == [key(OwnStream(mine["chain"], signs))] * 2


def test_each_task_begins_with_the_class_that_the_one_before_ended_with(signs: Dataset, mine: dict[str, Any]) -> None:
    orders = []
    for seed in range(5):
        tasks = OwnStream(mine["chain"], signs).learned(seed)
        assert [len(task.classes) for task in tasks] == [3, 3, 3]
        assert all(one.classes[-1] == other.classes[0] for one, other in pairwise(tasks))
        orders.append([task.classes for task in tasks])
    assert orders[0] != orders[1]


def test_light_is_what_it_says(signs: Dataset, mine: dict[str, Any]) -> None:
    from threefold.engine.device_data import DeviceData

    stream = OwnStream(mine["light"], signs)
    data = DeviceData(stream, Outputs.of(SCENARIOS["domain"], stream), [1, 2], 1, torch.device("cpu"))
    x = signs.train_x.numpy()
    for task, expected in enumerate((x, x / 2, x[:, ::-1, ::-1])):
        indices = data.sequences[0][task].train.expand(2, -1)
        found = data.train(indices, torch.tensor(task)).x.numpy()
        assert np.array_equal(found[0, :, 0], expected)
        assert np.array_equal(found[1], found[0])
    assert len(data.train_x) == 2 * len(x), "what is transformed by one function is kept once for all seeds"


def test_backwards_is_split_in_reverse(signs: Dataset, mine: dict[str, Any]) -> None:
    ours, own = Split(signs, classes=[3, 2, 2]), mine["Backwards"](signs, classes=[3, 2, 2])
    assert [task.classes for task in own.learned(4)] == [task.classes for task in ours.learned(4)][::-1]
    assert own.classes_per_task == (2, 2, 3)


def test_output_units_are_those_of_the_table(signs: Dataset, mine: dict[str, Any]) -> None:
    streams = [OwnStream(mine["chain"], signs), OwnStream(mine["light"], signs), mine["Light"](signs)]
    header = ("scenario", "units (chain)", "units (light)", "units (Light)", "which of them compete")
    for name, *units, compete in rows(PAGE, *header):
        for number, stream in zip(units, streams, strict=True):
            outputs = Outputs.of(SCENARIOS[name.strip("`")], stream)
            assert outputs.units == int(number)
            active = set(torch.nonzero(outputs.active(1, 2)).flatten().tolist())
            own, before = set(outputs.units_of(1)), set(outputs.units_of(0))
            expected = {"those": own, "all": set(range(outputs.units))}[compete.split()[0].rstrip(",")]
            assert active == (own | before if "so far" in compete else expected)
    unequal = Outputs.of(SCENARIOS["domain"], Split(signs, classes=[3, 2, 2]))
    assert (unequal.units, unequal.units_of(1)) == (3, [0, 1])


def test_same_classes_is_said_by_these_streams() -> None:
    assert {kind.__name__ for kind in STREAMS.values() if not kind.same_classes} == {"Permuted", "Rotated"}
    assert Stream.same_classes
    recurring = [name for name, kind in STREAMS.items() if kind.same_classes and kind.recurring is not None]
    assert recurring == ["timed"], "split and several never have a class in two tasks"


def test_the_chances_of_the_page() -> None:
    header, *table = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TEXT.splitlines()
        if line.startswith(("| at step", "| task "))
    )
    found = find_boundaries("blurred:width=5").chances([40] * 3, 0, 120)
    for task, row in enumerate(table):
        assert row[0] == f"task {task + 1}"
        assert [f"{found[int(step) - 1, task]:.2f}" for step in header[1:]] == row[1:]


def test_boundaries_are_those_of_the_page() -> None:
    table = [code_in(name)[0] for name, _ in rows(PAGE, "boundaries", "means")]
    assert [find_boundaries(text).name for text in table] == list(BOUNDARIES)
    for text in table:
        given = {pair.partition("=")[0] for pair in filter(None, text.partition(":")[2].split(","))}
        assert given == set(BOUNDARIES[find_boundaries(text).name].model_fields)
        assert find_boundaries(text) == BOUNDARIES[find_boundaries(text).name](), "what is given is what is usual"


GIVEN = {  # what has no value of its own
    "fromp": "fromp:strength=1",
    "xdg": "xdg:share=0.5",
    "si": "si:strength=1",
    "ewc": "ewc:strength=1",
    "online-ewc": "online-ewc:strength=1,decay=1",
}


def test_which_methods_work_without_ends_of_tasks() -> None:
    said = {what.split(",")[0]: code_in(methods) for what, methods in rows(PAGE, "without ends of tasks", "methods")}
    as_they_are, reservoir, refuse = said.values()
    assert sorted(as_they_are + reservoir + refuse) == sorted(METHODS)

    def answer(name: str, scenario: str, *, ends: bool) -> str | None:
        outputs = Outputs(SCENARIOS[scenario], 3, 2)
        setting = Setting(outputs, (1, 8, 8), 16, MLPNetwork(width=8), tasks_end=ends)
        return Method(*parse(name).parts).refuse(setting)

    for scenario in SCENARIOS:
        for name in METHODS:
            text = GIVEN.get(name, name)
            with_ends, without = (answer(text, scenario, ends=ends) for ends in (True, False))
            if name in as_they_are:
                assert without == with_ends
            elif name in reservoir:
                assert without is not None
                assert answer(f"{name}:selection=reservoir", scenario, ends=False) == with_ends
            else:
                assert without is not None


def test_icarl_refuses_classes_that_come_again(signs: Dataset, mine: dict[str, Any]) -> None:
    def reason(method: str, stream: Stream) -> str | None:
        settings = {**QUICK, "iters": 2}
        try:
            run_request(stream, ["class"], [method], 1, settings=settings)
        except ThreefoldError as error:
            return str(error)
        return None

    again = OwnStream(mine["chain"], signs)
    assert "classes come again" in (reason("icarl:budget=70", again) or "")
    for method, stream in (("icarl:budget=70,selection=reservoir", again), ("icarl:budget=70", Split(signs, 7))):
        assert reason(method, stream) is None
    for method in sorted(METHODS.keys() - {"icarl", "xdg", "separate"}):
        assert reason(GIVEN.get(method, method), again) is None, method


def test_orders_are_what_the_page_says(followed: Desk, signs: Dataset, mine: dict[str, Any]) -> None:
    chain = [spec for spec in kept(followed) if spec["stream"]["name"] == "chain-signs"]
    plain = [spec for spec in chain if "boundaries" not in spec["stream"]]
    found = {(spec["seed"], spec.get("order", spec["seed"])) for spec in plain if spec["training"].get("iters") == 40}
    assert found == {(1, order) for order in range(1, 6)} | {(seed, 1) for seed in range(1, 6)}
    stream = OwnStream(mine["chain"], signs)
    short = {"scenario": "class", "iters": 40, "hidden": 32, "batch": 16}
    crossed = threefold.run(stream, seeds=[1], orders=[1], **short, store=followed.folder / "threefold.db")
    assert crossed.records[0].spec in plain
    assert (threefold.run(stream, seeds=[1], **short, store=None).matrix == crossed.matrix).all()


def test_the_file_trains_each_part_on_its_stream(followed: Desk) -> None:
    forty = [spec for spec in kept(followed) if spec["training"].get("iters") == 40]
    split = [spec for spec in forty if spec["stream"].get("options") == {"classes": [3, 2, 2]}]
    assert Counter(spec["scenario"]["name"] for spec in split) == dict.fromkeys(SCENARIOS, 6)
    blurred = [spec for spec in forty if "boundaries" in spec["stream"]]
    assert all(spec["stream"]["boundaries"]["hyperparameters"] == {"every": 10, "width": 10} for spec in blurred)
    assert {(spec["stream"]["name"], spec["method"]["name"]) for spec in blurred} == {
        ("chain-signs", "none"),
        ("chain-signs", "er"),
    }
    timed = [spec for spec in forty if spec["stream"]["name"] == "timed-signs"]
    assert {(spec["seed"], spec.get("order", spec["seed"])) for spec in timed} == {(1, 1), (2, 1), (3, 1)}


def test_code_that_changes_is_another_run_and_comments_are_not(signs: Dataset, tmp_path: Path) -> None:
    source = next(block.code for block in blocks(PAGE) if block.code.startswith("# my_streams.py\n"))
    keys = []
    for place, code in enumerate((source, source + "# a comment\n", source.replace("(0, 2, 4)", "(0, 1, 2)"))):
        (tmp_path / f"streams_{place}.py").write_text(code, encoding="utf-8")
        stream = find(f"{tmp_path}/streams_{place}.py:chain").of(signs)
        keys.append(run_request(stream, ["class"], ["none"], 1, settings=QUICK).asked[0].cell.spec()["stream"]["code"])
    assert keys[0] == keys[1] != keys[2]


# what is refused


def wrong(**changes: Any) -> Callable[[Dataset, int], list[Task]]:
    """A stream of one good task, but for this."""

    def stream(data: Dataset, seed: int) -> list[Task]:
        good = {"classes": range(7), "train": range(840), "test": range(210)}
        made = {name: value(data) for name, value in changes.items() if callable(value) and name != "transform"}
        return [Task(**good | changes | made)]

    return stream


def cropped(images: torch.Tensor) -> torch.Tensor:
    return images[:, :, :4, :4]


def noisy(images: torch.Tensor) -> torch.Tensor:
    return images + torch.randn(images.shape)


OWN: dict[str, Any] = {
    "no tasks": lambda data, seed: [],
    "the code fails": lambda data, seed: data.columns["month"],
    "it draws numbers that no seed decides": wrong(train=lambda data: torch.randperm(840)[:100]),
    "tasks of other sizes for another seed": lambda data, seed: [
        Task(range(1 + seed), (data.train_y <= seed).nonzero().flatten(), (data.test_y <= seed).nonzero().flatten())
    ],
    "a mask in place of indices": wrong(train=lambda data: data.train_y < 3),
    "no samples": wrong(train=[]),
    "an index too far": wrong(test=range(211)),
    "a sample of another class": wrong(classes=(0, 1)),
    "a class that there is not": wrong(classes=range(8)),
    "a class named twice": wrong(classes=(0, 0)),
    "too few pixels": wrong(pixels=range(32)),
    "a pixel that there is not": wrong(pixels=range(1, 65)),
    "a transform to another shape": wrong(transform=cropped),
    "a transform that draws at random": wrong(transform=noisy),
}
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "a file that is not there": ("no_streams.py:chain", {}),
    "a name that the file does not have": ("my_streams.py:chains", {}),
    "a file without a name": ("my_streams.py", {}),
    "a name that is not known": ("splitt", {}),
    "an option that is not known": ("split:clases=3-2-2", {}),
    "`classes=3-2` of seven": ("split:classes=3-2", {}),
    "`classes=0-1/1-2`": ("split:classes=0-1/1-2", {}),
    "`classes=0-1/2-3` of seven": ("split:classes=0-1/2-3", {}),
    "`classes=three`": ("split:classes=three", {}),
    "`first=4` with the usual five tasks": ("split:first=4", {}),
    "`first=2` with four tasks": ("split:first=2", {"tasks": 4}),
    "`order=0-1-2` of seven": ("split:order=0-1-2", {"tasks": 1}),
    "`rotated` of data that are no images": ("rotated", {"data": "flat.npz"}),
    "`angles=left`": ("rotated:angles=left", {}),
    "`several` of one dataset": ("several", {}),
    "`at=500-400`": ("timed:at=500-400", {}),
    "`column=month`": ("timed:column=month", {}),
    "`--tasks 4` with `classes=3-2-2`": ("split:classes=3-2-2", {"tasks": 4}),
    "boundaries that are not known": ("split:classes=3-2-2", {"boundaries": "blured"}),
    "a width larger than the tasks": ("split:classes=3-2-2", {"boundaries": "blurred"}),
}
ELSEWHERE = {
    "`--tasks` that it does not have",
    "a class whose `__init__` leaves out Stream's",
    "`--online` with `--iters`",
}


def sentence(what: str) -> str:
    (told,) = [told for row, told in rows(PAGE, "what", "the sentence") if row == what]
    return told


def test_every_refusal_of_the_page_is_tried() -> None:
    assert {what for what, _ in rows(PAGE, "what", "the sentence")} == OWN.keys() | NAMED.keys() | ELSEWHERE


@pytest.mark.parametrize("what", OWN)
def test_a_refusal_of_a_users_stream_is_the_pages_sentence(what: str, signs: Dataset) -> None:
    function = OWN[what]
    function.__qualname__ = "wrong"
    stream = OwnStream(function, signs)
    with pytest.raises(ThreefoldError) as refused:
        print([stream.learned(seed) for seed in (1, 1, 2)])
    assert str(refused.value) == sentence(what)


@pytest.mark.parametrize("what", NAMED)
def test_a_refusal_of_a_stream_by_name_is_the_pages_sentence(what: str, followed: Desk, signs: Dataset) -> None:
    flat = [signs.train_x.flatten(1), signs.train_y, signs.test_x.flatten(1), signs.test_y]
    names = ("train_x", "train_y", "test_x", "test_y")
    np.savez(followed.folder / "flat.npz", **{n: each.numpy() for n, each in zip(names, flat, strict=True)})
    text, more = NAMED[what]
    with pytest.raises(ThreefoldError) as refused:
        run_request(text, ["class"], ["none"], 1, **{"data": "signs.npz", **more}, settings={**QUICK, "iters": 40})
    assert str(refused.value) == sentence(what)


def test_other_numbers_of_tasks_are_refused(signs: Dataset, mine: dict[str, Any]) -> None:
    def named(data: Dataset, seed: int) -> list[Task]:
        return list(mine["chain"](data, seed))

    named.__qualname__ = "wrong"
    with pytest.raises(ThreefoldError) as refused:
        _ = OwnStream(named, signs, 4).tasks
    assert str(refused.value) == sentence("`--tasks` that it does not have")


def test_a_class_must_call_the_init_of_stream(followed: Desk) -> None:
    code = "\n\nclass Wrong(Stream):\n    def __init__(self, data, tasks=None):\n        self.number = 3\n"
    source = (followed.folder / "my_classes.py").read_text(encoding="utf-8")
    (followed.folder / "other").mkdir()
    (followed.folder / "other" / "my_classes.py").write_text(
        source + code + "\n    def sequence(self, seed):\n        return []\n", encoding="utf-8"
    )
    shown = followed.run(f"threefold run {followed.folder}/other/my_classes.py:Wrong --data signs.npz")
    assert followed.status == 2
    told = sentence("a class whose `__init__` leaves out Stream's")
    assert shown.replace(f"{followed.folder}/other/", "") == f"threefold: {told}\n"


def test_online_is_no_number_of_steps(followed: Desk) -> None:
    shown = followed.run("threefold run split:classes=3-2-2 --data signs.npz --online --iters 40")
    assert (followed.status, shown) == (2, f"threefold: {sentence('`--online` with `--iters`')}\n")
