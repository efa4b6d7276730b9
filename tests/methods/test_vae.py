"""The generator: its loss against its two terms, and its samples against the decoder written out (section A.3)."""

import math

import pytest
import torch
from tiny_cohorts import of
from tiny_stack import TinyStack, near
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits

from threefold.methods import Setting, parse
from threefold.methods.replay import dream
from threefold.networks import LATENT, VAE, ConvolutionalVAE, Decoder, find_network, initial_params
from threefold.randomness import generator
from threefold.scenarios import Outputs, find

PIXELS, HIDDEN, LATENTS = 9, 7, 5


@pytest.fixture
def vae():
    net = VAE(PIXELS, HIDDEN, LATENTS)
    return net, initial_params(net, torch.Generator().manual_seed(0))


def drawn(samples=6):
    source = torch.Generator().manual_seed(1)
    return torch.rand(samples, PIXELS, generator=source), torch.randn(samples, LATENTS, generator=source)


def layer(params, name, values, rectified):
    weight, bias = params[f"{name}.weighted.weight"].tolist(), params[f"{name}.shift.bias"].tolist()
    out = [sum(w * v for w, v in zip(row, values, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
    return [max(value, 0.0) for value in out] if rectified else out


def chain(params, values, names):
    for place, name in enumerate(names):
        values = layer(params, name, values, rectified=place < len(names) - 1)
    return values


def encode(params, x):
    layers = ["encoder.layers.0", "encoder.layers.1"]
    return chain(params, x, [*layers, "mean"]), chain(params, x, [*layers, "log_variance"])


def decode(params, z):
    return [1 / (1 + math.exp(-v)) for v in chain(params, z, ["decoder.layers.0", "decoder.layers.1", "pixels"])]


def test_its_loss_is_the_two_terms_by_hand(vae):
    """Equations 11 to 13, sample by sample and pixel by pixel. The paper maximises; the loss is the negative."""
    net, params = vae
    x, noise = drawn()
    losses = functional_call(net, params, (x, noise)).tolist()
    for loss, pixels, epsilon in zip(losses, x.tolist(), noise.tolist(), strict=True):
        mean, log_variance = encode(params, pixels)
        sigma = [math.sqrt(math.exp(v)) for v in log_variance]
        latent = 0.5 * sum(1 + math.log(s**2) - m**2 - s**2 for m, s in zip(mean, sigma, strict=True))
        decoded = decode(params, [m + s * e for m, s, e in zip(mean, sigma, epsilon, strict=True)])
        recon = sum(p * math.log(d) + (1 - p) * math.log(1 - d) for p, d in zip(pixels, decoded, strict=True))
        assert loss == pytest.approx(-(recon + latent) / PIXELS, rel=1e-12)


def test_its_loss_is_a_divergence_and_a_likelihood(vae):
    """The same by torch.distributions, on black and white pictures."""
    net, params = vae
    x, noise = drawn()
    x = (x > 0.5).to(x.dtype)
    losses = functional_call(net, params, (x, noise))
    for loss, picture, epsilon in zip(losses, x, noise, strict=True):
        mean, log_variance = (torch.tensor(out) for out in encode(params, picture.tolist()))
        posterior = Normal(mean, torch.exp(log_variance / 2))
        divergence = kl_divergence(posterior, Normal(torch.zeros(LATENTS), torch.ones(LATENTS))).sum()
        pixels = torch.tensor(decode(params, (mean + posterior.scale * epsilon).tolist()))
        assert float(loss) == pytest.approx(float(divergence - Bernoulli(pixels).log_prob(picture).sum()) / PIXELS)


def test_a_prior_that_is_met_costs_nothing(vae):
    """Mean 0, variance 1, every pixel undecided: log 2 a pixel."""
    net, params = vae
    still = {name: torch.zeros_like(p) for name, p in params.items()}
    x, noise = drawn()
    assert torch.allclose(functional_call(net, still, (x, noise)), torch.tensor(math.log(2)))


def test_dreams_are_the_decoder_by_hand(vae):
    net, params = vae
    _, z = drawn()
    by_hand = torch.tensor([decode(params, row) for row in z.tolist()])
    assert torch.allclose(dream(net, params, z), by_hand, rtol=0, atol=1e-12)
    half = {name: p for name, p in params.items() if name.startswith(("decoder.", "pixels."))}
    assert torch.allclose(functional_call(Decoder(net), half, (z,)), by_hand, rtol=0, atol=1e-12)
    assert ((by_hand > 0) & (by_hand < 1)).all()


# of images


class Doubled(nn.Module):
    """An image as wide and high as it was before it was halved: each pixel is the one at its place in the small one."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        rows, columns = (torch.arange(new) * old // new for new, old in zip(self.size, x.shape[2:], strict=True))
        return x[:, :, rows][..., columns]


def by_layers(shape, sizes):
    """Encoder (to 100 means and 100 log variances) and decoder (to logits), written out."""
    channels, (*_, (height, width)) = shape[0], sizes
    features = 128 * height * width
    encoder = [(channels, 32), (32, 64), (64, 128)]
    encode = [layer for a, b in encoder for layer in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU())]
    heads = nn.ModuleList([nn.Linear(features, 100), nn.Linear(features, 100)])
    decode = [nn.Linear(100, features), nn.ReLU(), nn.Unflatten(1, (128, height, width))]
    for (a, b), size in zip([(128, 64), (64, 32), (32, 32)], sizes[-2::-1], strict=True):
        decode += [Doubled(size), nn.Conv2d(a, b, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*encode, nn.Flatten()), heads, nn.Sequential(*decode, nn.Conv2d(32, channels, 3, padding=1))


IMAGES = {(3, 32, 32): [(32, 32), (16, 16), (8, 8), (4, 4)], (1, 7, 10): [(7, 10), (4, 5), (2, 3), (1, 2)]}


@pytest.mark.parametrize(("shape", "sizes"), IMAGES.items())
def test_that_of_images_is_what_its_layers_are(shape, sizes):
    """Halved three times, rounded up, and doubled three times to the sizes there were; its loss is the paper's."""
    net = ConvolutionalVAE(shape)
    params = initial_params(net, torch.Generator().manual_seed(0))
    encode, heads, decode = by_layers(shape, sizes)
    hand = [p for module in (encode, heads, decode) for p in module.parameters()]
    order = ("encoder.", "mean.", "log_variance.", "decoder.", "pixels.")
    mine = [params[name] for prefix in order for name in params if name.startswith(prefix)]
    assert [p.shape for p in hand] == [p.shape for p in mine]
    for p, value in zip(hand, mine, strict=True):
        p.data = value
    source = torch.Generator().manual_seed(1)
    x, noise = torch.rand(5, *shape, generator=source), torch.randn(5, LATENT, generator=source)
    mean, log_variance = (head(encode(x)) for head in heads)
    logits = decode(mean + (log_variance / 2).exp() * noise)
    assert logits.shape == x.shape
    recon = binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)
    latent = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum(1)
    expected = (recon + latent) / math.prod(shape)
    assert torch.allclose(functional_call(net, params, (x, noise)), expected, rtol=1e-9)
    dreamt = dream(net, params, noise).view(x.shape)
    assert torch.allclose(dreamt, torch.sigmoid(decode(noise)), rtol=1e-9)


class OfSignals(nn.Module):
    """Convolutions over samples that are no images."""

    def __init__(self, setting):
        super().__init__()
        self.conv, self.output = nn.Conv1d(1, 3, 3, padding=1), nn.Linear(3 * setting.inputs, setting.units)

    def forward(self, x):
        return self.output(torch.relu(self.conv(x.flatten(1).unsqueeze(1))).flatten(1))


@pytest.mark.parametrize(
    ("shape", "network", "kind"),
    [
        ((3, 8, 8), "cnn:channels=4", ConvolutionalVAE),
        ((3, 8, 8), "resnet18:width=2", ConvolutionalVAE),
        ((1, 28, 28), "mlp:width=7", VAE),
        ((12,), "mlp:width=7", VAE),
        ((12,), OfSignals, VAE),
    ],
)
@pytest.mark.parametrize("method", ["dgr", "dgr-distill"])
def test_images_are_generated_by_convolutions_where_they_are_classified_so(shape, network, kind, method):
    """The paper's, of fully connected layers, for the paper's network and for all that are no images."""
    (part,) = parse(method).parts
    setting = Setting(Outputs(find("class"), 2, 2), shape, 8, find_network(network))
    generator_of = part.networks(setting)["generator"]
    assert type(generator_of) is kind
    losses = generator_of(torch.rand(2, *shape), torch.randn(2, LATENT))
    assert losses.shape == (2,)


def test_it_is_symmetric_and_as_large_as_the_paper_says():
    assert LATENT == 100
    net = VAE(784, 400)
    sizes = {name: tuple(p.shape) for name, p in net.named_parameters() if name.endswith("weight")}
    assert list(sizes.values()) == [(400, 784), (400, 400), (100, 400), (100, 400), (400, 100), (400, 400), (784, 400)]
    biases = sum(p.numel() for name, p in net.named_parameters() if name.endswith("bias"))
    assert biases == 4 * 400 + 2 * 100 + 784


def test_its_first_weights_are_within_the_bound_of_their_layer(vae):
    net, params = vae
    assert params.keys() == dict(net.named_parameters()).keys()
    fans = {"encoder.layers.0": PIXELS, "decoder.layers.0": LATENTS}
    for name, p in params.items():
        fan = next((size for layer, size in fans.items() if name.startswith(layer)), HIDDEN)
        assert p.abs().max() <= fan**-0.5
        assert p.abs().max() > 0.6 * fan**-0.5
    drawn_again = initial_params(net, torch.Generator().manual_seed(1))
    assert not near(drawn_again, params, 1e-3)


def test_the_generator_learns_beside_the_classifier_without_touching_it():
    """The classifier of DGR in its first task is None's; the generator's loss falls."""
    tiny, plain = TinyStack("split", "class", "dgr"), TinyStack("split", "class", "none")
    batch, draws = next(tiny.draws(1))
    net, noise = tiny.stack.networks["generator"], draws["dgr noise"]

    def losses():
        params = [of(tiny.params["generator"], replica) for replica in range(3)]
        return torch.stack([functional_call(net, p, (batch.x[r], noise[r])).mean() for r, p in enumerate(params)])

    before = losses()
    tiny.train(30)
    plain.train(30)
    assert near(tiny.params["classifier"], plain.params["classifier"])
    assert (losses() < before - 0.01).all()


@pytest.mark.parametrize("method", ["dgr", "dgr-distill"])
def test_dreams_that_are_kept_are_those_of_the_generator_as_it_is(method):
    """After each task, of the same latent variables: an image shows what became of it."""
    tiny, pictures = TinyStack("split", "class", method), []
    for task in range(2):
        if task:
            tiny.begin(task)
        tiny.train()
        tiny.finish()
        with torch.no_grad():
            pictures.append(tiny.stack.kept()["dreams"])
        assert pictures[-1].dtype == torch.uint8
        for replica, seed in enumerate(tiny.seeds):
            z = torch.randn(pictures[-1].shape[1], LATENT, generator=generator(seed, "dreams"))
            params = of(tiny.params["generator"], replica)
            expected = torch.tensor([decode(params, row) for row in z.tolist()]) * 255
            assert (pictures[-1][replica] - expected).abs().max() <= 0.5 + 1e-9
    assert (pictures[0] != pictures[1]).any()
    assert (pictures[0][0] != pictures[0][1]).any()
