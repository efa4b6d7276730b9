"""The kernel of a network linearised at its weights: K = G Σ Gᵀ, with G the gradients at a few samples."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, vmap

from threefold.methods.learner import Learner, Params, Stack

JITTER = 1e-6  # on the diagonal
ON_CPU = 1 << 24  # gradient entries at once for each network on a CPU
BYTES = 128  # of a GPU for each gradient entry of the stack: a quarter of it is used at most
WITHIN = 6 * ON_CPU  # memory for a network, in float32 numbers: three times as many entries, in float64


def inverse_kernel(
    stack: Stack, x: Tensor, real: Tensor, variance: Params, function: Callable[..., Tensor], unit: int
) -> Tensor:
    """K⁻¹ of one unit of `function(learner, x, params)` at samples x, of all networks; Σ is diagonal.

    In float64, as its smallest eigenvalues are tiny. Gradients are computed for a few samples at a time, so that memory
    does not grow with samples × weights. Rows of padding (not `real`) are zero off the diagonal.
    """

    def slopes(learner: Learner, x: Tensor) -> Params:
        def value(params: Params, one: Tensor) -> Tensor:
            return function(learner, one[None], params)[0, unit]

        each = vmap(grad(value), (None, 0))(learner.params, x)
        return {name: g.double().flatten(1) for name, g in each.items()}

    samples, weights = x.shape[1], sum(v[0].numel() for v in variance.values())
    at_once = ON_CPU // weights if x.device.type == "cpu" else _room(x.device) // (weights * len(x))
    places = torch.split(torch.arange(samples, device=x.device), max(1, at_once))
    kernel = torch.zeros(len(x), samples, samples, dtype=torch.float64, device=x.device)
    for place, mine in enumerate(places):
        found = stack.map(slopes, x[:, mine])
        scaled = {n: g * variance[n].double().flatten(1).unsqueeze(1) for n, g in found.items()}
        for other in places[: place + 1]:
            theirs = stack.map(slopes, x[:, other])
            block = torch.stack([g @ theirs[n].mT for n, g in scaled.items()]).sum(0)
            kernel[:, mine.unsqueeze(1), other] = block
            kernel[:, other.unsqueeze(1), mine] = block.mT
    kernel *= real.unsqueeze(1) & real.unsqueeze(2)
    jitter = JITTER * torch.eye(samples, dtype=kernel.dtype, device=x.device)
    inverse: Tensor = torch.linalg.inv_ex(kernel + jitter).inverse  # no error for what diverged, no synchronisation
    return inverse


def _room(device: torch.device) -> int:
    """How many gradient entries a GPU holds at once: the more, the fewer are computed twice."""
    return int(torch.cuda.get_device_properties(device).total_memory) // BYTES
