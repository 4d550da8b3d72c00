"""Checks of data, settings and runs, and comparison of runs."""
