"""A method is a composition of parts, and what they minimise together."""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from threefold.errors import ThreefoldError
from threefold.methods.learner import Batch, Learner, Params, Quadratic, Replay, Setting
from threefold.methods.losses import cross_entropy
from threefold.methods.part import Part


def classification(learner: Learner, x: Tensor, y: Tensor, task: Tensor, params: Params | None = None) -> Tensor:
    """Cross entropy over the active units, averaged over samples (equation 1)."""
    return cross_entropy(learner.logits(x, task, params), y, learner.now.active[task]).mean()


def objective(
    learner: Learner,
    batch: Batch,
    replays: Sequence[Replay | None],
    penalties: Sequence[Part],
    sides: Collection[str],
) -> Tensor:
    """The loss of one network at one step: current data, replayed data, penalties, and the other networks' losses.

    Current and replayed data are weighted 1/K and 1 − 1/K, with K the number of tasks so far (section 4.2), except for
    parts whose replay is added to the current data's loss.
    `penalties` are the parts whose penalty is included, `sides` the names of those whose other networks are trained.
    """
    parts = learner.parts
    if replayed := [replay for replay in replays if replay]:
        learner.forward_together([(batch.x, batch.task), *((replay.x, replay.task) for replay in replayed)])
    special = (part.loss(learner, batch) for part in parts)
    total = next((loss for loss in special if loss is not None), None)
    if total is None:
        total = classification(learner, batch.x, batch.y, batch.task)
    pairs = list(zip(parts, replays, strict=True))
    losses = [(part.adds_replay, part.replay_loss(learner, replay)) for part, replay in pairs if replay]
    past = [loss for added, loss in losses if loss is not None and not added]
    if past:
        mean = past[0] if len(past) == 1 else torch.stack(past).mean()
        total = learner.now.shares[0] * total + learner.now.shares[1] * mean
    further: list[Any] = [loss for added, loss in losses if added]
    further += [part.penalty(learner) for part in penalties]
    further += [part.side_loss(learner, batch, replay) for part, replay in pairs if part.name in sides]
    for loss in further:
        if loss is not None:
            total = total + (loss.value(learner.params) if isinstance(loss, Quadratic) else loss)
    return total


class Method:
    """Parts that work together, for example `EWC() + XdG()`. Without parts it is plain training, the baseline None."""

    def __init__(self, *parts: Part) -> None:
        names = [part.name for part in parts]
        if len(set(names)) < len(names):
            raise ThreefoldError(f"method '{'+'.join(names)}' names a part twice; each part may be in it once.")
        self.parts = parts
        self.name = "+".join(names) or "none"

    def __add__(self, other: "Method | Part") -> "Method":
        return Method(*self.parts, *(other.parts if isinstance(other, Method) else [other]))

    def __repr__(self) -> str:
        return f"Method({', '.join(map(repr, self.parts))})"

    def refuse(self, setting: Setting) -> str | None:
        """Why this method cannot be used in this setting: the dash in a table's cell."""
        reason = next((reason for part in self.parts if (reason := part.refuse(setting))), None)
        return reason or self._clash(setting)

    def _clash(self, setting: Setting) -> str | None:
        """Why two parts cannot be combined: networks of the same name would be trained twice."""
        training = [part for part in self.parts if type(part).networks is not Part.networks]
        if len(training) < 2:
            return None
        owners: dict[str, str] = {}
        with torch.device("meta"):
            for part in training:
                for name in part.networks(setting):
                    if owners.setdefault(name, part.name) != part.name:
                        return f"{owners[name]} and {part.name} both train a {name}; use one of them."
        return None

    @property
    def over_seen(self) -> bool:
        """Is the loss over the units of classes seen so far, whatever `active` is for other methods?"""
        return any(part.over_seen for part in self.parts)

    def hyperparameters(self) -> dict[str, dict[str, Any]]:
        """The hyperparameters of every part, as they enter run keys."""
        return {part.name: part.in_key() for part in self.parts}
