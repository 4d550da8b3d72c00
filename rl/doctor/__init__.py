"""Checks of data, settings and runs for users, and comparison of runs."""
