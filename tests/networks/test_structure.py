"""The detected structure of a classifier, against layer lists written by hand; and which modules are refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from threefold.errors import ThreefoldError
from threefold.methods import Setting
from threefold.networks import CNN, MLP, OwnNetwork, ResNet18, Structure
from threefold.networks.structure import HiddenLayer, Tap
from threefold.scenarios import Outputs, find

IMAGES, UNITS = (3, 8, 8), 6


def structure(net, shape=IMAGES, units=UNITS):
    return Structure.of(net, "net", shape, units, "cpu")


def of_own(function, shape=IMAGES):
    function.__qualname__ = "mine"
    return Setting(Outputs(find("class"), 3, 2), shape, 8, OwnNetwork(function)).structure


def test_a_fully_connected_network_has_the_units_of_its_layers():
    found = structure(MLP(192, 7, UNITS, depth=3))
    layers = [f"features.layers.{place}" for place in range(3)]
    assert found.hidden == tuple(HiddenLayer(f"{path}.weighted", f"{path}.shift", 7, last=True) for path in layers)
    assert found.units == (7, 7, 7)
    assert (found.output, found.features, found.feature_size) == ("output.weighted", "features", 7)
    shapes = {f"{path}.{kind}": (7,) for path in layers for kind in ("weighted", "shift")}
    shapes |= {"output.weighted": (6,), "output.shift": (6,)}
    assert {tap.path: tap.shape for tap in found.taps} == shapes
    assert (found.convolutional, found.mapped, found.has_modes) == (False, True, False)
    assert found.activations == 2 * (7 + 7 + 7 + 6)  # products, and with their biases


@pytest.mark.parametrize(("norm", "end"), [("none", "convolutions"), ("group", "norms"), ("batch", "norms")])
def test_a_convolution_has_channels_that_are_gated_after_its_normalisation(norm, end):
    found = structure(CNN(IMAGES, [8, 16], UNITS, norm))
    layers = [("convolutions.0", f"{end}.0", 8), ("convolutions.1", f"{end}.1", 16)]
    assert found.hidden == tuple(HiddenLayer(path, last, units, last=False) for path, last, units in layers)
    assert (found.output, found.features, found.feature_size) == ("output", None, 16 * 4 * 4)
    assert found.taps == (Tap("convolutions.0", (8, 8, 8)), Tap("convolutions.1", (16, 4, 4)), Tap("output", (6,)))
    assert (found.convolutional, found.mapped) == (True, False)
    assert found.has_modes == (norm == "batch")
    assert found.channels_last == (norm == "none")


def test_a_residual_network_has_twenty_convolutions_and_pooled_features():
    """One at the start, two in each of eight blocks, one in the shortcut of the first block of three stages."""
    found = structure(ResNet18(3, 4, UNITS))
    assert sorted(found.units) == sorted([4] * 5 + [8] * 5 + [16] * 5 + [32] * 5)
    assert (found.output, found.feature_size, found.has_modes) == ("output", 32, True)
    assert found.hidden[0] == HiddenLayer("conv", "norm", 4, last=False)
    ends = {layer.path: layer.end for layer in found.hidden}
    assert ends["blocks.2.conv1"] == "blocks.2.norm1"
    assert ends["blocks.2.shortcut.0"] == "blocks.2.shortcut.1"
    assert {tap.path for tap in found.taps} == {layer.path for layer in found.hidden} | {"output"}


class Tokens(nn.Module):
    """Linear layers on the rows of an image, a layer norm, and features by name."""

    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Linear(8, 5), nn.LayerNorm(5)
        self.features, self.act, self.head = nn.Linear(5, 4), nn.Identity(), nn.Linear(3 * 8 * 4, UNITS)

    def forward(self, x):
        h = torch.relu(self.norm(self.embed(x)))
        return self.head(torch.relu(self.act(self.features(h))).flatten(1))


def test_layers_on_tokens_have_units_last_and_the_features_that_are_named():
    found = structure(Tokens())
    assert found.hidden == (
        HiddenLayer("embed", "norm", 5, last=True),
        HiddenLayer("features", "features", 4, last=True),
    )
    assert (found.features, found.feature_size, found.output) == ("features", 3 * 8 * 4, "head")
    assert {tap.path: tap.shape for tap in found.taps} == {"embed": (3, 8, 5), "features": (3, 8, 4), "head": (UNITS,)}


class WithoutLinear(nn.Module):
    """Convolutions alone, whose last one gives the logits."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))
        self.head = nn.Conv2d(5, UNITS, 1)

    def forward(self, x):
        return self.head(torch.relu(self.features(x))).mean((2, 3))


