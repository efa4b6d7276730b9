"""Initial weights: read from untrusted files, identified by content, assigned to replicas by seed."""

import zipfile
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import threefold
from threefold.data import Dataset
from threefold.engine import SGD, Replicas, Training
from threefold.engine.sharing import Stacks
from threefold.errors import ThreefoldError
from threefold.experiments import Cell, Settings
from threefold.experiments.command import reproducing, run_command
from threefold.methods import Method, Part
from threefold.networks import CNN, MLP, find_network, weights
from threefold.networks.weights import load_weights
from threefold.results import run_key
from threefold.results.schema import check_experiment, check_run
from threefold.scenarios import find
from threefold.streams import Split


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pictures(name="pictures"):
    draw = np.random.default_rng(0)
    images, labels = draw.random((80, 3, 8, 8)).astype(np.float32), np.arange(80) % 4
    return Dataset.from_arrays(images, labels, images, labels, name=name)


STREAM = Split(pictures(), 2)
QUICK = {"scenario": "class", "iters": 1, "batch": 4, "device": "cpu", "store": None}


def network(units=4, norm="batch", fill=None):
    """A network whose every number is drawn, batch norm's statistics too."""
    net = CNN((3, 8, 8), (4, 6), units, norm)
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for value in net.state_dict().values():
            if value.is_floating_point():
                value.copy_(torch.rand(value.shape, generator=source) + 0.5 if fill is None else torch.tensor(fill))
    return net


def several(seeds, file="several.pt", **also):
    """What `threefold pretrain` writes: every number of a network is its seed, divided by 8."""
    nets = [network(fill=seed / 8).state_dict() for seed in seeds]
    state = {name: torch.stack([net[name] for net in nets]) for name in nets[0]}
    torch.save({"format": weights.FORMAT, "seeds": list(seeds), "state": state} | also, file)


class Began(Part):
    """Notes what networks began with."""

    name = "began"
    found: ClassVar[dict] = {}

    def start(self, setting, seed, params):
        self.found[seed] = {name: p.clone() for name, p in params.items()}
        return {}

    def penalty(self, learner):
        return 0.0 * learner.params["output.bias"].sum()


def begun(text, seeds, **also):
    Began.found.clear()
    threefold.run(STREAM, method=Began(), network=text, seeds=seeds, **QUICK | also)
    return dict(Began.found)


def test_a_state_dict_is_what_every_network_begins_with():
    net = network()
    torch.save(net.state_dict(), "net.pt")
    found = begun("cnn:channels=4-6,norm=batch,init=net.pt", [1, 5])
    own = dict(net.named_parameters())
    for seed in (1, 5):
        assert found[seed].keys() == own.keys()
        assert all(torch.equal(value, own[name]) for name, value in found[seed].items())


def test_buffers_are_taken_too():
    net = network()
    torch.save(net.state_dict(), "net.pt")
    training = Training(1, 4, find_network("cnn:channels=4-6,norm=batch,init=net.pt"))
    asked = Replicas(find("class"), [Method()] * 2, [1, 2], [SGD(lr=0.1)] * 2)
    (stack,) = Stacks(STREAM, [asked], training).trained
    assert stack.buffers.keys() == dict(net.named_buffers()).keys()
    for name, value in net.named_buffers():
        assert torch.equal(stack.buffers[name], torch.stack([value, value])), name


@pytest.mark.parametrize("units", [7, None])
def test_an_output_layer_of_another_shape_is_drawn_as_ever(units):
    state = network(units or 4).state_dict()
    torch.save({n: v for n, v in state.items() if units or not n.startswith("output.")}, "net.pt")
    plain = begun("cnn:channels=4-6,norm=batch", [2])[2]
    found = begun("cnn:channels=4-6,norm=batch,init=net.pt", [2])[2]
    for name, value in found.items():
        assert torch.equal(value, plain[name] if name.startswith("output.") else state[name])


