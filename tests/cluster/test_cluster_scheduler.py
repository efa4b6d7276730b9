"""Cohorts on two Ray nodes: whatever happens to nodes, workers and drivers, the rows are those of a local run."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import two_nodes
from small_cells import measured, train_cells
from tiny_lab import Ended
from two_nodes import PATIENCE, SPEC, Fragile, Heard, Locked, Nodes, Scaled, arrays, cell, checkpoints, split, stored

from threefold import Split, Store, ThreefoldError
from threefold.cluster import connected
from threefold.experiments import Executor, Failed, Stopped
from threefold.experiments.status import Status
from threefold.results.cohort_table import given_up

PROGRAM = Path(sys.executable).parent / "threefold"
SEEDS = (1, 2)


@pytest.fixture(scope="module")
def small() -> Split:
    return split()


@pytest.fixture
def cluster(nodes: Nodes) -> Iterator[Executor]:
    with connected(nodes.address, "cpu") as cluster:
        yield cluster


def test_what_the_cluster_began_is_finished_here_and_the_other_way_round(
    cluster: Executor, small: Split, tmp_path: Path
) -> None:
    cells = [cell(small, "ewc:strength=100", iters=150)]
    undisturbed = measured(*train_cells(cells, (1,), None))
    for first, second in ((cluster, None), (None, cluster)):
        store = tmp_path / f"{second is None}.db"
        with pytest.raises(Stopped):
            train_cells(cells, (1,), store, None, lambda store=store: bool(checkpoints(store)), first)
        assert len(checkpoints(store)) == 1
        heard = Heard()
        assert measured(*train_cells(cells, (1,), store, heard, executor=second)) == undisturbed
        assert min(task for _, task in heard.words) > 0
        assert not Path(f"{store}.checkpoints").exists()


def test_a_cohort_is_cut_for_idle_cpus_and_goes_on_here_as_it_was_cut(
    cluster: Executor, small: Split, tmp_path: Path
) -> None:
    cells, store, heard = [cell(small, "none", iters=150)], tmp_path / "a.db", Heard()
    with pytest.raises(Stopped):
        train_cells(cells, (1, 2, 3, 4), store, heard, lambda: bool(checkpoints(store)), cluster)
    assert heard.cohorts == [2, 2]
    begun, here = {path.stem for path in checkpoints(store)}, Heard()
    (result,) = train_cells(cells, (1, 2, 3, 4), store, here)
    assert here.cohorts == [2, 2]
    assert all(task > 0 for name, task in here.words if name in begun), "from its checkpoint"
    assert begun <= {name for name, _ in here.words}
    (whole,) = train_cells(cells, (1, 2, 3, 4), None)
    np.testing.assert_allclose(result.matrix, whole.matrix, atol=2.6)  # one sample of 40 on the fence


def test_a_worker_that_dies_is_replaced(cluster: Executor, small: Split, tmp_path: Path, trouble: Path) -> None:
    cells, heard = [cell(small, Fragile(), iters=20)], Heard()
    undisturbed = measured(*train_cells(cells, (1,), None))
    trouble.write_text("death")
    assert measured(*train_cells(cells, (1,), tmp_path / "a.db", heard, executor=cluster)) == undisturbed
    assert len(heard.warnings) == 1


def test_three_failures_are_written_down_and_the_rest_goes_on(
    cluster: Executor, small: Split, tmp_path: Path, trouble: Path
) -> None:
    cells, store, heard = [cell(small, Fragile(), iters=20), cell(small, "none", iters=20)], tmp_path / "a.db", Heard()
    trouble.write_text("error")
    reason = "3 times, at last by ValueError: the second task is too much"
    with pytest.raises(Failed, match=rf"fragile ×2 failed \({reason}\); everything else is done; fix it "):
        train_cells(cells, SEEDS, store, heard, executor=cluster)
    assert len(heard.warnings) == 3
    assert heard.warnings[-1] == f"split-small Class-IL fragile ×2 failed: {reason}. The others go on."
    assert [row["spec"]["method"]["name"] for row in stored(store)] == ["none"] * 2
    with Store(store, readonly=True) as opened:
        assert [row.reason for row in given_up(opened)] == [reason]
    assert len(checkpoints(store)) == 1, "the first task is not lost"
    with Store(store, readonly=True) as opened:
        assert [line for line in Status.of(opened).lines() if line.startswith("failed: ") and line.endswith(reason)]
    trouble.unlink()
    assert len(train_cells(cells, SEEDS, store, executor=cluster)) == 2
    assert not Path(f"{store}.checkpoints").exists()


def test_a_worker_with_other_code_of_a_method_of_ones_own_is_refused(
    cluster: Executor, small: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers import the module as it is on the disk."""
    monkeypatch.setattr(two_nodes, "FACTOR", 2.0)
    cells = [cell(small, Scaled(), iters=10)]
    assert cells[0].spec()["method"]["code"], "known before it travels"
    with pytest.raises(Failed, match=r"scaled ×1 failed \(the worker has other code of a method of your own\)"):
        train_cells(cells, (1,), tmp_path / "a.db", executor=cluster)
    assert stored(tmp_path / "a.db") == []
    monkeypatch.undo()
    (result,) = train_cells([cell(small, Scaled(), iters=10)], (1,), tmp_path / "a.db", executor=cluster)
    assert [row["key"] for row in stored(tmp_path / "a.db")] == [record.key for record in result.records]