class ByAngle(nn.Module):
    """Logits that no layer gives: every layer is hidden."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(192, 7), nn.Tanh(), nn.Linear(7, 4))
        self.directions = nn.Parameter(torch.rand(UNITS, 4))

    def forward(self, x):
        return functional.linear(functional.normalize(self.features(x)), functional.normalize(self.directions))


@pytest.mark.parametrize(
    ("net", "hidden"),
    [(WithoutLinear(), {"features.0": 4, "features.2": 5}), (ByAngle(), {"features.1": 7, "features.3": 4})],
    ids=["without a linear layer", "by angle"],
)
def test_what_gives_the_logits_is_not_hidden(net, hidden):
    found = structure(net)
    assert {layer.path: layer.units for layer in found.hidden} == hidden
    x = torch.rand(5, *IMAGES)
    with structure(net).gated(net, [torch.zeros(units) for units in found.units], "activation"):
        gated = net(x)
    expected = net.head.bias.expand(5, -1) if isinstance(net, WithoutLinear) else torch.zeros(5, UNITS)
    assert torch.allclose(gated, expected)


def test_a_layer_whose_weights_are_computed_is_hidden_as_any_other():
    net = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(192, 5)), nn.Linear(5, UNITS))
    found = structure(net)
    assert found.hidden == (HiddenLayer("1", "1", 5, last=True),)
    assert {tap.path for tap in found.taps} == {"2"}


@pytest.mark.parametrize(
    ("net", "features"),
    [
        (CNN(IMAGES, [8, 16], UNITS), lambda net, x: _through(net, x).flatten(1)),
        (Tokens(), lambda net, x: net.features(torch.relu(net.norm(net.embed(x)))).flatten(1)),
        (MLP(192, 7, UNITS), lambda net, x: net.features(x.flatten(1))),
    ],
    ids=["input of the output layer", "by name", "mlp"],
)
def test_tapped_are_the_features_of_what_is_sent_through(net, features):
    for p in net.parameters():
        nn.init.uniform_(p, -0.3, 0.3)
    x, found = torch.rand(5, *IMAGES), structure(net)
    with found.tapped(net) as tapped:
        net(x)
    net(x)  # no longer listened to
    assert len(tapped) == 1
    assert tapped[0].shape == (5, found.feature_size)
    assert torch.allclose(tapped[0], features(net, x))


def _through(net, x):
    for convolution in net.convolutions:
        x = torch.relu(convolution(x))
    return x


# gates


@pytest.mark.parametrize("each_sample", [False, True])
def test_a_gate_silences_a_channel_everywhere(each_sample):
    """As if the normalisation after the convolution gave nothing there."""
    net = CNN(IMAGES, [4, 6], UNITS, "group")
    gates = [torch.rand(5, layer.units).round() for layer in structure(net).hidden]
    if not each_sample:
        gates = [gate[0] for gate in gates]
    x = torch.rand(5, *IMAGES)
    h = x
    for convolution, norm, gate in zip(net.convolutions, net.norms, gates, strict=True):
        h = torch.relu(norm(convolution(h)) * gate.expand(5, -1)[:, :, None, None])
    with structure(net).gated(net, gates, "activation"):
        found = net(x)
    assert torch.allclose(found, net.output(h.flatten(1)), atol=1e-6)
    assert not torch.allclose(found, net(x), atol=1e-3)


@pytest.mark.parametrize("each_sample", [False, True])
def test_a_gate_on_the_input_leaves_the_bias_of_a_channel(each_sample):
    net = CNN(IMAGES, [4, 6], UNITS)
    gates = [torch.rand(5, layer.units).round() for layer in structure(net).hidden]
    if not each_sample:
        gates = [gate[0] for gate in gates]
    x = torch.rand(5, *IMAGES)
    h = x
    for c, gate in zip(net.convolutions, gates, strict=True):
        weighted = functional.conv2d(h, c.weight, None, c.stride, c.padding)
        h = torch.relu(weighted * gate.expand(5, -1)[:, :, None, None] + c.bias[:, None, None])
    with structure(net).gated(net, gates, "input"):
        assert torch.allclose(net(x), net.output(h.flatten(1)), atol=1e-6)


@pytest.mark.parametrize("each_sample", [False, True])
def test_a_gate_on_tokens_is_the_same_for_all_of_a_sample(each_sample):
    net, x = Tokens(), torch.rand(5, *IMAGES)
    gates = [torch.rand(5, units).round() for units in (5, 4)]
    if not each_sample:
        gates = [gate[0] for gate in gates]
    first, second = (gate.expand(5, -1)[:, None, None] for gate in gates)
    h = torch.relu(net.norm(net.embed(x)) * first)
    expected = net.head(torch.relu(net.features(h) * second).flatten(1))
    with structure(net).gated(net, gates, "activation"):
        assert torch.allclose(net(x), expected, atol=1e-6)


# what cannot work


class Small(nn.Module):
    def __init__(self, setting):
        super().__init__()
        self.body, self.output = nn.Linear(setting.inputs, 5), nn.Linear(5, setting.units)

    def forward(self, x):
        return self.output(torch.relu(self.body(x.flatten(1))))


def changed(forward=None, init=None):
    class Changed(Small):
        def __init__(self, setting):
            super().__init__(setting)
            if init:
                init(self, setting)

    if forward:
        Changed.forward = forward
    return Changed


def _raises(self, x):
    raise KeyError("weather")


def _never_built(setting):
    raise ValueError("the cat is away")


def _tied(self, setting):
    self.again = nn.Linear(5, 5)
    self.more = nn.Linear(5, 5)
    self.more.weight = self.again.weight


WRONG = {
    "other logits": (
        changed(init=lambda self, s: setattr(self, "output", nn.Linear(5, 4))),
        r"^network mine must give 6 logits for each sample, got \(2, 4\) for two\.$",
    ),
    "one number": (
        changed(lambda self, x: Small.forward(self, x).sum()),
        r"^network mine must give 6 logits for each sample, got \(\) for two\.$",
    ),
    "a tuple": (
        changed(lambda self, x: (Small.forward(self, x), x)),
        r"^network mine must give 6 logits for each sample, got tuple for two\.$",
    ),
    "a layer twice": (
        changed(
            lambda self, x: self.output(self.twice(self.twice(self.body(x.flatten(1))))),
            lambda self, s: setattr(self, "twice", nn.Linear(5, 5)),
        ),
        r"^network mine must call each layer once, and calls twice twice\.$",
    ),
    "functional dropout": (
        changed(lambda self, x: self.output(functional.dropout(self.body(x.flatten(1))))),
        r"^network mine draws random numbers in its forward \(.*\), which no seed decides; use nn\.Dropout modules",
    ),
    "tied parameters": (
        changed(init=_tied),
        r"^more\.weight of Changed is also another of its parameters; each must have its own\.$",
    ),
    "frozen parameters": (
        changed(init=lambda self, s: self.body.requires_grad_(False)),
        r"^body\.weight of Changed must require its gradient, .* make it a buffer",
    ),
    "a forward that raises": (changed(_raises), r"^network mine cannot take inputs of 3×8×8: 'weather'\.$"),
    "layers that do not fit": (
        changed(init=lambda self, s: setattr(self, "body", nn.Linear(7, 5))),
        r"^network mine cannot take inputs of 3×8×8: .*\d",
    ),
    "one that cannot be built": (_never_built, r"^network mine cannot be built: the cat is away\.$"),
    "no module": (lambda setting: [], r"^network mine must give an nn\.Module, got a list\.$"),
    "features that are not called": (
        changed(init=lambda self, s: setattr(self, "features", nn.ModuleList([nn.ReLU()]))),
        r"^network mine must call its submodule features once, which must give a tensor with a row for each sample\.$",
    ),
    "features that are no tensor": (
        changed(
            lambda self, x: self.output(self.features(x.flatten(2))[0][:, -1]),
            lambda self, s: setattr(self, "features", nn.GRU(64, 5, batch_first=True)),
        ),
        r"^network mine must call its submodule features once, ",
    ),
    "features that are called twice": (
        changed(
            lambda self, x: self.output(self.features(self.body(self.features(x.flatten(1))))),
            lambda self, s: setattr(self, "features", nn.ReLU()),
        ),
        r"^network mine must call its submodule features once, ",
    ),
    "rows of features that are no samples": (
        changed(
            lambda self, x: self.output(self.body(x.transpose(0, 1))).mean(0),
            lambda self, s: setattr(self, "body", nn.Sequential(nn.Flatten(2), nn.Linear(64, 5))),
        ),
        r"^network mine must give output a row for each sample, since its input is the features; or name a submodule",
    ),
    "a layer twice in a test": (
        changed(
            lambda self, x: Small.forward(self, x) + (0 if self.training else Small.forward(self, x.flip(-1))),
        ),
        r"^network mine must call each layer once, and calls body twice\.$",
    ),
    "no features": (
        changed(lambda self, x: x.flatten(1)[:, :6]),
        r"^network mine must have a linear layer, whose input is its features, or an attribute `features`\.$",
    ),
}


@pytest.mark.parametrize(("net", "sentence"), WRONG.values(), ids=WRONG)
def test_a_module_that_cannot_work_is_refused_in_a_sentence(net, sentence):
    with pytest.raises(ThreefoldError, match=sentence) as refused:
        of_own(net)
    assert "\n" not in str(refused.value)


def test_a_module_as_it_is_meant_is_not():
    assert of_own(Small).units == (5,)
    assert of_own(changed(init=lambda self, s: self.register_buffer("scale", torch.ones(3)))).has_modes


def test_a_module_of_ones_own_may_compute_something_else_in_a_test():
    assert of_own(changed(lambda self, x: Small.forward(self, x) * (2 if self.training else 1))).has_modes
    assert not of_own(lambda setting: nn.Sequential(nn.Flatten(), nn.Linear(192, setting.units))).has_modes


class LooksAtValues(Small):
    """Cannot be built without numbers."""

    def __init__(self, setting):
        super().__init__(setting)
        with torch.no_grad():
            self.body.weight.div_(self.body.weight.norm().item())


def test_a_module_may_look_at_its_values_when_it_is_built():
    assert of_own(LooksAtValues).units == (5,)
