"""Accuracy on the full test set of every task."""

import torch
from torch import Tensor

from threefold.engine.stack import ReplicaStack, padded

PADDING = -1  # a target that no prediction equals


def accuracies(stack: ReplicaStack, seen: int) -> Tensor:
    """Accuracy in per cent on each task after `seen` tasks, replicas × tasks.

    The scenario determines whether the task is given and which units compete (`Outputs.at_test`). Where tasks have no
    ends, the units of all tasks compete from the start.
    """
    seen = stack.setting.outputs.tasks if stack.flow else seen
    tasks = stack.setting.outputs.tasks
    found = torch.empty(len(stack.seeds), tasks, dtype=torch.float64, device=stack.device)
    for task in range(tasks):  # no small tensor may survive a pass and fragment the freed memory
        found[:, task] = _accuracy(stack, task, seen)
    return found.cpu()


def _accuracy(stack: ReplicaStack, task: int, seen: int) -> Tensor:
    device = stack.device
    own = [tasks[task].test for tasks in stack.data.sequences]
    indices, real = padded(own, device)
    active = stack.setting.outputs.at_test(task, seen).to(device)
    number = torch.tensor(task, device=device)
    correct = torch.zeros(len(own), dtype=torch.long, device=device)
    for piece in stack.pieces(indices.shape[1]):
        batch = stack.data.test(indices[:, piece], number)
        target = torch.where(real[:, piece], batch.y, PADDING)
        correct += (stack.predict(batch.x, number, active) == target).sum(1)
    return 100 * correct.double() / real.sum(1)
