"""How the C library keeps freed memory: for threads that make and drop the same large arrays step after step.

glibc gives each thread a heap of its own, from which it hands whatever is freed back to the kernel.  A pool of threads
(``hardware.thread_pool``) then waits for freshly zeroed pages at every array of every step.  With images this takes a third
of an update, and the second thread gains nothing.
"""

import ctypes
import sys

# Of malloc.h; mallopt takes ints.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT = 2**30  # bytes that may lie free at the end of the heap before they are handed back
_LARGEST = 2**25  # bytes of an array up to which it is made in the heap; glibc takes no more


def keep_freed_memory() -> None:
    """One heap for all threads, which keeps what is freed; to be called before there are threads.

    Nothing is done where the C library is not glibc.  A setting that is refused costs speed alone: results are the same.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for setting, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _KEPT)):
            mallopt(setting, value)
