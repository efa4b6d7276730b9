"""The generators of DGR."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu, softplus

from threefold.networks.layers import Hidden, Layer

LATENT = 100
CHANNELS = (32, 64, 128)


class VAE(nn.Module):
    """A symmetric variational autoencoder with two hidden layers to either side (section A.3)."""

    def __init__(self, inputs: int, hidden: int, latent: int = LATENT) -> None:
        super().__init__()
        self.encoder: nn.Module = Hidden([inputs, hidden, hidden])
        self.mean = Layer(hidden, latent)
        self.log_variance = Layer(hidden, latent)
        self.decoder: nn.Module = Hidden([latent, hidden, hidden])
        self.pixels: nn.Module = Layer(hidden, inputs)

    def encode(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.encoder(x.flatten(1)))

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """The loss of each sample (equations 11 to 13), per pixel: both terms divided by the number of pixels.

        The paper states the two terms as what is maximised; the loss is their negative.
        """
        h, x = self.encode(x), x.flatten(1)
        mean, log_variance = self.mean(h), self.log_variance(h)
        decoded = self.decode_logits(mean + torch.exp(log_variance / 2) * noise)
        recon = (softplus(decoded) - x * decoded).sum(-1)  # binary cross entropy, of logits
        latent = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return cast(Tensor, (recon + latent) / x.shape[-1])

    def decode_logits(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.pixels(self.decoder(z)))


class ConvolutionalVAE(VAE):
    """The same for images: convolutions that halve them, and on the way back ones that double them."""

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
    """The half of a VAE that turns latent variables into images, as a module to call with the VAE's parameters."""

    def __init__(self, vae: VAE) -> None:
        super().__init__()
        self.decoder, self.pixels = vae.decoder, vae.pixels

    def forward(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.pixels(self.decoder(z)))
