"""Task streams: a seed becomes a sequence of tasks, as index sets and pixel maps into one tensor, never copies."""

from threefold.errors import unknown
from threefold.streams.permuted import Permuted
from threefold.streams.split import Split
from threefold.streams.stream import Defaults, Stream, Task

STREAMS: dict[str, type[Stream]] = {stream.name: stream for stream in (Split, Permuted)}


def find(name: str) -> tuple[type[Stream], str | None]:
    """The stream and the dataset that a name such as 'split-mnist' stands for ('split' alone names no dataset)."""
    kind, _, data = name.partition("-")
    if kind not in STREAMS:
        raise unknown("stream", name, [*STREAMS, *(f"{kind}-mnist" for kind in STREAMS)])
    return STREAMS[kind], data or None


__all__ = ["STREAMS", "Defaults", "Permuted", "Split", "Stream", "Task", "find"]