def test_of_several_networks_a_replica_has_that_of_its_seed_or_one_in_turn():
    several([1, 2, 9])
    found = begun("cnn:channels=4-6,norm=batch,init=several.pt", [1, 2, 3, 4, 5, 9, 12])
    mine = {seed: int(8 * params["convolutions.0.weight"].unique().item()) for seed, params in found.items()}
    assert mine == {1: 1, 2: 2, 3: 9, 4: 1, 5: 2, 9: 9, 12: 9}


def test_a_replica_begins_alike_alone_and_in_a_stack():
    several([1, 2])
    text = "cnn:channels=4-6,norm=batch,init=several.pt"
    alone = threefold.run(STREAM, network=text, seeds=[2], **QUICK).records[0]
    stack = threefold.run(STREAM, network=text, seeds=[1, 2, 3], **QUICK).records[1]
    assert (alone.initial, alone.matrix) == (stack.initial, stack.matrix)


def spec(text):
    return Cell.of(STREAM, find("class"), Method(), Settings.checked(network=text, device="cpu")).spec()


def test_the_key_has_the_sum_of_what_was_loaded_and_not_the_path():
    net = network()
    torch.save(net.state_dict(), "one.pt")
    torch.save(OrderedDict(reversed(net.state_dict().items())), "other name.pt")
    text = "cnn:channels=4-6,norm=batch"
    plain, one, other = spec(text), spec(f"{text},init=one.pt"), spec(f"{text},init=other name.pt")
    assert one == other
    assert one["network"] == plain["network"] | {"init": load_weights("one.pt").sum}
    assert "one.pt" not in str(one)
    net.output.bias.data[0] += 1e-3
    torch.save(net.state_dict(), "one.pt")
    assert spec("cnn:channels=4-6,norm=batch,init=one.pt") != one


def test_which_network_is_of_which_seed_counts():
    several([1, 2], "one.pt")
    several([2, 1], "two.pt")
    assert load_weights("one.pt") != load_weights("two.pt")


def test_stored_runs_are_read_again_and_merged(cli):
    torch.save(network().state_dict(), "net.pt")
    data = pictures()
    np.savez("pictures.npz", train_x=data.train_x, train_y=data.train_y, test_x=data.test_x, test_y=data.test_y)
    Path("pictures.toml").write_text(
        'stream = "split"\ndata = "pictures.npz"\ntasks = 2\nscenarios = ["class"]\nseeds = 1\n'
        'training = { iters = 1, batch = 4, network = ["cnn:channels=4-6,norm=batch", '
        '"cnn:channels=4-6,norm=batch,init=net.pt"] }\nmethods = [{ method = "none" }]\n'
    )
    assert cli("experiment", "pictures.toml", "--device", "cpu").status == 0
    Path("net.pt").unlink()
    assert cli("merge", "other.db", "threefold.db").status == 0
    assert cli("report", "--store", "other.db", "-o", "report.html").status == 0
    with threefold.Store("other.db", readonly=True) as store:
        found = [record.spec["network"] for record in store.all()]
    assert sorted("init" in network for network in found) == [False, True]


def test_it_is_not_the_papers_and_its_command_names_the_file():
    images, labels = np.zeros((2560, 4, 4), np.uint8), np.arange(2560) % 10
    stream = Split(Dataset.from_arrays(images, labels, images, labels, name="mnist"))
    net = MLP(16, 400, 10)
    torch.save({name: torch.zeros(p.shape) for name, p in net.named_parameters()}, "net.pt")
    cell = Cell.of(stream, find("class"), Method(), Settings.checked(network="mlp:init=net.pt", device="cpu"))
    again = Cell.of_description(cell.described())
    for each in (cell, again):
        assert not each.comparable
        assert each.published() is None
    assert "--network mlp:width=400,init=net.pt" in run_command([cell], [1])
    assert "init=net.pt" in (reproducing([cell], [1]) or "")
    assert reproducing([again], [1]) is None, "where the file was is not known any more"
    assert again.spec() == cell.spec()


HOSTILE = [{"init": 5}, {"init": "../net.pt"}, {"hyperparameters": {"init": "net.pt"}}]


