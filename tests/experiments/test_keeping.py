"""Networks to take home: what a run keeps predicts as the run's own tests did, and nothing is kept unasked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from kept_runs import ASKED, Net, Own, accuracies, files, run, turned, untrained
from small_cells import cell, measured, small_split, train_cells, when_planned
from tiny_cohorts import tiny_data, tiny_images
from torch.nn.functional import pad

import threefold
from threefold import OwnStream, Permuted, Rotated, Split, ThreefoldError
from threefold.engine import kept
from threefold.experiments import Settings, Watcher
from threefold.results import KeptNetworks


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FURTHER: dict[str, dict[str, Any]] = {
    "own part and network": {"method": Own(share=0.1), "network": Net, "seeds": 3},
    "all units from the start": {"active": "all", "method": "ewc:strength=5"},
    "convolutions": {"stream": Split(tiny_images(), 3), "network": "cnn:channels=4-4,norm=batch", "method": "lwf"},
    "convolutions and gates": {
        **{"stream": Split(tiny_images(), 3), "network": "cnn:channels=4,norm=group"},
        **{"method": "xdg:share=0.4", "scenario": "task"},
    },
    "no ends of tasks": {"boundaries": "blurred:width=2", "method": "er:budget=8,selection=reservoir"},
    "one seed, in two orders": {"seeds": 1, "orders": 2, "method": "icarl:budget=12"},
    "unlike numbers": {"method": "si", "scenario": "domain", "stream": Permuted(tiny_data(classes=4), 3)},
    "rotated": {"method": "er:budget=12,use=both", "scenario": "domain", "stream": Rotated(tiny_data(classes=4), 2)},
}


@pytest.mark.parametrize("which", FURTHER)
def test_kept_networks_have_the_accuracies_of_the_matrix(which: str) -> None:
    """As tests/methods/test_every_method.py has it for all methods, through files."""
    result = run(**FURTHER[which])
    assert result.matrix.tolist() == accuracies(result)
    assert len(files()) == len(result.seeds) * result.cell.stream.tasks


def test_a_network_is_a_module_in_eval_mode_of_one_seed_alone() -> None:
    result = run("icarl:budget=12")
    net, path = result.network(2, after=1), KeptNetworks(Path("a.db")).file(result.records[1].key, 1)
    assert isinstance(net, torch.nn.Module)
    assert "icarl, Class-IL, after 1 of 2 tasks" in repr(net)
    assert not any(module.training for module in net.modules())
    assert sum(p.numel() for p in net.parameters()) == result.cell.numbers
    content = torch.load(path, weights_only=True)
    assert {p.dtype for p in content["params"]["classifier"].values()} == {torch.float32}
    assert {p.device.type for p in content["params"]["classifier"].values()} == {"cpu"}
    assert net.accuracies == result.matrix[1, 0].tolist()
    assert path.stat().st_size < 4 * result.cell.numbers + 40_000
    x = result.test_examples(2, 1).images
    scores = net(x)
    assert scores.shape == (len(x), 4)
    assert (scores.isfinite().sum(1) == 2).all(), "the classes seen so far compete"
    assert (net(x, task=2).isfinite().sum(1) == 2).all(), "iCaRL has no mean of a class to come"
    assert net(x[:0]).shape == (0, 4)
    assert torch.equal(net.to(torch.float64)(x).argmax(-1), scores.argmax(-1))


def test_it_refuses_what_it_was_not_trained_for() -> None:
    result = run("xdg:share=0.5", scenario="task")
    net, x = result.network(1), result.test_examples(1, 1).images
    for wrong, sentence in (
        (lambda: net.predict(x), "task must be a number from 1 to 2, got None."),
        (lambda: net.predict(x, 3), "task must be a number from 1 to 2, got 3."),
        (lambda: net.predict(x[0], 1), r"x must be floating-point numbers of shape samples × 1 × 4 × 4, got "),
        (lambda: net.predict(x.long(), 1), "x must be floating-point numbers"),
        (lambda: result.network(3), "seed '3' is not known; known: 1, 2."),
        (lambda: result.network(1, after=0), "after must be a number from 1 to 2, got 0."),
        (lambda: result.exemplars(1), "method xdg stores no samples"),
        (lambda: result.test_examples(1, 9), "task must be a number from 1 to 2, got 9."),
        (lambda: run(store=None), "keep needs a store"),
        (lambda: threefold.run(small_split(), **ASKED, store=None).network(1), "this result has none"),
    ):
        with pytest.raises(ThreefoldError, match=sentence):
            wrong()


# what is kept, and when it is trained


class Told(Watcher):
    def __init__(self) -> None:
        self.told: list[str] = []
        self.warned: list[str] = []

    def tell(self, text: str) -> None:
        self.told.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)


CELL = cell(small_split(), "ewc:strength=5")


def test_nothing_is_kept_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(kept, "state_of", never)
    monkeypatch.setattr("threefold.experiments.keeping.state_of", never)
    result = run(keep=False)
    assert not files()
    assert not Path("a.db.networks").exists()
    with pytest.raises(ThreefoldError, match=r"after-2.pt' is not there; give the run again with networks to keep"):
        result.network(1)


def test_a_stored_run_is_trained_again_for_its_networks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,), told = train_cells([CELL], [1, 2], "a.db"), Told()
    (again,) = train_cells([CELL], [1, 2, 3], "a.db", told, keep=True)
    assert [record.to_json() for record in again.records[:2]] == [record.to_json() for record in plain.records]
    assert told.told == [
        "2 runs are in the store without networks, trained again for them.",
        "keeps 6 networks, 5.9 kB, and what methods remember, in a.db.networks.",
    ]
    assert not told.warned
    assert accuracies(again) == again.matrix.tolist()
    untrained(monkeypatch)
    (found,) = train_cells([CELL], [1, 2, 3], "a.db", told, keep=True)
    assert measured(found) == measured(again)
    assert len(told.told) == 2
    KeptNetworks(Path("a.db")).file(found.records[1].key, 1).unlink()
    with pytest.raises(BaseException):  # noqa: B017, PT011
        train_cells([CELL], [1, 2, 3], "a.db", told, keep=True)
    assert told.told[2].startswith("1 run is in the store without networks")


def test_a_row_of_another_machine_stays_and_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    (plain,) = train_cells([CELL], [1], "a.db")
    finish = kept.ReplicaStack.consolidate

    def otherwise(stack: Any, besides: Any = ()) -> None:
        finish(stack, besides)
        for p in stack.own["classifier"].values():
            p.neg_()

    monkeypatch.setattr(kept.ReplicaStack, "consolidate", otherwise)
    (again,) = train_cells([CELL], [1], "a.db", told, keep=True)
    assert measured(again) == measured(plain)
    assert ["trained again for its networks, gave other accuracies" in text for text in told.warned] == [True]


def test_another_process_trained_them_meanwhile_without_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        when_planned(patch, lambda scheduler: scheduler.networks and train_cells([CELL], [1, 2], "a.db"))
        (result,) = train_cells([CELL], [1, 2], "a.db", keep=True)
    assert accuracies(result) == result.matrix.tolist()
    with monkeypatch.context() as patch:  # and with networks: nothing is left to train
        train_cells([CELL], [3], "a.db", keep=True)
        (result,) = train_cells([CELL], [1, 2, 3], "a.db", keep=True)
    assert len(files()) == 6


def test_what_does_not_fit_on_the_disk_is_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=1000))
    with pytest.raises(ThreefoldError) as refused:
        run("ewc:strength=5")
    assert str(refused.value) == (
        "4 networks to keep take at least 3.9 kB, and the disk of 'a.db.networks' has 1.0 kB free; use fewer seeds, or"
        " a store on another disk."
    )
    assert not files()


def test_a_run_that_no_key_covers_keeps_nothing() -> None:
    source = open(__file__, encoding="utf-8")  # noqa: SIM115

    def net(setting: Any) -> Net:
        assert source
        return Net(setting)

    with (
        source,
        pytest.raises(ThreefoldError, match=r"which no key can cover, so networks cannot be kept; run it without"),
    ):
        run(network=net)
    assert not files()


# what methods stored and kept


@pytest.mark.parametrize(
    ("stream", "method"),
    [
        (small_split(), "icarl:budget=12"),
        (Permuted(tiny_data(classes=4), 3), "er:budget=13"),
        (Rotated(tiny_data(classes=4), 3), "a-gem:budget=20,selection=reservoir"),
        (OwnStream(turned, tiny_data(classes=4)), "er:budget=24,use=execution"),
    ],
)
def test_exemplars_are_the_stored_samples_as_their_tasks_show_them(stream: Any, method: str) -> None:
    scenario = "class" if "icarl" in method else "domain"
    result = run(method, stream, scenario=scenario, seeds=3)
    budget = int(method.split("budget=")[1].split(",")[0])
    for seed in result.seeds:
        sequence = stream.sequence(seed)
        for after in (1, 2):
            found = result.exemplars(seed, after)
            assert 0.6 * budget < len(found.indices) <= budget
            assert set(found.tasks.tolist()) == set(range(1, after + 1))
            assert torch.equal(found.labels, stream.data.train_y[found.indices])
            for image, task, index in zip(found.images, found.tasks.tolist(), found.indices.tolist(), strict=True):
                own = sequence[task - 1]
                assert index in own.train
                shown = stream.inputs(stream.data.train_x)[index]
                if own.pixels is not None:
                    shown = pad(shown.flatten(), (0, 1))[own.pixels].view_as(shown)  # −1: a pixel that is 0
                if own.transform is not None:
                    shown = own.transformed(shown[None])[0]
                assert torch.equal(image, shown)


def test_float_tensors_of_a_part_come_back_as_they_were() -> None:
    result = run(Own())
    means = result.kept("means")
    assert (means.dtype, means.shape) == (np.float32, (2, 2, 4, 16))
    for place, seed in enumerate(result.seeds):
        for after in (1, 2):
            memory = result.network(seed, after)._held["memory"]["own"]
            assert np.array_equal(means[place, after - 1], memory["means"].numpy())


class Growing(Own):
    name = "growing"

    def keep(self, stack: Any, memory: Any) -> dict[str, torch.Tensor]:
        return {"means": memory["means"][:, : stack.task + 1]}


def test_a_part_that_keeps_other_shapes_after_each_task_is_told_at_once() -> None:
    sentence = r"keep returns 'means' of shape \(2, 16\) of torch.float32, and \(1, 16\) of torch.float32 after the"
    with pytest.raises(ThreefoldError, match=sentence):
        run(Growing(), keep=False)


def test_settings_do_not_know_of_it() -> None:
    """Whether a run keeps its network is not part of its key."""
    keys = [[record.key for record in run(keep=keep, store=f"{keep}.db").records] for keep in (False, True)]
    assert keys[0] == keys[1]
    assert not any("keep" in name for name in Settings.model_fields)
