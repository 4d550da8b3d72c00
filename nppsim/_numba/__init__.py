"""Compilation of kernels: decorators, cache, progress."""
