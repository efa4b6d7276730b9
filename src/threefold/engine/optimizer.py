"""Adam on stacks."""

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.optim.adam import adam

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # section 4.2; ε is the optimiser's usual one


class Adam:
    """PyTorch's fused Adam on stacked parameters as they are: it is elementwise.

    One state for the whole sequence of tasks. Neighbouring replicas with the same learning rate are updated together.
    """

    def __init__(self, params: Sequence[Tensor], lr: Sequence[float]) -> None:
        self.means = [torch.zeros_like(p) for p in params]
        self.squares = [torch.zeros_like(p) for p in params]
        self.groups: list[tuple[slice, float, list[Tensor]]] = []
        start = 0
        for rate, same in groupby(lr):
            stop = start + len(list(same))
            steps = [torch.zeros((), device=p.device) for p in params]
            self.groups.append((slice(start, stop), rate, steps))
            start = stop
        self.params = list(params)

    def step(self, grads: Sequence[Tensor]) -> None:
        for rows, rate, steps in self.groups:
            adam(
                [p[rows] for p in self.params],
                [g[rows] for g in grads],
                [m[rows] for m in self.means],
                [s[rows] for s in self.squares],
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=BETA1,
                beta2=BETA2,
                lr=rate,
                weight_decay=0.0,
                eps=EPSILON,
                maximize=False,
            )

    def state(self) -> dict[str, list[Tensor]]:
        steps = [step for _, _, steps in self.groups for step in steps]
        return {"means": self.means, "squares": self.squares, "steps": steps}

    def restore(self, state: dict[str, list[Tensor]]) -> None:
        for name, tensors in self.state().items():
            for mine, saved in zip(tensors, state[name], strict=True):
                mine.copy_(saved)
