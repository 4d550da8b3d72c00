"""Measuring speed: timing, workloads, benchmarks."""
