"""Batches of one label (`OfLabel`), against the labels of the data."""

import pytest
import torch
from tiny_cohorts import tiny_data
from tiny_stack import TinyStack

from threefold.engine import sampling
from threefold.methods import OfLabel, Part
from threefold.streams import Permuted, Split

BATCH, STEPS = 12, 30


class Asking(Part):
    """Wants the labels of a task in an order of its own."""

    name = "asking"

    def draws(self, setting, task, memory, steps, source):
        return {self.name: OfLabel(torch.arange(steps) % 5 % setting.outputs.size(task))}


def drawn(stream, seeds, task=1):
    tiny = TinyStack(stream, "class", Asking(), seeds).reach(task)
    return tiny, [drawn["asking"] for _, drawn in tiny.draws(STEPS)]


@pytest.mark.parametrize(
    "stream", [Split(tiny_data(), 3), Permuted(tiny_data(classes=4), 3)], ids=["split", "permuted"]
)
def test_each_batch_is_of_its_label_and_each_sample_comes_as_often_as_any_other(stream):
    tiny, batches = drawn(stream, [3, 1, 2])
    classes = stream.classes_per_task
    for replica in range(3):
        task = tiny.sequences[replica][1]
        for label in range(classes):
            own = [b for step, b in enumerate(batches) if step % 5 % classes == label]
            found = torch.cat([b.indices[replica] for b in own])
            assert {tiny.label(replica, index, 1) for index in found.tolist()} == {label}
            assert {int(t) for b in own for t in b.task[replica].unique()} == {1}
            of_label = [i for i in task.train.tolist() if tiny.label(replica, i, 1) == label]
            counts = torch.bincount(found, minlength=len(stream.data.train_y))[of_label]
            assert counts.sum() == len(found)
            assert counts.max() - counts.min() <= 1, "passes, each reshuffled"


def test_draws_depend_on_the_seed_alone_and_differ_by_task(monkeypatch):
    stream = Split(tiny_data(), 3)
    _, three = drawn(stream, [3, 1, 2])
    _, alone = drawn(stream, [1])
    assert all(torch.equal(a.indices[1], b.indices[0]) for a, b in zip(three, alone, strict=True))
    assert any((a.indices[0] != a.indices[1]).any() for a in three)
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", STEPS // 2)
    _, chunks = drawn(stream, [1])
    assert not all(torch.equal(a.indices, b.indices) for a, b in zip(chunks[15:], alone[:15], strict=True))
