"""What a method's memory stores of the training data, for one network."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from threefold.scenarios import Outputs


def stored_samples(memory: Mapping[str, Any], outputs: Outputs) -> tuple[Tensor, Tensor] | None:
    """The indices of the stored samples and the task of each; None for a memory that stores none.

    A memory has them class by class, as `Exemplars` ("stored" and "count"), or as one reservoir ("reservoir",
    "of_task", "come").
    """
    if {"reservoir", "of_task", "come"} <= memory.keys():
        held = min(int(memory["come"]), len(memory["reservoir"]))
        return memory["reservoir"][:held], memory["of_task"][:held]
    if not {"stored", "count"} <= memory.keys():
        return None
    stored, count = memory["stored"], memory["count"]
    real = torch.arange(stored.shape[1], device=stored.device) < count.unsqueeze(1)
    tasks = outputs.tasks_of_classes(outputs.tasks, stored.device)[: len(stored)]
    return stored[real], tasks.unsqueeze(1).expand_as(stored)[real]
