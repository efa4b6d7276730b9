"""One network trained on a whole stream by plain loops in float64: unequal tasks, or no task boundaries.

It is told which samples and random numbers came at each step, and the first weights, and nothing else. Units, masks,
losses, budgets, herding, Fisher information, reservoirs and the clock are its own; nothing here is threefold's.
"""

from dataclasses import dataclass

import torch
from plain_losses import dreams
from plain_network import features, gradient, logits
from torch.nn.functional import binary_cross_entropy_with_logits, normalize


@dataclass
class Step:
    """What came: samples as indices and tasks; by name, the numbers and the stored samples that parts drew."""

    task: int
    indices: torch.Tensor
    tasks: torch.Tensor
    drawn: dict


@dataclass
class Course:
    """Where a network learns. `clock`: steps between two consolidations where tasks do not end, and `chances` the
    probability of each task at each step."""

    data: object
    tasks: list
    scenario: str
    lr: float
    clock: int | None = None
    chances: torch.Tensor | None = None

    def units(self, task):
        """Of each class of a task its output unit, written out for each scenario."""
        before = sum(len(earlier.classes) for earlier in self.tasks[:task])
        return [place + (0 if self.scenario == "domain" else before) for place in range(len(self.tasks[task].classes))]

    @property
    def outputs(self):
        return 1 + max(unit for task in range(len(self.tasks)) for unit in self.units(task))

    def active(self, task, seen):
        """A row of the mask: the units that compete for a sample of this task when so many have been seen."""
        if self.scenario == "task":
            own = self.units(task)
        elif self.scenario == "domain":
            own = range(self.outputs)
        else:
            own = [unit for each in range(seen) for unit in self.units(each)]
        return torch.tensor([unit in own for unit in range(self.outputs)])

    def x(self, indices):
        return self.data.train_x[indices].flatten(1).double()

    def y(self, indices, tasks):
        labels = self.data.train_y[indices].tolist()
        pairs = zip(labels, tasks, strict=True)
        return torch.tensor([self.units(int(t))[self.tasks[int(t)].classes.index(label)] for label, t in pairs])


