"""Pretraining: networks trained on all classes at once, written to a file whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import threefold
from threefold.data import Dataset
from threefold.errors import ThreefoldError
from threefold.experiments import Stopped
from threefold.experiments.pretrain import pretrain_request
from threefold.networks import CNN, initial_params
from threefold.networks.weights import FORMAT, load_weights
from threefold.randomness import generator


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pictures() -> Dataset:
    """Four classes of noisy patterns."""
    draw = np.random.default_rng(0)
    patterns, labels = draw.random((4, 3, 8, 8)), np.arange(120) % 4
    images = (patterns[labels] + 0.3 * draw.standard_normal((120, 3, 8, 8))).astype(np.float32)
    return Dataset.from_arrays(images[:80], labels[:80], images[80:], labels[80:], name="pictures")


DATA = pictures()
TEXT = "cnn:channels=4-6,norm=batch"
SHORT: dict[str, Any] = {"network": TEXT, "iters": 6, "batch": 16, "optimizer": "sgd:lr=0.1", "device": "cpu"}


def loaded(file: str = "net.pt") -> dict[str, Any]:
    found: dict[str, Any] = torch.load(file, weights_only=True)
    return found


def by_hand(seed: int) -> tuple[nn.Module, list[int]]:
    """One network in a plain loop, and the class that each output unit stands for."""
    order = torch.randperm(4, generator=generator(seed, "classes")).tolist()
    index = torch.cat([torch.nonzero(DATA.train_y == label).flatten() for label in order])
    passes = generator(seed, "batches", 0)
    batches = [row for _ in range(2) for row in index[torch.randperm(80, generator=passes)].view(5, 16)]
    net = CNN((3, 8, 8), (4, 6), 4, "batch")
    net.load_state_dict(initial_params(net, generator(seed, "weights of classifier")), strict=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows in batches[:6]:
        target = torch.tensor([order.index(label) for label in DATA.train_y[rows].tolist()])
        optimizer.zero_grad()
        cross_entropy(net(DATA.train_x[rows]), target).backward()
        optimizer.step()
    return net.eval(), order


def test_the_networks_are_those_of_a_plain_loop() -> None:
    result = threefold.pretrain(DATA, output="net.pt", seeds="1-3", **SHORT)
    kept = load_weights("net.pt")
    told = loaded()
    assert kept.seeds == (1, 2, 3)
    for place, seed in enumerate(kept.seeds):
        net, order = by_hand(seed)
        mine = kept.of_seed(seed)
        assert mine.keys() == net.state_dict().keys()
        for name, value in net.state_dict().items():
            torch.testing.assert_close(mine[name], value, rtol=1e-4, atol=1e-5)
        assert told["classes"][place] == order
        with torch.no_grad():
            right = torch.tensor(order)[net(DATA.test_x).argmax(1)] == DATA.test_y
        assert told["accuracy"][place] == result.accuracy.per_seed[place] == pytest.approx(100 * right.double().mean())


def test_the_file_says_what_it_is() -> None:
    threefold.pretrain(DATA, output="net.pt", seeds=[4, 2], normalize=True, augment=True, **SHORT)
    told = loaded()
    assert told["format"] == FORMAT
    assert told["seeds"] == [4, 2]
    assert told["network"]["name"] == "cnn"
    assert told["network"]["hyperparameters"] == {"channels": [4, 6], "norm": "batch"}
    assert (told["network"]["shape"], told["network"]["units"]) == ([3, 8, 8], 4)
    assert told["normalized"] is told["spec"]["training"]["augment"] is True
    assert told["spec"]["stream"]["data"] == DATA.normalized().fingerprint
    assert told["environment"]["torch"] == torch.__version__
    assert told["state"]["norms.1.num_batches_tracked"].tolist() == [6, 6]


def test_a_seed_alone_is_itself_among_others() -> None:
    threefold.pretrain(DATA, output="one.pt", seeds=[3], augment=True, **SHORT)
    threefold.pretrain(DATA, output="many.pt", seeds=4, augment=True, **SHORT)
    one, many = (load_weights(file).of_seed(3) for file in ("one.pt", "many.pt"))
    assert all(torch.equal(one[name], many[name]) for name in one)


def test_runs_begin_with_it() -> None:
    threefold.pretrain(DATA, output="net.pt", seeds=2, **SHORT)
    how = {"scenario": "domain", "iters": 1, "batch": 16, "device": "cpu", "store": None, "seeds": 2}
    result = threefold.run(threefold.Split(DATA, 2), network=f"{TEXT},init=net.pt", **how)
    assert result.records[0].spec["network"]["init"] == load_weights("net.pt").sum


def test_the_command_shows_the_accuracy_of_each_seed(cli: Callable[..., Any]) -> None:
    save()
    words = [word for name, value in SHORT.items() for word in (f"--{name}", value)]
    ended = cli("pretrain", "pictures.npz", *words, "--seeds", 2, "--augment", "--normalize", "-o", "net.pt")
    assert (ended.status, ended.err) == (0, "")
    first, second = loaded()["accuracy"]
    *each, last = ended.out.splitlines()
    assert each == [
        f"seed {seed}: {accuracy:.2f} % of the test data correct" for seed, accuracy in ((1, first), (2, second))
    ]
    assert last.startswith("net.pt: 2 networks, ")
    assert list(Path().glob("*.db")) == []


def save() -> None:
    arrays = {name: getattr(DATA, name) for name in ("train_x", "train_y", "test_x", "test_y")}
    np.savez("pictures.npz", **arrays)


BAD = {
    "no output": (["pictures.npz"], "output is missing: FILE.pt to write"),
    "another ending": (["pictures.npz", "-o", "net.bin"], "output must be a file that ends in .pt, got 'net.bin'."),
    "no folder": (["pictures.npz", "-o", "there/net.pt"], "'there/net.pt' cannot be written"),
    "another's file": (["pictures.npz", "-o", "mine.pt"], "file 'mine.pt' is there already, and no earlier output"),
    "a dataset": (["cifar-11", "-o", "net.pt"], "dataset 'cifar-11' is not known; did you mean 'cifar-10'?"),
    "a network": (["cifar-11", "-o", "net.pt", "--network", "cm"], "network 'cm' is not known"),
    "a batch": (["pictures.npz", "-o", "net.pt", "--batch", "81"], "batch must be at most 80, got 81"),
    "two lengths": (["pictures.npz", "-o", "net.pt", "--iters", "1", "--epochs", "1"], "iters is 1, but epochs is 1"),
    "seeds": (["pictures.npz", "-o", "net.pt", "--seeds", "0"], "seeds"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_is_a_sentence_and_nothing_is_written(what: str, cli: Callable[..., Any]) -> None:
    save()
    Path("mine.pt").write_bytes(b"my own")
    words, told = BAD[what]
    ended = cli("pretrain", *words, "--device", "cpu")
    assert ended.status == 2
    assert ended.err.startswith("threefold: ")
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(os.listdir()) == ["mine.pt", "pictures.npz"]
    assert Path("mine.pt").read_bytes() == b"my own"


def test_a_folder_that_takes_no_files_is_refused_before_training() -> None:
    with pytest.raises(ThreefoldError, match=r"'/proc/net\.pt' cannot be written"):
        pretrain_request(DATA, "/proc/net.pt", 1, normalize=False, settings=SHORT)
    pretrain_request(DATA, "net.pt", 1, normalize=False, settings=SHORT)
    assert os.listdir() == []


def test_what_diverges_is_not_written() -> None:
    with pytest.raises(ThreefoldError, match=r"^pretraining diverged for seed 1, so nothing was written; use a small"):
        threefold.pretrain(DATA, output="net.pt", **SHORT | {"optimizer": "sgd:lr=1e30"})
    assert os.listdir() == []


def test_when_it_is_stopped_an_earlier_file_stays_as_it_was() -> None:
    threefold.pretrain(DATA, output="net.pt", **SHORT)
    before = Path("net.pt").read_bytes()
    request = pretrain_request(DATA, "net.pt", 1, normalize=False, settings=SHORT | {"iters": 50})
    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        request.train(stop=lambda: next(asked, True))
    assert Path("net.pt").read_bytes() == before
    assert os.listdir() == ["net.pt"]
    request.train()
    assert Path("net.pt").read_bytes() != before


def test_a_failing_write_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(ThreefoldError, match="No space left"):
        threefold.pretrain(DATA, output="net.pt", **SHORT)
    assert os.listdir() == []
