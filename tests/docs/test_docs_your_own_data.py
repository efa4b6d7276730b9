"""docs/your-own-data.md: its code and commands run as they stand, and its table of errors is complete and exact."""

import ast
import inspect
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_pages import DOCS, Desk, blocks, desk, fetchable, rows

import threefold
from threefold import Dataset, Permuted, Split, ThreefoldError
from threefold.data import dataset, npz
from threefold.data.catalog import CATALOG, File
from threefold.experiments import Result
from threefold.experiments.spec import QuickSpec
from threefold.report import FORMATS
from threefold.scenarios import SCENARIOS, Outputs

PAGE = "your-own-data.md"
BATCHES = {Split.defaults.batch, Permuted.defaults.batch}  # before a desk makes them small


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk at which the whole page was followed, with small stand-ins for Fashion-MNIST and CIFAR-10."""
    with desk(tmp_path_factory.mktemp("data")) as place:
        fetchable("fashion-mnist", place.patch)
        small_cifar(place)
        place.follow(PAGE)
        yield place


def small_cifar(place: Desk) -> None:
    """CIFAR-10 with 200 images a file, which lie where the page has the data."""
    draw, files = np.random.default_rng(0), []
    folder = place.folder / "datasets" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for file in CATALOG["cifar-10"].files:
        records = draw.integers(0, 256, (200, 1 + 3 * 32 * 32), dtype=np.uint8)
        records[:, 0] = np.arange(200) % 10
        (folder / file.name).write_bytes(records.tobytes())
        files.append(File(file.name, records.size, sha256(records.tobytes()).hexdigest()))
    place.patch.setitem(CATALOG, "cifar-10", replace(CATALOG["cifar-10"], files=tuple(files)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shapes(followed: Desk) -> dict[str, Any]:
    """The arrays of the page's example."""
    with np.load(followed.folder / "shapes.npz") as arrays:
        return dict(arrays)


def printed(followed: Desk, piece: str) -> str:
    """What the block that holds this piece printed."""
    (found,) = [followed.printed[block.line] for block in blocks(PAGE) if piece in block.code]
    return found


def test_the_commands_show_every_pair(followed: Desk) -> None:
    shown = printed(followed, "threefold run split --data")
    assert "split-shapes" in shown
    assert "permuted-shapes" in shown
    assert all(title in shown for title in ("None", "ER", "EWC", "Task-IL", "Domain-IL", "Class-IL"))
    assert "split-fashion-mnist" in printed(followed, "threefold run split-fashion-mnist")
    assert "split-cifar-10" in printed(followed, "threefold run split-cifar-10")


def test_cifar_is_normalised_in_python_as_on_the_command_line(followed: Desk) -> None:
    names = followed.namespace
    assert (names["cifar"].shape, names["cifar"].is_normalized) == ((3, 32, 32), False)
    with threefold.Store(followed.folder / "threefold.db", readonly=True) as store:
        kept = [record.spec for record in store.all() if record.spec["stream"]["name"] == "split-cifar-10"]
    assert {spec["stream"].get("normalized") for spec in kept} == {True}
    assert Counter(spec["method"]["name"] for spec in kept) == {"none": 5, "er": 5}, "and nothing was trained twice"
    assert names["normalized"].records[0].spec in kept


def test_the_shapes_of_the_page_are_taken() -> None:
    for shape, _, example in rows(PAGE, "arrays of shape", "hold", "example"):
        inner = eval(example.partition(": ")[2])[1:]
        x, y = np.zeros((4, *inner), np.float32), np.arange(4) % 2
        assert Dataset.from_arrays(x, y, x, y).shape == inner
        assert shape.count(",") == len(inner)


def test_python_gives_what_the_command_line_gave_and_trains_nothing_again(followed: Desk) -> None:
    names = followed.namespace
    lines = [line.split() for line in printed(followed, "for scenario in").splitlines()]
    assert [line[0] for line in lines] == ["task", "domain", "class"]
    assert all(0 < float(mean) <= 100 for _, mean, _ in lines)
    assert names["permuted"].matrix.shape == (5, 4, 4)
    loaded = threefold.load(followed.folder / "shapes.npz")
    assert (loaded.name, loaded.fingerprint) == (names["data"].name, names["data"].fingerprint)
    with threefold.Store(followed.folder / "threefold.db", readonly=True) as store:
        kept = [record.spec for record in store.all() if record.spec["stream"]["name"] == "split-shapes"]
    result: Result = names["result"]
    full = Counter(spec["method"]["name"] for spec in kept if spec["training"]["iters"] == 50)
    assert full == {"none": 3 * 5, "er": 3 * 5, "ewc": 3 * 3 * 5}, "the commands' runs, and no others"
    assert result.records[0].spec in kept


