"""Checks that a checkpoint can be resumed from: an undamaged file may still not hold the expected state."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves

from threefold.engine.sharing import Evaluated, Stacks
from threefold.engine.stack import ReplicaStack


def fits(stacks: Stacks, saved: dict[str, Any]) -> bool:
    """Is this a state of these stacks? Memories may grow from task to task, so only their replica axis is checked."""
    match saved:
        case {
            "stacks": {"trained": [*trained], "evaluated": [*evaluated]},
            "measured": [*measured],
            "finished": int(finished),
            "seconds": {"train": float(), "consolidate": float(), "evaluate": float()},
        }:
            return (
                0 < finished < stacks.stream.tasks
                and len(trained) == len(stacks.trained)
                and len(evaluated) == len(measured) == len(stacks.evaluated)
                and all(map(_fits_stack, stacks.trained, trained))
                and all(_fits(*each, finished) for each in zip(stacks.evaluated, evaluated, measured, strict=True))
                and all(_fits_curves(stacks, *each) for each in zip(stacks.evaluated, measured, strict=True))
            )
    return False


def _fits_stack(stack: ReplicaStack, saved: Any) -> bool:
    fresh = stack.state()
    match saved:
        case {"params": params, "buffers": buffers, "optimizer": optimizer, "memory": dict(memory)}:
            wanted = [fresh["params"], fresh["buffers"], fresh["optimizer"]]
            moved = _same_form([params, buffers, optimizer], wanted)
            return moved and memory.keys() == fresh["memory"].keys() and _is_memory(memory, len(stack.seeds))
    return False


def _fits(evaluated: Evaluated, memory: Any, measured: Any, finished: int) -> bool:
    replicas, tasks = len(evaluated.stack.seeds), evaluated.stack.setting.outputs.tasks
    match measured:
        case {
            "initial": initial,
            "matrix": matrix,
            "diverged_at": [*diverged],
            "kept": [*kept],
            "seconds": dict(),
        }:
            empty = torch.empty(replicas, tasks, tasks, dtype=torch.float64)
            same = _same_form([initial, matrix], [empty[:, 0], empty])
            held = all(_is_memory(each, replicas) for each in (memory, *kept))
            return same and held and len(diverged) == replicas and len(kept) == finished
    return False


def _fits_curves(stacks: Stacks, evaluated: Evaluated, measured: dict[str, Any]) -> bool:
    """Do the tests during training match the settings, with a value for each replica at each point?"""
    evaluation = stacks.training.evaluation
    replicas, tasks = len(evaluated.stack.seeds), evaluated.stack.setting.outputs.tasks
    points, curves = measured.get("points", []), measured.get("curves", {})
    if evaluation is None:
        return not points and not curves
    if not isinstance(points, list) or not all(_is_point(point) for point in points):
        return False
    each = torch.empty(len(points), replicas, tasks, dtype=torch.float32)
    wanted = {"accuracy": each, "step": torch.empty(each.shape[:2], dtype=torch.long)}
    if evaluation.training:
        loss = torch.empty(each.shape[:2], dtype=evaluated.stack.loss.dtype)
        wanted |= {"training accuracy": each, "loss": loss}
    return len(points) > 0 and _same_form(curves, wanted)


def _is_point(point: Any) -> bool:
    return isinstance(point, list) and len(point) == 3 and all(type(number) is int for number in point)


def _is_memory(memory: Any, replicas: int) -> bool:
    """Is this a tree of tensors, each with one row for each replica?"""
    return isinstance(memory, dict) and all(
        isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == replicas for leaf in tree_leaves(memory)
    )


def _same_form(found: Any, wanted: Any) -> bool:
    """Are these trees of the same structure, with tensors of the same shapes and kinds?"""
    (some, form), (others, wanted_form) = tree_flatten(found), tree_flatten(wanted)
    return form == wanted_form and all(
        isinstance(one, Tensor) and one.shape == other.shape and one.dtype == other.dtype
        for one, other in zip(some, others, strict=True)
    )
