"""An experiment's file: what is wrong with it is told at once."""

import os
from pathlib import Path

import pytest
from experiment_files import NONE, small_data, write

from threefold.errors import ThreefoldError
from threefold.experiments.spec import load_experiment


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_data(tmp_path, monkeypatch)


def mistakes(text: str) -> str:
    with pytest.raises(ThreefoldError) as caught:
        load_experiment(write(text))
    sentence = str(caught.value)
    assert sentence.startswith("experiment 'mine.toml' ")
    assert "\n" not in sentence
    assert sentence[-1] in ".?"
    return sentence


def test_five_mistakes_are_named_at_once_each_with_its_place() -> None:
    sentence = mistakes("""
        stream = "spilt-mnist"
        seeds = "7-3"
        scenarios = ["task", "clas"]
        [training]
        iters = 0
        [[methods]]
        method = "ewc"
        with = { strenght = 3 }
    """)
    assert "has 5 mistakes: " in sentence
    for mistake in (
        "stream 'spilt-mnist' is not known; did you mean 'split-mnist'?",
        "seeds is '7-3', which has a range that runs backwards; use a count",
        "scenarios[1]: scenario 'clas' is not known; did you mean 'class'?",
        "training.iters must be 1 or more, got 0",
        "methods[0]: hyperparameter of ewc 'strenght' is not known; did you mean 'strength'?",
    ):
        assert f" {mistake}" in sentence, sentence
        assert sentence.count(mistake) == 1, sentence


