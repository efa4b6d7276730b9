"""An independent check of networks, optimisers and epochs: python tests/independent_cifar.py --device cuda

Split CIFAR-10 by a plain PyTorch loop, one network at a time, beside threefold's rows. The loop has the data and the
order of classes from threefold; network, first weights, batches, herding and test are its own. `--small`: little data,
a minute or two on one core. Exits with 1 if a difference is more than noise.
"""

import argparse
import subprocess
import sys

import numpy as np
import torch
from scipy.stats import ttest_ind
from torch import nn
from torch.nn.functional import cross_entropy, normalize, relu

import threefold

LR, BATCH, BUDGET = 0.03, 32, 500
METHODS = f"--method none --method er:budget={BUDGET} --method ewc:strength=100 --method lwf"
LINE = "{:7}{:15}{:>14}{:>14}{:>20}{:>7}"


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        skip = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
        self.skip = nn.Sequential(*(skip if inputs != outputs else []))

    def forward(self, x):
        y = self.second_norm(self.second(relu(self.first_norm(self.first(x)))))
        return relu(y + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, width, units):
        super().__init__()
        sizes = [width * n for n in (1, 1, 1, 2, 2, 4, 4, 8, 8)]
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(*map(Residual, sizes, sizes[1:], (1, 1, 2, 1, 2, 1, 2, 1)))
        self.head = nn.Linear(8 * width, units)

    def features(self, x):
        return self.body(self.stem(x)).mean((2, 3))

    def forward(self, x):
        return self.head(self.features(x))


class Loop:
    """One network learns the tasks of one seed. Class number c in the seed's order is unit c."""

    def __init__(self, data, tasks, task_given, width, device):
        self.tasks, self.task_given, self.device = tasks, task_given, device
        self.per_task = len(tasks[0].classes)
        unit = torch.tensor([label for task in tasks for label in task.classes]).argsort()
        self.train_x, self.train_y = data.train_x.to(device), unit[data.train_y].to(device)
        self.test_x, self.test_y = data.test_x.to(device), unit[data.test_y].to(device)
        self.net = ResNet(width, len(unit)).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=LR)
        self.stored = []  # for each class, the samples that ER keeps

    def logits(self, x, y, seen):
        """−∞ for units that do not compete: those of other tasks, or of tasks to come."""
        units = torch.arange(self.net.head.out_features, device=self.device)
        own = units // self.per_task == (y // self.per_task).unsqueeze(1)
        return self.net(x).masked_fill(~(own if self.task_given else units < seen * self.per_task), -torch.inf)

    def step(self, seen, current, replayed=None):
        """The current batch counts 1/K, the replayed one 1 − 1/K, with K tasks seen; both go through together."""
        both = current if replayed is None else torch.cat([current, replayed])
        y = self.train_y[both]
        losses = cross_entropy(self.logits(self.train_x[both], y, seen), y, reduction="none")
        loss = losses[: len(current)].mean()
        if replayed is not None:
            loss = loss / seen + losses[len(current) :].mean() * (1 - 1 / seen)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def learn(self, source, replay):
        for number, task in enumerate(self.tasks):
            samples = task.train[torch.randperm(len(task.train), generator=source)].to(self.device)
            for batch in samples.split(BATCH)[: len(samples) // BATCH]:
                self.step(number + 1, batch, self.draw(number, source) if replay and number else None)
            if replay:
                self.store(number)

    def draw(self, number, source):
        """As many of each earlier task, a class of it at random, one of its stored samples at random."""
        random = torch.randint(self.per_task, (BATCH,), generator=source)
        classes = torch.arange(BATCH) % number * self.per_task + random
        places = torch.rand(BATCH, generator=source).tolist()
        own = [self.stored[c] for c in classes.tolist()]
        return torch.stack([samples[int(place * len(samples))] for samples, place in zip(own, places, strict=True)])

    @torch.no_grad()
    def store(self, number):
        """Herding: the samples whose mean feature comes closest to that of their class, one after the other."""
        share = BUDGET // ((number + 1) * self.per_task)
        self.stored = [samples[:share] for samples in self.stored]
        self.net.eval()
        for unit in range(number * self.per_task, (number + 1) * self.per_task):
            own = torch.nonzero(self.train_y == unit).flatten()
            features = torch.cat([normalize(self.net.features(self.train_x[some])) for some in own.split(500)])
            total, chosen = torch.zeros_like(features[0]), []
            for count in range(1, min(share, len(own)) + 1):
                far = (features.mean(0) - (total + features) / count).norm(dim=1)
                far[chosen] = torch.inf
                chosen.append(int(far.argmin()))
                total = total + features[chosen[-1]]
            self.stored.append(own[chosen])
        self.net.train()

    @torch.no_grad()
    def accuracy(self):
        """Per cent right, averaged over the tasks."""
        self.net.eval()
        right = []
        for some in (task.test.to(self.device) for task in self.tasks):
            guessed = [self.logits(self.test_x[p], self.test_y[p], len(self.tasks)).argmax(1) for p in some.split(500)]
            right.append((torch.cat(guessed) == self.test_y[some]).double().mean().item())
        return 100 * float(np.mean(right))


def by_loop(stream, scenario, replay, seed, width, device):
    torch.manual_seed(seed)
    loop = Loop(stream.data, stream.sequence(seed), scenario == "task", width, device)
    loop.learn(torch.Generator().manual_seed(1000 + seed), replay)
    return loop.accuracy()


def some_of(x, y, each):
    kept = torch.cat([torch.nonzero(y == label).flatten()[:each] for label in range(10)])
    return x[kept], y[kept]


def _shown(values):
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.2f}"


def main(device, store, small):
    data, width = threefold.load("cifar-10"), 4 if small else 20
    network, shared = (
        f"resnet18:width={width}",
        f"--epochs 1 --batch {BATCH} --seeds 5 --device {device} --store {store}",
    )
    words = f"run split-cifar-10 --network {network} --optimizer sgd:lr={LR} --scenario all {METHODS} {shared}"
    if small:
        torch.set_num_threads(1)  # on a busy machine two wait for each other
        few = (*some_of(data.train_x, data.train_y, 64), *some_of(data.test_x, data.test_y, 20))
        data = threefold.Dataset.from_arrays(*few, name="few")
    else:
        subprocess.run([sys.executable, "-m", "threefold", *words.split()], check=True)
    stream, all_agree = threefold.Split(data, 5), True
    how = {"network": network, "optimizer": f"sgd:lr={LR}", "epochs": 1, "batch": BATCH, "seeds": 5, "device": device}
    print(LINE.format("", "", "loop", "threefold", "difference [95%]", "agree"))
    for scenario in ("task", "class"):
        for method in ("none", f"er:budget={BUDGET}"):
            theirs = threefold.run(stream, scenario=scenario, method=method, store=store, **how).accuracy.per_seed
            mine = [by_loop(stream, scenario, method != "none", seed, width, device) for seed in range(1, 6)]
            low, high = ttest_ind(mine, theirs, equal_var=False).confidence_interval()  # Welch's, of 95%
            agree = low <= 0 <= high or np.ptp([*mine, *theirs]) == 0
            row = [
                scenario,
                method,
                _shown(mine),
                _shown(theirs),
                f"{low:+.2f} to {high:+.2f}",
                "yes" if agree else "NO",
            ]
            print(LINE.format(*row), flush=True)
            all_agree &= agree
    sys.exit(not all_agree)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", default="independent_cifar.db")
    parser.add_argument("--small", action="store_true")
    main(**vars(parser.parse_args()))