@pytest.mark.parametrize("change", HOSTILE, ids=str)
def test_a_row_from_elsewhere_reads_no_files(change, monkeypatch):
    torch.save(network().state_dict(), "net.pt")
    record = threefold.run(STREAM, network="cnn:channels=4-6", seeds=1, **QUICK).records[0]
    told = record.spec["network"]
    told |= {"init": change["init"]} if "init" in change else {}
    told["hyperparameters"] |= change.get("hyperparameters", {})
    monkeypatch.setattr(weights, "read_file", lambda *_: pytest.fail("a file was read"))
    with pytest.raises(ValueError, match="init"):
        check_run(record.to_json() | {"spec": record.spec, "key": run_key(record.spec)})
    cell = {"spec": {k: v for k, v in record.spec.items() if k != "seed"}, "method": "none", "seeds": [1]}
    asked = {"title": "", "kind": "table", "selected": "", "cells": [cell], "refused": [], "notes": {}, "command": ""}
    with pytest.raises(ValueError, match="init"):
        check_experiment("run", asked)


# what is refused


def refused(text):
    with pytest.raises(ThreefoldError) as raised:
        Cell.of(STREAM, find("class"), Method(), Settings.checked(network=text, device="cpu"))
    return str(raised.value)


ADVICE = "; give what `threefold pretrain` or torch.save(net.state_dict(), FILE) wrote."


class Evil:
    def __reduce__(self):
        return Path("executed").touch, ()


def packed(compression):
    torch.save({"a": torch.zeros(1 << 20)}, buffer := BytesIO())
    with zipfile.ZipFile(buffer) as archive, zipfile.ZipFile("packed.pt", "w", compression) as out:
        for record in archive.infolist():
            out.writestr(record.filename, archive.read(record))


class Billion:
    """In torch.save's pickle, 10¹² bytes are a line."""

    def __reduce__(self):
        return bytearray, (10**12,)


def shared(levels=30):
    """A few lists, each of them twice in the next: 2³⁰ to whoever walks through them."""
    lists = [1]
    for _ in range(levels):
        lists = [lists, lists]
    return lists


def named(name):
    return lambda: torch.save({name: torch.zeros(2)}, "bad.pt")


def typed(dtype):
    return lambda: torch.save({"a": torch.zeros(2).to(dtype)}, "bad.pt")


