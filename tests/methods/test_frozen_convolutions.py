"""DGR on images with frozen convolutions, as the successor paper trained it: against plain PyTorch, in float64."""

from dataclasses import replace

import pytest
import torch
from tiny_cohorts import copied, of, tiny_data
from tiny_stack import TinyStack, near
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, interpolate, linear, relu

import threefold
from threefold.data import Encoder
from threefold.errors import ThreefoldError
from threefold.networks import CNN, LATENT, find_network
from threefold.streams import Split

CHANNELS, HIDDEN, SHAPE = (4, 6, 8), (10, 10), (1, 4, 4)
TEXT = "cnn:channels=4-6-8,norm=batch,hidden=10-10,last=linear"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two networks for images of one channel, with numbers of no training."""
    path, source = tmp_path_factory.mktemp("conv") / "conv.pt", torch.Generator().manual_seed(0)
    net = CNN(SHAPE, CHANNELS, 4, "batch", HIDDEN, "linear")
    state = {
        name: value if value.dim() == 0 else 0.3 + 0.5 * torch.rand(value.shape, generator=source)
        for name, value in net.state_dict().items()
    }
    state |= {name: value - 0.55 for name, value in state.items() if "convolutions" in name}
    torch.save(state, path)
    return str(path), state


def convolved(state, x):
    """The frozen convolutions, layer by layer, with the statistics of the file."""
    for place in range(3):
        x = conv2d(x, state[f"convolutions.{place}.weight"], state.get("convolutions.2.bias") if place == 2 else None,
                   stride=2 if place else 1, padding=1)  # fmt: skip
        if place < 2:
            mean, variance, scale, shift = (
                state[f"norms.{place}.{name}"].view(-1, 1, 1)
                for name in ("running_mean", "running_var", "weight", "bias")
            )
            x = relu((x - mean) / (variance + 1e-5).sqrt() * scale + shift)
    return x.flatten(1)


def layer(params, name, x):
    return linear(x, params[f"{name}.weighted.weight"], params[f"{name}.shift.bias"])


def hidden(params, prefix, x):
    for place in range(2):
        x = relu(layer(params, f"{prefix}.layers.{place}", x))
    return x


def classified(params, state, x):
    h = hidden(params, "hidden", convolved(state, x))
    return linear(h, params["output.weight"], params["output.bias"])


def decoded(params, z):
    """Two hidden layers, then the convolutions mirrored: 1×1 → 2×2 → 4×4, and the pixels."""
    x = hidden(params, "decoder.0", z)
    x = relu(linear(x, params["decoder.1.first.weight"], params["decoder.1.first.bias"])).view(-1, 8, 1, 1)
    for place, size in enumerate((2, 4)):
        name = f"decoder.1.layers.{place}"
        x = relu(conv2d(interpolate(x, (size, size)), params[f"{name}.weight"], params[f"{name}.bias"], padding=1))
    return conv2d(x, params["pixels.layer.weight"], params["pixels.layer.bias"], padding=1)


def generative(params, state, x, noise):
    """Half the squared error and the latent term, divided by the number of pixels; the mean over samples."""
    h = hidden(params, "encoder", convolved(state, x))
    mean, log_variance = layer(params, "mean", h), layer(params, "log_variance", h)
    recon = 0.5 * ((x - decoded(params, mean + (log_variance / 2).exp() * noise)) ** 2).flatten(1).sum(1)
    latent = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(1)
    return ((recon + latent) / x[0].numel()).mean()


def in_float64(data):
    return replace(data, train_x=data.train_x.double(), test_x=data.test_x.double())


def stack(file, scenario="class", method="dgr"):
    stream = Split(in_float64(tiny_data().normalized()), 3)
    return TinyStack(stream, scenario, method, [1, 2], network=f"{TEXT},frozen=true,init={file}")


@pytest.mark.parametrize("scenario", ["task", "domain", "class"])
def test_a_step_of_dgr_is_the_one_by_hand(file, scenario):
    """The second task: current pixels, and pixels of the previous generator labelled by the previous classifier."""
    path, state = file
    tiny = stack(path, scenario)
    tiny.train()
    tiny.finish()
    before = copied(tiny.params)
    tiny.begin(1)
    tiny.train()
    sampler = tiny.sampler(1)
    sampler.prepare(0)
    batch, drawn = sampler.at(0)
    tiny.stack.now.step.fill_(0)
    loss, gradients = tiny.gradients(batch, drawn)
    now = tiny.stack.now
    for replica in range(2):
        params = {net: {n: p.clone().requires_grad_() for n, p in of(tiny.params[net], replica).items()}
                  for net in ("classifier", "generator")}  # fmt: skip
        old = {net: of(before[net], replica) for net in ("classifier", "generator")}
        x, y = batch.x[replica], batch.y[replica]
        noise = {name: value[replica] for name, value in drawn.items()}
        dreamt = decoded(old["generator"], noise["dgr dreamt"]).detach()
        labels = classified(old["classifier"], state, dreamt).masked_fill(~now.taught[0], -torch.inf).argmax(-1)
        logits = [
            classified(params["classifier"], state, each).masked_fill(~now.active[task], -torch.inf)
            for task, each in ((1, x), (0, dreamt))
        ]
        total = cross_entropy(logits[0], y) / 2 + cross_entropy(logits[1], labels) / 2
        total = total + generative(params["generator"], state, x, noise["dgr noise"]) / 2
        total = total + generative(params["generator"], state, dreamt, noise["dgr noise of replay"]) / 2
        total.backward()
        assert abs(loss[replica] - total.detach()) < 1e-10
        for net, its in params.items():
            assert near(of(gradients[net], replica), {n: p.grad for n, p in its.items()}, 1e-9)
    assert {name for name in tiny.params["classifier"] if not name.startswith(("hidden", "output"))} == set()
    assert tiny.stack.networks["generator"].mean.weighted.weight.shape == (LATENT, 10)
    for name, value in tiny.stack.buffers.items():
        assert torch.equal(value[0], state[name]), name


def test_frozen_convolutions_are_frozen_features(file):
    """The same training, on pixels through frozen convolutions and on their features."""
    path, state = file
    data = tiny_data().normalized()
    features = Encoder(lambda x: convolved(state, x.double()).float(), "0" * 64, "conv", True)
    on_pixels, on_features = (
        TinyStack(Split(each, 3), "class", "none", [1, 2], **how)
        for each, how in (
            (in_float64(data), {"network": f"{TEXT},frozen=true,init={path}"}),
            (in_float64(data.encoded(features)), {"hidden": 10}),
        )
    )
    for tiny in (on_pixels, on_features):
        tiny.train(6)
    assert near(list(on_pixels.params["classifier"].values()), list(on_features.params["classifier"].values()), 1e-6)


def test_frozen_layers_are_in_eval_mode_and_need_weights(file):
    path, _ = file
    net = find_network(f"{TEXT},frozen=true,init={path}")
    built = net.build(stack(path).stack.setting).train()
    modes = {type(module).__name__: module.training for module in built.modules() if not list(module.children())}
    assert modes["BatchNorm2d"] is False
    assert modes["Linear"] is True
    assert [name for name, _ in built.named_parameters() if not name.startswith(("hidden", "output"))] == []
    assert "give init=FILE.pt too" in find_network(f"{TEXT},frozen=true").refuse(SHAPE)
    with pytest.raises(ThreefoldError, match=r"give init=FILE\.pt too"):
        threefold.run(Split(tiny_data(), 3), network=f"{TEXT},frozen=true", scenario="class", store=None, iters=2)
    assert isinstance(built.norms[0], nn.BatchNorm2d)
