"""Accuracy on the full test set of every task."""

import torch
from torch import Tensor

from threefold.engine.stack import ReplicaStack, padded

PADDING = -1  # a target that no prediction equals


def accuracies(stack: ReplicaStack, seen: int) -> Tensor:
    """Per cent correct on each task when `seen` tasks have been learned, replicas × tasks.

    Whether the task is given, and which units compete, is the scenario's answer (`Outputs.at_test`).
    """
    tasks = range(stack.setting.outputs.tasks)
    return torch.stack([_accuracy(stack, task, seen) for task in tasks], dim=1).cpu()


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
