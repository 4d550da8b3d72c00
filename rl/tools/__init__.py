"""Implementation of the scripts that check, evaluate, compare, average, sweep and export trainings and agents."""
