"""Replay of stored data: which samples reach the steps of ER and A-GEM (appendix C)."""

from dataclasses import replace

import pytest
import torch
from tiny_cohorts import tiny_images
from tiny_stack import SCENARIOS, TinyStack

from threefold.data import Dataset
from threefold.streams import Split


@pytest.mark.parametrize("method", ["er:budget={}", "er:budget={},use=both", "a-gem:budget={}"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_what_is_stored_comes_back_as_often_from_each_earlier_task(scenario, method):
    batch = 12
    tiny = TinyStack("split", scenario, [method.format(b) for b in (20, 7, 61)], batch=batch)
    assert not tiny.sampler(3).samples  # in the first task there is nothing to replay
    for task in (1, 2):
        tiny.reach(task)
        draws = tiny.sampler(40)
        (samples,) = draws.samples.values()
        for replica in range(3):
            stored = tiny.held(replica)
            indices, tasks = samples.indices[replica], samples.task[replica]
            assert indices.shape == tasks.shape == (40, batch)
            for earlier in range(task):
                places = stored[earlier * tiny.classes : (earlier + 1) * tiny.classes]
                own = {index for place in places for index in place}
                drawn = indices[tasks == earlier].tolist()
                assert set(drawn) <= own
                assert len(set(drawn)) > 0.9 * len(own) - 1  # 240 draws or more: all that is stored gets its turn
                assert ((tasks == earlier).sum(1) == batch // task).all()


def test_classes_of_a_task_come_back_alike():
    tiny = TinyStack("split", "class", "er:budget=24", batch=12).reach(2)
    (samples,) = tiny.sampler(200).samples.values()
    for replica in range(3):
        stored = tiny.held(replica, "er")
        counts = [sum(int((samples.indices[replica] == i).sum()) for i in place) for place in stored]
        assert sum(counts) == 2400
        for count in counts:  # binomial: 1200 draws of one half each
            assert abs(count - 600) < 5 * (1200 / 4) ** 0.5


@pytest.mark.parametrize("method", ["er:budget=20,use=execution", "icarl:budget=20"])
def test_who_does_not_replay_draws_nothing_more(method):
    tiny = TinyStack("split", "class", method).reach(1)
    assert not tiny.sampler(3).samples


def test_draws_differ_between_steps_tasks_and_seeds():
    tiny = TinyStack("split", "class", "er:budget=60").reach(1)
    (first,), (again,) = (tiny.sampler(5).samples.values() for _ in range(2))
    assert torch.equal(first.indices, again.indices)  # addressed, not consumed
    rows = {tuple(row.tolist()) for row in first.indices.flatten(0, 1)}
    assert len(rows) == 15


def test_two_memories_replay_each_its_own():
    """ER with few samples beside A-GEM with many: what ER replays is what ER stores."""
    tiny = TinyStack("split", "class", "er:budget=6+a-gem:budget=90").reach(2)
    for batch, drawn in tiny.draws(10):
        replay = tiny.replay(batch, drawn)
        for replica in range(3):
            stored = {index for place in tiny.held(replica, "er") for index in place}
            known = torch.stack([tiny.inputs(replica, index, 0) for index in sorted(stored)])
            for x in replay.x[replica]:
                assert (known == x.flatten()).all(1).any()


# to look at later


@pytest.mark.parametrize("method", ["er:budget={}", "er:budget={},use=execution", "a-gem:budget={}", "icarl:budget={}"])
def test_what_is_stored_first_of_each_task_is_kept_to_look_at(method):
    """Eight images in colour, as many of each class; black where a class has fewer."""
    stream = Split(tiny_images(base=16, dtype=torch.float64), 3)
    tiny = TinyStack(stream, "class", [method.format(b) for b in (60, 6, 24)], network="cnn:channels=4", batch=8)
    for task in range(3):
        tiny.reach(task)
        tiny.train()
        tiny.finish()
        kept = tiny.stack.kept()["exemplars"]
        assert (kept.shape, kept.dtype) == ((3, 8, 3, 8, 8), torch.uint8)
        for replica in range(3):
            own = [places[:4] for places in tiny.held(replica)[2 * task : 2 * task + 2]]
            for place, indices in enumerate(own):
                for slot in range(4):
                    image = stream.data.train_x[indices[slot]] if slot < len(indices) else torch.zeros(3, 8, 8)
                    assert torch.equal(kept[replica, 4 * place + slot], (image * 255).round().to(torch.uint8))
        assert len(own[0]) == min(4, [60, 6, 24][replica] // (2 * task + 2))


@pytest.mark.parametrize(("classes", "tasks", "shown"), [(12, 1, 8), (6, 2, 6), (3, 3, 8)])
def test_however_many_classes_there_are_it_is_eight_at_most(classes, tasks, shown):
    stream = Split(tiny_images(classes=classes, dtype=torch.float64), tasks)
    tiny = TinyStack(stream, "class", "er:budget=48", network="cnn:channels=4", batch=8)
    tiny.train(1)
    tiny.finish()
    assert tiny.stack.kept()["exemplars"].shape == (3, shown, 3, 8, 8)


def test_what_no_screen_can_show_is_not_kept():
    images = tiny_images()
    vectors = Dataset.from_arrays(images.train_x.flatten(1), images.train_y, images.test_x.flatten(1), images.test_y)
    for data in (images.normalized(), vectors):
        data = replace(data, train_x=data.train_x.double(), test_x=data.test_x.double())
        tiny = TinyStack(Split(data, 3), "class", "er:budget=24", batch=8)
        tiny.train(1)
        tiny.finish()
        assert tiny.stack.kept() == {}
