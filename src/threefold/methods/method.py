"""A method is a composition of parts (DESIGN idea 4)."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from threefold.errors import ThreefoldError
from threefold.methods.losses import cross_entropy
from threefold.methods.part import Batch, Learner, Params, Part, Replay, Setting


def classification(learner: Learner, x: Tensor, y: Tensor, task: Tensor, params: Params | None = None) -> Tensor:
    """Cross entropy over the active units, averaged over samples (equation 1)."""
    return cross_entropy(learner.logits(x, task, params), y, learner.now.active[task]).mean()


def objective(
    parts: Sequence[Part],
    learner: Learner,
    batch: Batch,
    replays: Sequence[Replay | None],
    drawn: Mapping[str, Any],
    penalties: Sequence[Part],
    sides: Collection[str],
) -> Tensor:
    """The loss of one network at one step: current data, replayed data, penalties, and networks trained beside it.

    Current and replayed data are weighted 1/K and 1 − 1/K, with K the number of tasks so far (section 4.2).
    `penalties` are the parts that add one, `sides` the names of those whose networks beside the classifier learn here.
    """
    recalled = [
        (replay.x, replay.task) for part, replay in zip(parts, replays, strict=True) if replay and part.replays_inputs
    ]
    if recalled:
        learner.see([(batch.x, batch.task), *recalled])
    special = (part.loss(learner, batch) for part in parts)
    total = next((loss for loss in special if loss is not None), None)
    if total is None:
        total = classification(learner, batch.x, batch.y, batch.task)
    replayed = [
        loss
        for part, replay in zip(parts, replays, strict=True)
        if replay is not None and (loss := part.replay_loss(learner, replay)) is not None
    ]
    if replayed:
        past = replayed[0] if len(replayed) == 1 else torch.stack(replayed).mean()
        total = learner.now.shares[0] * total + learner.now.shares[1] * past
    further = [
        (Part.penalty if part.leashes else type(part).penalty)(part, learner.params, learner.memory[part.name])
        for part in penalties
    ]
    for part, replay in zip(parts, replays, strict=True):
        if part.name in sides:
            further.append(part.side_loss(learner, batch, replay, drawn))
    for loss in further:
        total = total if loss is None else total + loss
    return total


class Method:
    """Parts that work together, for example `EWC() + XdG()`. No part at all is plain training: the baseline None."""

    def __init__(self, *parts: Part) -> None:
        names = [part.name for part in parts]
        if len(set(names)) < len(names):
            raise ThreefoldError(f"method '{'+'.join(names)}' names a part twice; right would be each part once.")
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
        """Two parts that train a network of the same name would train one network twice."""
        training = [part for part in self.parts if type(part).networks is not Part.networks]
        if len(training) < 2:
            return None
        owners: dict[str, str] = {}
        with torch.device("meta"):
            for part in training:
                for name in part.networks(setting):
                    if name != "classifier" and owners.setdefault(name, part.name) != part.name:
                        return f"{owners[name]} and {part.name} both train a {name}; right would be one of them."
        return None

    def trained_as(self) -> "Method":
        """The method that trains the same networks, without what counts at test time only."""
        return Method(*(part for each in self.parts if (part := each.trained_as()) is not None))

    def scenario_in_masks(self) -> bool:
        """Do its parts meet the scenario in the masks of `Now` only? One from elsewhere may do anything."""
        return all(part.scenario_in_masks and not part.from_outside() for part in self.parts)

    def networks_depend_on(self) -> dict[str, Hashable]:
        """On what the networks beside the classifier depend, by part; those that are like no other's are left out."""
        keys = {part.name: part.networks_depend_on() for part in self.parts}
        other_data = any(type(part).pool is not Part.pool for part in self.parts)
        return {name: key for name, key in keys.items() if key is not None and not other_data}

    def hyperparameters(self) -> dict[str, dict[str, Any]]:
        """Every hyperparameter of every part."""
        return {part.name: part.model_dump() for part in self.parts}
