"""Attacks on the commands of the project: full disks, kills, vanishing folders; ``python -m tests.chaos``."""
