"""How a command stops when it is asked to: by Ctrl-C, SIGTERM, SIGHUP or a time limit.

A command that trains exits with status 3, because the same command goes on; any other with 128 and the signal's number,
as usual. What a signal does depends on how far the command is:

- while it loads (`LOADING`, the seconds that importing PyTorch takes) and when it is done, it exits at once;
- while it prepares or reports (`RUNNING`), KeyboardInterrupt is raised, so that files and locks are tidied up;
- while it trains (`stopping`), the training is asked to stop, and stops within a few steps. A second Ctrl-C is raised.

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
    """What signals have come, and how far the command is."""

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.signal: int | None = None  # the first that came
        self.raised = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = self.signal or number
        if self.phase is Phase.LOADING or self.raised:
            with suppress(OSError):
                os.write(2, f"{sentence()}\n".encode())
            os._exit(status())
        if self.phase is Phase.RUNNING or (again and number == signal.SIGINT):
            self.raised = True
            raise KeyboardInterrupt


_process = _Received()


def install() -> None:
    """Handle the signals that ask a process to stop, from now on. Those that are ignored (nohup) stay ignored."""
    global _process
    _process = _Received()
    _take_signals()
    atexit.register(_ignore_signals)


def _take_signals() -> None:
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        return
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _process.handle)


def _ignore_signals() -> None:
    """Python is about to end, with the status it has: a signal would only change that."""
    for number in SIGNALS:
        if signal.getsignal(number) == _process.handle:
            signal.signal(number, signal.SIG_IGN)


def loaded() -> None:
    """The command has imported what it needs, and begins to do something.

    Libraries may have taken a signal for themselves meanwhile: Ray does.
    """
    _take_signals()
    _process.phase = Phase.RUNNING


def done() -> None:
    """Nothing is left to tidy up."""
    _process.phase = Phase.LOADING


@contextmanager
def stopping(until: float | None) -> Iterator[Callable[[], bool]]:
    """A function that says whether training should stop: `until` is a moment of `time.monotonic`."""

    def stop() -> bool:
        return _process.signal is not None or (until is not None and time.monotonic() >= until)

    _process.phase = Phase.TRAINING
    try:
        yield stop
    finally:
        _process.phase = Phase.RUNNING


def stopped(left: int) -> NoReturn:
    """Training stopped as asked: say how many runs are left, and exit."""
    from typer import Exit

    print(
        f"threefold: stopped with {left} run{'' if left == 1 else 's'} left; the same command goes on.", file=sys.stderr
    )
    raise Exit(MORE_TO_DO)


def interrupted() -> bool:
    """Was KeyboardInterrupt raised? A library whose import it broke may have caught it, and fail later."""
    return _process.raised


def trains() -> bool:
    """Is the command one that trains and stores, so that it resumes where it was stopped?"""
    return any(word in TRAINING_COMMANDS for word in sys.argv[1:2])


def status() -> int:
    """The exit status of a command that was interrupted."""
    return MORE_TO_DO if trains() else 128 + (_process.signal or signal.SIGINT)


def sentence() -> str:
    """What a command says that was interrupted."""
    goes_on = "; the same command goes on from the last finished task" if trains() else ""
    return f"threefold: stopped{goes_on}."
