"""A reference implementation: one network, one sample and one optimiser at a time, in float64.

Nothing here uses threefold's engine, scenarios or networks; the scenarios are spelled out where they differ.
"""

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

TASKS = 3  # of the small streams


def features(params, x, gates=None, gate_on="activation"):
    x = x.flatten(-3) if x.dim() > 2 else x  # images as rows
    for depth in range(2):
        weighted = x @ params[f"features.layers.{depth}.weighted.weight"].T
        if gates is not None and gate_on == "input":
            weighted = weighted * gates[depth]
        x = torch.clamp(weighted + params[f"features.layers.{depth}.shift.bias"], min=0)
        if gates is not None and gate_on == "activation":
            x = x * gates[depth]
    return x


def logits(params, x, gates=None, gate_on="activation"):
    hidden = features(params, x, gates, gate_on)
    return hidden @ params["output.weighted.weight"].T + params["output.shift.bias"]


def picture(image, task):
    """An image as one task's network input: where tasks are permutations, padded by two zeros around, then permuted."""
    image = image.double().numpy()
    if task.pixels is None:
        return torch.tensor(image.ravel())
    height, width = image.shape
    padded = np.zeros((height + 4, width + 4))
    padded[2:-2, 2:-2] = image
    flat = padded.ravel()
    return torch.tensor([flat[p] for p in task.pixels.tolist()], dtype=torch.float64)


def competing(scenario, task, seen, classes):
    """The units among which a sample of `task` is told apart when `seen` tasks have been seen, in order (A.1.1)."""
    if scenario == "task":
        return list(range(task * classes, (task + 1) * classes))
    if scenario in ("domain", "hidden"):
        return list(range(classes))
    return list(range(TASKS * classes)) if scenario == "all" else list(range(seen * classes))


def target(scenario, task, label, classes):
    return label if scenario in ("domain", "hidden") else task * classes + label


def log_chance(scores, units, temperature=1.0):
    """log p(unit) for each of these units, a softmax over them alone; a dictionary by unit."""
    raised = torch.stack([scores[unit] for unit in units]) / temperature
    return dict(zip(units, raised - torch.logsumexp(raised, 0), strict=True))


def cross_entropy(scores, units, right):
    """Equation 1, averaged over samples: rows of scores, for each the units that compete and the right one."""
    losses = [-log_chance(row, own)[int(unit)] for row, own, unit in zip(scores, units, right, strict=True)]
    return torch.stack(losses).mean()


def gradient(loss, params):
    """The value of `loss(params)`, and its gradient, a tree like params."""
    leaves = [leaf.detach().requires_grad_() for leaf in tree_leaves(params)]
    value = loss(tree_unflatten(leaves, tree_structure(params)))
    found = torch.autograd.grad(value, leaves, allow_unused=True)
    grads = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]
    return value.detach(), tree_unflatten(grads, tree_structure(params))


def train_plain(weights, data, tasks, scenario, lr, batches):
    """Train on `batches` (for each task a list of indices and tasks); yields the weights after every task."""
    params = {name: p.double().clone().requires_grad_() for name, p in weights.items()}
    optimizer = torch.optim.Adam(params.values(), lr=lr, foreach=False)
    for newest, steps in enumerate(batches):
        for indices, numbers in steps:
            x = torch.stack([picture(data.train_x[i], tasks[n]) for i, n in zip(indices, numbers, strict=True)])
            labels = [tasks[n].classes.index(int(data.train_y[i])) for i, n in zip(indices, numbers, strict=True)]
            classes = len(tasks[0].classes)
            units = [competing(scenario, n, newest + 1, classes) for n in numbers]
            right = [target(scenario, n, label, classes) for n, label in zip(numbers, labels, strict=True)]
            optimizer.zero_grad()
            cross_entropy(logits(params, x), units, right).backward()
            optimizer.step()
        yield {name: p.detach().clone() for name, p in params.items()}


def accuracy_plain(weights, data, tasks, scenario, seen):
    """Per cent correct on every task's test set, sample by sample; a task to come as if it were the newest."""
    params = {name: p.double() for name, p in weights.items()}
    accuracies = []
    for number, task in enumerate(tasks):
        classes = len(task.classes)
        units = competing(scenario, number, max(seen, number + 1), classes)
        correct = 0
        for index in task.test.tolist():
            scores = logits(params, picture(data.test_x[index], task)).tolist()
            winner = max(units, key=lambda unit: scores[unit])
            correct += winner == target(scenario, number, task.classes.index(int(data.test_y[index])), classes)
        accuracies.append(100 * correct / len(task.test))
    return accuracies
