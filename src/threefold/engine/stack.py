"""The stack: every parameter has a leading replica axis, and one step trains all replicas."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from threefold.engine import hook_checks
from threefold.engine.device_data import DeviceData
from threefold.engine.flow import Flow
from threefold.engine.malloc import keep_freed_memory
from threefold.engine.mapping import Mapping as ReplicaMapping
from threefold.engine.mapping import OneByOne, mapped
from threefold.engine.optimizer import Stacked
from threefold.engine.threads import in_threads
from threefold.errors import ThreefoldError
from threefold.methods import Method, Part
from threefold.methods.learner import Batch, Learner, Memory, Now, Params, Setting, copied
from threefold.methods.losses import only_active
from threefold.networks import OwnNetwork, initial_params
from threefold.randomness import generator
from threefold.streams import Task

PIECE = 1 << 27  # input values gathered at once outside training on a GPU: half a gigabyte
IMAGES = 512  # the same for convolutions: samples of each replica
SAMPLES = 128  # samples of each replica gathered at once on a CPU; fixed, as pieces affect the rounding of sums

Numbers = list[dict[str, Tensor]]


def stacked(trees: Sequence[Any], device: torch.device) -> Any:
    """Trees of tensors, one for each replica, as one tree on the device, with a leading replica axis.

    It is filled row by row: stacking all of them on the host first would take gigabytes.
    """

    def rows(*leaves: Tensor) -> Tensor:
        if len({(leaf.shape, leaf.dtype) for leaf in leaves}) > 1:
            return torch.stack(leaves).to(device)  # raises the error for trees that do not match
        found = torch.empty(len(leaves), *leaves[0].shape, dtype=leaves[0].dtype, device=device)
        for row, leaf in zip(found, leaves, strict=True):
            row.copy_(leaf)
        return found

    return tree_map(rows, *trees)


def padded(rows: Sequence[Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Index sets of different sizes as one padded tensor, and which of its entries are real.

    On a CPU the length is a whole number of pieces, so that shapes of products, and with them their rounding, do not
    depend on the longest set.
    """
    sizes = torch.tensor([len(row) for row in rows])
    indices = pad_sequence(list(rows), batch_first=True)
    if device.type == "cpu":
        indices = pad(indices, (0, -indices.shape[1] % SAMPLES))
    return indices.to(device), (torch.arange(indices.shape[1]) < sizes.unsqueeze(1)).to(device)


def in_place(old: Any, new: Any) -> Any:
    """The new values, in the old tensors if they fit: a captured graph uses tensors by address."""
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
    """What must be the same for all replicas of a stack: everything but numbers."""
    return [(type(part), part.model_dump(exclude=set(part.per_replica()))) for part in method.parts]


def tested(learner: Learner, x: Tensor, task: Tensor, active: Tensor) -> Tensor:
    """The scores by which a network classifies: the first part's that has its own, or its output; −∞ if not active."""
    scores = (part.scores(learner, x, task) for part in learner.parts)
    best = next((s for s in scores if s is not None), None)
    return only_active(learner.logits(x, task) if best is None else best, active)


