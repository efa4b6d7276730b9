"""Checkpoints written beside training, as on a GPU: the few calls that need one have stand-ins."""

from concurrent.futures import wait
from contextlib import contextmanager
from threading import Event, Thread, current_thread

import pytest
import torch

from threefold.engine import Checkpoint
from threefold.engine.saver import Saver
from threefold.errors import ThreefoldError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LONG = 20  # seconds until a test gives up waiting
MOMENT = 0.2  # seconds in which whoever does not wait would be done


class Device:
    """Stands in for a GPU; while `fetches` or `writes` is not set, states stay where they are."""

    def __init__(self):
        self.fetches, self.writes = Event(), Event()
        self.fetches.set()
        self.writes.set()
        self.calls = []

    def synchronize(self, device):
        self.calls.append("synchronize")

    @contextmanager
    def stream(self, stream):
        assert stream == ("stream", GPU)
        assert self.fetches.wait(LONG)
        self.calls.append("fetch")
        yield


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: ("stream", device))
    monkeypatch.setattr(torch.cuda, "stream", device.stream)
    return device


class Watched(Checkpoint):
    """Notes what is written and by which thread; states that are in `broken` cannot be."""

    def __init__(self, path, device, broken=()):
        super().__init__(path)
        self.device, self.broken = device, broken
        self.written, self.threads = [], set()

    def save(self, state):
        assert self.device.writes.wait(LONG)
        self.threads.add(current_thread())
        if state["finished"] in self.broken:
            raise ThreefoldError(f"no place for {state['finished']}")
        super().save(state)
        self.written.append(state["finished"])


@pytest.fixture
def checkpoint(tmp_path, device):
    return Watched(tmp_path / "cohort.pt", device)


def state(finished):
    return {"finished": finished, "weights": [torch.full((3,), float(finished))], "seconds": {"train": 1.0}}


def in_the_file(checkpoint):
    return Checkpoint(checkpoint.path).load(CPU)


def saved(checkpoint, *states, then=Saver.finish):
    with Saver(checkpoint, GPU) as saver:
        for finished in states:
            saver.save(state(finished))
        then(saver)


def begun(function):
    thread = Thread(target=function, daemon=True)
    thread.start()
    thread.join(MOMENT)
    return thread


def test_a_state_is_kept_as_it_was_when_it_was_saved(checkpoint, device):
    device.fetches.clear()
    mine = state(1)
    with Saver(checkpoint, GPU) as saver:
        saver.save(mine)
        assert device.calls == ["synchronize"]  # the copy is whole before another stream reads it
        mine["weights"][0].fill_(7)  # training goes on, in place
        mine["weights"].append(torch.zeros(1))
        mine["seconds"]["train"] = 7.0
        device.fetches.set()
        saver.finish()
    found = in_the_file(checkpoint)
    assert found["seconds"] == {"train": 1.0}
    assert [weights.tolist() for weights in found["weights"]] == [[1, 1, 1]]


def test_training_goes_on_while_a_state_is_fetched_and_written(checkpoint, device):
    device.fetches.clear()
    with Saver(checkpoint, GPU) as saver:
        saver.save(state(1))
        assert checkpoint.written == []
        device.fetches.set()
    assert checkpoint.written == [1]
    assert current_thread() not in checkpoint.threads


def test_training_does_not_wait_for_the_disk_and_the_newest_state_is_written_next(checkpoint, device):
    device.writes.clear()
    with Saver(checkpoint, GPU) as saver:
        saver.save(state(1))
        saver.wait_for_device()
        for newer in (2, 3):
            assert not begun(lambda newer=newer: saver.save(state(newer))).is_alive()
        assert device.calls == ["synchronize", "fetch", "synchronize", "synchronize"]  # the others stay on the device
        device.writes.set()
        saver.finish()
    assert checkpoint.written == [1, 3]
    assert in_the_file(checkpoint)["finished"] == 3


