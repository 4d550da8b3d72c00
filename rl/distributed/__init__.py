"""Data-parallel training in several processes; see ``docs/distributed.md``."""
