"""The networks by name against PyTorch modules written out here."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from threefold.errors import ThreefoldError
from threefold.methods import Setting
from threefold.networks import find_network, initial_params
from threefold.scenarios import Outputs, find


def built(name, shape, classes=2, tasks=5):
    setting = Setting(Outputs(find("class"), tasks, classes), shape, 8, find_network(name))
    with torch.device("meta"):
        net = setting.network.build(setting)
    return net, setting


def count(net):
    return sum(p.numel() for p in net.parameters())


def with_numbers(name, shape):
    """The network with numbers for its parameters and buffers."""
    net, setting = built(name, shape)
    params = initial_params(net, torch.Generator().manual_seed(1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        params = {name: p + 0.1 * torch.randn_like(p) for name, p in params.items()}
        real = setting.network.build(setting)
        state = {
            name: buffer if buffer.dim() == 0 else torch.rand_like(buffer) + 0.5
            for name, buffer in real.named_buffers()
        }
    return net, params | state


def order(module):
    return [name for name, _ in [*module.named_parameters(), *module.named_buffers()]]


def same(name, shape, by_hand, *, training):
    """Does the network compute what is written by hand, whose parameters come in the same order?"""
    net, values = with_numbers(name, shape)
    hand = by_hand.train(training)
    own = {**dict(hand.named_parameters()), **dict(hand.named_buffers())}
    assert [own[n].shape for n in order(hand)] == [values[n].shape for n in order(net)]
    its = {mine: values[n].clone() for mine, n in zip(order(hand), order(net), strict=True)}
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(3))
    net.train(training)
    found, expected = functional_call(net, values, (x,)), functional_call(hand, its, (x,))
    assert torch.allclose(found, expected, atol=1e-5)
    assert expected.std() > 1e-2
    for mine, n in zip(order(hand), order(net), strict=True):  # running statistics, too
        assert torch.allclose(values[n], its[mine], atol=1e-6)


# mlp


@pytest.mark.parametrize("activation", ["relu", "gelu", "tanh", "elu"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_deep_mlp_with_any_activation(depth, activation):
    layers = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "elu": nn.ELU}
    body = [m for a, b in pairwise([12, *[7] * depth]) for m in (nn.Linear(a, b), layers[activation]())]
    by_hand = nn.Sequential(nn.Flatten(), *body, nn.Linear(7, 10))
    same(f"mlp:depth={depth},width=7,activation={activation}", (3, 2, 2), by_hand, training=True)


def test_the_papers_mlp_has_the_papers_number_of_weights():
    net, _ = built("mlp:width=400", (1, 28, 28))
    assert count(net) == 784 * 400 + 400 + 400 * 400 + 400 + 400 * 10 + 10


# cnn


class Written(nn.Module):
    """Convolutions, then their normalisations, then the output layer."""

    def __init__(self, channels, norms, features, strides):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride, padding=1, bias=norms is None)
            for (a, b), stride in zip(pairwise(channels), strides, strict=True)
        )
        self.norms = nn.ModuleList(norms or [])
        self.out = nn.Linear(features, 10)

    def forward(self, x):
        for place, conv in enumerate(self.convs):
            x = conv(x)
            x = functional.relu(self.norms[place](x) if len(self.norms) else x)
        return self.out(x.flatten(1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", ["none", "group", "batch"])
@pytest.mark.parametrize(("shape", "features"), [((3, 8, 8), 12 * 2 * 2), ((1, 7, 5), 12 * 2 * 2), ((2, 1, 1), 12)])
def test_a_cnn(shape, features, norm, training):
    """All but the first convolution halve the image, rounded up; group norms have up to eight groups."""
    norms = {
        "none": None,
        "group": [nn.GroupNorm(5, 5), nn.GroupNorm(8, 16), nn.GroupNorm(6, 12)],
        "batch": [nn.BatchNorm2d(5), nn.BatchNorm2d(16), nn.BatchNorm2d(12)],
    }[norm]
    by_hand = Written([shape[0], 5, 16, 12], norms, features, [1, 2, 2])
    same(f"cnn:channels=5-16-12,norm={norm}", shape, by_hand, training=training)


def test_the_usual_cnn_has_five_convolutions():
    net, _ = built("cnn", (3, 32, 32))
    convolutions = 3 * 16 + 16 * 32 + 32 * 64 + 64 * 128 + 128 * 256
    assert count(net) == 9 * convolutions + (16 + 32 + 64 + 128 + 256) + 256 * 2 * 2 * 10 + 10


# resnet18


class HandBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a, self.an = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.b, self.bn = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        if stride != 1:
            self.s, self.sn = nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn(self.b(functional.relu(self.an(self.a(x)))))
        return functional.relu(y + (self.sn(self.s(x)) if hasattr(self, "s") else x))


class HandResNet(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            *(HandBlock(width, width, 1), HandBlock(width, width, 1)),
            *(HandBlock(width, 2 * width, 2), HandBlock(2 * width, 2 * width, 1)),
            *(HandBlock(2 * width, 4 * width, 2), HandBlock(4 * width, 4 * width, 1)),
            *(HandBlock(4 * width, 8 * width, 2), HandBlock(8 * width, 8 * width, 1)),
        )
        self.out = nn.Linear(8 * width, 10)

    def forward(self, x):
        x = self.stages(functional.relu(self.norm(self.conv(x))))
        return self.out(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 12)])
def test_the_reduced_resnet(shape, training):
    same("resnet18:width=4", shape, HandResNet(shape[0], 4), training=training)


@pytest.mark.parametrize(("width", "classes", "weights"), [(20, 100, 1_109_240), (64, 10, 11_173_962)])
def test_it_has_the_number_of_weights_that_is_known(width, classes, weights):
    """Those of the ResNet-18 for CIFAR-10 that everyone uses, and of GEM's reduced one for CIFAR-100."""
    assert count(built(f"resnet18:width={width}", (3, 32, 32), classes // 5)[0]) == weights


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_networks_of_images_refuse_rows_of_numbers(name):
    network = find_network(name)
    assert network.refuse((3, 8, 8)) is None
    assert network.refuse((784,)) == (
        f"network {name} needs images, channels × height × width, and the data have 784 features."
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cnn:channels=16-0", "hyperparameter channels of cnn is '0': "),
        ("cnn:channels=", "hyperparameter channels of cnn is '': "),
        ("cnn:norm=layer", "hyperparameter norm of cnn is 'layer': "),
        ("mlp:depth=0", "hyperparameter depth of mlp is '0': "),
        ("mlp:activation=swish", "hyperparameter activation of mlp is 'swish': "),
        ("resnet18:width=0", "hyperparameter width of resnet18 is '0': "),
        ("resnet18:depth=3", "hyperparameter of resnet18 'depth'"),
    ],
)
def test_numbers_that_no_network_has_are_refused(text, sentence):
    with pytest.raises(ThreefoldError) as refused:
        find_network(text)
    assert sentence in str(refused.value)
