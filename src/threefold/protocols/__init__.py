"""Task protocols: a seed becomes a sequence of tasks, as index sets and pixel maps into one tensor, never copies."""

from threefold.errors import unknown
from threefold.protocols.permuted import Permuted
from threefold.protocols.protocol import Defaults, Protocol, Task
from threefold.protocols.split import Split

PROTOCOLS: dict[str, type[Protocol]] = {protocol.name: protocol for protocol in (Split, Permuted)}


def find(name: str) -> tuple[type[Protocol], str | None]:
    """The protocol and the dataset that a name such as 'split-mnist' stands for ('split' alone names no dataset)."""
    kind, _, data = name.partition("-")
    if kind not in PROTOCOLS:
        raise unknown("protocol", name, [*PROTOCOLS, *(f"{kind}-mnist" for kind in PROTOCOLS)])
    return PROTOCOLS[kind], data or None


__all__ = ["PROTOCOLS", "Defaults", "Permuted", "Protocol", "Split", "Task", "find"]
