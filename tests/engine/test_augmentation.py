"""Augmentation: images cut out of a border of zeros and mirrored, drawn by seed, task and step alone."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_cohorts import Killed, killed_in, same_measured

import threefold
from threefold.data import Dataset
from threefold.engine import SGD, Checkpoint, Replicas, Training, augmentation, device_data, train
from threefold.engine.augmentation import moved
from threefold.engine.sampling import Sampler
from threefold.engine.sharing import Stacks
from threefold.errors import ThreefoldError
from threefold.experiments import Cell
from threefold.experiments.command import run_command
from threefold.experiments.spec import Experiment
from threefold.methods import Part, parse
from threefold.networks import find_network
from threefold.results import run_key
from threefold.scenarios import find
from threefold.streams import Permuted, Split


def by_hand(image, row, column, mirrored):
    """With NumPy, for one image: a border of 4 zeros, a piece of the old size, from right to left."""
    height, width = image.shape[1:]
    wide = np.pad(image, ((0, 0), (4, 4), (4, 4)))
    piece = wide[:, row : row + height, column : column + width]
    return piece[:, :, ::-1] if mirrored else piece


@given(st.data(), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
def test_each_image_is_what_numpy_cuts_out(data, channels, height, width):
    images = torch.rand(2, 3, channels, height, width)
    rows, columns = (data.draw(st.lists(st.integers(0, 8), min_size=6, max_size=6)) for _ in range(2))
    mirrored = data.draw(st.lists(st.booleans(), min_size=6, max_size=6))
    each = list(zip(rows, columns, mirrored, strict=True))
    numbers = torch.tensor([[(r + 0.5) / 9, (c + 0.5) / 9, 0.75 if m else 0.25] for r, c, m in each])
    found = moved(images, numbers.view(2, 3, 3)).flatten(0, 1)
    for mine, image, how in zip(found, images.flatten(0, 1), each, strict=True):
        np.testing.assert_array_equal(mine, by_hand(image.numpy(), *how))


def test_the_largest_number_below_one_stays_inside():
    most = float(np.nextafter(np.float32(1), np.float32(0)))
    image = torch.rand(1, 5, 5)
    np.testing.assert_array_equal(moved(image, torch.full((3,), most)), by_hand(image.numpy(), 8, 8, True))


def pictures(classes=4, samples=20, name="pictures"):
    draw = np.random.default_rng(0)
    labels = np.arange(classes * samples) % classes
    images = draw.random((len(labels), 3, 8, 8)).astype(np.float32)
    return Dataset.from_arrays(images, labels, images[:40], labels[:40], name=name)


class Weights(Part):
    """Keeps the classifiers as they are after each task."""

    name = "weights"

    def keep(self, stack, memory):
        return stack.snapshot()


STREAM = Split(pictures(), 2)
NETWORK = find_network("cnn:channels=8,norm=group")


def trained(seeds, method="none", *, augment=True, stream=STREAM, **also):
    method = parse(method) + Weights()
    training = Training(3, 8, NETWORK, augment=augment)
    asked = Replicas(find("class"), [method] * len(seeds), seeds, [SGD(lr=0.1)] * len(seeds))
    (found,) = train(stream, [asked], training, **also)
    return found


def weights(found, replica):
    return [{name: value[replica] for name, value in task.items()} for task in found.kept]


def same(one, other):
    return all(torch.equal(mine[name], its[name]) for mine, its in zip(one, other, strict=True) for name in mine)


@pytest.mark.parametrize("method", ["none", "er:budget=8", "a-gem:budget=8", "lwf", "offline"])
def test_alone_and_in_a_stack_it_is_the_same(method):
    alone, stack = trained([4], method), trained([9, 4, 2], method)
    assert same(weights(alone, 0), weights(stack, 1))
    assert not same(weights(alone, 0), weights(trained([4], method, augment=False), 0))


def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path):
    undisturbed = trained([1, 2], "er:budget=8")
    checkpoint = Checkpoint(tmp_path / "cohort.pt")
    with pytest.raises(Killed):
        trained([1, 2], "er:budget=8", checkpoint=checkpoint, report=killed_in(1))
    assert checkpoint.path.exists()
    assert same_measured(trained([1, 2], "er:budget=8", checkpoint=checkpoint), undisturbed)


def rates(number):
    """All different: equal runs would be one replica."""
    return [SGD(lr=0.1 + 0.01 * place) for place in range(number)]


def second_task(seeds, stream=STREAM, *, augment=True):
    """What the steps of the second task work on."""
    training = Training(3, 8, NETWORK, augment=augment)
    asked = Replicas(find("class"), [parse("er:budget=8")] * len(seeds), seeds, rates(len(seeds)))
    with torch.no_grad():
        stacks = Stacks(stream, [asked], training)
        stacks.consolidate()
        stacks.begin_task(1)
        return Sampler(stacks.trained[0], training)


def test_every_replica_step_and_use_has_draws_of_its_own():
    sampler = second_task([1, 2, 1])
    train_x = STREAM.data.train_x
    found = {}
    for step in range(3):
        current, drawn = sampler.at(step)
        for use, batch in {"current": current, **drawn}.items():
            for replica in range(3):
                found[step, use, replica] = moves = []
                for image, index in zip(batch.x[replica], batch.indices[replica], strict=True):
                    moves.append(how_moved(train_x[index].numpy(), image.numpy()))
    assert len(found) == 18
    for step in range(3):
        for use in ("current", "er stored"):
            assert found[step, use, 0] == found[step, use, 2], "the same seed"
    different = [found[step, use, replica] for step, use, replica in found if replica < 2]
    assert len({tuple(moves) for moves in different}) == 12
    every = [move for moves in different for move in moves]
    assert {row for row, _, _ in every} == {column for _, column, _ in every} == set(range(9))
    assert 0.3 < np.mean([mirrored for _, _, mirrored in every]) < 0.7


def how_moved(image, given):
    """How an image was cut out: the only way that gives what was given."""
    every = [(r, c, m) for r in range(9) for c in range(9) for m in (False, True)]
    (found,) = [way for way in every if np.array_equal(by_hand(image, *way), given)]
    return found


def test_a_step_that_is_counted_on_the_device_is_the_same_step():
    sampler = second_task([1, 2])
    for step in range(3):
        one, other = sampler.at(step), sampler.at(torch.tensor(step))
        assert torch.equal(one[0].x, other[0].x)
        assert torch.equal(one[1]["er stored"].x, other[1]["er stored"].x)


def test_a_captured_graph_finds_the_keys_of_the_next_task_in_the_same_place():
    sampler, new = second_task([1, 2]), second_task([1, 3])
    place = {name: key.data_ptr() for name, key in sampler._keys.items()}
    assert sampler.replaced_by(new)
    assert place == {name: key.data_ptr() for name, key in sampler._keys.items()}
    assert torch.equal(sampler.at(2)[0].x, new.at(2)[0].x)


def test_permuted_images_are_moved_before_they_are_permuted():
    stream = Permuted(pictures(), 2)
    plain, sampler = second_task([1], stream, augment=False), second_task([1], stream)
    pixels = stream.sequence(1)[1].pixels
    back = torch.argsort(pixels)
    image, index = sampler.at(0)[0].x[0, 0], sampler.at(0)[0].indices[0, 0]
    assert plain.at(0)[0].indices[0, 0] == index
    how_moved(stream.data.train_x[index].numpy(), image.flatten()[back].view(3, 8, 8).numpy())


def test_only_what_steps_work_on_is_augmented(monkeypatch):
    calls = []
    monkeypatch.setattr(device_data, "moved", lambda *args: calls.append(1) or augmentation.moved(*args))
    trained([1], "er:budget=8,use=both+ewc:strength=1")
    assert len(calls) == 3 + 2 * 3, "the current data of six steps and the stored data of three"


QUICK = {"scenario": "class", "seeds": 1, "iters": 2, "batch": 4, "device": "cpu", "network": "cnn:channels=4"}
EXPERIMENT = """
stream = "split"
data = "pictures.npz"
tasks = 2
scenarios = ["class"]
seeds = 1
training = { iters = 2, batch = 4, network = "cnn:channels=4", augment = true }
methods = [{ method = "none" }]
"""


def test_the_option_is_the_same_on_the_command_line_in_files_and_in_python(tmp_path, cli, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pictures()
    np.savez("pictures.npz", train_x=data.train_x, train_y=data.train_y, test_x=data.test_x, test_y=data.test_y)
    Path("pictures.toml").write_text(EXPERIMENT)
    words = [word for name, value in QUICK.items() for word in (f"--{name}", value)]
    plain, found = (threefold.run(Split(data, 2), **QUICK, augment=each).records[0].spec for each in (False, True))
    assert found["training"] == plain["training"] | {"augment": True}
    assert "augment" not in plain["training"]
    assert cli("run", "split", "--data", "pictures.npz", "--tasks", 2, "--augment", *words).status == 0
    assert cli("experiment", "pictures.toml", "--device", "cpu").status == 0
    assert cli("merge", "other.db", "threefold.db").status == 0
    for name in ("threefold.db", "other.db"):
        with threefold.Store(name, readonly=True) as store:
            assert sorted(run_key(record.spec) for record in store.all()) == sorted([run_key(plain), run_key(found)])


def test_it_is_never_judged_by_the_papers_numbers():
    from threefold.experiments import Settings

    images, labels = np.zeros((2560, 4, 4), np.uint8), np.arange(2560) % 10
    stream = Split(Dataset.from_arrays(images, labels, images, labels, name="mnist"))
    for augment in (False, True):
        cell = Cell.of(stream, find("class"), parse("none"), Settings(device="cpu", augment=augment))
        again = Cell.of_description(cell.described())
        for each in (cell, again):
            assert each.comparable == (not augment)
            assert (each.published() is None) == augment
            assert ("--augment" in run_command([each], [1]).split()) == augment


def test_what_are_no_images_is_refused(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.zeros((40, 64), np.float32), np.arange(40) % 4
    np.savez("vectors.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    ended = cli("run", "split", "--data", "vectors.npz", "--tasks", 2, "--augment", "--device", "cpu")
    told = "threefold: augment needs images, channels × height × width, and the data have 64 features.\n"
    assert (ended.status, ended.err) == (2, told)
    assert not Path("threefold.db").exists()


def test_in_a_file_it_is_true_or_false():
    given = tomllib.loads(EXPERIMENT)
    given["training"]["augment"] = "crop"
    with pytest.raises(ValueError, match="augment"):
        Experiment.model_validate(given | {"name": "pictures"})
    with pytest.raises(ThreefoldError, match=r"^augment must be true or false, got 'crop'\.$"):
        threefold.run(Split(pictures(), 2), **QUICK, augment="crop", store=None)
