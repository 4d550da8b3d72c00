"""Damaged files of every format for every reader; ``python -m tests.fuzz``."""
