"""The bench of networks for images: a stack beside the same networks as plain modules."""

import time
from collections.abc import Callable, Sequence

import pytest
import torch
from tiny_lab import Ended

from threefold import bench
from threefold.bench import steps
from threefold.engine.sampling import Sampler
from threefold.networks import find_network

TINY = (("cnn:channels=2-2", 8), ("resnet18:width=1", 4))


def few(samples: int, shape: Sequence[int]) -> object:
    x, y = torch.rand(60, *[min(size, 8) for size in shape]), torch.arange(60) % 10
    return steps.Dataset.from_arrays(x, y, x, y, name="mnist")


def test_both_networks_are_timed_with_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "stand_in", few)
    timed = list(steps.bench_networks("cpu", rounds=1, networks=TINY, replicas=2))
    assert [(t.network, t.batch, t.replicas) for t in timed] == [(*each, 2) for each in TINY]
    assert all(t.cohort > 0 and t.alone > 0 for t in timed)


def test_the_networks_are_those_whose_times_are_promised() -> None:
    cnn, resnet = (find_network(written).model_dump() for written, _ in steps.IMAGE_NETWORKS)
    assert cnn == {"channels": (16, 32, 64, 128, 256), "norm": "none", "hidden": None, "last": "relu", "frozen": False}
    assert resnet == {"width": 20}
    assert [batch for _, batch in steps.IMAGE_NETWORKS] == [256, 32]


def test_a_cpu_is_asked_for_four_small_ones_by_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = []
    monkeypatch.setattr(steps, "stand_in", few)
    monkeypatch.setattr(steps, "SMALL_NETWORKS", TINY)
    monkeypatch.setattr(
        steps, "medians", lambda functions, *given: clocks.append(given[-1]) or dict.fromkeys(functions, 1.0)
    )
    timed = list(steps.bench_networks("cpu", rounds=1))
    assert [(t.network, t.batch, t.replicas) for t in timed] == [(*each, 4) for each in TINY]
    assert clocks == [time.process_time] * 2


@pytest.mark.parametrize(("written", "batch"), TINY)
def test_one_by_one_every_network_learns(written: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared must be a whole step: all parameters move, and batch norm's statistics with them."""
    stream = steps.Split(few(60, (3, 32, 32)))  # type: ignore[arg-type]
    built: list[torch.nn.Module] = []
    with torch.no_grad():
        stack = steps.stack_of(stream, steps.Method(), "class", 2, torch.device("cpu"), find_network(written), batch)
        build = type(stack.setting.network).build
        monkeypatch.setattr(
            type(stack.setting.network), "build", lambda self, setting: built.append(build(self, setting)) or built[-1]
        )
        sampler = Sampler(stack, steps.Training(3, batch, stack.setting.network))
        step = steps._one_after_the_other(stack, sampler)
        before = [{name: value.clone() for name, value in net.state_dict().items()} for net in built]
        step()
    assert len(built) == 2
    for net, values in zip(built, before, strict=True):
        assert all((p.grad is not None) and p.grad.isfinite().all() for p in net.parameters())
        moved = {name for name, value in net.state_dict().items() if not torch.equal(value, values[name])}
        assert moved.issuperset(name for name, p in net.named_parameters() if p.grad.any())
        assert moved.issuperset(name for name, _ in net.named_buffers())


def test_the_command_shows_them(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    found = steps.NetworkTiming("resnet18:width=20", 32, 20, 3.0, 12.0)
    monkeypatch.setattr(bench, "bench_networks", lambda *given: asked.append(given) or [found])
    ended = cli("bench", "networks", "--device", "cpu", "--rounds", "5")
    assert (ended.status, asked) == (0, [("cpu", 5)])
    assert all(text in ended.out for text in ("resnet18:width=20", "3.00", "12.00", "0.25")), ended.out