def test_what_took_less_to_train_than_to_write_waits_until_training_is_stopped(checkpoint, monkeypatch):
    size = sum(weights.nbytes for weights in state(1)["weights"])
    monkeypatch.setattr("threefold.engine.saver.RATE", size / LONG)  # LONG seconds
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)

    def trained(saver):
        nonlocal now
        now = 99.0 + LONG
        saver.save(state(1))
        now = 100.0 + LONG
        saver.save(state(2))
        assert saver._writing.result(LONG) is None
        assert checkpoint.written == [2]
        now = 99.0 + 2 * LONG
        saver.save(state(3))
        saver.save(state(4))
        assert checkpoint.written == [2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        saved(checkpoint, then=trained)
    assert checkpoint.written == [2, 4]


def test_nobody_waits_for_a_state_that_training_has_left_behind(checkpoint, device, monkeypatch):
    monkeypatch.setattr("threefold.engine.saver.RATE", 1e-9)
    with Saver(checkpoint, GPU) as saver:
        saver.save(state(1))
    assert device.calls == ["synchronize"]
    assert not checkpoint.path.exists()


def test_an_error_of_the_last_save_is_raised_at_the_end(checkpoint):
    checkpoint.broken = {1}
    with pytest.raises(ThreefoldError, match="no place for 1"):
        saved(checkpoint, 1, then=lambda saver: None)
    assert checkpoint.written == []


def test_an_error_of_an_earlier_one_is_raised_by_a_later_save(checkpoint):
    checkpoint.broken = {1}
    with Saver(checkpoint, GPU) as saver:
        saver.save(state(1))
        wait([saver._writing], LONG)
        with pytest.raises(ThreefoldError, match="no place for 1"):
            saver.save(state(2))
    assert checkpoint.written == []


def test_what_cannot_be_fetched_is_an_error_too(checkpoint, monkeypatch):
    def lost(stream):
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(torch.cuda, "stream", lost)
    with pytest.raises(RuntimeError, match="the device is lost"):
        saved(checkpoint, 1, then=Saver.wait_for_device)  # which says nothing of it


@pytest.mark.parametrize("broken", [set(), {1}], ids=["written", "not written"])
def test_whatever_ends_training_a_state_on_its_way_is_written_and_the_reason_told(checkpoint, device, broken):
    checkpoint.broken = broken
    device.writes.clear()

    def stopped(saver):
        device.writes.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        saved(checkpoint, 1, then=stopped)
    assert checkpoint.written == ([] if broken else [1])


def test_a_capture_waits_until_nothing_is_fetched(checkpoint, device):
    device.fetches.clear()
    device.writes.clear()
    with Saver(checkpoint, GPU) as saver:
        saver.wait_for_device()  # nothing has been saved yet
        saver.save(state(1))
        waiting = begun(saver.wait_for_device)
        assert waiting.is_alive()
        device.fetches.set()
        waiting.join(LONG)
        assert not waiting.is_alive()
        assert checkpoint.written == []  # what is being written does not disturb the device
        device.writes.set()
        saver.finish()
    saver.wait_for_device()


def test_without_room_for_a_copy_a_state_is_written_at_once(checkpoint, device, monkeypatch):
    def full(tensor):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with Saver(checkpoint, GPU) as saver:
        saver.save(state(1))
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "clone", full)
            saver.save(state(2))
        assert checkpoint.written == [1, 2]
        assert current_thread() in checkpoint.threads
        saver.save(state(3))  # there may be room again
        saver.finish()
    assert checkpoint.written == [1, 2, 3]
    assert in_the_file(checkpoint)["weights"][0].tolist() == [3, 3, 3]
    assert device.calls == ["synchronize", "fetch"] * 2


def test_without_a_checkpoint_nothing_is_copied(device):
    with Saver(None, GPU) as saver:
        saver.save(state(1))
        saver.wait_for_device()
    assert device.calls == []


def test_on_a_cpu_the_file_is_there_when_save_returns(checkpoint, device):
    with Saver(checkpoint, CPU) as saver:
        saver.save(state(1))
        assert in_the_file(checkpoint)["finished"] == 1
    assert checkpoint.threads == {current_thread()}
    assert device.calls == []
