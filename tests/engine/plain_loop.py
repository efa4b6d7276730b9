"""Continual learning the plain way: one network, one sample's units, one optimiser at a time, in float64.

Nothing here uses threefold's engine, scenarios or nets; the scenarios are spelled out where they differ.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

LAYERS = {"0": "features.layers.0", "2": "features.layers.1", "4": "output"}


def plain_net(weights, replica):
    """One replica's network as an ordinary module."""
    sizes = [weights[f"{name}.weighted.weight"].shape[1:] for name in LAYERS.values()]
    modules = []
    for units, inputs in sizes:
        modules += [nn.Linear(inputs, units, dtype=torch.float64), nn.ReLU()]
    net = nn.Sequential(*modules[:-1])
    with torch.no_grad():
        for place, name in LAYERS.items():
            net[int(place)].weight.copy_(weights[f"{name}.weighted.weight"][replica])
            net[int(place)].bias.copy_(weights[f"{name}.shift.bias"][replica])
    return net


def plain_weights(net):
    """The module's weights under the names of the stack."""
    return {
        f"{name}.{kind}": parameter.detach()
        for place, name in LAYERS.items()
        for kind, parameter in (("weighted.weight", net[int(place)].weight), ("shift.bias", net[int(place)].bias))
    }


def picture(image, task):
    """An image as one task's network input: where tasks are permutations, padded by two zeros around, then permuted."""
    image = image.double().numpy()
    if task.pixels is None:
        return image.ravel()
    height, width = image.shape
    padded = np.zeros((height + 4, width + 4))
    padded[2:-2, 2:-2] = image
    flat = padded.ravel()
    return np.array([flat[p] for p in task.pixels.tolist()])


def competing(scenario, task, seen, classes):
    """The units among which a sample of `task` is told apart when `seen` tasks have been seen, in order."""
    if scenario == "task":
        return list(range(task * classes, (task + 1) * classes))
    if scenario == "domain":
        return list(range(classes))
    return list(range(seen * classes))


def target(scenario, task, label, classes):
    return label if scenario == "domain" else task * classes + label


def loss(net, data, tasks, scenario, indices, numbers, seen):
    """Cross entropy of one batch: each sample over the units that compete for its task, averaged."""
    total = torch.zeros((), dtype=torch.float64)
    for number in sorted(set(numbers)):
        task = tasks[number]
        units = competing(scenario, number, seen, len(task.classes))
        own = [index for index, of in zip(indices, numbers, strict=True) if of == number]
        x = torch.tensor(np.stack([picture(data.train_x[index], task) for index in own]))
        right = [target(scenario, number, task.classes.index(int(data.train_y[i])), len(task.classes)) for i in own]
        places = torch.tensor([units.index(unit) for unit in right])
        total = total + cross_entropy(net(x)[:, units], places, reduction="sum")
    return total / len(indices)


def train_plain(net, data, tasks, scenario, lr, batches):
    """Train on `batches` (for each task a list of indices and tasks); yields the weights after every task."""
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, foreach=False)
    for number, steps in enumerate(batches):
        for indices, numbers in steps:
            optimizer.zero_grad()
            loss(net, data, tasks, scenario, indices, numbers, number + 1).backward()
            optimizer.step()
        yield plain_weights(net)


def accuracy_plain(net, data, tasks, scenario, seen):
    """Per cent correct on every task's test set, sample by sample; a task to come as if it were the newest."""
    accuracies = []
    for number, task in enumerate(tasks):
        n = len(task.classes)
        units = competing(scenario, number, max(seen, number + 1), n)
        correct = 0
        for index in task.test.tolist():
            with torch.no_grad():
                scores = net(torch.tensor(picture(data.test_x[index], task))).tolist()
            winner = max(units, key=lambda unit: scores[unit])
            correct += winner == target(scenario, number, task.classes.index(int(data.test_y[index])), n)
        accuracies.append(100 * correct / len(task.test))
    return accuracies
