"""The Fisher diagonal of any layer against its definition: one sample, one label, one call of autograd at a time."""

from dataclasses import replace

import pytest
import torch
from plain_network import competing, log_chance, target
from test_fisher import LABELS
from tiny_cohorts import copied, of
from tiny_stack import TinyStack, near
from torch import nn
from torch.func import functional_call

from threefold.data import Dataset
from threefold.methods.fisher import fisher_diagonal
from threefold.randomness import generator
from threefold.streams import Split


def images():
    """3×8×8 images of six classes, which differ in the number of samples."""
    source = torch.Generator().manual_seed(0)
    y = torch.repeat_interleave(torch.arange(6), torch.tensor([4, 5, 6, 4, 7, 5]))
    x = torch.rand(len(y), 3, 8, 8, generator=source)
    data = Dataset.from_arrays(x, y, x, y, name="small")
    return Split(replace(data, train_x=data.train_x.double(), test_x=data.test_x.double()), 3)


class Tokens(nn.Module):
    """Linear layers on tokens, of which each sample has 24."""

    def __init__(self, setting):
        super().__init__()
        self.embed, self.norm, self.mix = nn.Linear(8, 5), nn.LayerNorm(5), nn.Linear(5, 4, bias=False)
        self.output = nn.Linear(4, setting.units)

    def forward(self, x):
        h = torch.relu(self.norm(self.embed(x.flatten(1, 2))))
        return self.output(torch.tanh(self.mix(h)).mean(1))


class Standardized(nn.Conv2d):
    """A convolution whose weights are standardised on their way: no product gives their gradient."""

    def forward(self, x):
        w = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        w = w / (w.std((1, 2, 3), keepdim=True) + 1e-3)
        return nn.functional.conv2d(x, w, self.bias, self.stride, self.padding)


class Odd(nn.Module):
    """Layers whose gradient is not the product of the plain ones."""

    def __init__(self, setting):
        super().__init__()
        self.standard = Standardized(3, 4, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(4, 4, 3, groups=2, padding=1)
        self.same = nn.Conv2d(4, 4, 3, padding="same", dilation=2)
        self.mirrored = nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect")
        self.scale = nn.Parameter(torch.full((3, 1, 1), 0.7))
        self.output = nn.Linear(48, setting.units)

    def forward(self, x):
        h = torch.relu(self.grouped(torch.relu(self.standard(x))))
        h = self.mirrored(torch.relu(self.same(h))) * self.scale
        return self.output(torch.relu(h).flatten(1))


class Dilated(nn.Module):
    """Convolutions with all numbers that a product must respect."""

    def __init__(self, setting):
        super().__init__()
        self.one = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2))
        self.two = nn.Conv2d(4, 3, 1, bias=False)
        self.output = nn.Linear(120, setting.units)

    def forward(self, x):
        return self.output(torch.relu(self.two(torch.relu(self.one(x)))).flatten(1))


class Attention(nn.Module):
    """Parameters that are none of a layer's, and layers that PyTorch passes by in eval mode where it can."""

    def __init__(self, setting):
        super().__init__()
        self.embed, self.output = nn.Linear(24, 4), nn.Linear(4, setting.units)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.output(self.encoder(self.embed(x.transpose(1, 2).flatten(2))).mean(1))


class Branches(nn.Module):
    """Looks at values, which nothing mapped can."""

    def __init__(self, setting):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)
        self.output = nn.Linear(144, setting.units)

    def forward(self, x):
        h = self.norm(self.conv(x))
        return self.output((torch.relu(h) if h.abs().max() < 1e6 else h).flatten(1))


class Folded(nn.Module):
    """Rows of an image as samples of a layer, as networks for sequences and patches often have it."""

    def __init__(self, setting):
        super().__init__()
        self.embed, self.output = nn.Linear(24, 4), nn.Linear(32, setting.units)

    def forward(self, x):
        rows = torch.tanh(self.embed(x.transpose(1, 2).flatten(2).flatten(0, 1)))
        return self.output(rows.view(len(x), -1))


class Patches(nn.Module):
    """Quarters of an image as samples of a convolution."""

    def __init__(self, setting):
        super().__init__()
        self.conv, self.output = nn.Conv2d(3, 2, 3), nn.Linear(32, setting.units)

    def forward(self, x):
        quarters = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(0, 2)
        return self.output(torch.tanh(self.conv(quarters)).reshape(len(x), -1))


class RowsFirst(nn.Module):
    """Samples second, as PyTorch's layers for sequences want them."""

    def __init__(self, setting):
        super().__init__()
        self.embed, self.output = nn.Linear(24, 4), nn.Linear(4, setting.units)

    def forward(self, x):
        return self.output(torch.tanh(self.embed(x.transpose(1, 2).flatten(2).transpose(0, 1))).mean(0))


class UsedAgain(nn.Module):
    """A layer whose weights are used once more, which no product of its own inputs knows."""

    def __init__(self, setting):
        super().__init__()
        self.encode, self.output = nn.Linear(192, 5), nn.Linear(192, setting.units)

    def forward(self, x):
        return self.output(torch.tanh(torch.tanh(self.encode(x.flatten(1))) @ self.encode.weight))


