"""Networks as plain modules for one network; the engine stacks them."""

from threefold.networks.layers import GateOn, Hidden, Layer, Shift, initial_params
from threefold.networks.mlp import MLP
from threefold.networks.vae import LATENT, VAE, Decoder

__all__ = ["LATENT", "MLP", "VAE", "Decoder", "GateOn", "Hidden", "Layer", "Shift", "initial_params"]