def test_what_no_key_covers_is_trained_there_and_not_stored(cluster: Executor, small: Split, tmp_path: Path) -> None:
    cells, heard = [cell(small, Locked(), iters=10)], Heard()
    (result,) = train_cells(cells, (1,), tmp_path / "a.db", heard, executor=cluster)
    assert measured(result)[0]["matrix"] == measured(*train_cells(cells, (1,)))[0]["matrix"]
    assert "Locked depends on a lock" in heard.warnings[0]
    assert (len(heard.warnings), stored(tmp_path / "a.db")) == (1, [])


def test_out_of_memory_halves(cluster: Executor, small: Split, tmp_path: Path, trouble: Path) -> None:
    cells, heard = [cell(small, Fragile(), iters=10), cell(small, "none", iters=10)], Heard()
    trouble.write_text("memory 1")
    train_cells(cells, SEEDS, tmp_path / "a.db", heard, executor=cluster)
    assert sorted(heard.cohorts) == [1, 1, 2, 2]
    assert heard.warnings == ["split-small Class-IL fragile ×2 does not fit into memory; it is trained in two halves."]
    trouble.write_text("memory 0")
    with pytest.raises(Failed, match=r"fragile does not fit into memory \(network mlp:width=8, batch 16\)"):
        train_cells(cells, (3,), tmp_path / "a.db", executor=cluster)


def test_a_node_with_another_version_is_left_out(nodes: Nodes, small: Split, tmp_path: Path) -> None:
    other = tmp_path / "other" / "threefold-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: threefold\nVersion: 9.9\n")
    node = nodes.add({"PYTHONPATH": f"{other.parent}:{os.environ['PYTHONPATH']}"})
    try:
        with connected(nodes.address, "cpu") as cluster:
            cells, heard = [cell(small, method, iters=150) for method in ("none", "offline", "si")], Heard()
            results = train_cells(cells, (1,), tmp_path / "a.db", heard, executor=cluster)
        assert measured(*results) == measured(*train_cells(cells, (1,), None))
        (warning,) = heard.warnings
        assert "has threefold 9.9, torch" in warning
        assert "but the driver has threefold " in warning
    finally:
        nodes.cluster.remove_node(node)


def test_where_no_node_has_our_version_nothing_is_trained(
    cluster: Executor, small: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threefold.cluster import worker

    ours = worker.versions()
    monkeypatch.setattr(worker, "versions", lambda: ours | {"torch": "1.0"})
    with pytest.raises(ThreefoldError, match=rf"has .*torch {ours['torch']}, but the driver has .*torch 1\.0; use"):
        train_cells([cell(small, "none", iters=20)], (1,), tmp_path / "a.db", executor=cluster)
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1.5, 3.0])
def test_a_share_that_cannot_be(nodes: Nodes, wrong: float) -> None:
    with pytest.raises(ThreefoldError, match=rf"^per-cohort (must be .*, got {wrong:g}|is {wrong:g}, but no node of)"):  # noqa: SIM117
        with connected(nodes.address, "cpu", wrong):
            pass