class Reparametrized(nn.Module):
    """Weights that are computed of others."""

    def __init__(self, setting):
        super().__init__()
        self.body, self.output = nn.utils.parametrizations.weight_norm(nn.Linear(192, 5)), nn.Linear(5, setting.units)

    def forward(self, x):
        return self.output(torch.tanh(self.body(x.flatten(1))))


class WithHook(nn.Module):
    """A layer whose output a hook changes."""

    def __init__(self, setting):
        super().__init__()
        self.body, self.output = nn.Linear(192, 5), nn.Linear(5, setting.units)
        self.body.register_forward_hook(lambda module, args, output: 3 * output)

    def forward(self, x):
        return self.output(torch.tanh(self.body(x.flatten(1))))


class InTrainingOnly(nn.Module):
    """A layer that is of use in training alone."""

    def __init__(self, setting):
        super().__init__()
        self.body, self.beside, self.output = nn.Linear(192, 5), nn.Linear(5, 5), nn.Linear(5, setting.units)

    def forward(self, x):
        h = torch.tanh(self.body(x.flatten(1)))
        return self.output(h + self.beside(h) if self.training else h)


class Slopes(nn.Module):
    """A layer that PyTorch maps over networks, and over networks and samples at once mistakes one for the other."""

    def __init__(self, setting):
        super().__init__()
        self.body, self.slope, self.output = nn.Linear(192, 5), nn.PReLU(), nn.Linear(5, setting.units)

    def forward(self, x):
        return self.output(self.slope(self.body(x.flatten(1))))


NETWORKS = {
    "cnn with group norm": "cnn:channels=4-6,norm=group",
    "cnn": "cnn:channels=4-6",
    "resnet18": "resnet18:width=2",
    "tokens": Tokens,
    "odd layers": Odd,
    "convolutions": Dilated,
    "attention": Attention,
    "branches": Branches,
    "rows as samples": Folded,
    "patches as samples": Patches,
    "rows first": RowsFirst,
    "weights used again": UsedAgain,
    "reparametrized": Reparametrized,
    "with a hook": WithHook,
    "in training only": InTrainingOnly,
    "slopes": Slopes,
}
UNUSED = {"beside.weight", "beside.bias"}


def reached(network, task=1, **also):
    return TinyStack(images(), "class", "none", seeds=[3, 1], network=network, batch=8, **also).reach(task)


def by_loop(tiny, replica, labels):
    """One sample after the other, in eval mode."""
    task, params, buffers = tiny.task, of(tiny.params["classifier"], replica), of(tiny.stack.buffers, replica)
    net = tiny.stack.setting.network.build(tiny.stack.setting).eval()
    units = competing("class", task, task + 1, tiny.classes)
    indices = tiny.sequences[replica][task].train
    uniform = torch.rand(len(indices), generator=generator(tiny.seeds[replica], "fisher labels", task)).tolist()
    total = {name: torch.zeros_like(p) for name, p in params.items()}
    for index, draw in zip(indices.tolist(), uniform, strict=True):
        leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
        scores = functional_call(net, {**leaves, **buffers}, (tiny.stream.data.train_x[index][None],))[0]
        chance = log_chance(scores, units)
        for unit, share in chosen(tiny, replica, index, labels, chance, draw):
            how = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
            found = torch.autograd.grad(chance[unit], leaves.values(), **how)
            for name, grad in zip(leaves, found, strict=True):
                total[name] += share * grad**2 / len(indices)
    return total


def chosen(tiny, replica, index, labels, chance, draw):
    """The units at which the gradient is taken, with their weights."""
    likely = {unit: float(value.detach().exp()) for unit, value in chance.items()}
    if labels == "expected":
        return list(likely.items())
    if labels == "predicted":
        return [(max(likely, key=likely.get), 1.0)]
    if labels == "true":
        return [(target("class", tiny.task, tiny.label(replica, index, tiny.task), tiny.classes), 1.0)]
    below = torch.tensor(list(likely.values())).cumsum(0).tolist()
    return [(next((u for u, end in zip(likely, below, strict=True) if draw < end), list(likely)[-1]), 1.0)]


CASES = [(name, "predicted") for name in NETWORKS]
CASES += [(name, labels) for name in ("cnn with group norm", "tokens") for labels in LABELS if labels != "predicted"]


@pytest.mark.parametrize(("network", "labels"), CASES)
def test_it_is_the_average_of_squared_gradients(network, labels):
    tiny = reached(NETWORKS[network])
    assert len({len(tasks[1].train) for tasks in tiny.sequences}) == 2  # so that one replica is padded
    before = copied(tiny.stack.buffers)
    with torch.no_grad():
        fisher = fisher_diagonal(tiny.stack, tiny.task, labels, None)
    for replica in range(2):
        expected = by_loop(tiny, replica, labels)
        assert list(expected) == list(of(fisher, replica))
        for name, square in expected.items():
            assert near({name: fisher[name][replica]}, {name: square}, 1e-9)
            assert (square.max() > 0) == (name not in UNUSED)
    for name, buffer in before.items():  # no statistic is moved by looking
        assert torch.equal(buffer, tiny.stack.buffers[name])
