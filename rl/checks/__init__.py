"""Checks of data, settings, networks and runs, made by the doctor and during training."""
