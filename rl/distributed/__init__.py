"""Several processes that train together, one of them in the lead; ``docs/distributed.md``."""
