"""How a command stops on request: by Ctrl-C, SIGTERM, SIGHUP or a time limit.

A command that trains exits with status 3, because the same command continues; any other with 128 plus the signal's
number, as usual. The effect of a signal depends on the phase of the command:

- while it loads (`LOADING`, the seconds that importing PyTorch takes) and when it is done, it exits at once;
- while it prepares or reports (`RUNNING`), KeyboardInterrupt is raised, so that files and locks are cleaned up; while a
  module is being imported it exits at once, too;
- while it trains (`stopping`), training stops within a few steps. A second Ctrl-C raises KeyboardInterrupt.

Nothing heavy may be imported here: `main` installs the handler before everything else.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from types import FrameType
from typing import NoReturn

MORE_TO_DO = 3  # exit status: stopped on request, the same command continues
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TRAINING_COMMANDS = ("run", "reproduce", "experiment")


class Phase(Enum):
    LOADING = "loading"
    RUNNING = "running"
    TRAINING = "training"


class _Received:
    """The received signals, and the phase of the command."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.signal: int | None = None  # the first one received
        self.raised = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = self.signal or number
        if self.phase is Phase.LOADING or self.raised or (self.phase is Phase.RUNNING and _importing(frame)):
            with suppress(OSError):
                os.write(2, f"{sentence()}\n".encode())
            os._exit(status())
        if self.phase is Phase.RUNNING or (again and number == signal.SIGINT):
            self.raised = True
            raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Is a module being imported? Libraries may catch a KeyboardInterrupt there (PyTorch does around NumPy), and the
    command would go on with half a module."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


_process = _Received()


def install() -> None:
    """Install handlers for the signals that stop a process. Those that are ignored (nohup) stay ignored."""
    global _process
    _process = _Received()
    _take_signals()
    atexit.register(_ignore_signals)


def _take_signals() -> None:
    if threading.current_thread() is not threading.main_thread():  # handlers can only be set there
        return
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _process.handle)


def _ignore_signals() -> None:
    """Ignore signals while Python exits, as they would change its status."""
    for number in SIGNALS:
        if signal.getsignal(number) == _process.handle:
            signal.signal(number, signal.SIG_IGN)


def loaded() -> None:
    """The command's imports are done, and its work begins.

    Handlers are installed again, as libraries such as Ray may have replaced them.
    """
    _take_signals()
    _process.phase = Phase.RUNNING


def done() -> None:
    """Nothing is left to clean up."""
    _process.phase = Phase.LOADING


@contextmanager
def stopping(until: float | None) -> Iterator[Callable[[], bool]]:
    """A function that returns whether training should stop; `until` is a time of `time.monotonic`."""

    def stop() -> bool:
        return _process.signal is not None or (until is not None and time.monotonic() >= until)

    _process.phase = Phase.TRAINING
    try:
        yield stop
    finally:
        _process.phase = Phase.RUNNING


def stopped(left: int) -> NoReturn:
    """Training stopped on request: print how many runs are left, and exit."""
    from typer import Exit

    print(
        f"threefold: stopped with {left} run{'' if left == 1 else 's'} left; run the same command again to continue.",
        file=sys.stderr,
    )
    raise Exit(MORE_TO_DO)


def trains() -> bool:
    """Does the command train and store, so that it can be resumed?"""
    return any(word in TRAINING_COMMANDS for word in sys.argv[1:2])


def status() -> int:
    """The exit status of an interrupted command."""
    return MORE_TO_DO if trains() else 128 + (_process.signal or signal.SIGINT)


def sentence() -> str:
    """The message of an interrupted command."""
    goes_on = "; run the same command again to continue from the last finished task" if trains() else ""
    return f"threefold: stopped{goes_on}."
