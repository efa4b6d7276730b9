"""Checkpoints in the background: training continues with the next task while the last one is copied and written."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from threefold.engine.checkpoint import Checkpoint

RATE = 2e8  # bytes per second of a slow disk, from which the least interval between writes is computed


class Saver:
    """Saves a cohort's states. On a CPU `save` returns when the file is written.

    On a GPU it returns when the state is copied on the device, where a newer one replaces it. As a thousand networks'
    state is gigabytes, it is written in the background only if training has run for at least as long as a write takes
    since the last one, and whenever training is stopped. When training is complete it is not needed. Errors of writing
    are raised by a later `save` or at the end.
    """

    def __init__(self, checkpoint: Checkpoint | None, device: torch.device) -> None:
        self.checkpoint, self.device = checkpoint, device
        self._thread = ThreadPoolExecutor(1)
        self._copy: list[dict[str, Any]] = []  # on the device; a list, so that the fetching thread can free it
        self._fetching: Future[dict[str, Any]] | None = None
        self._writing: Future[None] | None = None
        self._begun = time.perf_counter()  # when the last one was written, or training began

    def save(self, state: dict[str, Any]) -> None:
        if self.checkpoint is None:
            return
        if self.device.type == "cpu":
            self.checkpoint.save(state)
            return
        if self._writing and self._writing.done():
            self._wait()
        self._copy.clear()  # memory is reserved for one only
        try:
            self._copy.append(tree_map_only(Tensor, Tensor.clone, state))
        except torch.OutOfMemoryError:
            self._wait()
            self.checkpoint.save(tree_map_only(Tensor, Tensor.cpu, state))
            return
        torch.cuda.synchronize(self.device)
        size = sum(leaf.nbytes for leaf in tree_leaves(state) if isinstance(leaf, Tensor))
        if not self._writing and time.perf_counter() - self._begun >= size / RATE:
            self._write_copy()

    def _write_copy(self) -> None:
        self._begun = time.perf_counter()
        fetching = self._fetching = self._thread.submit(self._fetch, self._copy)
        self._copy = []
        self._writing = self._thread.submit(self._write, fetching)

    def _fetch(self, copy: list[dict[str, Any]]) -> dict[str, Any]:
        with torch.cuda.stream(torch.cuda.Stream(self.device)):  # type: ignore[no-untyped-call]
            fetched: dict[str, Any] = tree_map_only(Tensor, Tensor.cpu, copy.pop())
        return fetched

    def _write(self, fetching: Future[dict[str, Any]]) -> None:
        assert self.checkpoint is not None
        self._fetching = None
        self.checkpoint.save(fetching.result())

    def wait_for_device(self) -> None:
        """Wait until no state is being fetched from the device."""
        if fetching := self._fetching:
            fetching.exception()  # its error is raised later

    def finish(self) -> None:
        """Write the last state, and wait until it is written."""
        self._wait()
        if self._copy:
            self._write_copy()
            self._wait()

    def _wait(self) -> None:
        """Wait until the current write is done."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the last state, whatever stopped training."""
        try:
            if kind is None:
                self._copy.clear()
                self._wait()
            else:
                with suppress(Exception):  # the error that ended training takes precedence
                    self.finish()
        finally:
            self._thread.shutdown()
