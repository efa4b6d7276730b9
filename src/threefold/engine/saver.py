"""Checkpoints in the background: training continues with the next task while the last one is copied and written."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from threefold.engine.checkpoint import Checkpoint


class Saver:
    """Saves one state after the other. On a CPU `save` returns when the file is there.

    On a GPU it returns when the state is copied on the device, and the file is there a moment later; what goes wrong
    with it is raised by the next `save` or at the end.
    """

    def __init__(self, checkpoint: Checkpoint | None, device: torch.device) -> None:
        self.checkpoint, self.device = checkpoint, device
        self._thread = ThreadPoolExecutor(1)
        self._fetching: Future[dict[str, Any]] | None = None
        self._writing: Future[None] | None = None

    def save(self, state: dict[str, Any]) -> None:
        if self.checkpoint is None:
            return
        self.finish()
        if self.device.type == "cpu":
            self.checkpoint.save(state)
            return
        try:
            copy = [tree_map_only(Tensor, Tensor.clone, state)]  # a list, so that who fetches it can let go of it
        except torch.OutOfMemoryError:
            self.checkpoint.save(tree_map_only(Tensor, Tensor.cpu, state))
            return
        torch.cuda.synchronize(self.device)
        fetching = self._fetching = self._thread.submit(self._fetch, copy)
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
        """Wait until nothing is being fetched from the device."""
        if fetching := self._fetching:
            fetching.exception()  # `finish` reports what it raised

    def finish(self) -> None:
        """Wait until the last state is written."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """A state that is on its way is written, whatever ended training."""
        try:
            if kind is None:
                self.finish()
        finally:
            self._thread.shutdown()
