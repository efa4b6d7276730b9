"""The Generative Classifier: which class makes the input most likely? (van de Ven, Li & Tolias 2021)"""

from functools import cache

import torch
from torch import Tensor
from torch.func import functional_call, grad
from torch.utils._pytree import tree_map

from threefold.methods.learner import Batch, Draws, Learner, Memory, Noise, OfLabel, Params, Setting, Stack, Step
from threefold.methods.own_adam import Adam
from threefold.methods.part import Part, hyper
from threefold.networks import VAE, Likelihood, initial_params
from threefold.randomness import generator

ADAM = ("live", "means", "squares")  # of the VAEs in training, as in `own_adam.py:Adam`


class GenerativeClassifier(Part):
    """Generative classifier: a VAE for each class, trained on that class alone; the highest likelihood wins.

    The task's classes take turns, each with an Adam of its own. `live` are their VAEs. The classifier is not used.
    """

    name = "generative-classifier"
    citation = "vandeven2021"
    hidden: int = hyper("units in each hidden layer of a VAE", 85, per_replica=False, ge=1)
    layers: int = hyper("hidden layers of a VAE, to either side", 2, per_replica=False, ge=1, le=100)
    latent: int = hyper("latent variables of a VAE", 5, per_replica=False, ge=1)
    samples: int = hyper("importance samples of an input's likelihood", 50, per_replica=False, ge=1)
    lr: float = hyper("learning rate of the VAEs", 0.001, gt=0)

    def refuse(self, setting: Setting) -> str | None:
        if not setting.outputs.all_compete:
            return f"{self.name} needs all tasks' classes to compete; in {setting.outputs.scenario.title} they do not."
        if not setting.tasks_end:
            return f"{self.name} trains the classes of a task by turns until it ends, and in this stream none does."
        return None

    def size(self, setting: Setting) -> int:
        """A VAE for each unit, those of a task again with Adam's averages, and the noise."""
        vaes = setting.outputs.units + len(ADAM) * setting.outputs.largest
        return vaes * sum(p.numel() for p in self._vae(setting).parameters()) + self.samples * self.latent

    def start(self, setting: Setting, seed: int, params: Params) -> Memory:
        units = range(setting.outputs.units)
        each = [initial_params(self._vae(setting), generator(seed, "weights of a class", unit)) for unit in units]
        vaes = {name: torch.stack([one[name] for one in each]) for name in each[0]}
        noise = torch.randn(self.samples, self.latent, generator=generator(seed, "importance samples"))
        return {"vaes": vaes, "noise": noise} | _begun(setting, vaes, 0)

    def draws(self, setting: Setting, task: int, memory: Memory, steps: int, source: torch.Generator) -> Draws:
        own = OfLabel(torch.arange(steps) % setting.outputs.size(task))
        return {f"{self.name} own": own, f"{self.name} noise": Noise((setting.batch, self.latent))}

    def loss(self, learner: Learner, batch: Batch) -> Tensor:
        """The loss of the VAE whose turn it is; its weights change in `after_step`."""
        turn = self._turn(learner)
        return self._loss(learner, {name: _row(p, turn) for name, p in learner.memory[self.name]["live"].items()})

    def after_step(self, learner: Learner, step: Step) -> Memory:
        """A step of Adam."""
        memory, turn = learner.memory[self.name], self._turn(learner)
        old = Adam(*({name: _row(p, turn) for name, p in memory[entry].items()} for entry in ADAM))
        gradient, taken = grad(lambda params: self._loss(learner, params))(old.params), memory["taken"] + turn
        fresh: Memory = dict(zip(ADAM, old.stepped(gradient, self.lr, _row(taken, turn).double()), strict=True))
        own = {n: turn.view(-1, *[1] * p.dim()) for n, p in old.params.items()}
        fresh = {e: {n: torch.where(own[n], p, memory[e][n]) for n, p in its.items()} for e, its in fresh.items()}
        return fresh | {"taken": taken}

    def consolidate(self, stack: Stack, memory: Memory, task: int) -> Memory:
        """Store the trained VAEs, and start those of the next task."""
        vaes, units = tree_map(torch.clone, memory["vaes"]), stack.setting.outputs.units_of(task)
        for name, each in memory["live"].items():
            vaes[name][:, units] = each[:, : len(units)]
        return memory | {"vaes": vaes} | _begun(stack.setting, vaes, task + 1)

    def scores(self, learner: Learner, x: Tensor, task: Tensor) -> Tensor:
        """log p(x | class) for each class; −inf for those of tasks to come, of which nothing is known."""
        memory, outputs, nothing = learner.memory[self.name], learner.outputs, x.new_full(x.shape[:1], -torch.inf)
        finished, likelihood = len(memory["finished"]), Likelihood(self._vae(learner.setting))
        rows = {unit: ("vaes", unit) for before in range(finished) for unit in outputs.units_of(before)}
        if finished < outputs.tasks:
            rows |= {unit: ("live", row) for row, unit in enumerate(outputs.units_of(finished))}
        params = {unit: {name: p[row] for name, p in memory[entry].items()} for unit, (entry, row) in rows.items()}
        found = {unit: functional_call(likelihood, its, (x, memory["noise"])) for unit, its in params.items()}
        return torch.stack([found.get(unit, nothing) for unit in range(outputs.units)], -1)

    def _turn(self, learner: Learner) -> Tensor:
        """Which of the live VAEs is trained at this step."""
        return torch.eq(learner.memory[self.name]["units"], learner.drawn[f"{self.name} own"].y[0])

    def _loss(self, learner: Learner, params: Params) -> Tensor:
        given = learner.drawn[f"{self.name} own"].x, learner.drawn[f"{self.name} noise"]
        return torch.mean(functional_call(self._vae(learner.setting), params, given))

    def _vae(self, setting: Setting) -> VAE:
        how = self.layers, setting.unit_interval, torch.get_default_dtype()
        return _built(setting.inputs, self.hidden, self.latent, *how)


@cache  # no module can be built inside vmap, so `start` fills the cache
def _built(inputs: int, hidden: int, latent: int, layers: int, binary: bool, dtype: torch.dtype) -> VAE:
    with torch.device("meta"):
        return VAE(inputs, hidden, latent, layers=layers, binary=binary).to(dtype)


def _row(table: Tensor, turn: Tensor) -> Tensor:
    return table.index_select(0, turn.long().argmax().view(1)).squeeze(0)


def _begun(setting: Setting, vaes: Params, task: int) -> Memory:
    """The VAEs of a task's classes, of one network or all, and Adam's fresh state; rows of unit −1 are never used."""
    outputs, bias = setting.outputs, vaes["pixels.shift.bias"]
    own = outputs.units_of(min(task, outputs.tasks - 1))
    units = torch.tensor(own + [-1] * (outputs.largest - len(own)), device=bias.device)
    live = {name: each.index_select(bias.dim() - 2, units % outputs.units) for name, each in vaes.items()}
    units = units.expand(*bias.shape[:-2], -1)
    zeros = {entry: tree_map(torch.zeros_like, live) for entry in ADAM[1:]}
    counts = {"taken": torch.zeros_like(units), "finished": units.new_zeros(*units.shape[:-1], task)}  # its length
    return {"live": live, **zeros, **counts, "units": units}
