"""The generator: its loss against its two terms, and what it dreams against the decoder written out (section A.3)."""

import math

import pytest
import torch
from tiny_cohorts import of
from tiny_stack import TinyStack, near
from torch.distributions import Bernoulli, Normal, kl_divergence
from torch.func import functional_call

from threefold.methods.replay import dream
from threefold.networks import LATENT, VAE, Decoder, initial_params
from threefold.randomness import generator

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