class ReplicaStack:
    """The networks, optimiser and memories of all replicas; it implements the hooks' `Stack`."""

    def __init__(
        self,
        methods: Sequence[Method],
        seeds: Sequence[int],
        setting: Setting,
        data: DeviceData,
        optimizer: Callable[[Sequence[Tensor]], Stacked] | None,
        lent: Mapping[str, Params] | None = None,
        flow: Flow | None = None,
    ) -> None:
        """`optimizer`: makes the stacked optimiser; None for networks that are only evaluated. `lent`: networks that
        another stack trains. `flow`: given if tasks have no ends."""
        if data.device.type == "cpu":
            keep_freed_memory()
        if any(code(method) != code(methods[0]) for method in methods):
            raise ValueError("the methods of a stack may differ in numbers only")
        self.seeds, self.setting, self.data, self.device, self.flow = seeds, setting, data, data.device, flow
        self.methods = methods  # of each replica, hyperparameters as plain numbers
        self.template = methods[0].parts  # the same for all replicas
        self.numbers = self._numbers_that_differ()
        self.parts = self.bind(self.numbers)  # each number a tensor with a value for each replica
        self.networks, self.beside = self._networks()
        self.mapping: ReplicaMapping = mapped if setting.structure.mapped else OneByOne(len(seeds), self.device)
        lent = lent or {}
        initial, buffers = self._initial({name: net for name, net in self.networks.items() if name not in lent})
        self.own = self._for_replicas(initial)  # the networks this stack trains
        self.buffers: Params = self._for_replicas(buffers)  # the classifiers', such as batch norm's statistics
        self.params = self.own | dict(lent)
        self.memory = self._first_memory(initial)
        self.keys = torch.zeros(len(seeds), dtype=torch.long, device=self.device)  # for randomness inside networks
        self.optimizer = optimizer(tree_leaves(self.own)) if optimizer else None
        self.loss = torch.zeros(len(seeds), device=self.device)
        self.loss_sum: Tensor | None = None  # over steps, if it is recorded
        self.steps = torch.ones(len(seeds), device=self.device)  # that each replica takes on the current task
        self.now = Now(*[torch.empty(0)] * len(Now._fields))
        self.begin_task(0)

    def _numbers_that_differ(self) -> Numbers:
        """By part, the hyperparameters that may differ, with a number for each replica."""

        def each(place: int, name: str) -> Tensor:
            return torch.tensor([getattr(method.parts[place], name) for method in self.methods], device=self.device)

        return [{name: each(place, name) for name in part.per_replica()} for place, part in enumerate(self.template)]

    def bind(self, numbers: Sequence[Mapping[str, Tensor]]) -> list[Part]:
        """The parts with these values for the numbers that may differ."""
        return [part.model_copy(update=n) for part, n in zip(self.template, numbers, strict=True)]

    def _networks(self) -> tuple[dict[str, nn.Module], dict[str, set[str]]]:
        """All networks by name, and for each part the names of its additional networks."""
        setting = self.setting
        nets = {"classifier": setting.classifier().train()}
        with torch.device("meta"):  # modules define the computation; the stack has the parameters
            named = {part.name: hook_checks.networks(part, part.networks(setting)) for part in self.template}
        for networks in named.values():
            nets |= dict(sorted(networks.items()))  # a checkpoint stores the optimiser's tensors by position
        return nets, {part: set(networks) for part, networks in named.items()}

    def _initial(self, nets: Mapping[str, nn.Module]) -> tuple[dict[int, dict[str, Params]], dict[int, Params]]:
        """Initial parameters of all networks, and the classifier's buffers, by seed, as replicas may share one."""
        different = list(dict.fromkeys(self.seeds))
        own = isinstance(self.setting.network, OwnNetwork)
        built = {seed: self._built(seed) for seed in different} if own or _has_buffers(nets) else {}

        def of_seed(seed: int) -> dict[str, Params]:
            found = {}
            for name, net in nets.items():
                if name == "classifier" and own:
                    found[name] = {each: p.detach() for each, p in built[seed].named_parameters()}
                else:
                    found[name] = initial_params(net, generator(seed, f"weights of {name}"))
            return found

        initial = dict(zip(different, in_threads(of_seed, different), strict=True))
        buffers = {seed: dict(built[seed].named_buffers()) if built else {} for seed in different}
        if weights := self.setting.network.init:
            for seed, params in initial.items():
                begun = weights.put_into(seed, self.setting.network.name, params["classifier"], buffers[seed])
                if not getattr(self.setting.network, "frozen", False):  # else the layers that are trained begin anew
                    params["classifier"] = begun[0]
                buffers[seed] = begun[1]
        return initial, buffers

    def _built(self, seed: int) -> nn.Module:
        """The classifier with values. A user's class draws from PyTorch's global generator, so that is seeded."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator(seed, "weights of classifier").initial_seed())
            return self.setting.network.build(self.setting)

    def _for_replicas(self, initial: Mapping[int, Any]) -> Any:
        """The parameters of each replica's seed, as one stack."""
        return stacked([initial[seed] for seed in self.seeds], self.device)

    def _first_memory(self, initial: Mapping[int, dict[str, Params]]) -> dict[str, Memory]:
        """The parts' memories before the first task."""
        memories = [
            {
                part.name: hook_checks.memory(
                    "start", part, part.start(self.setting, seed, initial[seed]["classifier"])
                )
                for part in method.parts
            }
            for method, seed in zip(self.methods, self.seeds, strict=True)
        ]
        memory: dict[str, Memory] = stacked(memories, self.device)
        return memory

    def _to_device(self, tree: Any) -> Any:
        return tree_map(lambda leaf: leaf.to(self.device), tree)

    @property
    def weights(self) -> int:
        """How many weights a step updates."""
        return sum(leaf.numel() for leaf in tree_leaves(self.own))

    def lent(self, part: Part) -> bool:
        """Does another stack train this part's networks?"""
        return not self.beside[part.name] <= self.own.keys()

    def begin_task(self, task: int) -> None:
        """Start training this task."""
        self.task = self.stretch = task
        if self.optimizer:
            anew = self._begin_networks(task) if task and not self.flow else False
            self.optimizer.begin_task(task, anew)
        outputs = self.setting.outputs
        if self.flow:
            now = Now.in_flow(outputs.table(outputs.tasks))
        else:
            now = Now.at(task, outputs.table(task + 1), outputs.table(task))
        self.now = in_place(self.now, self._to_device(now))
        if self.setting.structure.has_modes:
            keys = [generator(seed, "dropout", task).initial_seed() & 0x7FFFFFFF for seed in self.seeds]
            self.keys.copy_(torch.tensor(keys))

    def _begin_networks(self, task: int) -> bool:
        """Load the weights that parts give their networks for this task; returns whether there were any."""
        anew = False
        for place, part in enumerate(self.template):
            if type(part).begin is Part.begin:
                continue
            nets = {name: {n: p[0] for n, p in self.own[name].items()} for name in self.beside[part.name]}
            each = []
            for replica, method in enumerate(self.methods):
                memory = tree_map(lambda leaf, row=replica: leaf[row], self.memory[part.name])
                each.append(hook_checks.weights(part, method.parts[place].begin(self.setting, task, memory), nets))
            fresh = stacked(each, self.device)
            for name, params in fresh.items():
                anew = True
                for own, value in params.items():
                    self.own[name][own].copy_(value)
        return anew

    # outside training

    def map(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(learner, *args)` for every replica; arguments carry the replica axis first."""

        def one(params: Any, buffers: Params, memory: Any, numbers: Numbers, args: tuple[Any, ...]) -> Any:
            learner = Learner(self.networks, self.setting, self.bind(numbers), params, memory, self.now, buffers)
            return function(learner, *args)

        return self.mapping(one, (0, 0, 0, 0, 0), self.params, self.buffers, self.memory, self.numbers, args)

    def snapshot(self) -> Params:
        return copied(self.params["classifier"] | self.buffers)

    def predict(self, x: Tensor, task: Tensor, active: Tensor) -> Tensor:
        """The predicted output unit for each sample of `task`, among the active ones."""

        def one(learner: Learner, x: Tensor) -> Tensor:
            return tested(learner, x, task, active).argmax(-1)

        chosen: Tensor = self.map(one, x)
        return chosen

    def pieces(self, samples: int) -> Iterator[slice]:
        """Slices of `samples` that are small enough to gather for all replicas at once."""
        on_gpu = max(1, PIECE // (len(self.seeds) * self.setting.inputs))
        if self.setting.structure.convolutional:
            on_gpu = min(on_gpu, IMAGES)
        size = SAMPLES if self.device.type == "cpu" else on_gpu
        return (slice(start, start + size) for start in range(0, samples, size))

    def training_data(
        self, chosen: Sequence[Tensor] | None = None, task: int | Sequence[Tensor] | None = None
    ) -> Iterator[tuple[Batch, Tensor]]:
        """The current task's training data (or the `chosen` indices) in pieces, with weights: see `Stack`."""
        indices, real = padded(chosen or self.own_samples(), self.device)
        weights = real / real.sum(1, keepdim=True)
        if isinstance(task, Sequence):
            number = padded(task, self.device)[0]
        else:
            number = torch.tensor(self.task if task is None else task, device=self.device)
        for piece in self.pieces(indices.shape[1]):
            own = number if number.dim() == 0 else number[:, piece]
            yield self.data.train(indices[:, piece], own), weights[:, piece]

    def own_samples(self, label: int | None = None) -> list[Tensor]:
        if label is not None:
            labels = self.data.train_y.cpu()
            return in_threads(lambda tasks: _of_label(tasks[self.task], label, labels), self._sequences())
        return [tasks[self.task].train for tasks in self._sequences()]

    def samples_of(self, replica: int, label: int) -> Tensor:
        """The indices of a replica's training samples of one label of the current task."""
        return _of_label(self._sequences()[replica][self.task], label, self.data.train_y.cpu())

    def _sequences(self) -> Sequence[Sequence[Task]]:
        if self.flow:
            raise ThreefoldError("in a stream whose tasks do not end no task is finished, so none has data to look at.")
        return self.data.sequences

    def consolidate(self, besides: Collection[str] = ()) -> None:
        """Update every part's memory after a task, or an interval of a flow; `besides`: parts that are done already."""
        live = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((self.params, self.memory))}

        def apart(leaf: Tensor) -> Tensor:
            """A contiguous tensor that shares no storage with parameters or an earlier memory."""
            alive = leaf.untyped_storage().data_ptr() in live
            return leaf.clone(memory_format=torch.contiguous_format) if alive else leaf.contiguous()

        for part in self.parts:
            if part.name not in besides:
                memory = self.memory[part.name]
                fresh = hook_checks.memory("consolidate", part, part.consolidate(self, memory, self.stretch))
                changed = {name: tree_map(apart, v) for name, v in fresh.items() if v is not memory.get(name)}
                changed = {name: in_place(memory[name], v) if name in memory else v for name, v in changed.items()}
                self.memory[part.name] = {name: changed.get(name, value) for name, value in fresh.items()}

    def kept(self) -> dict[str, Tensor]:
        """What the parts keep of the task just finished."""
        each = [hook_checks.memory("keep", part, part.keep(self, self.memory[part.name])) for part in self.parts]
        return {name: value.cpu().clone() for some in each for name, value in some.items()}

    def finite(self) -> Tensor:
        """Which replicas hold finite numbers only."""
        leaves = tree_leaves((self.params, self.buffers))
        rows = [leaf.view(len(leaf), -1).isfinite().all(1) for leaf in leaves]
        return torch.stack([*rows, self.loss.isfinite()]).all(0)

    def take_over(self, other: "ReplicaStack", which: Tensor) -> None:
        """Copy the networks and memories of another stack's replicas, `which[i]` for replica i."""
        self.begin_task(other.task)
        for net, params in self.params.items():
            for name, mine in params.items():
                torch.index_select(other.params[net][name], 0, which, out=mine)
        for name, mine in self.buffers.items():
            torch.index_select(other.buffers[name], 0, which, out=mine)
        self.memory |= {name: tree_map(lambda leaf: leaf[which], memory) for name, memory in other.memory.items()}
        self.loss = other.loss[which]

    # checkpoints

    def state(self) -> dict[str, Any]:
        assert self.optimizer is not None
        optimizer = self.optimizer.state()
        return {"params": self.own, "buffers": self.buffers, "memory": self.memory, "optimizer": optimizer}

    def rows(self, which: Tensor) -> Any:
        """A copy of these replicas' whole state."""
        return tree_map(lambda leaf: leaf[which], self._state_and_losses())

    def put_rows(self, which: Tensor, rows: Any) -> None:
        """Restore these replicas from a copy that `rows` made."""
        for mine, saved in zip(tree_leaves(self._state_and_losses()), tree_leaves(rows), strict=True):
            mine[which] = saved

    def _state_and_losses(self) -> list[Any]:
        return [self.state(), self.loss, *([] if self.loss_sum is None else [self.loss_sum])]

    def restore(self, state: dict[str, Any]) -> None:
        for name, tree in (("params", self.own), ("buffers", self.buffers)):
            for mine, saved in zip(tree_leaves(tree), tree_leaves(state[name]), strict=True):
                mine.copy_(saved)
        self.memory = self._to_device(state["memory"])
        assert self.optimizer is not None
        self.optimizer.restore(state["optimizer"])


def _of_label(task: Task, label: int, labels: Tensor) -> Tensor:
    """The indices of a task's training samples of one of its labels."""
    return task.train[labels[task.train] == task.classes[label]]


def _has_buffers(nets: Mapping[str, nn.Module]) -> bool:
    return "classifier" in nets and any(True for _ in nets["classifier"].buffers())
