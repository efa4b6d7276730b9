"""Stops malloc from returning memory to the system between steps: each step allocates what the last one freed."""

import ctypes
import sys
from contextlib import suppress
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
NEVER, LARGEST = -1, (1 << 31) - 1


@cache
def keep_freed_memory() -> None:
    """Called once for steps on a CPU: otherwise tensors over 32 MB are mapped again at each step, page by page.

    That was a sixth of a step's time. Only glibc has this setting; with other libraries nothing happens.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(TRIM_THRESHOLD, NEVER)
            libc.mallopt(MMAP_THRESHOLD, LARGEST)