def test_a_gpu_that_is_not_there(nodes: Nodes) -> None:
    with pytest.raises(ThreefoldError, match=r"device is 'cuda', but no node of the cluster has a GPU"):  # noqa: SIM117
        with connected(nodes.address, "cuda"):
            pass


def test_shares_of_a_cpu_make_room_for_more(nodes: Nodes) -> None:
    with connected(nodes.address, "cpu", 0.5) as cluster:
        assert (cluster.room(), cluster.cuda) == (4, False)
    with connected(nodes.address) as cluster:
        assert (cluster.room(), cluster.idle(), cluster.cuda) == (2, 2, False)


def test_gpus_bring_their_part_of_the_cores(nodes: Nodes) -> None:
    node = nodes.cluster.add_node(num_cpus=16, num_gpus=4, object_store_memory=80 << 20)
    nodes.cluster.wait_for_nodes()
    try:
        with connected(nodes.address) as cluster:
            assert (cluster.cuda, cluster.room(), cluster.need) == (True, 4, {"CPU": 4, "GPU": 1})
        with connected(nodes.address, "cuda", 0.5) as cluster:
            assert (cluster.room(), cluster.need) == (8, {"CPU": 2, "GPU": 0.5})
    finally:
        nodes.cluster.remove_node(node)


def test_nobody_gets_in_without_the_token(nodes: Nodes) -> None:
    code = f"from threefold.cluster import connected\nwith connected('{nodes.address}'): pass"
    environment = {**os.environ, "RAY_AUTH_TOKEN": "f" * 64}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert re.search(r"ThreefoldError: cluster '.*' cannot be reached .* with its token", ended.stderr)
    assert "InvalidAuthToken" in ended.stderr


def test_the_driver_is_killed_and_the_same_command_goes_on(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Ended]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("small.npz", **arrays())
    Path("small.toml").write_text(SPEC)
    words = ["experiment", "small.toml", "--device", "cpu", "--store"]
    on_cluster = [PROGRAM, *words, "cluster.db", "--cluster", nodes.address]
    driver = subprocess.Popen(on_cluster, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    while not checkpoints(tmp_path / "cluster.db"):
        assert driver.poll() is None, driver.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    driver.kill()
    driver.communicate()
    assert checkpoints(tmp_path / "cluster.db")
    nodes.wait_until_idle()
    ended = cli(*on_cluster[1:])
    assert (ended.status, ended.err) == (0, "")
    assert "4 runs in 2 cells" in ended.out
    assert cli(*words, "local.db").status == 0
    assert stored(tmp_path / "cluster.db") == stored(tmp_path / "local.db")
    assert not Path("cluster.db.checkpoints").exists()


def test_a_node_killed_half_way_changes_no_bit(nodes: Nodes, cluster: Executor, tmp_path: Path) -> None:
    cells = [cell(split(tasks=6), method, iters=100) for method in ("none", "ewc:strength=100", "er:budget=20")]
    store, heard, begun = tmp_path / "cluster.db", Heard(), set[str]()

    def kill_when_both_have_finished_a_task() -> bool:
        there = {path.stem for path in checkpoints(store)}
        if not begun and (len(there) == 2 or (there and len(heard.cohorts) == 3)):
            begun.update(there)
            nodes.kill_the_second()
        return False

    results = train_cells(cells, SEEDS, store, heard, kill_when_both_have_finished_a_task, cluster)
    assert begun
    (warning,) = heard.warnings
    assert " ×2 is begun again from its last finished task: " in warning
    after = heard.words[heard.words.index(warning) + 1 :]
    assert all(task > 0 for name, task in after if name in begun)
    assert measured(*results) == measured(*train_cells(cells, SEEDS, tmp_path / "local.db"))
    assert stored(store) == stored(tmp_path / "local.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.db", "local.db"]
