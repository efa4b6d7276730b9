"""The stack: every parameter has a leading replica axis, one step trains all replicas (DESIGN idea 1)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from threefold.engine import handed
from threefold.engine.heap import keep_freed_memory
from threefold.engine.material import Material
from threefold.engine.optimizer import Adam, Beside, Pull
from threefold.engine.program import Program
from threefold.engine.threads import side_by_side
from threefold.methods import Method, Part
from threefold.methods.losses import only_active
from threefold.methods.method import objective
from threefold.methods.part import (
    Batch,
    Learner,
    Leash,
    Memory,
    Noise,
    Now,
    Params,
    Samples,
    Setting,
)
from threefold.nets import MLP, initial_params
from threefold.randomness import generator
from threefold.scenarios import Outputs

MASKS: Any = Now(*(0 if name in ("active", "taught") else None for name in Now._fields))  # type: ignore[arg-type]
PIECE = 1 << 27  # inputs gathered at once outside training, on a GPU: half a gigabyte
SAMPLES = 128  # samples of each replica gathered at once on a CPU, however many replicas: sums are rounded by pieces


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of tensors, one for each replica, as one tree with a leading replica axis."""
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def padded(rows: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Index sets of different sizes as one tensor, and which of its entries are real.

    On a CPU in whole pieces: the shapes of products, and with them their rounding, do not depend on the longest then.
    """
    sizes = torch.tensor([len(row) for row in rows])
    indices = pad_sequence(list(rows), batch_first=True)
    if device.type == "cpu":
        indices = pad(indices, (0, -indices.shape[1] % SAMPLES))
    return indices.to(device), (torch.arange(indices.shape[1]) < sizes.unsqueeze(1)).to(device)


def kept(old: Any, new: Any) -> Any:
    """The new values, in the old tensors if they fit: a captured graph knows tensors by their addresses."""
    before, after = tree_flatten(old), tree_flatten(new)
    fits = before[1] == after[1] and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(before[0], after[0], strict=True)
    )
    if not fits:
        return new
    for mine, value in zip(before[0], after[0], strict=True):
        mine.copy_(value)
    return old


def code(method: Method) -> list[tuple[type[Part], dict[str, Any]]]:
    """What must be the same for all replicas of a cohort: everything but numbers."""
    return [(type(part), part.model_dump(exclude=set(part.per_replica()))) for part in method.parts]


class Lockstep:
    """A cohort's networks, optimiser and memories, and the step that trains them."""

    def __init__(
        self,
        methods: Sequence[Method],
        seeds: Sequence[int],
        setting: Setting,
        material: Material,
        lr: Sequence[float] | None,
        device: torch.device,
        lent: Mapping[str, Params] | None = None,
        outputs: Sequence[Outputs] = (),
    ) -> None:
        """`lr`: None for networks that are judged and never trained; `lent`: networks that another stack trains.

        `outputs`: of each replica, where scenarios differ in their masks only; else all have the setting's.
        """
        if device.type == "cpu":
            keep_freed_memory()
        if any(code(method) != code(methods[0]) for method in methods):
            raise ValueError("the methods of a cohort may differ in numbers only")
        self.seeds, self.setting, self.material, self.device = seeds, setting, material, device
        self.outputs = outputs or [setting.outputs] * len(seeds)
        self._now_dims: Any = MASKS if len(set(self.outputs)) > 1 else None
        self.methods = methods  # each replica's own, its hyperparameters plain numbers
        self._template = methods[0].parts  # what is the same for all replicas
        self._numbers = self._numbers_that_differ()
        self.parts = self._bind(self._numbers)
        self.nets, self._beside = self._networks()
        lent = lent or {}
        initial = self._initial({name: net for name, net in self.nets.items() if name not in lent})
        self.own = self._for_replicas(initial)  # what this stack trains
        self.params = self.own | dict(lent)
        self.memory = self._first_memory(initial)
        self.optimizer = Adam(tree_leaves(self.own), lr) if lr is not None else None
        self.loss = torch.zeros(len(seeds), device=device)
        self.program: Program | None = None  # gives the gradients quicker
        self.now = Now(*[torch.empty(0)] * len(Now._fields))
        self.reach(0)

    def _numbers_that_differ(self) -> list[dict[str, Tensor]]:
        """By part, the hyperparameters that may differ: a number for each replica."""

        def each(place: int, name: str) -> Tensor:
            return torch.tensor([getattr(method.parts[place], name) for method in self.methods], device=self.device)

        return [{name: each(place, name) for name in part.per_replica()} for place, part in enumerate(self._template)]

    def _networks(self) -> tuple[dict[str, nn.Module], dict[str, set[str]]]:
        """All networks by name, and for each part the names of those that it has beside the classifier."""
        setting = self.setting
        with torch.device("meta"):  # modules say how to compute; the parameters are the stack's
            nets: dict[str, nn.Module] = {"classifier": MLP(setting.inputs, setting.hidden, setting.outputs.units)}
            named = {part.name: handed.networks(part, part.networks(setting)) for part in self._template}
        for networks in named.values():
            nets |= dict(sorted(networks.items()))  # a checkpoint knows the optimiser's tensors by their places
        return nets, {part: networks.keys() - {"classifier"} for part, networks in named.items()}

    def _initial(self, nets: Mapping[str, nn.Module]) -> dict[int, dict[str, Params]]:
        """The parameters that networks begin with, by seed: replicas may share one."""

        def begun(seed: int) -> dict[str, Params]:
            return {name: initial_params(net, generator(seed, f"weights of {name}")) for name, net in nets.items()}

        different = list(dict.fromkeys(self.seeds))
        return dict(zip(different, side_by_side(begun, different), strict=True))

    def _for_replicas(self, initial: Mapping[int, dict[str, Params]]) -> dict[str, Params]:
        """The parameters of each replica's seed, as one stack."""
        places = {seed: place for place, seed in enumerate(initial)}
        rows = torch.tensor([places[seed] for seed in self.seeds], device=self.device)
        drawn = self._place(stacked(list(initial.values())))
        replicated: dict[str, Params] = tree_map(lambda leaf: leaf[rows], drawn)
        return replicated

    def _first_memory(self, initial: Mapping[int, dict[str, Params]]) -> dict[str, Memory]:
        """What the parts remember before the first task."""
        memories = [
            {
                part.name: handed.memory("begin", part, part.begin(self.setting, seed, initial[seed]["classifier"]))
                for part in method.parts
            }
            for method, seed in zip(self.methods, self.seeds, strict=True)
        ]
        memory: dict[str, Memory] = self._place(stacked(memories))
        return memory

    def _place(self, tree: Any) -> Any:
        return tree_map(lambda leaf: leaf.to(self.device), tree)

    def _bind(self, numbers: Sequence[Mapping[str, Tensor]]) -> list[Part]:
        return [part.model_copy(update=n) for part, n in zip(self._template, numbers, strict=True)]

    def _learner(
        self, parts: Sequence[Part], params: dict[str, Params], memory: dict[str, Memory], now: Now
    ) -> Learner:
        return Learner(self.nets, self.setting.outputs, parts, params, memory, now)

    def reach(self, task: int) -> None:
        """Training stands at this task now."""
        self.task = task
        self.now = kept(self.now, self._place(Now.at(task, self._masks(task + 1), self._masks(task))))

    def _masks(self, seen: int) -> Tensor:
        """Which units are active for data of each task; where scenarios differ, for each replica."""
        if self._now_dims is None:
            return self.outputs[0].table(seen)
        return torch.stack([outputs.table(seen) for outputs in self.outputs])

    # one step

    def step(self, batch: Batch, drawn: dict[str, Batch | Tensor]) -> None:
        """Train every replica on its batch. No host synchronisation, no shape that depends on values."""
        assert self.optimizer is not None
        read = self._read()
        args = (self.own, read, self._numbers, batch, drawn, self.now)  # what is lent is ahead or behind
        grads, self.loss = self.program(self.plain_gradients, *args) if self.program else self.plain_gradients(*args)
        observers = [part for part in self.parts if part.observes]
        classifier = self.params["classifier"]
        before = {name: p.clone() for name, p in classifier.items()} if observers else {}
        whole = self.optimizer.step(tree_leaves(grads), self._also(read), whole=bool(observers))
        for part in observers:
            part.observe(read[part.name], before, classifier, dict(zip(classifier, whole, strict=False)))
        self.now.step.add_(1)

    def _read(self) -> dict[str, Memory]:
        """What steps read of the memories."""
        return {part.name: part.steps_read(self.memory[part.name]) for part in self._template}

    def plain_gradients(self, *args: Any) -> Any:
        """Every replica's gradient, and the loss without the penalties that are left to the optimiser."""
        return vmap(self._gradients, in_dims=(0, 0, 0, 0, 0, self._now_dims))(*args)

    def _leashed(self) -> list[int]:
        """The parts whose penalty is left to the optimiser, by place. An adjusted gradient must be whole before."""
        adjusted = any(part.adjusts for part in self.parts)
        return [place for place, part in enumerate(self.parts) if part.leashes and self.task and not adjusted]

    def _also(self, read: dict[str, Memory]) -> list[Beside]:
        """What else happens to each parameter; the classifier's come first."""
        assert self.optimizer is not None
        params = self.params["classifier"]
        leashes = [leash for place in self._leashed() if (leash := self._leash(place, read))]
        paths = [
            handed.path(part, path, params) for part in self.parts if (path := part.path(read[part.name])) is not None
        ]
        beside = []
        for name, param in params.items():
            shape = (-1, *[1] * (param.dim() - 1))
            pulls = [
                Pull(leash.strength.view(shape), leash.anchor[name], leash.precision[name])  # type: ignore[union-attr]
                for leash in leashes
            ]
            beside.append(Beside(pulls, [path[name] for path in paths]))
        return beside + [Beside()] * (len(self.optimizer.params) - len(beside))

    def _leash(self, place: int, read: dict[str, Memory]) -> Leash | None:
        """A part's leash, which it gives for one network, on all of them."""
        part = self._template[place]

        def one(numbers: dict[str, Tensor], memory: Memory, params: Params) -> tuple[Any, ...]:
            leash = part.model_copy(update=numbers).leash(memory)
            return () if leash is None else tuple(handed.leash(part, leash, params))

        found = vmap(one)(self._numbers[place], read[part.name], self.params["classifier"])
        return Leash(*found) if found else None

    def _gradients(
        self,
        params: dict[str, Params],
        memory: dict[str, Memory],
        numbers: list[dict[str, Tensor]],
        batch: Batch,
        drawn: dict[str, Any],
        now: Now,
    ) -> tuple[dict[str, Params], Tensor]:
        """One network's gradient: current data, replayed data, penalties; then whatever adjusts it."""
        parts = self._bind(numbers)
        learner = self._learner(parts, params, memory, now)
        later = self.task > 0
        replays = [part.recall(learner, batch, drawn) if later else None for part in parts]
        leashed = self._leashed()
        penalties = [part for place, part in enumerate(parts) if later and place not in leashed]
        sides = {part.name for part in parts if not self._lent(part)}

        def loss(own: dict[str, Params]) -> Tensor:
            at = self._learner(parts, own, memory, now)
            return objective(parts, at, batch, replays, drawn, penalties, sides)

        grads, value = grad_and_value(loss)(params)
        for part in parts:
            if later and part.adjusts:
                adjusted = part.adjust(grads["classifier"], learner, drawn)
                grads = grads | {"classifier": handed.gradient(part, adjusted, params["classifier"])}
        return grads, value

    # outside training

    def map(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(learner, *args)` for every replica; arguments carry the replica axis first."""

        def one(
            params: dict[str, Params],
            memory: dict[str, Memory],
            numbers: list[dict[str, Tensor]],
            now: Now,
            args: tuple[Any, ...],
        ) -> Any:
            return function(self._learner(self._bind(numbers), params, memory, now), *args)

        return vmap(one, in_dims=(0, 0, 0, self._now_dims, 0))(self.params, self.memory, self._numbers, self.now, args)

    def predict(self, x: Tensor, task: Tensor, active: Tensor) -> Tensor:
        """The winning output unit for each sample of `task`, among the active ones."""

        def one(learner: Learner, x: Tensor) -> Tensor:
            scores = (part.scores(learner, x, task) for part in learner.parts)
            best = next((s for s in scores if s is not None), None)
            return only_active(learner.logits(x, task) if best is None else best, active).argmax(-1)

        chosen: Tensor = self.map(one, x)
        return chosen

    def pieces(self, samples: int) -> Iterator[slice]:
        """Slices of `samples` that are small enough to gather for all replicas at once."""
        on_gpu = max(1, PIECE // (len(self.seeds) * self.setting.inputs))
        size = SAMPLES if self.device.type == "cpu" else on_gpu
        return (slice(start, start + size) for start in range(0, samples, size))

    def training_data(self, chosen: Sequence[Tensor] | None = None) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """The current task's training data (or the `chosen` indices) in pieces, with weights: see `Stack`."""
        indices, real = padded(chosen or self.own_samples(), self.device)
        weights = real / real.sum(1, keepdim=True)
        task = torch.tensor(self.task, device=self.device)
        for piece in self.pieces(indices.shape[1]):
            yield self.fetch(indices[:, piece], task), weights[:, piece], indices[:, piece]

    def own_samples(self, label: int | None = None) -> list[Tensor]:
        tasks = [tasks[self.task] for tasks in self.material.sequences]
        if label is None:
            return [task.train for task in tasks]
        labels = self.material.train_y.cpu()
        return [task.train[labels[task.train] == task.classes[label]] for task in tasks]

    def fetch(self, indices: Tensor, task: Tensor) -> Batch:
        return self.material.train(indices, task)

    def consolidate(self, besides: Collection[str] = ()) -> None:
        """A task is finished: every part takes it into its memory, besides those that have done so already."""
        live = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((self.params, self.memory))}

        def apart(leaf: Tensor) -> Tensor:
            """A memory changes neither with parameters nor with an earlier memory; and it is in one piece."""
            alive = leaf.untyped_storage().data_ptr() in live
            return leaf.clone(memory_format=torch.contiguous_format) if alive else leaf.contiguous()

        for part in self.parts:
            if part.name not in besides:
                memory = self.memory[part.name]
                fresh = handed.memory("consolidate", part, part.consolidate(self, memory, self.task))
                changed = {name: tree_map(apart, v) for name, v in fresh.items() if v is not memory.get(name)}
                changed = {name: kept(memory[name], v) if name in memory else v for name, v in changed.items()}
                self.memory[part.name] = {name: changed.get(name, value) for name, value in fresh.items()}

    def keepsakes(self) -> dict[str, Tensor]:
        """What the parts want kept of the task just finished."""
        each = [handed.memory("keepsakes", part, part.keepsakes(self, self.memory[part.name])) for part in self.parts]
        return {name: value.cpu().clone() for some in each for name, value in some.items()}

    def finite(self) -> Tensor:
        """Which replicas hold finite numbers only."""
        rows = [leaf.flatten(1).isfinite().all(1) for leaf in tree_leaves(self.params)]
        return torch.stack([*rows, self.loss.isfinite()]).all(0)

    @property
    def weights(self) -> int:
        """How many weights a step moves."""
        return sum(leaf.numel() for leaf in tree_leaves(self.own))

    def beside(self, part: str) -> dict[str, Params]:
        """The networks that a part has beside the classifier."""
        return {name: self.params[name] for name in self._beside[part]}

    def wishes(self, part: Part, seed: int, memory: Memory, steps: int) -> dict[str, Samples | Noise]:
        """What a part draws for the steps of this task."""
        given = (self.setting, seed, self.task, memory, steps)
        return part.draws(*given) | ({} if self._lent(part) else part.side_draws(*given))

    def _lent(self, part: Part) -> bool:
        """Does another stack train the networks of this part?"""
        return not self._beside[part.name] <= self.own.keys()

    def tensors(self) -> list[Tensor]:
        """Every tensor that a step reads or writes, its draws aside."""
        return tree_leaves((self.params, self._read(), self.now, self._numbers))

    def take_over(self, other: "Lockstep", which: Tensor) -> None:
        """Stand where another stack stands: each replica takes networks and memories of one of its replicas."""
        self.reach(other.task)
        for net, params in self.params.items():
            for name, mine in params.items():
                torch.index_select(other.params[net][name], 0, which, out=mine)
        self.memory |= {name: tree_map(lambda leaf: leaf[which], memory) for name, memory in other.memory.items()}
        self.loss = other.loss[which]
        if self.optimizer and other.optimizer:
            self.optimizer.take_over(other.optimizer, which)

    # checkpoints

    def state(self) -> dict[str, Any]:
        assert self.optimizer is not None
        return {"params": self.own, "memory": self.memory, "optimizer": self.optimizer.state()}

    def restore(self, state: dict[str, Any]) -> None:
        for mine, saved in zip(tree_leaves(self.own), tree_leaves(state["params"]), strict=True):
            mine.copy_(saved)
        self.memory = self._place(state["memory"])
        assert self.optimizer is not None
        self.optimizer.restore(state["optimizer"])
