"""Settings of glibc's allocator for threads that allocate and free the same large arrays at every step.

By default each thread has its own heap, which returns freed memory to the kernel.  Each new array then waits until the kernel
has cleared pages for it.  With images this takes a third of the update time, and a second thread brings no speed-up.
"""

import ctypes
import sys

# Constants of malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MAX_FREE = 2**30  # free bytes at the end of the heap above which memory is returned to the kernel
_LARGEST = 2**25  # maximum size in bytes of arrays on the heap; glibc allows no larger value


def keep_freed_memory() -> None:
    """Make all threads use one heap that does not return freed memory; call this before threads start.  Needs glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for setting, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _MAX_FREE)):
            mallopt(setting, value)
