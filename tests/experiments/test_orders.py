"""Orders: seeds of the tasks alone, each with every seed of everything else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import threefold
from threefold.errors import ThreefoldError
from threefold.experiments.command import run_command
from threefold.experiments.request import run_request
from threefold.experiments.seeds import seeds_in_orders
from threefold.results import Ordered, Store, in_spec, read_seed, seed_of, united

SHORT = {"iters": 6, "hidden": 16, "batch": 16, "device": "cpu"}


@pytest.fixture(scope="module")
def stream():
    source = torch.Generator().manual_seed(1)
    labels = torch.arange(240) % 6
    images = (torch.rand(6, 4, 4, generator=source)[labels] + torch.rand(240, 4, 4, generator=source)) / 2
    data = threefold.Dataset.from_arrays(images[:180], labels[:180], images[180:], labels[180:], name="dots")
    return threefold.Split(data, 3)


def trained(stream, method, store=None, **which):
    return threefold.run(stream, scenario="class", method=method, store=store, **SHORT, **which)


@pytest.mark.parametrize("method", ["none", "er:budget=12,use=both", "dgr"])
def test_a_seed_in_its_own_order_is_itself(stream, method):
    alone = trained(stream, method, seeds=[1, 4])
    crossed = trained(stream, method, seeds=[1, 4], orders=[4, 1])
    assert crossed.seeds == [Ordered(1, 4), Ordered(1, 1), Ordered(4, 4), Ordered(4, 1)]
    assert (crossed.matrix[1] == alone.matrix[0]).all()
    assert (crossed.matrix[2] == alone.matrix[1]).all()
    assert len({tuple(matrix.flatten()) for matrix in crossed.matrix}) == 4


def test_they_are_stored_found_again_and_compared_run_by_run(stream, tmp_path):
    store = tmp_path / "runs.db"
    first = trained(stream, "none", store, seeds=2, orders=3)
    again = trained(stream, "none", store, seeds=2, orders=3)
    assert [record.created for record in first.records] == [record.created for record in again.records]
    more = trained(stream, "none", store, seeds=2, orders=4)
    with Store(store, readonly=True) as opened:
        assert len(list(opened.all())) == 8
        (asked,) = opened.experiments().values()
    assert [read_seed(seed) for seed in asked["cells"][0]["seeds"]] == sorted(more.seeds)
    assert first.accuracy.seeds == tuple(first.seeds)


def test_the_command_of_a_product_names_both(stream):
    request = run_request(stream, ["class"], ["none"], 2, orders="5-7", settings=SHORT)
    (asked,) = request.asked
    assert run_command([asked.cell], asked.seeds).endswith(" --seeds 2 --orders 5-7")


@given(st.lists(st.integers(0, 9), unique=True, min_size=1), st.lists(st.integers(0, 9), unique=True, min_size=1))
def test_each_seed_comes_in_each_order_once(seeds, orders):
    every = seeds_in_orders(seeds, orders)
    assert sorted(every) == sorted((seed, order) for seed in seeds for order in orders)
    assert seeds_in_orders(seeds, None) == tuple(seeds)
    assert united(every, every[:2]) == sorted(every)
    assert set(united(every, seeds)) == {*every, *seeds}
    for seed in (*every, *seeds):
        assert seed_of({"stream": {}, **in_spec(seed)}) == seed


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        ("0", "orders is '0', which names no seed"),
        ("3-1", "orders is '3-1', which has a range that runs backwards"),
        ("x", "orders is 'x', which is none of the forms there are"),
        ([1, 1], r"orders is '\[1, 1\]', which names 1 twice"),
        (6000, "orders is '6000', which names more than 10000"),
    ],
)
def test_bad_orders_are_refused(stream, orders, said):
    with pytest.raises(ThreefoldError, match=said):
        run_request(stream, ["class"], ["none"], 2, orders=orders, settings=SHORT)


def test_orders_of_one_seed_are_drawn_beside_seeds_of_one_order(stream, tmp_path):
    """Whatever commands trained them, into one store."""
    from threefold.experiments import sections
    from threefold.report.charts import charts

    store = tmp_path / "runs.db"
    orders = trained(stream, "none", store, seeds=1, orders=3)
    with Store(store, readonly=True) as opened:
        assert charts(sections(opened)) == []
    seeds = trained(stream, "none", store, seeds=4, orders="1-1")
    with Store(store, readonly=True) as opened:
        ((_, chart),) = charts(sections(opened))
    one_seed, one_order = (line.values[0] for line in chart.panels[0].lines)
    assert sorted(one_seed.per_seed) == sorted(orders.accuracy.per_seed)
    assert sorted(one_order.per_seed) == sorted(seeds.accuracy.per_seed)