BAD = {
    "half a character": (named("\udc80"), r"has a tensor '\udc80', which is no name of a parameter"),
    "a control sequence": (named("\x1b]0;hi\x07"), r"has a tensor '\x1b]0;hi\x07', which is no name of a parameter"),
    "an endless name": (named("x" * 5000), f"has a tensor '{'x' * 59}, which is no name of a parameter"),
    "complex numbers": (typed(torch.complex64), "has a tensor a without plain numbers"),
    "eighths of numbers": (typed(torch.float8_e4m3fn), "has a tensor a without plain numbers"),
    "numbers beyond a network's": (
        lambda: torch.save({"a": torch.tensor([1e300], dtype=torch.float64)}, "bad.pt"),
        "has numbers in a that are not finite",
    ),
    "a terabyte in a line": (
        lambda: torch.save({"a": Billion()}, "bad.pt"),
        "holds more than tensors, which is never loaded",
    ),
    "too many": (
        lambda: torch.save({f"a{n}": torch.zeros(0) for n in range(10_001)}, "bad.pt"),
        "has more than 10000 tensors",
    ),
    "the same seed twice": (lambda: several([2, 2], "bad.pt"), "has two networks of the same seed"),
    "a seed below 0": (lambda: several([-1, 2], "bad.pt"), "has no seeds"),
    "lists without end": (
        lambda: several([1], "bad.pt", network=shared()),
        "cannot be used: it has more than 1000000 values",
    ),
    "a list": (lambda: torch.save([torch.zeros(2)], "bad.pt"), "holds a list"),
    "code": (lambda: torch.save({"a": Evil()}, "bad.pt"), "holds more than tensors, which is never loaded"),
    "a module": (lambda: torch.save(nn.Linear(2, 2), "bad.pt"), "holds more than tensors, which is never loaded"),
    "numbers": (lambda: torch.save({"a": 5}, "bad.pt"), "holds a int under 'a'"),
    "nothing": (lambda: torch.save({}, "bad.pt"), "holds no tensors"),
    "text": (lambda: Path("bad.pt").write_text("weights"), "is no file of torch.save, or is cut short"),
    "an old file": (
        lambda: torch.save({"a": torch.zeros(2)}, "bad.pt", _use_new_zipfile_serialization=False),
        "is no file of torch.save, or is cut short",
    ),
    "not finite": (
        lambda: torch.save({"a": torch.tensor([torch.nan])}, "bad.pt"),
        "has numbers in a that are not finite",
    ),
    "sparse": (
        lambda: torch.save({"a": torch.eye(2).to_sparse()}, "bad.pt"),
        "has a tensor a without plain numbers",
    ),
    "no seeds": (
        lambda: torch.save({"format": weights.FORMAT, "state": {"a": torch.zeros(3, 2)}}, "bad.pt"),
        "has no seeds",
    ),
    "seeds that do not fit": (
        lambda: torch.save({"format": weights.FORMAT, "seeds": [1, 2], "state": {"a": torch.zeros(3, 2)}}, "bad.pt"),
        "has 2 seeds, but a of shape 3×2",
    ),
    "a folder": (lambda: Path("bad.pt").mkdir(), "cannot be read (it is a folder)"),
    "missing": (lambda: None, "cannot be read (No such file or directory)"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_is_none_gets_a_sentence(what):
    make, told = BAD[what]
    make()
    assert refused("cnn:init=bad.pt") == f"weights file 'bad.pt' {told}{ADVICE}"
    assert not Path("executed").exists()


def test_every_prefix_of_a_file_gets_a_sentence():
    torch.save({"a": torch.arange(4.0)}, "whole.pt")
    content = Path("whole.pt").read_bytes()
    for length in range(0, len(content), 37):
        Path("cut.pt").write_bytes(content[:length])
        with pytest.raises(ThreefoldError, match=r"^weights file 'cut.pt' .* wrote\.$"):
            load_weights("cut.pt")


def test_a_file_that_unpacks_to_more_than_it_is_is_not_unpacked(monkeypatch):
    packed(zipfile.ZIP_DEFLATED)
    assert Path("packed.pt").stat().st_size < 1 << 16
    monkeypatch.setattr(weights.torch, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    assert refused("cnn:init=packed.pt").startswith("weights file 'packed.pt' unpacks to more than it is")


def test_a_small_file_that_stands_for_more_than_memory_is_refused():
    torch.save({"a": torch.zeros(1).expand(1 << 50)}, "wide.pt")
    assert "weights file 'wide.pt' has tensors of" in refused("cnn:init=wide.pt")


def test_a_pipe_is_not_waited_for(folder):
    import os

    os.mkfifo(folder / "pipe.pt")
    assert "it is a pipe or device" in refused("cnn:init=pipe.pt")


def test_weights_of_another_network_are_refused_before_training(cli):
    torch.save(network(norm="none").state_dict(), "net.pt")
    fit = "; give weights of the same network."
    assert refused("cnn:channels=4-5,init=net.pt") == (
        "weights 'net.pt' have convolutions.1.bias of shape 6, and network cnn needs 5" + fit
    )
    assert refused("cnn:channels=4-6-8,init=net.pt") == (
        "weights 'net.pt' lack convolutions.2.bias, which network cnn has" + fit
    )
    assert refused("cnn:channels=4,init=net.pt") == (
        "weights 'net.pt' have convolutions.1.bias, which network cnn has not" + fit
    )
    ended = cli("run", "split-mnist", "--network", "cnn:init=none.pt")
    assert ended.status == 2
    assert ended.err.startswith("threefold: weights file 'none.pt' cannot be read")
    assert not Path("threefold.db").exists()
