"""The decorators of kernels: functions that Numba compiles once per version of the sources (see ``_cache``)."""

from numba import njit

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}

# Kernels that neither make arrays nor return any need not count references: every array of every tuple that they pass on
# would be counted at each call.  Without, physics alone is two to six times as fast.
kernel = njit(**_OPTIONS, _nrt=False)
inlined = njit(**_OPTIONS, _nrt=False, forceinline=True)
