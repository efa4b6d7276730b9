"""What a step frees, the next one allocates again: malloc should not return it to the system in between."""

import ctypes
import sys
from contextlib import suppress
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
NEVER, LARGEST = -1, (1 << 31) - 1


@cache
def keep_freed_memory() -> None:
    """For steps on a CPU, once: else tensors over 32 MB are mapped anew at each step, page by page.

    That was a sixth of a step's time. glibc alone is asked; where there is another library, nothing happens.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            libc.mallopt(TRIM_THRESHOLD, NEVER)
            libc.mallopt(MMAP_THRESHOLD, LARGEST)