def test_places_in_several_parts_are_told_apart() -> None:
    sentence = mistakes("""
        [[parts]]
        stream = "split-mnist"
        methods = [{ method = "none" }]
        [[parts]]
        stream = "split-mnist"
        methods = [{ method = "none" }, { method = "nine" }]
    """)
    assert sentence.endswith("has a mistake: parts[1].methods[1]: method 'nine' is not known; did you mean 'none'?")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("stream = ", "is not TOML: Invalid value (at end of document)."),
        ("[[methods]]\nmethod = 'none'", 'has a mistake: stream is missing; use stream = "split-mnist"'),
        ("stream = 'split-mnist'", "has a mistake: methods is missing; use [[methods]] tables"),
        ("", "has 2 mistakes: stream is missing; use"),
        ("title = 'x'", "; methods is missing; use [[methods]] tables"),
        ("stream = 'split-mnist'\nmethods = []", "methods must be [[methods]] tables"),
        ("stream = 'split-mnist'\n[methods]\nmethod = 'ewc'", "methods must be [[methods]] tables, one at least"),
        ("stream = 'split-mnist'\nmethods = [{ with = { x = 1 } }]", "methods[0].method is missing; use"),
        ("stream = 'split-mnist'\nmethods = [{ method = 'none' }]\nscenarios = []", "scenarios"),
        (f"scenarios = ['task', 'class', 'task']\n{NONE}", "scenarios: it names 'task' twice; name it once"),
        (f"{NONE}\n[training]\nnetwork = []", "training.network"),
        (f"{NONE}\n[training]\noptimizer = []", "training.optimizer"),
        (f"titel = 'x'\n{NONE}", "has a mistake: field 'titel' is not known; did you mean 'title'?"),
        (f"{NONE}\n[trainig]\niters = 5", "has a mistake: field 'trainig' is not known; did you mean 'training'?"),
        (f"itres = 5\n{NONE}", "field 'itres' is not known; did you mean 'training.iters'?"),
        (f"{NONE}\n[training]\nitres = 3", "field 'training.itres' is not known; did you mean 'iters'?"),
        (f"xyzzy = 5\n{NONE}", "field 'xyzzy' is not known; known: boundaries, data, features, kind, methods,"),
        (
            "stream = 'split-mnist'\nmethods = [{ method = 'none', hyper = 3 }]",
            "field 'methods[0].hyper' is not known; known: method, note, scenarios, seeds, task_id_in, with",
        ),
        (
            "stream = 'split-mnist'\nmethods = [{ method = 'ewc', strength = 3 }]",
            "field 'methods[0].strength' is not known; did you mean 'with.strength'?",
        ),
        (
            "stream = 'split'\n[[parts]]\nstream = 'split'\nmethods = [{ method = 'none' }]",
            "field 'stream' is outside the [[parts]]; it must be inside each of them",
        ),
        (
            "stream = 'split-mnist'\nmethods = [{ method = 'none', with = { x = 1 } }]",
            "methods[0]: method 'none' has no hyperparameters, but 'x' was given.",
        ),
        ("stream = 'splt'\nmethods = [{ method = 'none' }]", "stream 'splt' is not known; did you mean 'split'?"),
        ("stream = 'split'\nmethods = [{ method = 'erc' }]", "method 'erc' is not known; did you mean 'er'?"),
        (f"seeds = '1-x'\n{NONE}", "has a mistake: seeds is '1-x', which is none of the forms there are; use a count"),
        (f"seeds = [1, 1]\n{NONE}", "seeds is '[1, 1]', which names 1 twice;"),
        (f"seeds = [1, 2.5]\n{NONE}", "seeds is '[1, 2.5]', which holds something else than whole numbers;"),
        (f"seeds = []\n{NONE}", "seeds is '[]', which names no seed;"),
        (
            "stream = 'split'\nmethods = [{ method = 'ewc', with = { strength = [[1]] } }]",
            "has a mistake: methods[0].with.strength must be a finite number",
        ),
        (
            "stream = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = -1 } }]",
            "strength of ewc is '-1",
        ),
        (
            "stream = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = [1, 'x'] } }]",
            "strength of ewc is 'x'",
        ),
        ("stream = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = nan } }]", "strength"),
        ("stream = 'split-mnist'\nmethods = [{ method = 'ewc', with = { strength = [] } }]", "strength"),
        ("stream = 'split-mnist'\nmethods = [{ method = 'xdg', task_id_in = 'head' }]", "methods[0].task_id_in"),
        (
            "stream = 'split-mnist'\nkind = 'tabel'\nmethods = [{ method = 'none' }]",
            "kind must be 'table',",
        ),
        (
            "stream = 'split-mnist'\nname = '../x'\nmethods = [{ method = 'none' }]",
            "name must be letters",
        ),
        ("stream = 'split-mnist'\nseeds = -1\nmethods = [{ method = 'none' }]", "seeds is '-1'"),
        ("stream = 'split-mnist'\nmethods = [{ method = 'none', seeds = '7-3' }]", "methods[0].seeds is '7-3'"),
        ("[[parts]]\nstream = 'split-mnist'\nseeds = 0\nmethods = [{ method = 'none' }]", "parts[0].seeds is '0',"),
        (
            "stream = 'split-mnist'\nmethods = 5",
            'methods must be [[methods]] tables, one at least, each with its method = "NAME", got 5',
        ),
        ("stream = 'split-mnist'\nmethods = [{ method = 'none' }]\n[training]\nlr = inf", "training.lr"),
        (
            "stream = 'split-mnist'\nmethods = [{ method = 'none' }]\n[quick]\npoints = 1",
            "quick.points must be 2 or more, got 1",
        ),
        ("parts = 3", "parts must be [[parts]] tables"),
        (f"{NONE}\n[[rules]]\ntext = 'x'\nwith = {{ lwf = {{ reducton = 'mean' }} }}", "'reducton'"),
        (f"{NONE}\n[[rules]]\ntext = 'x'\nwith = {{ lfw = {{ reduction = 'mean' }} }}", "method 'lfw' is not known"),
        (f"{NONE}\n[[rules]]\nwith = {{ lwf = {{ reduction = 'mean' }} }}", "rules[0].text is missing"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    assert named in mistakes(text)


def test_a_file_that_cannot_be_read() -> None:
    for name, why in (("absent.toml", "No such file"), (".", "it is a folder")):
        with pytest.raises(ThreefoldError, match=rf"experiment '{name}' cannot be read .*{why}.*; give a TOML file\."):
            load_experiment(name)
    Path("latin.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(ThreefoldError, match=r"experiment 'latin\.toml' cannot be read"):
        load_experiment("latin.toml")


TOO_MUCH = {
    "a pipe": (None, "it is a pipe or device, not a file"),
    "a device": (Path("/dev/zero"), "it is a pipe or device, not a file"),
    "too long": (b"#" * (1 << 20) + b"#", "it has more than 1.0 MB"),
    "deep": (b"a = " + b"[" * 100_000, "it is nested more than 32 levels deep"),
    "a deep name": (b"a." * 100_000 + b"a = 1", "it is nested more than 32 levels deep"),
    "digits": (b"seeds = " + b"9" * 5000, "it has a number of more than 40 digits"),
}


@pytest.mark.parametrize(("content", "why"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_a_file_beyond_all_limits_is_told_at_once(tmp_path: Path, content: bytes | Path | None, why: str) -> None:
    path = tmp_path / "mine.toml"
    if content is None:
        os.mkfifo(path)
    elif isinstance(content, Path):
        path.symlink_to(content)
    else:
        path.write_bytes(content)
    with pytest.raises(ThreefoldError) as caught:
        load_experiment(path)
    assert str(caught.value) == f"experiment '{path}' cannot be read ({why}); give a TOML file."
