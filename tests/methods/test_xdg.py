"""Context-dependent gating: which units are gated in which task, and that a gated unit has no effect (section 3.1)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_network import competing, logits
from tiny_cohorts import copied, method_of, of
from tiny_stack import SEEDS, STREAMS, TinyStack, setting_of

import threefold
from threefold.errors import ThreefoldError
from threefold.methods import METHODS, XdG

INTO, BIAS = "features.layers.{}.weighted.weight", "features.layers.{}.shift.bias"


def tables(share, seeds=SEEDS, hidden=16):
    """Gates, layers first: replicas × tasks × units."""
    return TinyStack("split", "task", [f"xdg:share={share}"] * len(seeds), seeds=seeds, hidden=hidden).memory("xdg")[
        "gates"
    ]


# which units


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 0.9375])
def test_the_share_of_every_layer_is_gated_in_every_task(share):
    for gates in tables(share):
        assert gates.shape == (3, 3, 16)
        assert set(gates.unique().tolist()) <= {0.0, 1.0}
        assert ((gates == 0).sum(-1) == 16 * share).all()


def test_shares_may_differ_in_a_cohort():
    shares = [0.25, 0.5, 0.875]
    tiny = TinyStack("split", "task", [f"xdg:share={s}" for s in shares], hidden=16)
    for gates in tiny.memory("xdg")["gates"]:
        for replica, share in enumerate(shares):
            assert ((gates[replica] == 0).sum(-1) == 16 * share).all()


def gated(share, hidden):
    memory = XdG(share=share).start(setting_of("task", hidden=hidden), 0, {})
    return [(gates == 0).sum(-1).tolist() for gates in memory["gates"]]


@pytest.mark.parametrize(("hidden", "step"), [(400, 0.05), (1000, 0.1)])
def test_the_papers_grids_gate_whole_numbers_of_units(hidden, step):
    """Figures D.1 and D.2: shares as one would write them."""
    for k in range(round(0.95 / step) + 1):
        share = float(f"{k * step:.2f}")
        assert gated(share, hidden) == [[round(share * hidden)] * 3] * 2


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 1000).flatmap(lambda hidden: st.tuples(st.integers(0, hidden - 1), st.just(hidden))))
def test_a_share_of_k_in_n_units_gates_k(case):
    """Whatever k / n rounds to: 0.29 of 100 units is 29."""
    units, hidden = case
    assert gated(units / hidden, hidden) == [[units] * 3] * 2


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 500))
def test_a_share_below_one_leaves_a_unit_open(share, hidden):
    """A layer with every gate closed computes nothing: 0.95 of 8 units is 7."""
    for counts in gated(share, hidden):
        assert len(set(counts)) == 1
        assert counts[0] < hidden
        assert abs(counts[0] - share * hidden) <= 1


def test_gates_are_drawn_for_each_task_replica_and_layer():
    first, second = tables(0.5, seeds=range(8))
    rows = [tuple(row.tolist()) for gates in (first, second) for row in gates.flatten(0, 1)]
    assert len(rows) == 2 * 8 * 3
    assert len(set(rows)) > 45  # of 12,870 that are possible


def test_every_unit_is_gated_as_often_as_any_other():
    counts = sum((gates == 0).sum((0, 1)) for gates in tables(0.25, seeds=range(100)))
    assert abs(counts - 150).max() < 5 * (600 * 0.25 * 0.75) ** 0.5  # 600 draws of a quarter


def test_gates_depend_on_the_seed_alone():
    together = tables(0.5, seeds=[5, 2, 9])
    alone = tables(0.5, seeds=[9])
    assert all(torch.equal(a[0], b[2]) for a, b in zip(alone, together, strict=True))
    beside = TinyStack("split", "task", "ewc:strength=1+xdg:share=0.5", seeds=[9], hidden=16).memory("xdg")["gates"]
    hidden = TinyStack("split", "hidden", "xdg:share=0.5", seeds=[9], hidden=16).memory("xdg")["gates"]
    for other in (beside, hidden):
        assert all(torch.equal(a, b) for a, b in zip(alone, other, strict=True))


def test_a_smaller_share_gates_some_of_the_same_units():
    for few, many in zip(tables(0.25), tables(0.5), strict=True):
        assert (few >= many).all()


# no leak


METHODS_BESIDE = ["", "+ewc:strength=10", "+si:strength=1", "+lwf", "+dgr-distill", "+er:budget=20", "+a-gem:budget=20"]


@pytest.mark.parametrize("scenario", ["task", "hidden"])
@pytest.mark.parametrize("beside", METHODS_BESIDE)
def test_training_a_task_leaves_all_weights_of_its_gated_units_as_they_were(beside, scenario):
    tiny = TinyStack("split", scenario, f"xdg:share=0.5{beside}", hidden=12)
    first = copied(tiny.params["classifier"])
    tiny.train(8)
    after = tiny.params["classifier"]
    for replica in range(3):
        closed = [gates == 0 for gates in tiny.gates(replica, 0)]
        for depth, shut in enumerate(closed):
            out = INTO.format(1) if depth == 0 else "output.weighted.weight"
            for name, mine in ((INTO.format(depth), shut), (BIAS.format(depth), shut), (out, (slice(None), shut))):
                assert torch.equal(after[name][replica][mine], first[name][replica][mine])
            assert (after[INTO.format(depth)][replica][~shut] != first[INTO.format(depth)][replica][~shut]).any()


def test_units_that_every_task_so_far_has_gated_never_learn():
    tiny = TinyStack("split", "task", "xdg:share=0.5", hidden=12, seeds=range(4))
    first = copied(tiny.params["classifier"])
    tiny.reach(1)
    tiny.train(8)
    found = 0
    for replica in range(4):
        for depth in range(2):
            shut = torch.stack([tiny.gates(replica, task)[depth] for task in range(2)]).sum(0) == 0
            found += int(shut.sum())
            for name in (INTO, BIAS):
                now, then = tiny.params["classifier"][name.format(depth)][replica], first[name.format(depth)][replica]
                assert torch.equal(now[shut], then[shut])
    assert found > 5


def test_gates_on_the_input_leave_the_bias_in():
    """Weights into a gated unit do not learn; its bias still counts, so bias and outgoing weights do."""
    tiny = TinyStack("split", "task", "xdg:share=0.5,gate_on=input", hidden=12)
    first = copied(tiny.params["classifier"])
    tiny.train(8)
    learned = 0
    for replica in range(3):
        for depth, gates in enumerate(tiny.gates(replica, 0)):
            now, then = of(tiny.params["classifier"], replica), of(first, replica)
            assert torch.equal(now[INTO.format(depth)][gates == 0], then[INTO.format(depth)][gates == 0])
            moved = now[BIAS.format(depth)] != then[BIAS.format(depth)]
            alive = (gates == 0) & (then[BIAS.format(depth)] > 0)  # relu(bias) is above zero
            learned += int(moved[alive].sum())
            assert not moved[(gates == 0) & (then[BIAS.format(depth)] <= 0)].any()
    assert learned > 0


@pytest.mark.parametrize("gate_on", ["activation", "input"])
@pytest.mark.parametrize("scenario", ["task", "hidden"])
@pytest.mark.parametrize("kind", ["split", "permuted"])
def test_at_test_time_every_task_is_seen_through_its_own_gates(kind, scenario, gate_on):
    tiny = TinyStack(kind, scenario, f"xdg:share=0.5,gate_on={gate_on}", hidden=12).reach(2)
    outputs, differs = tiny.stack.setting.outputs, 0
    source = torch.Generator().manual_seed(0)
    x = 5 * torch.randn(3, 30, tiny.stack.setting.inputs, generator=source)
    for task in range(3):
        with torch.no_grad():
            predicted = tiny.stack.predict(x, torch.tensor(task), outputs.at_test(task, 3))
        units = competing(scenario, task, 3, tiny.classes)
        for replica in range(3):
            params = of(tiny.params["classifier"], replica)
            scores = logits(params, x[replica], tiny.gates(replica, task), gate_on)[:, units]
            assert predicted[replica].tolist() == [units[place] for place in scores.argmax(-1).tolist()]
            others = logits(params, x[replica], tiny.gates(replica, (task + 1) % 3), gate_on)[:, units]
            differs += int((others.argmax(-1) != scores.argmax(-1)).sum())
    assert differs > 0


def test_one_batch_may_hold_samples_of_several_tasks():
    tiny = TinyStack("split", "task", "xdg:share=0.5", hidden=12)
    x = torch.rand(3, 9, 16, generator=torch.Generator().manual_seed(0))
    task = torch.arange(9).remainder(3).expand(3, -1)
    with torch.no_grad():
        got = tiny.stack.map(lambda learner, x, task: learner.logits(x, task), x, task)
    for replica in range(3):
        for row in range(9):
            one = logits(of(tiny.params["classifier"], replica), x[replica, row], tiny.gates(replica, row % 3))
            assert torch.allclose(got[replica, row], one, atol=1e-12)


# where it can be used


def test_hidden_means_one_head_for_all_tasks():
    assert TinyStack("split", "hidden", "xdg:share=0.5").stack.setting.outputs.units == 2
    assert TinyStack("split", "task", "xdg:share=0.5").stack.setting.outputs.units == 6


@pytest.mark.parametrize("method", ["xdg:share=0.5", "ewc:strength=1+xdg:share=0.5", "xdg:share=0.5+dgr-distill"])
@pytest.mark.parametrize(("scenario", "title"), [("domain", "Domain-IL"), ("class", "Class-IL")])
def test_where_the_task_is_not_given_it_is_refused_with_the_reason(method, scenario, title):
    reason = method_of(method).refuse(setting_of(scenario))
    assert "task must be given at test time" in reason
    assert f"in {title} it is not" in reason
    with pytest.raises(ThreefoldError, match=r"XdG .* task must be given at test time"):
        threefold.run(STREAMS["split"], scenario=scenario, method=method, seeds=1, store=None, iters=1)


@pytest.mark.parametrize(
    "name", [name for name in METHODS if name not in ("none", "xdg", "icarl", "generative-classifier")]
)
@pytest.mark.parametrize("scenario", ["task", "hidden"])
def test_in_task_il_it_joins_every_method(name, scenario):
    numbers = {"ewc": ":strength=1", "online-ewc": ":strength=1,decay=0.9", "si": ":strength=1"}
    method = f"{name}{numbers.get(name, '')}+xdg:share=0.5"
    assert method_of(method).refuse(setting_of(scenario)) is None
    tiny = TinyStack("split", scenario, method).reach(2)
    tiny.train(2)
    assert all(p.isfinite().all() for p in tiny.params["classifier"].values())


def test_a_share_of_all_units_or_less_than_none_is_refused():
    for share in ("1", "1.5", "-0.1", "nan", "some"):
        with pytest.raises(ThreefoldError, match="share of xdg"):
            method_of(f"xdg:share={share}")
