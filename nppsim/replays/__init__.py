"""Replays: recorded inputs, file formats, replay sets, playback and comparison."""
