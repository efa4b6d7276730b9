"""`threefold watch`: errors for bad arguments, and the displayed command that trains a cell again."""

import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sections import a_cell, a_table, stream, table_b1
from tiny_lab import Ended, contents

from threefold.experiments import Cell, Settings, parse_seeds
from threefold.experiments.command import reproducing
from threefold.experiments.seeds import written_seeds
from threefold.methods import Method, Part, hyper, parse
from threefold.results import run_key
from threefold.scenarios import SCENARIOS
from threefold.streams import Split


def test_what_is_wrong_is_one_sentence(
    cli: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("this is no database, and long enough to be taken for one" * 20)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, sentence in (
            (["--store", "text.db"], "store 'text.db' is not a database; give"),
            (["--store", "none/such.db"], "store 'none/such.db' is in a folder that does not exist; give"),
            (["--port", "70000"], "port must be from 1 to 65535, or 0 for any that is free, got 70000."),
            (["--port", port], f"host '127.0.0.1', port {port} cannot be listened on (Address already in use); use"),
            (["--host", "256.0.0.1"], "host '256.0.0.1', port 8303 cannot be listened on"),
        ):
            ended = cli("watch", *words)
            assert (ended.status, ended.out) == (2, "")
            assert ended.err.startswith(f"threefold: {sentence}"), ended.err
            assert ended.err.count("\n") == 1
    assert list(contents(tmp_path)) == ["text.db"]


def test_a_missing_extra_is_named(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threefold.extras.find_spec", lambda name: None)
    assert cli("watch").err == (
        "threefold: watch needs starlette and uvicorn, which are not installed; install them with: pip install"
        " 'threefold[watch]'\n"
    )


@pytest.mark.parametrize("seeds", [[1], [1, 2, 3], [7], [3, 4, 5], [1, 5, 6, 9], [12, 3]])
def test_seeds_are_written_as_they_are_read(seeds: list[int]) -> None:
    assert list(parse_seeds(written_seeds(seeds))) == seeds


def cell_of(command: str) -> tuple[Cell, tuple[int, ...]]:
    """The cell and the seeds that `threefold run` would train."""
    program, verb, name, *rest = shlex.split(command)
    options = {
        option.removeprefix("--").replace("-", "_"): value for option, value in zip(*[iter(rest)] * 2, strict=True)
    }
    assert (program, verb) == ("threefold", "run")
    scenario, method, seeds = (options.pop(key) for key in ("scenario", "method", "seeds"))
    where, tasks = options.pop("task_id_in", None), options.pop("tasks", None)
    like = stream(name)
    cut = type(like)(like.data, int(tasks)) if tasks else like
    return Cell.of(cut, SCENARIOS[scenario], parse(method), Settings.checked(**options), where), parse_seeds(seeds)


def test_the_command_of_a_cell_trains_the_very_same_runs() -> None:
    cells = [result.cell for result in [*a_table(seeds=1).results, *table_b1(seeds=1).results]]
    cells += [
        a_cell(stream(), "class", "er:budget=500,use=both", iters=7, hidden=11, lr=0.5, batch=3),
        a_cell(Split(stream().data, 2), "task", "ewc:strength=0.1+xdg:share=0.3"),
    ]
    assert len(cells) > 35
    for cell in cells:
        command = reproducing([cell], [1, 2, 5])
        assert command
        again, seeds = cell_of(command)
        assert [run_key(again.run_spec(seed)) for seed in seeds] == [run_key(cell.run_spec(seed)) for seed in (1, 2, 5)]


def test_what_needs_a_file_has_no_command_of_its_own() -> None:
    class Mine(Part):
        name = "mine"
        strength: float = hyper("does nothing", 1.0)

    known = stream()
    first = Split(known.data)
    first.only = 2
    assert reproducing([a_cell(first, "class", "none")], [1]) is None
    assert reproducing([a_cell(known, "class", Method(Mine()))], [1]) is None
    cell = Cell.of_description(a_cell(known, "class", "none").described())
    assert reproducing([cell], [1]) == "threefold run split-mnist --scenario class --method none --device cpu --seeds 1"
    described = cell.described()
    described["spec"]["stream"]["name"] = "split-mine"
    assert reproducing([Cell.of_description(described)], [1]) is None
