"""Stopping cleanly: by a time limit, or by Ctrl-C. A second Ctrl-C stops at once."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

MORE_TO_DO = 3  # exit status: stopped as asked, the same command goes on


@contextmanager
def stopping(until: float | None) -> Iterator[Callable[[], bool]]:
    """A function that says whether to stop: `until` is a moment of `time.monotonic`."""
    asked = False

    def stop() -> bool:
        return asked or (until is not None and time.monotonic() >= until)

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
