"""A step of Adam for parameters that a part keeps in its memory, which the engine's optimiser does not train."""

from typing import NamedTuple

from torch import Tensor

from threefold.methods.learner import Params

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Adam(NamedTuple):
    """Parameters, and the moving averages of their gradients and of the squares of these."""

    params: Params
    means: Params
    squares: Params

    def stepped(self, gradient: Params, lr: float | Tensor, taken: Tensor) -> "Adam":
        """After a step; `taken`: how many there are then, in float64."""
        one, two = (1 - beta**taken for beta in BETAS)
        fresh = Adam({}, {}, {})
        for name, g in gradient.items():
            mean = fresh.means[name] = BETAS[0] * self.means[name] + (1 - BETAS[0]) * g
            square = fresh.squares[name] = BETAS[1] * self.squares[name] + (1 - BETAS[1]) * g**2
            size, below = (lr / one).to(g.dtype), square.sqrt() / two.sqrt().to(g.dtype) + EPSILON
            fresh.params[name] = self.params[name] - size * mean / below
        return fresh
