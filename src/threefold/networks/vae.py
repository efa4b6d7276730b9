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
AT_ONCE = {True: 1 << 24, False: 1 << 20}  # numbers decoded at once by each network: on a GPU (True), or elsewhere
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

    def forward(self, x: Tensor, noise: Tensor, encoded: Tensor | None = None) -> Tensor:
        """The loss of each sample (equations 11 to 13), per pixel: both terms divided by the number of pixels.

        The paper gives the two terms as quantities to maximise; the loss is their negative. `encoded`: what the encoder
        starts from, if not `x`.
        """
        h, x = self.encode(x if encoded is None else encoded), x.flatten(1)
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

    def __init__(self, shape: Sequence[int], latent: int = LATENT, *, binary: bool = True) -> None:
        channels, height, width = shape
        sizes = [(height, width)]
        for _ in CHANNELS:
            sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
        (height, width), last = sizes[-1], CHANNELS[-1]
        super().__init__(1, last * height * width, latent, binary=binary)
        self.encoder = _Halving((channels, *CHANNELS))
        self.decoder = _Doubling(latent, (*CHANNELS[::-1], CHANNELS[0]), sizes[::-1])
        self.pixels = _Pixels(CHANNELS[0], channels)

    def encode(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.encoder(x))


class EncodedVAE(VAE):
    """The same beside a CNN whose convolutions are frozen: it starts from what they give, and has two hidden layers to
    either side; then its decoder mirrors the convolutions."""

    def __init__(self, shape: Sequence[int], channels: Sequence[int], hidden: int, *, binary: bool = True) -> None:
        colours, height, width = shape
        sizes = [(height, width)]
        for _ in channels[1:]:  # the first convolution keeps the size
            sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
        super().__init__(channels[-1] * sizes[-1][0] * sizes[-1][1], hidden, binary=binary)
        doubling = _Doubling(hidden, channels[::-1], sizes[::-1])
        self.decoder = nn.Sequential(Hidden([LATENT, hidden, hidden]), doubling)
        self.pixels = _Pixels(channels[0], colours)


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
        pairs = pairwise(channels)
        self.layers = nn.ModuleList(nn.Conv2d(inputs, outputs, 3, padding=1) for inputs, outputs in pairs)

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
        self.decoder, self.pixels, self.binary = vae.decoder, vae.pixels, vae.binary

    def forward(self, z: Tensor) -> Tensor:
        decoded: Tensor = self.pixels(self.decoder(z))
        return torch.sigmoid(decoded) if self.binary else decoded


class Likelihood(nn.Module):
    """log p(x) under a VAE by importance sampling, as a module to call with the VAE's parameters."""

    def __init__(self, vae: VAE) -> None:
        super().__init__()
        self.encoder, self.mean, self.log_variance = vae.encoder, vae.mean, vae.log_variance
        self.decoder, self.pixels, self.binary = cast(Hidden, vae.decoder), cast(Layer, vae.pixels), vae.binary

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """log of the mean over samples of p(x|z) p(z) / q(z|x), with z = μ + σ · noise, up to a constant.

        p(x|z) is normal with variance 1. Computed in pieces, so that memory grows with neither samples nor inputs.
        """
        x, weight = x.flatten(1), self.pixels.weighted.weight
        room = AT_ONCE[x.is_cuda] // (weight.shape[0] if self.binary else weight.shape[1] + 1)
        samples = max(1, min(len(noise), room))
        gram = weight.T @ weight
        inputs = max(1, room // max(samples, noise.shape[1] + len(gram)))  # each has matrices of its own
        return torch.cat([self._of(piece, noise, samples, gram) for piece in torch.split(x, inputs)])

    def _of(self, x: Tensor, noise: Tensor, at_once: int, gram: Tensor) -> Tensor:
        """The same for a few inputs. Inputs × samples × units are read and written as rarely as possible."""
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        sigma, further = torch.exp(log_variance / 2), self.decoder.layers[1:]
        layer = cast(Layer, self.decoder.layers[0])
        # Wz + b = (Wμ + b) + (Wσ) noise: one product, with a further "noise" that is always 1
        mixed = torch.cat([layer.weighted.weight.T * sigma.unsqueeze(-1), layer(mean).unsqueeze(1)], 1)
        one = torch.ones_like(noise[:, :1])
        # log p(z) / q(z|x) = ½ Σ (noise² − z² + log σ²), as a polynomial of the noise
        powers, rest = torch.cat([1 - sigma**2, -2 * mean * sigma], 1).T, (log_variance - mean**2).sum(-1, keepdim=True)
        found = []
        for some, ones in zip(torch.split(noise, at_once), torch.split(one, at_once), strict=True):
            log_ratio = (torch.cat([some**2, some], 1) @ powers).T + rest  # twice
            h = (torch.cat([some, ones], 1) @ mixed).relu_()
            for each in further:
                h = relu(each(h))
            found.append(((log_ratio - self._error(x, h, gram)) / 2).logsumexp(-1))
        return torch.stack(found).logsumexp(0) - log(len(noise))

    def _error(self, x: Tensor, h: Tensor, gram: Tensor) -> Tensor:
        """‖x − decoded‖², inputs × samples. If decoded = Wh + b, it is computed by WᵀW, as h is much smaller than x."""
        if self.binary:
            return torch.sigmoid(self.pixels(h)).sub_(x.unsqueeze(1)).square().sum(-1)
        apart = x - self.pixels.shift.bias
        across = (apart @ self.pixels.weighted.weight).unsqueeze(-1)
        product = h @ torch.cat([gram.expand(len(x), -1, -1), -2 * across], -1)
        quadratic, linear = product[..., :-1].mul_(h).sum(-1), product[..., -1]
        return apart.square().sum(-1, keepdim=True) + linear + quadratic