def test_the_experiment_is_rehearsed_run_and_reported(followed: Desk) -> None:
    shown = printed(followed, "threefold experiment shapes.toml --quick")
    quick, full, *_ = shown.split("All the evidence")
    assert "Shapes in three tasks (quick):" in quick
    assert "Shapes in three tasks:" in full
    for text, seeds in ((quick, 2), (full, 5)):
        assert f"of {seeds} seeds" in text
        assert all(row in text for row in ("None", "EWC (strength=1)", "EWC (strength=10000)", "ER"))
    report = (followed.folder / "shapes.html").read_text(encoding="utf-8")
    assert "Shapes in three tasks" in report
    quickly = QuickSpec.model_validate({})
    assert (quickly.iters, quickly.seeds, quickly.points) == (40, "2", 3)
    assert "`, `".join(FORMATS[:-1]) in (DOCS / PAGE).read_text(encoding="utf-8")


def test_a_file_of_a_known_name_keeps_its_ending(shapes: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", **shapes)
    quick = {"scenario": "class", "seeds": 1, "iters": 1, "hidden": 8, "batch": 16, "store": None}
    own = threefold.load(tmp_path / "mnist.npz")
    assert own.name == "mnist.npz"
    assert threefold.run(Split(own, 3), **quick).cell.published() is None
    called = Dataset.from_arrays(**shapes, name="mnist")
    assert threefold.run(Split(called, 3), **quick).cell.published(), "if not, the page may drop its warning"


def test_a_changed_value_makes_new_runs(shapes: dict[str, Any]) -> None:
    changed = shapes["train_x"].copy()
    changed[0, 0, 0] += 0.5
    data = [Dataset.from_arrays(**shapes, name="shapes"), Dataset.from_arrays(**shapes | {"train_x": changed})]
    assert data[0].fingerprint != data[1].fingerprint


def test_what_the_page_says_of_scenarios_and_defaults() -> None:
    header = ("scenario", "the question", "output units (split, 3 tasks)", "output units (permuted, 3 tasks)")
    for name, _, split, permuted in rows(PAGE, *header):
        for text, classes_per_task in ((split, 2), (permuted, 6)):
            outputs = Outputs(SCENARIOS[name.strip("`")], 3, classes_per_task)
            assert int(text.split(",")[0]) == outputs.units
    assert (Split.default_tasks, Permuted.default_tasks, Split.usual_tasks_of) == (5, 10, {"cifar-100": 10})
    assert {128} == BATCHES


def test_only_images_are_padded() -> None:
    labels = np.arange(4) % 2
    for shape, inputs in (((8, 8), (1, 12, 12)), ((3, 8, 8), (3, 8, 8)), ((64,), (64,))):
        x = np.zeros((4, *shape), np.float32)
        data = Dataset.from_arrays(x, labels, x, labels)
        assert Permuted(data).inputs(data.train_x).shape == (4, *inputs)


# the errors


def with_nan(x: Any) -> Any:
    x = x.copy()
    x[7, 1, 2] = np.nan
    return x


ARRAYS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a list instead of an array": lambda a: {"train_x": a["train_x"].tolist()},
    "inputs of another type": lambda a: {"train_x": a["train_x"].astype(np.int64)},
    "inputs of one dimension": lambda a: {"train_x": a["train_x"][:, 0, 0]},
    "bytes to train on, floats to test on": lambda a: {"train_x": a["train_x"].astype(np.uint8)},
    "no inputs": lambda a: {"test_x": a["test_x"][:0]},
    "NaN, or infinite": lambda a: {"train_x": with_nan(a["train_x"])},
    "labels that are not integers": lambda a: {"train_y": a["train_y"].astype(float)},
    "labels of two dimensions": lambda a: {"train_y": a["train_y"][:, None]},
    "no labels": lambda a: {"test_y": a["test_y"][:0]},
    "a negative label": lambda a: {"train_y": a["train_y"] - 1},
    "fewer labels than samples": lambda a: {"train_y": a["train_y"][1:]},
    "samples of different shapes": lambda a: {"test_x": a["test_x"].reshape(-1, 64)},
    "labels from 1": lambda a: {"train_y": a["train_y"] + 1, "test_y": a["test_y"] + 1},
    "a class without training samples": lambda a: {"train_y": a["train_y"] % 5},
    "a class without test samples": lambda a: {"test_y": a["test_y"] % 5},
}
COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a column with a number too few": lambda a: (np.arange(1199), np.arange(300)),
}
SCALES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "values that normalising would make infinite": lambda a: {
        "train_x": 1e-30 * a["train_x"],
        "test_x": 1e20 * a["test_x"],
    },
}
FILES = {
    "it is not there": "absent.npz",
    "it is a folder": "folder.npz",
    "its name ends otherwise": "shapes.npy",
    "it is in the folder of somebody unknown": "~nosuch/x.npz",
    "it may not be read": "private.npz",
    "it is something else": "text.npz",
    "an array is missing": "three.npz",
    "it does not fit into memory": "large.npz",
    "an array of objects": "objects.npz",
    "an array is damaged": "damaged.npz",
}
TASKS: dict[str, Callable[[Dataset], Any]] = {
    "tasks that do not divide the classes": lambda data: Split(data, 4),
    "no tasks": lambda data: Split(data, 0),
    "one class a task, in `task`": lambda data: threefold.run(Split(data, 6), scenario="task", store=None),
    "a batch larger than a task": lambda data: threefold.run(Split(data, 3), scenario="task", store=None, batch=500),
    "data of one class": lambda data: Split(one_class(data), 1),
    "a validation share that takes a whole class": lambda data: data.validation(0.999),
    "a validation share that is none": lambda data: data.validation(1.0),
    "a validation share of features that differ by seed": lambda data: replace(data, seeds=(1, 2)).validation(0.5),
}


