"""The generator of brain-inspired replay (van de Ven, Siegelmann and Tolias 2020)."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, softplus

from threefold.networks.layers import Hidden, Layer, Normal


class GatedDecoder(nn.Module):
    """Two hidden layers whose weighted inputs, biases included, are multiplied by gates before the activation."""

    def __init__(self, latent: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(latent, hidden), Layer(hidden, hidden)])
        self.output = Layer(hidden, outputs)

    def forward(self, z: Tensor, gates: Sequence[Tensor]) -> Tensor:
        for layer, gate in zip(self.layers, gates, strict=True):
            z = relu(layer(z) * gate)
        return cast(Tensor, self.output(z))


class FeedbackVAE(nn.Module):
    """A variational autoencoder that encodes with the classifier's features, or with its own encoder."""

    def __init__(self, inputs: int, hidden: int, units: int, latent: int, *, encoder: bool, modes: bool) -> None:
        super().__init__()
        self.encoder = Hidden([inputs, hidden, hidden]) if encoder else None
        self.mean = Layer(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent, bias=False)
        self.decoder = GatedDecoder(latent, hidden, inputs)
        self.modes = nn.ModuleDict({name: Normal(units, latent) for name in ("mean", "log_variance")} if modes else {})

    def forward(
        self, x: Tensor, features: Tensor, noise: Tensor, gates: Sequence[Tensor], mixture: Tensor, binary: bool
    ) -> Tensor:
        """The loss of each sample, divided by the number of inputs; `mixture`: the weights of the prior's modes.

        Reconstruction is binary cross entropy, or half the squared error; the latent term is log q(z|x) − log p(z) at
        the z that was drawn, or for a standard normal prior its mean.
        """
        x = x.flatten(1)
        h = features if self.encoder is None else self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.exp(log_variance / 2) * noise
        decoded = self.decoder(z, gates)
        recon = (softplus(decoded) - x * decoded if binary else 0.5 * (x - decoded) ** 2).sum(-1)
        if self.modes:
            centre, width = (cast(Normal, self.modes[name]).numbers for name in ("mean", "log_variance"))
            each = _log_normal(z.unsqueeze(1), centre, width) + torch.log(mixture)
            latent = _log_normal(z, mean, log_variance) - torch.logsumexp(each, -1)
        else:
            latent = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return cast(Tensor, (recon + latent) / x.shape[-1])


def _log_normal(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """log N(z; mean, variance), up to a constant, which cancels."""
    return -0.5 * (log_variance + (z - mean) ** 2 / log_variance.exp()).sum(-1)
