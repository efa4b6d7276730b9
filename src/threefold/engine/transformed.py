"""Samples transformed by their tasks, stored behind the original data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from threefold.streams import Task


def transformed(
    sequences: Sequence[Sequence[Task]], part: str, inputs: Tensor, labels: Tensor
) -> tuple[list[list[Task]], Tensor, Tensor]:
    """The tasks of all replicas, with indices into longer inputs and labels: the given ones, followed by each task's
    transformed samples. What replicas have in common is stored once.

    `part` of the data: "train" or "test".
    """
    more, known = [inputs], list[tuple[Any, Tensor, Tensor]]()
    more_labels, end = [labels], len(inputs)

    def own(task: Task) -> Tensor:
        nonlocal end
        before: Tensor = getattr(task, part)
        if task.transform is None:
            return before
        for transform, indices, found in known:
            if transform is task.transform and torch.equal(indices, before):
                return found
        rows = before.to(inputs.device)
        made = task.transformed(inputs[rows].cpu())
        more.append(made.to(inputs.device))
        more_labels.append(labels[rows])
        after = torch.arange(end, end := end + len(before))
        known.append((task.transform, before, after))
        return after

    def changed(task: Task) -> dict[str, Any]:
        return {part: own(task)}

    tasks = [[replace(task, **changed(task)) for task in sequence] for sequence in sequences]
    return tasks, torch.cat(more), torch.cat(more_labels)
