"""The bench, on shapes that take no time: that it measures what it says, not how fast this machine is."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_lab import Ended

from threefold import bench
from threefold.bench import accuracy, evaluation, grid, growth, profile, steps, timing
from threefold.bench import floor as floor_module
from threefold.data import Dataset
from threefold.engine import Measured
from threefold.methods import METHODS, Method
from threefold.streams import Permuted, Split, Stream

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Split, Permuted):
        monkeypatch.setattr(kind, "defaults", replace(kind.defaults, hidden=8, batch=16))


def small(samples: int = 400) -> Dataset:
    x, y = np.random.default_rng(0).random((samples, 4, 4)).astype(np.float32), np.arange(samples) % 10
    return Dataset.from_arrays(x, y, x, y, name="mnist")


@pytest.fixture(params=[Split, Permuted])
def stream(request: pytest.FixtureRequest) -> Stream:
    kind: type[Stream] = request.param
    return kind(small())


@pytest.mark.parametrize("replicas", [1, 3])
def test_all_three_kinds_of_step_are_timed(stream: Stream, replicas: int) -> None:
    timing = steps._compare(stream, replicas, CPU, rounds=3)
    assert (timing.stream, timing.replicas) == (stream.name, replicas)
    assert min(timing.cohort, timing.alone, timing.products) > 0


def test_every_method_is_timed_beside_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "stand_in", lambda samples: small())
    costs = list(steps.bench_methods("cpu", replicas=2, rounds=1))
    assert [cost.method for cost in costs] == list(METHODS)
    assert {cost.method: cost.scenario for cost in costs}["xdg"] == "Task-IL"
    assert all(cost.step > 0 and cost.none > 0 for cost in costs)


def test_a_method_is_divided_by_the_none_that_was_measured_in_turn_with_it(
    cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine gets slower and slower: the ratio is that of the two medians of one measurement."""
    measured: list[dict[str, float]] = []

    def slower(functions: dict[str, object], rounds: int, device: torch.device) -> dict[str, float]:
        measured.append({"step": 3.0 * (len(measured) + 1), "none": 2.0 * (len(measured) + 1)})
        return measured[-1]

    monkeypatch.setattr(steps, "stand_in", lambda samples: small())
    monkeypatch.setattr(steps, "rates", lambda device: floor_module.Rates(1.0, 1.0))
    monkeypatch.setattr(steps, "medians", slower)
    monkeypatch.setattr(bench, "bench", lambda *_, **__: [])
    shown = cli("bench", "--device", "cpu").out
    assert len(measured) == len(METHODS)
    rows = [line.split("│") for line in shown.splitlines() if line.startswith("│")]
    assert [row[4].strip() for row in rows] == ["1.50"] * len(METHODS)
    assert "÷ none: relative to a step of None that was measured in turn with the method's" in shown
    page = " ".join((Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8").split())
    assert "a step of None was measured in turn with each method: it is the ratio of these two medians." in page


def test_medians_are_taken_in_turns_after_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, called = [0.0], []
    cold = [900] * timing.WARM_UP
    durations = {"quick": iter([*cold, 1, 2, 30]), "slow": iter([*cold, 40, 50, 60])}

    def takes(name: str) -> None:
        called.append(name)
        clock[0] += next(durations[name]) / 1e3

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    taken = timing.medians({name: lambda name=name: takes(name) for name in durations}, 3, CPU)  # type: ignore[misc]
    assert taken == pytest.approx({"quick": 2.0, "slow": 50.0})
    assert all(one != other for one, other in pairwise(called))


def test_the_bare_products_are_those_of_the_cohorts_network(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = steps.stack_of(stream, Method(), "class", 3, CPU)
    shapes = []
    monkeypatch.setattr(torch, "bmm", lambda a, b: shapes.append((tuple(a.shape), tuple(b.shape))))
    steps.products(stack)()
    inputs, units = stack.setting.inputs, stack.setting.outputs.units
    layers = [(inputs, 8), (8, 8), (8, units)]
    forward = [((3, 16, i), (3, i, o)) for i, o in layers]
    weights = [((3, o, 16), (3, 16, i)) for i, o in layers]
    back = [((3, 16, o), (3, o, i)) for i, o in layers[1:]]  # no gradient is needed for the images
    assert sorted(shapes) == sorted(forward + weights + back)


@pytest.fixture
def _even_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of one operation and one byte per millisecond."""
    monkeypatch.setattr(steps, "rates", lambda device: floor_module.Rates(1.0, 1.0))
    monkeypatch.setattr(growth, "rates", lambda device: floor_module.Rates(1.0, 1.0))


@pytest.mark.usefixtures("_even_rates")
def test_the_floor_is_counted_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products: two operations for each weight and sample, three times but for the images' gradient; bytes: 28 each."""
    monkeypatch.setattr(steps, "stand_in", lambda samples: small())
    costs = {cost.method: cost.floor for cost in steps.bench_methods("cpu", replicas=2, rounds=1)}
    weights, biases, first = 16 * 8 + 8 * 8 + 8 * 10, 8 + 8 + 10, 16 * 8
    trained = 2 * (weights + biases)
    forward = 2 * 2 * 16 * weights  # replicas × multiply and add × samples × weights
    assert costs["none"].products == 3 * forward - 2 * 2 * 16 * first
    assert costs["none"].memory == 28 * trained
    assert costs["ewc"].products == costs["none"].products
    assert costs["ewc"].memory == (28 + 8) * trained  # the anchor and the precision
    assert costs["si"].memory == (28 + 12 + 4) * trained  # ω is written as well
    assert costs["lwf"].products == costs["none"].products + forward  # the teacher's pass
    assert costs["lwf"].memory == (28 + 4) * trained
    assert costs["none"].step == max(costs["none"].products, costs["none"].memory)


def test_rates_are_those_of_a_product_and_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor_module, "medians", lambda functions, rounds, device: {"product": 4.0, "copy": 2.0})
    assert floor_module.rates(CPU) == floor_module.Rates(2 * 2048**3 / 4, 8 * 2**25 / 2)


@pytest.mark.usefixtures("_even_rates")
def test_growth_takes_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "stand_in", lambda samples: small())
    grown = list(growth.grow("cpu", 1, replicas=(1, 2), hidden=(4, 8), tasks=(2, 3)))
    found = [(g.what, g.size, g.method) for g in grown]
    assert found == [
        *(("replicas", size, "none") for size in (1, 2)),
        *(("hidden units", size, "none") for size in (4, 8)),
        *(("tasks", size, method) for method in ("none", "ewc") for size in (2, 3)),
    ]
    floors = {(g.what, g.size, g.method): g.floor for g in grown}
    assert floors["replicas", 2, "none"] == 2 * floors["replicas", 1, "none"]
    assert floors["hidden units", 8, "none"] > floors["hidden units", 4, "none"]
    assert Split.defaults.hidden == 8  # of the other streams


def test_the_hosts_work_is_divided_by_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that only building and drawing move: by so much for each network, and by more in the first round."""
    clock, built = [0.0], []

    def building(stream, method, scenario, many, device):  # type: ignore[no-untyped-def]
        built.append(many)
        clock[0] += (9.0 if len(built) < 2 else 0.002) * many
        return steps.stack_of(stream, method, scenario, many, device)

    def drawing(stack, training):  # type: ignore[no-untyped-def]
        assert (stack.task, training.iters, "stored" in stack.memory["er"]) == (1, 200, True)
        clock[0] += 0.004 * len(stack.seeds)

    monkeypatch.setattr(growth, "stand_in", lambda samples: small())
    monkeypatch.setattr(growth, "stack_of", building)
    monkeypatch.setattr(growth, "Sampler", drawing)
    monkeypatch.setattr(growth.time, "perf_counter", lambda: clock[0])
    found = list(growth.host_work("cpu", 2, replicas=(2, 3)))
    assert built == [2, 2, 2, 3, 3, 3]
    assert [(each.replicas, round(each.begin, 6), round(each.draw, 6)) for each in found] == [(2, 2, 4), (3, 2, 4)]


def test_a_gpu_is_given_a_thousand_networks_and_a_cpu_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(growth, "stand_in", lambda samples: small())
    monkeypatch.setattr(growth, "rates", lambda device: None)

    def second(stream, method, scenario, replicas, device, best):  # type: ignore[no-untyped-def]
        asked.append(replicas)
        return None, floor_module.Floor(1.0, 1.0)

    monkeypatch.setattr(growth, "second_task", second)
    monkeypatch.setattr(growth, "medians", lambda functions, rounds, device: {"step": 1.0})
    for device, most in (("cpu", 100), ("cuda", 1000)):
        asked.clear()
        list(growth.grow(device, hidden=(), tasks=()))
        assert (asked[0], max(asked)) == (1, most)


def test_a_grid_and_as_many_seeds_are_trained_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[list[float], list[int]]] = []
    cold = [{"train": 90.0, "consolidate": 9.0}] * 2
    warm = [{"train": seconds, "consolidate": 1.0} for seconds in (2.0, 3.0, 9.0, 4.0, 8.0, 6.0)]
    times = iter(cold + warm)

    def fake(stream, asked, training):  # type: ignore[no-untyped-def]
        (each,) = asked
        trained.append(([method.parts[0].strength for method in each.methods], each.seeds))
        assert (training.iters, training.network.width, len(each.optimizers)) == (40, 8, len(each.seeds))
        return [Measured(torch.empty(0), torch.empty(0), [], seconds=next(times))]

    monkeypatch.setattr(grid, "stand_in", lambda samples: small())
    monkeypatch.setattr(grid, "train", fake)
    found = {beside.what: beside for beside in grid.bench_grid("cpu")}
    assert [len(set(strengths)) for strengths, _ in trained] == [14, 1, 1, 14] * 2, "neither is always the first"
    assert [seeds for _, seeds in trained[:2]] == [[1] * 14, list(range(1, 15))]
    assert trained[1][0][0] == 1e8, "the paper's"
    assert (found["train"].grid, found["train"].seeds) == (6, 4), "medians, the first of each left out"
    assert found["all"].ratio == 7 / 5


def test_a_grid_is_timed_with_all_that_happens_between_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "stand_in", lambda samples: small())
    found = grid.bench_grid("cpu", rounds=1, iters=2, strengths=(1.0, 10.0, 100.0))
    assert [beside.what for beside in found] == ["train", "consolidate", "evaluate", "all"]
    assert all(beside.grid > 0 and beside.seeds > 0 for beside in found)


def test_trainings_with_tests_and_without_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[bool] = []
    times = iter([90.0, 90.0, 3.0, 2.0, 4.0, 6.0])  # the first two are not counted

    def fake(stream, asked, training):  # type: ignore[no-untyped-def]
        trained.append(training.evaluation is not None and training.evaluation.every == 100)
        assert training.iters == 200
        return [Measured(torch.empty(0), torch.empty(0), [], seconds={"train": next(times), "evaluate": 1.0})]

    monkeypatch.setattr(evaluation, "stand_in", lambda samples: small())
    monkeypatch.setattr(evaluation, "train", fake)
    (found,) = evaluation.bench_evaluation("cpu", rounds=2, methods=("none",))
    assert trained == [False, True, True, False, False, True]
    assert (found.without, found.tested) == (4.0, 5.5), "medians of 3 and 5, of 4 and 7"
    assert found.row()["÷"] == 5.5 / 4


def test_what_tests_during_training_cost_is_measured_on_real_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "stand_in", lambda samples: small())
    found = list(evaluation.bench_evaluation("cpu", rounds=1, iters=2))
    assert [each.method for each in found] == ["none", "ewc", "lwf"]
    assert all(each.without > 0 and each.tested > 0 for each in found)


def test_where_a_step_goes_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "stand_in", lambda samples: small())
    found = {spent.method: spent for spent in profile.spent("cpu", Split, 2, ("none", "dgr"))}
    for spent in found.values():
        assert min(spent.products, spent.optimiser, spent.rest) > 0
        assert spent.whole == spent.products + spent.optimiser + spent.rest
    assert found["dgr"].kernels > 2 * found["none"].kernels


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", "products"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x256_16x4_nt_align4>", "products"),
        ("aten::bmm", "products"),
        ("_advance", "optimiser"),
        ("aten::_fused_adam_", "optimiser"),
        ("void at::native::reduce_kernel<128, 4>", "rest"),
        ("aten::addcmul_", "rest"),
    ],
)
def test_kernels_are_told_apart_by_their_names(kernel: str, kind: str) -> None:
    product, optimiser = bool(profile.PRODUCTS.search(kernel)), bool(profile.OPTIMISER.search(kernel))
    assert {"products": (True, False), "optimiser": (False, True), "rest": (False, False)}[kind] == (product, optimiser)


def test_cells_together_are_compared_with_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "load", lambda name: small())
    found = list(accuracy.compare("cpu", seeds=2, iters=3))
    assert [compared.method for compared in found] == [
        f"{method}, {scenario}"
        for method in ("dgr", "dgr-distill")
        for scenario in ("Task-IL", "Domain-IL", "Class-IL")
    ]
    assert all(compared.ways == "together / alone" and compared.identical for compared in found)
    assert all(compared.difference == compared.sem == 0 for compared in found)


def test_a_difference_is_that_of_the_last_averages_seed_by_seed() -> None:
    this = torch.tensor([[[50.0, 0.0], [10.0, 30.0]], [[50.0, 0.0], [40.0, 60.0]]])
    that = torch.tensor([[[50.0, 0.0], [10.0, 28.0]], [[50.0, 0.0], [40.0, 56.0]]])
    found = accuracy.Compared.of("a / b", "none", this, that)
    assert (found.this, found.that, found.difference) == (35, 33.5, 1.5)
    assert found.sem == pytest.approx(0.5)  # of 1 and 2
    assert not found.identical


def test_the_command_shows_the_ratio(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(bench, "bench_grid", lambda *given: asked.append(given) or [grid.GridTime("all", 3.0, 2.0)])
    ended = cli("bench", "grid", "--device", "cpu", "--stream", "permuted")
    assert (ended.status, asked) == (0, [("cpu", "fp32", Permuted, 3)])
    assert "1.50" in ended.out
    refused = cli("bench", "greed")
    assert (refused.status, refused.out) == (2, "")
    assert "greed" in refused.err


def test_the_command_shows_what_is_asked_for(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    least = floor_module.Floor(0.1, 0.2)
    shown = {
        "steps": ("bench_methods", steps.Cost("ewc", "Class-IL", 0.3, 0.15, least), ["0.30", "2.00", "1.50"]),
        "growth": ("grow", growth.Grown("tasks", 50, "ewc", 0.6, 0.2), ["tasks", "50", "3.00", "1000", "1.25", "2.50"]),
        "profile": ("spent", profile.Spent("si", 68, 0.1, 0.2, 0.4), ["68", "0.70", "0.40"]),
        "evaluation": ("bench_evaluation", evaluation.EvaluationTime("dgr", 4.0, 5.0), ["dgr", "4.00", "1.25"]),
        "accuracy": ("compare", accuracy.Compared("a / b", "si", 90.0, 89.5, 0.5, 0.25, False), ["+0.50 ± 0.25"]),
    }
    monkeypatch.setattr(bench, "bench", lambda *_, **__: [])
    for what, (function, found, wanted) in shown.items():
        monkeypatch.setattr(bench, function, lambda *_, found=found, **__: [found])
        monkeypatch.setattr(bench, "host_work", lambda *_: [growth.HostWork(1000, 1.25, 2.5)])
        ended = cli("bench", *([] if what == "steps" else [what]), "--device", "cpu")
        assert ended.status == 0, ended.err
        assert all(text in ended.out for text in wanted), ended.out
