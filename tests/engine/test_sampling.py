"""Which samples and which random numbers reach which step."""

from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_cohorts import STREAMS, cohort, copied, replicas, same_bits, same_measured, training_of, watched
from torch.utils._pytree import tree_leaves

from threefold.engine import sampling
from threefold.engine.batches import Batches, Passes
from threefold.engine.sampling import Prefetch, Sampler
from threefold.engine.sharing import Stacks
from threefold.errors import ThreefoldError
from threefold.methods import Noise, Offline, Part, Samples, Uniform
from threefold.randomness import generator

# passes over one set of data


def drawn(size, steps, batch, seed=0, cuts=()):
    """Steps × batch, taken at once or in several pieces."""
    passes, source = Passes(size, batch), torch.Generator().manual_seed(seed)
    ends = [*cuts, steps]
    return torch.cat([passes.take(end - start, source) for start, end in zip([0, *cuts], ends, strict=True)])


shapes = st.integers(1, 40).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, 30), st.integers(1, size)))


@given(shapes, st.integers(0, 1000), st.lists(st.integers(1, 29), max_size=4))
def test_a_pass_repeats_no_sample_and_drops_its_incomplete_batch(shape, seed, cuts):
    """Wherever it is cut, even in the middle of a pass; and the pieces are those of one piece."""
    size, steps, batch = shape
    rows = drawn(size, steps, batch, seed, sorted({cut for cut in cuts if cut < steps}))
    assert torch.equal(rows, drawn(size, steps, batch, seed))
    assert rows.shape == (steps, batch)
    whole = size // batch
    for start in range(0, steps, whole):
        one_pass = rows[start : start + whole].flatten().tolist()
        assert len(set(one_pass)) == len(one_pass)
        assert set(one_pass) <= set(range(size))


def test_a_pass_whose_batches_are_all_whole_sees_every_sample_once_in_a_new_order():
    rows = drawn(24, 30, 8)
    orders = [rows[start : start + 3].flatten().tolist() for start in range(0, 30, 3)]
    assert all(sorted(order) == list(range(24)) for order in orders)
    assert len({tuple(order) for order in [*orders, range(24)]}) == 11


def test_the_samples_that_are_dropped_are_not_always_the_same():
    """10 samples, batches of 6: four are left out of each pass; over 100 passes each sample is seen about 60 times."""
    counts = Counter(drawn(10, 100, 6).flatten().tolist())
    assert set(counts) == set(range(10))
    assert min(counts.values()) > 35  # five standard deviations below 60


# the data of several tasks

POOL = [(0, torch.arange(100, 117)), (1, torch.arange(200, 223)), (3, torch.arange(300, 312))]
HOME = {number: set(indices.tolist()) for number, indices in POOL}
subsets = st.integers(1, 3).map(lambda k: POOL[:k])


