"""Variants of PPO: recurrent, hierarchical, off-policy."""
