"""Networks as plain modules for one network; the engine stacks them."""

from threefold.nets.layers import GateOn, Hidden, Layer, Shift, initial_params
from threefold.nets.mlp import MLP
from threefold.nets.vae import LATENT, VAE, Decoder

__all__ = ["LATENT", "MLP", "VAE", "Decoder", "GateOn", "Hidden", "Layer", "Shift", "initial_params"]
