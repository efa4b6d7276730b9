"""The generators of DGR and of the Generative Classifier."""

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu, softplus

from threefold.networks.layers import Hidden, Layer

LATENT = 100
AT_ONCE = {True: 1 << 22, False: 1 << 20}  # numbers decoded at once by each network: on a GPU (True), or elsewhere
CHANNELS = (32, 64, 128)


class VAE(nn.Module):
    """A symmetric variational autoencoder with two hidden layers to either side (section A.3)."""

    def __init__(self, inputs: int, hidden: int, latent: int = LATENT, *, layers: int = 2, binary: bool = True) -> None:
        """`binary`: inputs are probabilities; else they are normally distributed with variance 1."""
        super().__init__()
        self.binary = binary
        self.encoder: nn.Module = Hidden([inputs, *[hidden] * layers])
        self.mean = Layer(hidden, latent)
        self.log_variance = Layer(hidden, latent)
        self.decoder: nn.Module = Hidden([latent, *[hidden] * layers])
        self.pixels: nn.Module = Layer(hidden, inputs)

    def encode(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.encoder(x.flatten(1)))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """The loss of each sample (equations 11 to 13), per pixel: both terms divided by the number of pixels.

        The paper gives the two terms as quantities to maximise; the loss is their negative.
        """
        h, x = self.encode(x), x.flatten(1)
        mean, log_variance = self.mean(h), self.log_variance(h)
        decoded = self.decode_logits(mean + torch.exp(log_variance / 2) * noise)
        entropy = softplus(decoded) - x * decoded  # binary cross entropy, of logits
        recon = (entropy if self.binary else 0.5 * (x - decoded) ** 2).sum(-1)
        latent = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return cast(Tensor, (recon + latent) / x.shape[-1])

    def decode_logits(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.pixels(self.decoder(z)))


class ConvolutionalVAE(VAE):
    """The same for images: convolutions that halve them, and transposed ones that double them again."""

    def __init__(self, shape: Sequence[int], latent: int = LATENT) -> None:
        channels, height, width = shape
        sizes = [(height, width)]
        for _ in CHANNELS:
            sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
        (height, width), last = sizes[-1], CHANNELS[-1]
        super().__init__(1, last * height * width, latent)
        self.encoder = _Halving((channels, *CHANNELS))
        self.decoder = _Doubling(latent, CHANNELS[::-1], sizes[::-1])
        self.pixels = _Pixels(CHANNELS[0], channels)

    def encode(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.encoder(x))


class _Halving(nn.Module):
    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        pairs = pairwise(channels)
        self.layers = nn.ModuleList(nn.Conv2d(inputs, outputs, 3, 2, padding=1) for inputs, outputs in pairs)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = relu(layer(x))
        return x.flatten(1)


class _Doubling(nn.Module):
    def __init__(self, latent: int, channels: Sequence[int], sizes: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.channels, self.sizes = channels, sizes
        self.first = nn.Linear(latent, channels[0] * sizes[0][0] * sizes[0][1])
        outputs = [*channels[1:], channels[-1]]
        pairs = zip(channels, outputs, strict=True)
        self.layers = nn.ModuleList(nn.Conv2d(inputs, units, 3, padding=1) for inputs, units in pairs)

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = relu(self.first(z)).view(-1, self.channels[0], *self.sizes[0])
        for layer, size in zip(self.layers, self.sizes[1:], strict=True):
            x = relu(layer(interpolate(x, size)))
        return x


class _Pixels(nn.Module):
    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(inputs, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layer(x)).flatten(1)


class Decoder(nn.Module):
    """The decoder of a VAE, as a module to call with the VAE's parameters."""

    def __init__(self, vae: VAE) -> None:
        super().__init__()
        self.decoder, self.pixels = vae.decoder, vae.pixels

    def forward(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.pixels(self.decoder(z)))


class Likelihood(nn.Module):
    """log p(x) under a VAE by importance sampling, as a module to call with the VAE's parameters."""

    def __init__(self, vae: VAE) -> None:
        super().__init__()
        self.encoder, self.mean, self.log_variance = vae.encoder, vae.mean, vae.log_variance
        self.decoder, self.pixels, self.binary = vae.decoder, cast(Layer, vae.pixels), vae.binary

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """log of the mean over samples of p(x|z) p(z) / q(z|x), with z = μ + σ · noise, up to a constant.

        p(x|z) is normal with variance 1. Computed in pieces, so that memory grows with neither samples nor inputs.
        """
        x, weight = x.flatten(1), self.pixels.weighted.weight
        room = AT_ONCE[x.is_cuda] // (weight.shape[0] if self.binary else weight.shape[1])
        samples = max(1, min(len(noise), room))
        pieces = torch.split(x, max(1, room // samples))
        return torch.cat([self._of(piece, noise, samples) for piece in pieces])

    def _of(self, x: Tensor, noise: Tensor, at_once: int) -> Tensor:
        h = self.encoder(x)
        mean, log_variance = self.mean(h).unsqueeze(1), self.log_variance(h).unsqueeze(1)
        found = []
        for some in torch.split(noise, at_once):
            z = mean + torch.exp(log_variance / 2) * some
            log_ratio = (some.square() - z.square() + log_variance).sum(-1)  # twice log p(z) / q(z|x)
            found.append(((log_ratio - self._error(x, z)) / 2).logsumexp(-1))
        return torch.stack(found).logsumexp(0) - log(len(noise))

    def _error(self, x: Tensor, z: Tensor) -> Tensor:
        """‖x − decoded‖², inputs × samples. If decoded = Wh + b, it is computed by WᵀW, as h is much smaller than x."""
        h: Tensor = self.decoder(z)
        if self.binary:
            return (x.unsqueeze(1) - torch.sigmoid(self.pixels(h))).square().sum(-1)
        weight, apart = self.pixels.weighted.weight, x - self.pixels.shift.bias
        across = (h @ (apart @ weight).unsqueeze(-1)).squeeze(-1)
        error: Tensor = apart.square().sum(-1, keepdim=True) - 2 * across + (h @ (weight.T @ weight) * h).sum(-1)
        return error
