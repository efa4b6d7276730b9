"""The files of kept networks: kills, full disks, damage, forgetting, merging, and reading one without its result."""

import errno
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kept_runs import ASKED, Net, Own, accuracies, files, run
from small_cells import Killed, cell, kill_after, measured, small_split, train_cells

import threefold
from threefold import ThreefoldError
from threefold.results import KeptNetworks, Store, kept_networks, merge, output

CELL = cell(small_split(tasks=4), "icarl:budget=12", iters=3)
ALL = [f"{run}/after-{after}.pt" for run in (0, 1) for after in (1, 2, 3, 4)]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose two runs kept their networks."""
    folder = tmp_path_factory.mktemp("kept")
    run("icarl:budget=12", store=folder / "a.db")
    return folder


@pytest.fixture
def copied(kept: Path, tmp_path: Path) -> Path:
    """The same store, to be changed."""
    shutil.copy(kept / "a.db", tmp_path / "a.db")
    shutil.copytree(kept / "a.db.networks", tmp_path / "a.db.networks")
    return tmp_path / "a.db"


def file_of(store: Path, after: int = 1) -> Path:
    return sorted(Path(f"{store}.networks").glob(f"*/after-{after}.pt"))[0]


# kills and disks


@pytest.mark.parametrize("keep_before", [True, False])
def test_a_killed_and_resumed_run_has_all_its_files(keep_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If networks were not asked for before the kill, finished tasks are trained again for them."""
    kill_after(2, monkeypatch, [CELL], [1, 2], "a.db", keep=keep_before)
    before = {path: path.stat().st_mtime_ns for path in Path("a.db.networks").glob("*/*")}
    assert len(before) == (4 if keep_before else 0)
    (result,) = train_cells([CELL], [1, 2], "a.db", keep=True)
    assert files() == ALL
    assert all(path.stat().st_mtime_ns == time for path, time in before.items()), "and they are not written again"
    assert accuracies(result) == result.matrix.tolist()
    (undisturbed,) = train_cells([CELL], [1, 2])
    assert measured(result) == measured(undisturbed)
    assert not Path("a.db.checkpoints").exists()


def test_a_run_killed_while_it_is_trained_again_for_networks_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,) = train_cells([CELL], [1, 2], "a.db")
    kill_after(3, monkeypatch, [CELL], [1, 2], "a.db", keep=True)
    before = {path: path.stat().st_mtime_ns for path in Path("a.db.networks").glob("*/*")}
    (result,) = train_cells([CELL], [1, 2], "a.db", keep=True)
    assert files() == ALL
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert measured(result) == measured(plain)


def test_a_process_killed_within_a_file_leaves_no_half_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(descriptor: int) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(output.os, "fsync", killed)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # nothing is tidied by the dead
        with pytest.raises(Killed):
            train_cells([CELL], [1, 2], "a.db", keep=True)
    assert [name.endswith(output.PART) for name in files()] == [True]
    train_cells([CELL], [1, 2], "a.db", keep=True)
    assert files() == ALL, "and nothing is left of the dead"


def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    train_cells([cell(small_split(tasks=4), "none", iters=3)], [1], "a.db")
    write, written = KeptNetworks._write, []

    def full(self: KeptNetworks, file: Path, content: bytes) -> None:
        written.append(file)
        with output.explained(file):
            if len(written) == 6:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, file, content)

    with monkeypatch.context() as patch:
        patch.setattr(KeptNetworks, "_write", full)
        with pytest.raises(ThreefoldError) as told:
            train_cells([CELL], [1, 2], "a.db", keep=True)
    assert str(told.value).startswith(f"'{written[-1]}' cannot be written (No space left on device); ")
    with Store("a.db", readonly=True) as store:
        assert len(list(store.all())) == 1
    (result,) = train_cells([CELL], [1, 2], "a.db", keep=True)
    assert files() == ALL
    assert accuracies(result) == result.matrix.tolist()


# damage


def test_a_flipped_bit_is_noticed_or_changes_nothing(copied: Path) -> None:
    path = file_of(copied)
    whole, x = path.read_bytes(), torch.rand(5, 1, 4, 4)
    scores, noticed = threefold.load_network(path)(x), list[str]()
    for place in range(0, len(whole), max(1, len(whole) // 75)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            found = threefold.load_network(path)(x)
        except ThreefoldError as error:
            noticed.append(str(error).partition(";")[0])
        else:
            assert torch.equal(found, scores)
    assert len(noticed) > 10
    assert set(noticed) == {f"network '{path}' is damaged, or no file of a kept network"}


class Hostile:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("executed",))


@pytest.mark.parametrize(
    "content",
    [b"", b"text", pickle.dumps(Hostile()), {"format": "another"}, {"format": kept_networks.FORMAT, "x": Hostile()}],
)
def test_what_is_no_kept_network_is_refused_and_never_executed(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ThreefoldError, match=f"network '{path}' is damaged, or no file of a kept network"):
        threefold.load_network(path)
    assert not Path("executed").exists()


def test_a_cut_or_missing_file_is_named_and_can_be_trained_again(copied: Path) -> None:
    result, path = run("icarl:budget=12"), file_of(Path("a.db"), 2)
    seed = result.seeds[[record.key for record in result.records].index(path.parent.name)]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ThreefoldError, match=f"network '{path}' is damaged"):
        result.network(seed)
    path.unlink()
    with pytest.raises(ThreefoldError, match=f"network '{path}' is not there; give the run again"):
        result.network(seed)
    again = run("icarl:budget=12")
    assert accuracies(again) == result.matrix.tolist()


