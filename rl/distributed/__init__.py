"""Data-parallel training in several processes; see ``docs/long_runs.md``."""