def batches(pool, seed, task, steps, batch, equally, cut=None):
    """Samples of these steps; `cut`: taken in chunks of so many."""
    order = Batches(pool, seed, task, batch, shared_equally=equally)
    sizes = [cut] * (steps // cut) + [steps % cut] if cut else [steps]
    taken = [order.take(size) for size in sizes if size]
    tasks = [samples.task.expand_as(samples.indices) for samples in taken]
    return Samples(torch.cat([samples.indices for samples in taken]), torch.cat(tasks))


cuts = st.one_of(st.none(), st.integers(1, 7))


@given(subsets, st.integers(1, 12), st.integers(1, 20), st.integers(0, 50), st.booleans(), cuts)
def test_a_sample_is_always_drawn_as_one_of_its_own_task(pool, batch, steps, seed, equally, cut):
    samples = batches(pool, seed, 2, steps, batch, equally, cut)
    assert samples.indices.shape == (steps, batch)
    for index, number in zip(samples.indices.flatten().tolist(), samples.task.flatten().tolist(), strict=True):
        assert index in HOME[number]


@given(subsets, st.integers(1, 12), st.integers(1, 20), st.integers(0, 50), cuts)
def test_shares_of_a_batch_and_of_all_batches_differ_by_one_at_most(pool, batch, steps, seed, cut):
    tasks = batches(pool, seed, 2, steps, batch, True, cut).task.tolist()
    for row in [*tasks, [task for each in tasks for task in each]]:
        counts = [row.count(number) for number, _ in pool]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("cut", [None, 5, 1])
def test_each_tasks_share_goes_through_its_data_in_passes(cut):
    samples = batches(POOL, 1, 2, 12, 9, True, cut)  # three samples of each task at each step
    for number, indices in POOL:
        own = samples.indices[samples.task == number].tolist()
        assert len(own) == 12 * 3
        for start in range(0, len(own), len(indices)):
            one_pass = own[start : start + len(indices)]
            assert len(set(one_pass)) == len(one_pass)


@given(st.integers(1, 30), st.integers(1, 52), st.integers(0, 50), cuts)
def test_a_pool_that_is_not_shared_is_one_set_of_data(steps, batch, seed, cut):
    samples = batches(POOL, seed, 2, steps, batch, False, cut)
    whole = 52 // batch
    for start in range(0, steps, whole):
        indices = samples.indices[start : start + whole].flatten().tolist()
        assert len(set(indices)) == len(indices)
        if whole * batch == 52 and start + whole <= steps:
            assert set(indices) == HOME[0] | HOME[1] | HOME[3]


def test_the_same_sample_as_part_of_two_tasks_is_two_samples():
    """Permuted: all tasks index the same images."""
    everything = torch.arange(10)
    samples = batches([(0, everything), (1, everything)], 1, 1, 4, 5, False)
    pairs = list(zip(samples.indices.flatten().tolist(), samples.task.flatten().tolist(), strict=True))
    assert sorted(pairs) == sorted((n, task) for n in range(10) for task in (0, 1))


@pytest.mark.parametrize("equally", [True, False])
@pytest.mark.parametrize("pool", [POOL[:1], POOL], ids=["one task", "three tasks"])
def test_batches_are_addressed_by_seed_and_task(pool, equally):
    draws = [
        batches(pool, seed, task, 10, 6, equally).indices.tolist() for seed, task in ((1, 0), (1, 0), (2, 0), (1, 1))
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert draws[0] != draws[3]


# a task in chunks


class Wishes(Part):
    """Asks for everything that can be drawn, and remembers how."""

    name = "wishes"

    def draws(self, setting, task, memory, steps, source):
        ASKED.append((task, steps, source.initial_seed()))
        indices = torch.randint(50, (steps, 3), generator=source)
        return {"some": Samples(indices, torch.tensor(task)), "noise": Noise((2, 3)), "chance": Uniform((4,))}


ASKED = []
SEEDS, CHUNK = [3, 1], 3


def stack_of(method, scenario="class", task=0):
    (stack,) = Stacks(STREAMS["split"], [replicas(scenario, method, SEEDS)], training_of(iters=1)).trained
    while stack.task < task:
        stack.consolidate()
        stack.begin_task(stack.task + 1)
    return stack


def sampler_of(stack, steps):
    return Sampler(stack, training_of(iters=steps))


def steps_of(sampler, steps):
    """What each step works on, looked up by a number and by a tensor alike."""
    for step in range(steps):
        sampler.prepare(step)
        found, by_tensor = sampler.at(step), sampler.at(torch.tensor(step))
        assert same_bits(found, by_tensor)
        yield copied(found)


@pytest.fixture
def _chunks(monkeypatch):
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", CHUNK)


METHODS = ["none", "offline", "er:budget=30", "a-gem:budget=30", "icarl:budget=30", "dgr", Wishes()]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_first_chunk_of_a_long_task_is_what_a_short_task_draws(method, monkeypatch):
    stack = stack_of(method, task=1)
    short = list(steps_of(sampler_of(stack, CHUNK), CHUNK))
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", CHUNK)
    sampler = sampler_of(stack, 3 * CHUNK)
    before = [leaf.data_ptr() for leaf in tree_leaves((sampler.current, sampler.samples))]
    long = list(steps_of(sampler, 3 * CHUNK))
    assert same_bits(long[:CHUNK], short)
    for other in (long[CHUNK : 2 * CHUNK], long[2 * CHUNK :]):
        assert not same_bits(other, short)
    assert [leaf.data_ptr() for leaf in tree_leaves((sampler.current, sampler.samples))] == before


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("method", ["none", "offline", "icarl:budget=30"])
def test_no_sample_comes_twice_in_a_pass_that_goes_on_over_chunks(method):
    stack = stack_of(method, task=1)
    found = [batch for batch, _ in steps_of(sampler_of(stack, 23), 23)]
    for replica in range(len(SEEDS)):
        pool = sampling._pool(stack, replica) or [(1, stack.data.sequences[replica][1].train)]
        whole = sum(len(indices) for _, indices in pool) // 16
        assert 1 < whole < 23
        for start in range(0, 23, whole):
            rows = found[start : start + whole]
            pairs = [p for b in rows for p in zip(b.indices[replica].tolist(), b.task[replica].tolist(), strict=True)]
            assert len(set(pairs)) == len(pairs)


@pytest.mark.usefixtures("_chunks")
def test_memory_does_not_grow_with_the_length_of_a_task():
    stack = stack_of(Wishes())

    def size(steps):
        sampler = sampler_of(stack, steps)
        for step in range(3 * CHUNK):
            sampler.prepare(step)
        leaves = tree_leaves((sampler.current, sampler.samples, sampler._noise))
        return sum(leaf.untyped_storage().nbytes() for leaf in leaves)

    assert size(3 * CHUNK) == size(10**6)


@pytest.mark.usefixtures("_chunks")
def test_the_tensors_of_one_task_take_in_the_next(monkeypatch):
    """As a captured graph needs it, which knows tensors by their places; chunk after chunk."""
    monkeypatch.setattr(sampling, "NOISE_AT_ONCE", 4)
    stack = stack_of(Wishes())
    first = sampler_of(stack, 13)
    list(steps_of(first, 13))
    places = [leaf.data_ptr() for leaf in tree_leaves((first.current, first.samples, first._noise))]
    stack.begin_task(1)
    wanted = list(steps_of(sampler_of(stack, 13), 13))
    assert first.replaced_by(sampler_of(stack, 13))
    assert same_bits(list(steps_of(first, 13)), wanted)
    assert [leaf.data_ptr() for leaf in tree_leaves((first.current, first.samples, first._noise))] == places
    assert not first.replaced_by(sampler_of(stack, 12))
    assert not first.replaced_by(sampler_of(stack_of("none"), 13))


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("method", ["none", "offline", "er:budget=30,use=both", "dgr"])
def test_a_run_whose_tasks_have_several_chunks_trains_and_resumes(method, tmp_path):
    whole = watched("split", "class", SEEDS, method=method, iters=12)
    short = watched("split", "class", SEEDS, method=method, iters=CHUNK)
    per_step = 2 if "er" in method else 1  # what is stored is a batch of its own, from the second task on
    for (_, *mine), (_, *its) in zip(whole.batches[:CHUNK], short.batches[:CHUNK], strict=True):
        assert same_bits(mine, its)
    assert len(whole.batches) == 12 * (1 + 2 * per_step)

    def stop(progress):
        if progress.step == 12 + 10:
            raise KeyboardInterrupt

    run = {"method": method, "iters": 12, "checkpoint": tmp_path / "c.pt"}
    with pytest.raises(KeyboardInterrupt):
        cohort("split", "class", SEEDS, report=stop, **run)
    again = watched("split", "class", SEEDS, **run)
    assert same_measured(again.measured, whole.measured)
    assert same_bits(again.states[-1], whole.states[-1])


# what parts ask for


def test_draws_are_addressed_by_seed_part_task_and_chunk(monkeypatch):
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", CHUNK)
    stack = stack_of(Wishes(), task=1)
    ASKED.clear()
    list(steps_of(sampler_of(stack, 8), 8))
    where = [(1,), (1, 1), (1, 2)]
    wanted = [(1, CHUNK, generator(seed, "wishes replay", *at).initial_seed()) for at in where for seed in SEEDS]
    assert sorted(ASKED) == sorted(wanted)


@pytest.mark.parametrize(("name", "shape", "draw"), [("noise", (2, 3), torch.randn), ("chance", (4,), torch.rand)])
def test_noise_is_that_of_its_address(name, shape, draw, monkeypatch):
    monkeypatch.setattr(sampling, "NOISE_AT_ONCE", 4)
    stack = stack_of(Wishes(), task=1)
    for step, (_, found) in enumerate(steps_of(sampler_of(stack, 10), 10)):
        for replica, seed in enumerate(SEEDS):
            whole = draw(4, *shape, generator=generator(seed, name, 1, step // 4))
            assert torch.equal(found[name][replica], whole[step % 4])
            assert name == "noise" or ((whole >= 0) & (whole < 1)).all()


def test_samples_that_are_asked_for_come_as_a_batch():
    stack = stack_of(Wishes(), task=1)
    for step, (_, found) in enumerate(steps_of(sampler_of(stack, 4), 4)):
        for replica, seed in enumerate(SEEDS):
            indices = torch.randint(50, (4, 3), generator=generator(seed, "wishes replay", 1))[step]
            assert torch.equal(found["some"].indices[replica], indices)
            assert torch.equal(found["some"].x[replica], STREAMS["split"].data.train_x.unsqueeze(1)[indices])
            assert (found["some"].task == 1).all()


def test_two_parts_may_not_draw_under_one_name():
    class Same(Wishes):
        name = "same"

    with pytest.raises(ThreefoldError, match="draws of same gives 'chance', a name that another part has taken"):
        cohort("split", "class", [1, 2], method=Wishes() + Same())


# the next task's batches, drawn beside this task's training


@pytest.fixture
def ready(monkeypatch):
    """(task, was it drawn before?) of every stack, in turn; on a CPU nothing is, unless cores are called idle."""
    found, take = [], Prefetch.take

    def told(self, stack):
        got = take(self, stack)
        found.append((stack.task, got is not None))
        return got

    monkeypatch.setattr(Prefetch, "take", told)
    return found


PREFETCHED = ["none", "offline", "ewc:strength={}", "lwf", "dgr", "er:budget=30"]


@pytest.mark.parametrize("chunk", [5000, 4])
@pytest.mark.parametrize(
    ("method", "scenario"), [*product(PREFETCHED, ["task", "class"]), ("icarl:budget=30", "class")]
)
def test_what_is_drawn_before_is_what_would_have_been_drawn(method, scenario, chunk, ready, monkeypatch):
    """Where strengths differ, two networks of a seed have the same batches."""
    monkeypatch.setattr(sampling, "STEPS_AT_ONCE", chunk)
    methods = [method.format(strength) for strength in (50, 50, 70)]
    plain = cohort("split", scenario, [1, 2, 2], method=methods, iters=6)
    assert not any(before for _, before in ready)
    ready.clear()
    monkeypatch.setattr(sampling, "_idle_cores", lambda stack: True)
    again = cohort("split", scenario, [1, 2, 2], method=methods, iters=6)
    assert same_measured(plain, again)
    own_data = not method.startswith(("icarl", "offline"))  # the others are not known before the task begins
    assert ready == [(0, False), (1, own_data), (2, own_data)]


def test_what_cannot_be_drawn_is_an_error_where_it_is_needed(ready, monkeypatch):
    class Stubborn(Offline):
        name = "stubborn"

        def data(self, tasks, task, memory):
            if task == 2:
                raise ValueError("no data today")
            return super().data(tasks, task, memory)

    monkeypatch.setattr(sampling, "_idle_cores", lambda stack: True)
    with pytest.raises(ValueError, match="no data today"):
        cohort("split", "class", [1], method=Stubborn())
    assert [task for task, _ in ready] == [0, 1]
