"""The decorators of kernels: functions that Numba compiles once per version of the sources (see ``_cache``).

Kernels that neither make arrays nor return any need not count references: Numba would count every array of every tuple at
each call that it does not inline.  Without, physics alone is two to six times as fast.  The others are ``allocating``;
Numba refuses to compile them otherwise.
"""

from numba import njit

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
kernel = njit(**_OPTIONS, _nrt=False)
inlined = njit(**_OPTIONS, _nrt=False, forceinline=True)
allocating = njit(**_OPTIONS, _nrt=True)  # said explicitly: a callee inherits what its caller has