class Network:
    """Learns by one method: a name, and its numbers."""

    def __init__(self, course, weights, method, numbers, gates=None):
        self.course, self.method, self.numbers, self.gates = course, method, numbers, gates
        self.params = {name: p.double().clone() for name, p in weights.items()}
        self.optimizer = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self.params.items()}
        self.taken = self.in_task = self.task = 0
        self.teacher = self.fisher = self.generator = None  # the generator is told after each task
        self.penalties = []  # strength, anchor, importance
        self.start = self.copied()
        self.omega = {name: torch.zeros_like(p) for name, p in self.params.items()}
        self.importance = {name: torch.zeros_like(p) for name, p in self.params.items()}
        self.held = []  # of each class of each task so far: stored indices, in order
        self.reservoir, self.come = [], 0
        self.earlier = 0
        self.prototypes = None

    def copied(self):
        return {name: p.clone() for name, p in self.params.items()}

    # the network

    def gate(self, tasks):
        return None if self.gates is None else [table[tasks] for table in self.gates]

    def scores(self, params, x, tasks):
        return logits(params, x, self.gate(tasks))

    def psi(self, x, tasks):
        return normalize(features(self.params, x, self.gate(tasks)), dim=-1)

    def mask(self, tasks, seen):
        return torch.stack([self.course.active(int(task), seen) for task in tasks])

    @property
    def seen(self):
        return len(self.course.tasks) if self.course.clock else self.task + 1

    # one step

    def entropy(self, params, x, y, tasks):
        scores = self.scores(params, x, tasks).masked_fill(~self.mask(tasks, self.seen), -torch.inf)
        return -torch.log_softmax(scores, -1)[torch.arange(len(y)), y].mean()

    def binary(self, params, x, y, tasks, teacher=None):
        scores, right = self.scores(params, x, tasks), torch.zeros(len(y), self.course.outputs)
        right[torch.arange(len(y)), y] = 1
        if teacher is not None:
            old = self.mask(tasks, self.task)
            right = torch.where(old, torch.sigmoid(self.scores(teacher, x, tasks)), right)
        each = binary_cross_entropy_with_logits(scores, right, reduction="none")
        return each[self.mask(tasks, self.seen)].sum() / len(y)

    def taught(self, params, x, hard=False):
        """On inputs that are for the earlier tasks by turns, with the teacher's labels or probabilities."""
        tasks = (torch.arange(len(x)) + self.in_task * len(x)) % self.earlier
        known = len(self.course.tasks) if self.course.clock else self.task
        old = self.mask(tasks, known)
        said = self.scores(self.teacher, x, tasks).masked_fill(~old, -torch.inf)
        if hard:
            return self.entropy(params, x, said.argmax(-1), tasks)
        soft = torch.softmax(said / 2, -1)
        log = torch.log_softmax(
            self.scores(params, x, tasks).masked_fill(~self.mask(tasks, self.seen), -torch.inf) / 2, -1
        )
        return -4 * torch.where(old, soft * log, 0).sum(-1).mean()

    def replayed(self, drawn):
        """The stored samples of this step: those drawn, which must be held, or by numbers from the reservoir."""
        if "place" in drawn:
            held = [self.reservoir[int(u * len(self.reservoir))] for u in drawn["place"]] if self.reservoir else []
        elif "stored" in drawn:
            held = list(zip(*(each.tolist() for each in drawn["stored"]), strict=True))
            for index, task in held:
                place = sum(len(t.classes) for t in self.course.tasks[:task])
                place += self.course.tasks[task].classes.index(int(self.course.data.train_y[index]))
                assert index in self.held[place], "what is replayed is what is stored"
        else:
            held = []
        if not held:
            return None
        indices, tasks = torch.tensor(held).T
        return self.course.x(indices), self.course.y(indices, tasks), tasks

    def step(self, came):
        if came.task != self.task:
            self.task, self.in_task = came.task, 0
        if not self.course.clock:
            self.earlier = self.task
        x, y = self.course.x(came.indices), self.course.y(came.indices, came.tasks)
        share = 0.5 if self.course.clock else 1 / (self.task + 1)
        stored = self.replayed(came.drawn)
        dreamt = dreams(self.generator, came.drawn["dreamt"]) if "dreamt" in came.drawn else None
        loss_of = self.binary if self.method == "icarl" else self.entropy

        def loss(params):
            if self.method == "icarl" and self.teacher:
                total = self.binary(params, x, y, came.tasks, self.teacher)
            else:
                total = loss_of(params, x, y, came.tasks)
            if self.teacher and (self.method == "lwf" or dreamt is not None):
                inputs = x if dreamt is None else dreamt
                total = share * total + (1 - share) * self.taught(params, inputs, self.method == "dgr")
            if self.method in ("er", "icarl") and stored:
                total = share * total + (1 - share) * loss_of(params, *stored)
            for strength, anchor, importance in self.penalties:
                total = total + strength * sum((importance[n] * (p - anchor[n]) ** 2).sum() for n, p in params.items())
            return total

        _, slope = gradient(loss, self.params)
        if self.method == "a-gem" and stored:
            _, other = gradient(lambda params: self.entropy(params, *stored), self.params)
            along = sum((slope[n] * other[n]).sum() for n in slope)
            if along < 0:
                length = sum((other[n] ** 2).sum() for n in slope)
                slope = {n: slope[n] - along / length * other[n] for n in slope}
        self.adam(slope)
        if "kept" in came.drawn:
            self.take_in(came)
        self.in_task += 1
        if self.course.clock and self.taken % self.course.clock == 0:
            self.earlier = int((self.course.chances[: self.taken] > 0).any(0).sum())
            self.consolidate()

    def adam(self, slope):
        self.taken += 1
        for name, p in self.params.items():
            first, second = self.optimizer[name]
            first, second = 0.9 * first + 0.1 * slope[name], 0.999 * second + 0.001 * slope[name] ** 2
            self.optimizer[name] = first, second
            rate = (second / (1 - 0.999**self.taken)).sqrt() + 1e-8
            move = -self.course.lr * first / (1 - 0.9**self.taken) / rate
            self.omega[name] -= move * slope[name]
            self.params[name] = p + move

    def take_in(self, came):
        """Algorithm R, one sample after the other."""
        each = zip(came.indices.tolist(), came.tasks.tolist(), came.drawn["kept"].tolist(), strict=True)
        for index, task, u in each:
            place = self.come if self.come < self.numbers["budget"] else int(u * (self.come + 1))
            if place == len(self.reservoir) < self.numbers["budget"]:
                self.reservoir.append((index, task))
            elif place < self.numbers["budget"]:
                self.reservoir[place] = (index, task)
            self.come += 1

    # when a task has ended, or by the clock

    def consolidate(self):
        if self.method in ("ewc", "online-ewc"):
            fisher = self.fisher_information()
            if self.method == "ewc":
                self.penalties.append((self.numbers["strength"] / 2, self.copied(), fisher))
            else:
                decay = self.numbers["decay"]
                self.fisher = {n: f + decay * (self.fisher[n] if self.fisher else 0) for n, f in fisher.items()}
                self.penalties = [(decay * self.numbers["strength"] / 2, self.copied(), self.fisher)]
        if self.method == "si":
            for n, p in self.params.items():
                self.importance[n] = self.importance[n] + self.omega[n] / ((p - self.start[n]) ** 2 + 0.1)
                self.omega[n] = torch.zeros_like(p)
            self.start = self.copied()
            self.penalties = [(self.numbers["strength"], self.start, dict(self.importance))]
        if self.method in ("lwf", "dgr", "dgr-distill") or (self.method == "icarl" and not self.course.clock):
            self.teacher = self.copied()
        if not self.course.clock and self.method in ("er", "a-gem", "icarl"):
            self.store()
        if self.method == "icarl" or self.numbers.get("use") == "both":
            self.prototypes = self.means()

    def fisher_information(self):
        """The mean over the task's samples of the squared gradient at the most likely label."""
        own, total = self.course.tasks[self.task].train, {n: torch.zeros_like(p) for n, p in self.params.items()}
        now = torch.tensor([self.task])
        for index in own.tolist():
            x = self.course.x(torch.tensor([index]))
            scores = self.scores(self.params, x, now).masked_fill(~self.mask(now, self.seen), -torch.inf)
            likely = scores.argmax(-1)
            _, slope = gradient(lambda params, x=x, likely=likely: self.entropy(params, x, likely, now), self.params)
            total = {n: t + slope[n] ** 2 / len(own) for n, t in total.items()}
        return total

    def store(self):
        """By herding, and cut to an equal share for each class so far."""
        course, task = self.course, self.task
        share = self.numbers["budget"] // sum(len(t.classes) for t in course.tasks[: task + 1])
        self.held = [chosen[:share] for chosen in self.held]
        own = course.tasks[task].train
        for label in course.tasks[task].classes:
            left = own[course.data.train_y[own] == label].tolist()
            found = dict(zip(left, self.psi(course.x(torch.tensor(left)), torch.full((len(left),), task)), strict=True))
            mean, chosen = torch.stack(list(found.values())).mean(0), []
            while len(chosen) < share and left:
                so_far = sum((found[index] for index in chosen), torch.zeros_like(mean))
                best = min(left, key=lambda index: float((mean - (found[index] + so_far) / (len(chosen) + 1)).norm()))
                chosen.append(best)
                left.remove(best)
            self.held.append(chosen)

    def means(self):
        """Of each output unit the mean feature of what is stored of each of its classes."""
        course, by_class = self.course, {}
        if course.clock:
            for index, task in self.reservoir:
                by_class.setdefault(int(course.y(torch.tensor([index]), [task])[0]), []).append((index, task))
            groups = list(by_class.items())
        else:
            places = [(task, unit) for task in range(self.task + 1) for unit in course.units(task)]
            groups = [
                (unit, [(index, task) for index in held]) for (task, unit), held in zip(places, self.held, strict=True)
            ]
        found = []
        for unit, samples in groups:
            indices, tasks = torch.tensor(samples).T
            task = tasks[0] if not course.clock else None
            mean = normalize(self.psi(course.x(indices), tasks).mean(0), dim=-1)
            found.append((unit, None if task is None else int(task), mean))
        return found

    # tests

    def accuracies(self):
        course, found = self.course, []
        for number, task in enumerate(course.tasks):
            x = course.data.test_x[task.test].flatten(1).double()
            labels = course.data.test_y[task.test].tolist()
            own = torch.full((len(x),), number)
            seen = len(course.tasks) if course.clock else max(self.task + 1, number + 1)
            scores = self.scores(self.params, x, own)
            if self.prototypes is not None:
                known = [
                    (unit, mean)
                    for unit, of, mean in self.prototypes
                    if course.scenario != "task" or of is None or of == number
                ]
                if known:
                    psi = self.psi(x, own)
                    scores = torch.full_like(scores, -torch.inf)
                    for unit, mean in known:
                        scores[:, unit] = torch.maximum(scores[:, unit], -(psi - mean).norm(dim=1))
            chosen = scores.masked_fill(~course.active(number, seen), -torch.inf).argmax(-1).tolist()
            units = course.units(number)
            correct = [c == units[task.classes.index(label)] for c, label in zip(chosen, labels, strict=True)]
            found.append(100 * sum(correct) / len(correct))
        return found