# forgetting and merging


def test_forgetting_runs_removes_their_networks_alone(copied: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seeds=1)
    assert len(files()) == 6
    told = cli("forget", "--only", "icarl", "--yes", "--store", "a.db")
    assert told.out == "a.db: 2 runs, and 4 networks that they kept, forgotten.\n"
    assert files() == ["0/after-1.pt", "0/after-2.pt"]
    assert cli("forget", "--only", "none", "--yes", "--store", "a.db").out.startswith("a.db: 1 run, and 2 networks")
    assert not Path("a.db.networks").exists()
    Path("a.db.networks/precious").mkdir(parents=True)
    with Store("a.db") as store:
        assert store.forget(["precious", "../a.db.networks/precious"]) == 0
    assert Path("a.db.networks/precious").exists(), "a key from elsewhere may be any path"


def test_merging_brings_networks_along(kept: Path, cli: Any) -> None:
    run("icarl:budget=12", store="mine.db", keep=False, seeds=1)
    found = merge("mine.db", [kept / "a.db"])
    assert (found.added, found.present, found.networks) == (1, 1, 4)
    assert files("mine.db") == files(str(kept / "a.db"))
    assert merge("mine.db", [kept / "a.db"]).networks == 0
    told = cli("merge", "all.db", "mine.db", kept / "a.db")
    assert told.out == "all.db: 2 runs added, 2 were there already, 4 networks copied.\n"
    result = run("icarl:budget=12", store="mine.db")
    assert accuracies(result) == result.matrix.tolist()


# without the result


def test_a_file_alone_is_enough(kept: Path) -> None:
    shutil.copy(file_of(kept / "a.db", 2), "mine.pt")
    net, x = threefold.load_network("mine.pt"), torch.rand(9, 1, 4, 4)
    assert net.after == 2
    results = run("icarl:budget=12", store=kept / "a.db")
    assert any(torch.equal(net(x), results.network(seed)(x)) for seed in results.seeds)
    assert set(net.predict(x).tolist()) <= {0, 1, 2, 3}


CODE = Path(__file__).with_name("kept_runs.py").read_text(encoding="utf-8").partition("# a user's code\n")[2]
HEAD = "from typing import Any\nimport torch\nfrom torch import Tensor, nn\nfrom threefold import Part, hyper\n"


def test_own_code_is_found_where_it_was_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_code.py").write_text(HEAD + CODE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [os.getcwd(), *sys.path])
    own: Any = __import__("my_code")
    run(own.Own(share=0.2), network=own.Net, seeds=1)
    path, x = file_of(Path("a.db")), torch.rand(3, 1, 4, 4)
    scores = threefold.load_network(path)(x)
    monkeypatch.delitem(sys.modules, "my_code")
    assert torch.equal(threefold.load_network(path)(x), scores), "from its file"
    monkeypatch.delitem(sys.modules, "my_code")
    Path("my_code.py").write_text(HEAD + CODE.replace("self.share *", "2 * self.share *"), encoding="utf-8")
    with pytest.raises(ThreefoldError, match=r"was trained with other code of 'Own' than '.*my_code.py' holds now"):
        threefold.load_network(path)
    monkeypatch.delitem(sys.modules, "my_code")
    Path("my_code.py").unlink()
    with pytest.raises(ThreefoldError, match=r"needs the network 'Net' from '.*my_code.py', which is not there"):
        threefold.load_network(path)


def test_code_of_a_notebook_is_taken_from_the_result() -> None:
    class Here(Net):
        pass

    result = run(Own(), network=Here, seeds=1)
    assert accuracies(result) == result.matrix.tolist()
    with pytest.raises(ThreefoldError, match=r"which is in no module that can be imported; Result.network needs no"):
        threefold.load_network(file_of(Path("a.db")))


# the command line


def test_the_command_line_keeps_networks_and_says_how_much(cli: Any, tmp_path: Path) -> None:
    data = small_split().data
    np.savez("small.npz", **{name: getattr(data, name).numpy() for name in ("train_x", "train_y", "test_x", "test_y")})
    words = [
        "run",
        "split",
        "--data",
        "small.npz",
        "--tasks",
        "2",
        "--scenario",
        "class",
        "--seeds",
        "2",
        "--iters",
        "4",
    ]
    words += ["--hidden", "8", "--batch", "16", "--device", "cpu", "--store", "a.db", "--keep-networks", "--json"]
    told = cli(*words)
    assert told.status == 0
    assert told.err == "threefold: keeps 4 networks, 3.9 kB, in a.db.networks.\n"
    assert files() == ["0/after-1.pt", "0/after-2.pt", "1/after-1.pt", "1/after-2.pt"]
    assert cli(*words).err == ""
    stream = threefold.Split(threefold.load("small.npz"), 2)
    result = threefold.run(stream, store="a.db", **ASKED)
    assert accuracies(result) == result.matrix.tolist()


def test_a_cluster_keeps_none(cli: Any) -> None:
    told = cli("reproduce", "table4", "--quick", "--keep-networks", "--cluster", "auto", "--store", "a.db")
    sentence = "keep-networks does not go with cluster: its workers do not reach the store's folder."
    assert (told.status, told.err) == (2, f"threefold: {sentence}\n")
    assert not Path("a.db").exists()
