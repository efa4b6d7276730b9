"""Accuracy during training: all tasks are tested between steps; on a GPU the tests are captured, as the steps are."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from threefold.engine.evaluate import PADDING
from threefold.engine.stack import ReplicaStack, padded
from threefold.engine.step_runner import StepRunner
from threefold.engine.training import Evaluation
from threefold.randomness import generator


@dataclass(frozen=True)
class _Subset:
    """For each replica some samples of each task, the same ones at every evaluation."""

    pieces: Sequence[Sequence[Tensor]]  # indices for each task, replicas × samples, in pieces
    real: Sequence[Sequence[Tensor]]  # which of them are not padding
    sizes: Tensor  # how many there are, replicas × tasks

    @classmethod
    def of(cls, stack: ReplicaStack, part: str, samples: int | None) -> "_Subset":
        pieces, reals, sizes = [], [], []
        for task in range(stack.setting.outputs.tasks):
            each = [_some(getattr(tasks[task], part), samples, seed, task) for seed, tasks in _replicas(stack)]
            indices, real = padded(each, stack.device)
            cuts = list(stack.pieces(indices.shape[1]))
            pieces.append([indices[:, cut] for cut in cuts])
            reals.append([real[:, cut] for cut in cuts])
            sizes.append(real.sum(1))
        return cls(pieces, reals, torch.stack(sizes, 1))


def _replicas(stack: ReplicaStack) -> Any:
    return zip(stack.seeds, stack.data.sequences, strict=True)


def _some(indices: Tensor, samples: int | None, seed: int, task: int) -> Tensor:
    if samples is None or samples >= len(indices):
        return indices
    return indices[torch.randperm(len(indices), generator=generator(seed, "evaluation", task))[:samples]]


class Curves:
    """Tests one stack repeatedly, and collects the results."""

    def __init__(self, stack: ReplicaStack, evaluation: Evaluation, runner: StepRunner) -> None:
        self.stack, self.evaluation, self.runner = stack, evaluation, runner
        self._subsets = {"accuracy": _Subset.of(stack, "test", evaluation.samples)}
        if evaluation.training:
            self._subsets["training accuracy"] = _Subset.of(stack, "train", evaluation.samples)
            stack.loss_sum = torch.zeros_like(stack.loss)
        outputs, device = stack.setting.outputs, stack.device
        self._numbers = [torch.tensor(task, device=device) for task in range(outputs.tasks)]
        self._active = torch.zeros(outputs.tasks, outputs.units, dtype=torch.bool, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._found: dict[str, Tensor] = {}
        self._warm = False
        self._captured_for: object = None
        self._kept: list[dict[str, Tensor]] = []
        self._points: list[tuple[int, int, int]] = []
        self._own: list[list[int]] = []  # for each point, the step of each replica
        self._last = [0] * len(stack.seeds)  # the same for the last point

    def begin_task(self, start: int) -> None:
        """Training begins or resumes at this step of a task."""
        stack, outputs = self.stack, self.stack.setting.outputs
        seen = outputs.tasks if stack.flow else stack.task + 1
        self._active.copy_(torch.stack([outputs.at_test(each, seen) for each in range(outputs.tasks)]))
        self._last = [start] * len(stack.seeds)
        if stack.task == start == 0:
            self.take(0)

    def wanted(self, steps: int) -> bool:
        """Are tasks to be tested after this many steps of a task? At its end, or at a mark, they are tested anyway."""
        if self.stack.flow and steps in self.stack.flow.marks:
            return False
        return steps % self.evaluation.every == 0 or steps <= self.evaluation.first

    def take(self, steps: int, each: Sequence[int] = (), last: bool = False) -> None:
        """Test after this many steps of the task. `each`: how many each replica takes. Beyond its own last step a
        replica's results are dropped until the task ends (`last`)."""
        own = [min(steps, most) for most in each] or [steps] * len(self._last)
        over = [] if last else [replica for replica, most in enumerate(each) if most <= steps]
        stream = self.runner.stream
        if stream:  # weights may have changed on the default stream: a task's end does not run on this one
            stream.wait_stream(torch.cuda.current_stream(self.stack.device))
        with torch.cuda.stream(stream) if stream else nullcontext():
            self._measure()
            found = {name: value.clone() for name, value in self._found.items()}
            if self.stack.loss_sum is not None:
                since = [max(1, now - before) for now, before in zip(own, self._last, strict=True)]
                alike = len(set(since)) == 1
                found["loss"] = self.stack.loss_sum / (since[0] if alike else self.stack.loss_sum.new_tensor(since))
                self.stack.loss_sum.zero_()
            if over:
                for value in found.values():
                    value[over] = torch.nan
        self._kept.append(found)
        flow = self.stack.flow
        seen = max(1, flow.come(steps)) if flow else self.stack.task + 1
        self._points.append((self.stack.task, steps, seen))
        self._own.append(own)
        self._last = [self._last[replica] if replica in over else now for replica, now in enumerate(own)]

    def _measure(self) -> None:
        """Compute the accuracies into tensors whose addresses stay the same."""
        if self.stack.device.type != "cuda" or not self.stack.setting.structure.capturable:
            self._found = self._accuracies()
            return
        used = [(leaf.data_ptr(), leaf.shape) for leaf in tree_leaves((self.stack.params, self.stack.memory))]
        if used != self._captured_for:
            self._graph, self._warm, self._captured_for = None, False, used
        if self._graph is not None:
            self._graph.replay()
        elif not self._warm:
            self._found, self._warm = self._accuracies(), True
        else:
            self.runner.wait_for_device()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.runner.stream, capture_error_mode="thread_local"):
                self._found = self._accuracies()
            self._graph = graph
            graph.replay()

    def _accuracies(self) -> dict[str, Tensor]:
        return {name: self._of(name, subset) for name, subset in self._subsets.items()}

    def _of(self, name: str, subset: _Subset) -> Tensor:
        """Accuracy of each replica on each task, in per cent."""
        data, found = self.stack.data, []
        for task, number in enumerate(self._numbers):
            correct = torch.zeros(len(self.stack.seeds), dtype=torch.long, device=self.stack.device)
            for indices, real in zip(subset.pieces[task], subset.real[task], strict=True):
                batch = data.test(indices, number) if name == "accuracy" else data.train(indices, number)
                target = torch.where(real, batch.y, PADDING)
                correct = correct + (self.stack.predict(batch.x, number, self._active[task]) == target).sum(1)
            found.append(correct)
        return 100 * torch.stack(found, 1).float() / subset.sizes

    def new(self) -> tuple[list[list[int]], dict[str, Tensor]]:
        """Results since the last call: points (task, step, tasks so far), and the values at each, including the step of
        each replica."""
        if self.runner.stream:
            torch.cuda.current_stream(self.stack.device).wait_stream(self.runner.stream)
        points, kept, own = self._points, self._kept, self._own
        self._points, self._kept, self._own = [], [], []
        values = {name: torch.stack([each[name] for each in kept]).cpu() for name in (kept[0] if kept else ())}
        values |= {"step": torch.tensor(own)} if own else {}
        return [list(point) for point in points], values
