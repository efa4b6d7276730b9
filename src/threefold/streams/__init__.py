"""Task streams: a seed becomes a sequence of tasks, as index sets and pixel maps into one tensor, never copies."""

from threefold.streams.boundaries import BOUNDARIES, SHARP, Boundaries, find_boundaries
from threefold.streams.find import STREAMS, NamedStream, find, kind_of, register_stream
from threefold.streams.own import OwnStream
from threefold.streams.permuted import Permuted
from threefold.streams.recorded import RecordedStream
from threefold.streams.rotated import Rotated
from threefold.streams.several import Several
from threefold.streams.split import Split
from threefold.streams.stream import Defaults, Stream
from threefold.streams.task import Task
from threefold.streams.timed import Timed

__all__ = [
    "BOUNDARIES",
    "SHARP",
    "STREAMS",
    "Boundaries",
    "Defaults",
    "NamedStream",
    "OwnStream",
    "Permuted",
    "RecordedStream",
    "Rotated",
    "Several",
    "Split",
    "Stream",
    "Task",
    "Timed",
    "find",
    "find_boundaries",
    "kind_of",
    "register_stream",
]
