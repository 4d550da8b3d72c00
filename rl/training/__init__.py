"""Callbacks, monitoring and checkpoints of a training."""
