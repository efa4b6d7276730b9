"""Every optimiser on a stack against PyTorch's own on one network at a time, in float64."""

from itertools import pairwise

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from threefold.engine import SGD, Adam, AdamW, find_optimizer, find_schedule
from threefold.engine.optimizer import Pull, WeightTerms
from threefold.engine.schedule import CONSTANT
from threefold.errors import ThreefoldError

SHAPES = [(4, 3), (4,), (2, 3, 2)]
TASKS, STEPS = 3, 8
CLOSE = 1e-12  # weights of size 1, twenty-four steps
KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}

ALIKE = {
    "plain sgd": ["sgd:lr=0.1"] * 3,
    "sgd with decay": ["sgd:lr=0.1,weight_decay=0.1"] * 3,
    "momentum": ["sgd:lr=0.05,momentum=0.9"] * 3,
    "nesterov": ["sgd:lr=0.05,momentum=0.9,nesterov=true,weight_decay=0.01"] * 3,
    "adam with decay": ["adam:lr=0.01,weight_decay=0.1"] * 3,
    "other betas": ["adam:lr=0.01,betas=0.8-0.95"] * 3,
    "adamw": ["adamw:lr=0.01"] * 3,
}
DIFFERENT = {
    "sgd": ["sgd:lr=0.1", "sgd:lr=0.01,momentum=0.9,weight_decay=0.1", "sgd:lr=0.05,momentum=0.5"],
    "nesterov": [
        "sgd:lr=0.1,momentum=0.2,nesterov=true",
        "sgd:lr=0.01,momentum=0.9,nesterov=true,weight_decay=0.3",
        "sgd:lr=0.1,momentum=0.5,nesterov=true",
    ],
    "adam": ["adam:lr=0.1", "adam:lr=0.01,weight_decay=1", "adam:lr=0.01,weight_decay=0.1"],
    "adamw": ["adamw:lr=0.1,weight_decay=0", "adamw:lr=0.01,weight_decay=1", "adamw:lr=0.03,weight_decay=0.5"],
}
EVERY = ALIKE | {f"{name} with numbers of each replica": each for name, each in DIFFERENT.items()}
SCHEDULES = {
    "constant": lambda optimizer: None,
    "cosine": lambda optimizer: CosineAnnealingLR(optimizer, STEPS),
    "step": lambda optimizer: MultiStepLR(optimizer, [STEPS // 2, 3 * STEPS // 4], gamma=0.1),
    "step:at=0.25-0.5-1,factor=0.5": lambda optimizer: MultiStepLR(optimizer, [STEPS // 4, STEPS // 2], gamma=0.5),
}


@pytest.fixture(autouse=True)
def _in_float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def draws(seed, *lead):
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(*lead, 3, *shape, generator=source) for shape in SHAPES]


def held(seed=3):
    """For every tensor a quadratic penalty, with a strength for each replica, and a path to add up."""
    strength = torch.tensor([0.5, 1.5, 0.1])
    anchors, precisions = draws(seed), draws(seed + 1)
    return [
        WeightTerms([Pull(strength.view(-1, *[1] * (anchor.dim() - 1)), anchor, its.abs())], [torch.zeros_like(anchor)])
        for anchor, its in zip(anchors, precisions, strict=True)
    ]


def in_stack(names, terms=None, schedule="constant"):
    """The weights after each task's steps, all replicas at once."""
    each = [find_optimizer(name) for name in names]
    params, grads = draws(1), draws(2, TASKS, STEPS)
    optimizer = each[0].stacked(params, each, find_schedule(schedule))
    ends = [[p.clone() for p in params]]
    for task in range(TASKS):
        optimizer.begin_task(task)
        for step in range(STEPS):
            optimizer.progress.fill_(step / STEPS)
            optimizer.step([g[task, step] for g in grads], terms)
        ends.append([p.clone() for p in params])
    return ends


def torchs(own, given):
    """PyTorch's optimiser for one network."""
    names = {"lr", "weight_decay", "betas", "momentum", "nesterov"} & type(given).model_fields.keys()
    return KINDS[given.name](own, foreach=False, **{name: getattr(given, name) for name in names})


def one_by_one(names, terms=None, scheduler=SCHEDULES["constant"]):
    """The same for one network after the other, and the sums of −Δθ · ∂L/∂θ: the penalty is left to autograd."""
    start, grads, ends, paths = draws(1), draws(2, TASKS, STEPS), [], []
    for replica, name in enumerate(names):
        given = find_optimizer(name)
        own = [torch.nn.Parameter(p[replica].clone()) for p in start]
        summed, mine = [torch.zeros_like(p) for p in own], [[p.detach().clone() for p in own]]
        for task in range(TASKS):
            if task == 0 or given.reset:
                optimizer = torchs(own, given)
            for group in optimizer.param_groups:
                group["lr"] = given.lr
                group.pop("initial_lr", None)
            rates = scheduler(optimizer)
            for step in range(STEPS):
                optimizer.zero_grad()
                loss = sum((p * g[task, step, replica]).sum() for p, g in zip(own, grads, strict=True))
                for p, also in zip(own, terms or [], strict=False):
                    strength, anchor, precision = (value[replica] for value in also.pulls[0])
                    loss = loss + 0.5 * (strength * precision * (p - anchor) ** 2).sum()
                loss.backward()
                before = [p.detach().clone() for p in own]
                optimizer.step()
                if rates:
                    rates.step()
                for total, p, old in zip(summed, own, before, strict=True):
                    total -= (p.detach() - old) * p.grad
            mine.append([p.detach().clone() for p in own])
        ends.append(mine)
        paths.append(summed)
    tasks = [[torch.stack(rows) for rows in zip(*task, strict=True)] for task in zip(*ends, strict=True)]
    return tasks, [torch.stack(rows) for rows in zip(*paths, strict=True)]


def furthest(one, other):
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


def agree(got, wanted):
    assert len(got) == len(wanted) == TASKS + 1
    for mine, its in zip(got, wanted, strict=True):
        assert furthest(mine, its) < CLOSE
    for before, after in pairwise(wanted):
        assert all((b - a).flatten(1).abs().amax(1).min() > 1e-4 for b, a in zip(before, after, strict=True))


@pytest.mark.parametrize("names", EVERY.values(), ids=EVERY)
def test_a_stack_moves_as_its_networks_would_by_themselves(names):
    agree(in_stack(names), one_by_one(names)[0])


@pytest.mark.parametrize("names", EVERY.values(), ids=EVERY)
def test_so_it_does_under_a_penalty_and_the_path_is_summed(names):
    """EWC's pull is the gradient at the weights before the step; SI's path is all that the step does to them."""
    terms = held()
    wanted, paths = one_by_one(names, held())
    agree(in_stack(names, terms), wanted)
    assert furthest([also.paths[0] for also in terms], paths) < CLOSE
    assert min(float(path.flatten(1).abs().amax(1).min()) for path in paths) > 1e-3
    assert furthest(wanted[-1], one_by_one(names)[0][-1]) > 1e-2  # the penalty mattered


@pytest.mark.parametrize("names", [ALIKE["nesterov"], *DIFFERENT.values()], ids=["alike", *DIFFERENT])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rates_follow_their_schedule_in_each_task_anew(names, schedule):
    wanted, _ = one_by_one(names, scheduler=SCHEDULES[schedule])
    agree(in_stack(names, schedule=schedule), wanted)
    if schedule != "constant":
        assert furthest(wanted[-1], one_by_one(names)[0][-1]) > 1e-3


@pytest.mark.parametrize("names", [ALIKE["momentum"], ALIKE["adamw"], *DIFFERENT.values()])
def test_a_fresh_state_at_each_task_is_a_fresh_optimiser(names):
    fresh = [f"{name},reset=true" for name in names]
    wanted, _ = one_by_one(fresh)
    agree(in_stack(fresh), wanted)
    assert furthest(wanted[-1], one_by_one(names)[0][-1]) > 1e-3


@pytest.mark.parametrize("names", EVERY.values(), ids=EVERY)
def test_a_restored_state_goes_on_as_if_nothing_had_happened(names):
    each, grads = [find_optimizer(name) for name in names], draws(2, 9)
    undisturbed, stopped = draws(1), draws(1)
    whole, first, second = (each[0].stacked(p, each, find_schedule("cosine")) for p in (undisturbed, stopped, stopped))

    def steps(optimizer, which):
        for step in which:
            optimizer.progress.fill_(step / 9)
            optimizer.step([g[step] for g in grads])

    steps(whole, range(9))
    steps(first, range(4))
    second.restore({name: [t.clone() for t in tensors] for name, tensors in first.state().items()})
    steps(second, range(4, 9))
    assert all(torch.equal(mine, its) for mine, its in zip(stopped, undisturbed, strict=True))


@pytest.mark.parametrize("names", [n for n in EVERY.values() if n[0].startswith("adam")])
def test_the_plain_operations_that_a_gpu_uses_come_to_the_same(names, monkeypatch):
    from threefold.engine.optimizer import StackedAdam

    wanted = in_stack(names, held(), "cosine")
    monkeypatch.setattr(StackedAdam, "_fused", StackedAdam._in_turn)
    found = in_stack(names, held(), "cosine")
    for mine, its in zip(found, wanted, strict=True):
        assert furthest(mine, its) < 1e-5  # its rates are in float32


def test_looking_ahead_needs_momentum():
    with pytest.raises(ThreefoldError, match=r"^hyperparameter nesterov of sgd is true, but momentum is 0"):
        SGD(lr=0.1, nesterov=True)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sgd:lr=0.1,momentum=0.9,nesterov=true", SGD(lr=0.1, momentum=0.9, nesterov=True)),
        ("adamw:lr=0.001,reset=true,betas=0.8-0.9", AdamW(lr=0.001, betas=(0.8, 0.9), reset=True)),
        ("adam:weight_decay=0.5", Adam(weight_decay=0.5)),
    ],
)
def test_an_optimiser_as_text_is_the_one_meant(text, meant):
    assert find_optimizer(text) == meant
    assert meant.written() == text


@pytest.mark.parametrize("numbers", [1, 10, 16, 33])
@pytest.mark.parametrize("kind", [Adam, AdamW, SGD])
def test_no_number_is_rounded_by_where_the_stack_ends(kind: type[Adam], numbers: int) -> None:
    """PyTorch's fused Adam computes what fills no vector of the processor in another way."""
    source = torch.Generator().manual_seed(0)
    high = [torch.randn(5, numbers, 2, generator=source), torch.randn(5, numbers, generator=source)]
    low = [param[3:].clone() for param in high]
    stacks = [
        (params, kind(lr=1e-3).stacked(params, [kind(lr=1e-3)] * len(params[0]), CONSTANT)) for params in (high, low)
    ]
    for _ in range(200):
        grads = [torch.randn(param.shape, generator=source) for param in high]
        for params, optimizer in stacks:
            optimizer.step([grad[-len(params[0]) :].clone() for grad in grads])
    for mine, its in zip(high, low, strict=True):
        assert torch.equal(mine[3:], its)
