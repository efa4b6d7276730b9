"""The generator of DGR."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from threefold.networks.layers import Hidden, Layer

LATENT = 100


class VAE(nn.Module):
    """A symmetric variational autoencoder with two hidden layers to either side (section A.3)."""

    def __init__(self, inputs: int, hidden: int, latent: int = LATENT) -> None:
        super().__init__()
        self.encoder = Hidden([inputs, hidden, hidden])
        self.mean = Layer(hidden, latent)
        self.log_variance = Layer(hidden, latent)
        self.decoder = Hidden([latent, hidden, hidden])
        self.pixels = Layer(hidden, inputs)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        """The loss of each sample (equations 11 to 13), per pixel: both terms divided by the number of pixels.

        The paper states the two terms as what is maximised; the loss is their negative.
        """
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        decoded = self.decode_logits(mean + torch.exp(log_variance / 2) * noise)
        recon = (softplus(decoded) - x * decoded).sum(-1)  # binary cross entropy, of logits
        latent = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return cast(Tensor, (recon + latent) / x.shape[-1])

    def decode_logits(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.pixels(self.decoder(z)))


class Decoder(nn.Module):
    """The half of a VAE that turns latent variables into images, as a module to call with the VAE's parameters."""

    def __init__(self, vae: VAE) -> None:
        super().__init__()
        self.decoder, self.pixels = vae.decoder, vae.pixels

    def forward(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.pixels(self.decoder(z)))
