"""Data-parallel training in several processes (``docs/long_runs.md``)."""
