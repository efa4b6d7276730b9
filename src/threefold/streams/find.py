"""Streams by name: `split-mnist:classes=5-3-2`, or a user's class or function, `my_streams.py:Name`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

from threefold.data import Dataset
from threefold.errors import ThreefoldError, unknown
from threefold.own_code import own_code
from threefold.streams.checks import in_brief
from threefold.streams.own import OwnStream
from threefold.streams.permuted import Permuted
from threefold.streams.rotated import Rotated
from threefold.streams.several import Several
from threefold.streams.split import Split
from threefold.streams.stream import Defaults, Stream
from threefold.streams.timed import Timed
from threefold.values import check_name, pairs_of

STREAMS: dict[str, type[Stream]] = {kind.name: kind for kind in (Split, Permuted, Rotated, Several, Timed)}


@dataclass(frozen=True)
class NamedStream:
    """A parsed text: a stream, the name of its data if given, and its options."""

    kind: type[Stream]
    data: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    text: str | None = None  # the command line's text for a user's stream

    @property
    def defaults(self) -> Defaults:
        return self.kind.defaults

    def of(self, data: Dataset, tasks: int | None = None) -> Stream:
        """The stream over these data."""
        given = {} if tasks is None else {"tasks": tasks}
        if self.function is not None:
            stream: Stream = OwnStream(self.function, data, **given)
        else:
            stream = self._built(data, given)
        stream.text, stream.asked = self.text, tasks
        return stream

    def _built(self, data: Dataset, given: Mapping[str, int]) -> Stream:
        if self.text is None:
            return self.kind(data, **given, **self.options)
        known = signature(self.kind).parameters.values()
        if not any(each.name == "tasks" or each.kind is Parameter.VAR_KEYWORD for each in known):
            given = {}
        try:
            stream = self.kind(data, **given)
        except ThreefoldError:
            raise
        except Exception as error:  # a user's class may raise anything
            raise ThreefoldError(f"stream {self.text} cannot be built ({in_brief(error)}).") from error
        if not isinstance(getattr(stream, "data", None), Dataset):
            raise ThreefoldError(
                f"stream {self.text} must have its data; call super().__init__(data, tasks) in its __init__."
            )
        return stream


REGISTERED: dict[str, type[Stream] | Callable[..., Any]] = {}


def register_stream(name: str, stream: type[Stream] | Callable[..., Any]) -> None:
    """Make a stream of your own, a class or a function of a seed, known by a name: `threefold run NAME --data …`."""
    check_name("name of a stream", name, STREAMS)
    if not callable(stream):
        raise ThreefoldError(f"stream must be a subclass of Stream or a function of a seed, got {stream!r}.")
    REGISTERED[name] = stream


def find(text: str) -> NamedStream:
    """The stream, its data and its options in a text ('split' alone names no data)."""
    module = text.partition(":")[0]
    ours = module.partition("-")[0] in STREAMS and not module.endswith(".py")
    if own := None if ours else REGISTERED.get(text) or own_code(text, "stream", ()):
        if not isinstance(own, type):
            return NamedStream(OwnStream, function=own, text=text)
        if not issubclass(own, Stream):
            raise ThreefoldError(f"stream '{text}' must be a subclass of Stream or a function, got {own!r}.")
        return NamedStream(own, text=text)
    name, options = pairs_of(text, "stream")
    kind, data = kind_of(name), name.partition("-")[2]
    kind.check_options(options)
    kind.options_type(**options)
    return NamedStream(kind, data or None, options)


def kind_of(name: str) -> type[Stream]:
    """Our stream of a name such as `split-mnist`; nothing is imported, whatever the name."""
    kind = STREAMS.get(name.partition("-")[0])
    if kind is None:
        raise unknown("stream", name, [*STREAMS, *REGISTERED, *(f"{kind}-mnist" for kind in (*STREAMS,)[:3])])
    if name.endswith("-"):
        raise ThreefoldError(f"stream '{name}' has no data after the hyphen; use {name[:-1]} or {name}mnist.")
    return kind