def one_class(data: Dataset) -> Dataset:
    x, y = data.train_x, 0 * data.train_y
    return Dataset.from_arrays(x, y, x, y, name=data.name)


@pytest.fixture
def wrong_files(
    tmp_path: Path, shapes: dict[str, Any], followed: Desk, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A folder with a file for each thing that can be wrong with one."""
    monkeypatch.chdir(tmp_path)
    Path("folder.npz").mkdir()
    for name in ("text.npz", "shapes.npy"):
        Path(name).write_text("not an archive")
    np.savez("private.npz", **shapes)
    np.savez("three.npz", **{name: array for name, array in shapes.items() if name != "test_y"})
    np.savez("objects.npz", **shapes | {"train_y": shapes["train_y"].astype(object)})
    np.savez("damaged.npz", **shapes)
    whole = bytearray(Path("damaged.npz").read_bytes())
    whole[5000] ^= 255  # in the midst of the first array
    Path("damaged.npz").write_bytes(whole)
    real = zipfile.is_zipfile

    def guarded(file: Any) -> bool:
        if Path(file.name).name == "private.npz":  # the tests may run as a user who may read everything
            raise PermissionError(13, "Permission denied")
        return real(file)

    monkeypatch.setattr(zipfile, "is_zipfile", guarded)
    np.savez_compressed("large.npz", **shapes | {"train_x": np.zeros((250_000, 100), np.float32)})
    monkeypatch.setattr(npz, "memory_limit", lambda: 2 * 10**8)
    return


def said() -> dict[str, str]:
    return {wrong: sentence.strip("`") for wrong, sentence in rows(PAGE, "what is wrong", "what it says")}


def test_the_page_lists_the_errors_that_are_tried_here() -> None:
    assert list(said()) == [*ARRAYS, *COLUMNS, *SCALES, *FILES, *TASKS]


@pytest.mark.parametrize("wrong", ARRAYS)
def test_errors_of_arrays(shapes: dict[str, Any], tmp_path: Path, wrong: str) -> None:
    changed = shapes | ARRAYS[wrong](shapes)
    with pytest.raises(ThreefoldError) as caught:
        Dataset.from_arrays(**changed)
    assert str(caught.value) == said()[wrong]
    if wrong != "a list instead of an array":
        np.savez(tmp_path / "shapes.npz", **changed)
        with pytest.raises(ThreefoldError) as caught:
            threefold.load(tmp_path / "shapes.npz")
        assert str(caught.value) == f"data file '{tmp_path / 'shapes.npz'}': {said()[wrong]}"


@pytest.mark.parametrize("wrong", COLUMNS)
def test_errors_of_columns(shapes: dict[str, Any], tmp_path: Path, wrong: str) -> None:
    train, test = COLUMNS[wrong](shapes)
    with pytest.raises(ThreefoldError) as caught:
        Dataset.from_arrays(**shapes, columns={"year": (train, test)})
    assert str(caught.value) == said()[wrong]
    np.savez(tmp_path / "shapes.npz", **shapes, train_year=train, test_year=test)
    with pytest.raises(ThreefoldError) as caught:
        threefold.load(tmp_path / "shapes.npz")
    assert str(caught.value) == f"data file '{tmp_path / 'shapes.npz'}': {said()[wrong]}"


@pytest.mark.parametrize("wrong", SCALES)
def test_errors_of_scales(shapes: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ThreefoldError) as caught:
        Dataset.from_arrays(**shapes | SCALES[wrong](shapes), name="shapes").normalized()
    assert str(caught.value) == said()[wrong]


@pytest.mark.parametrize("wrong", FILES)
@pytest.mark.usefixtures("wrong_files")
def test_errors_of_files(followed: Desk, wrong: str) -> None:
    with pytest.raises(ThreefoldError) as caught:
        threefold.load(FILES[wrong])
    assert str(caught.value) == said()[wrong]
    assert followed.run(f"threefold run split --data {FILES[wrong]}") == f"threefold: {said()[wrong]}\n"
    assert followed.status == 2


@pytest.mark.parametrize("wrong", TASKS)
def test_errors_of_tasks(shapes: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ThreefoldError) as caught:
        TASKS[wrong](Dataset.from_arrays(**shapes, name="shapes"))
    assert str(caught.value) == said()[wrong]


def test_every_sentence_in_the_code_is_on_the_page() -> None:
    """Whoever adds an error to the reading of data adds it to the page."""
    sentences = [*said().values(), "data file 'shapes.npz': …"]
    for module in (dataset, npz):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ThreefoldError":
                (text,) = node.args
                assert isinstance(text, ast.JoinedStr)
                fixed = [re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in text.values]  # type: ignore[arg-type]
                assert any(re.fullmatch("".join(fixed), sentence) for sentence in sentences), ast.unparse(text)
