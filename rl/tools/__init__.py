"""Comparison of runs, A/B experiments, sweeps and export."""
