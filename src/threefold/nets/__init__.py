"""Networks as plain modules for one network; the engine stacks them."""

from threefold.nets.layers import GateOn, Hidden, Layer, Shift, initial_params
from threefold.nets.mlp import MLP

__all__ = ["MLP", "GateOn", "Hidden", "Layer", "Shift", "initial_params"]
