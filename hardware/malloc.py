"""Settings of glibc's allocator for threads that allocate and free the same large arrays at every step.

By default each thread has its own heap, which returns freed memory to the kernel.  Every array then waits for zeroed pages.
With images this takes a third of an update, and a second thread gains nothing.
"""

import ctypes
import sys

# Of malloc.h; mallopt takes ints.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MAX_FREE = 2**30  # free bytes at the end of the heap above which memory is returned to the kernel
_LARGEST = 2**25  # largest array on the heap, in bytes; the upper limit of glibc


def keep_freed_memory() -> None:
    """Use one heap for all threads that does not return freed memory; call before threads are started.

    Without glibc nothing happens.  A rejected setting affects speed only, not results.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for setting, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _MAX_FREE)):
            mallopt(setting, value)
