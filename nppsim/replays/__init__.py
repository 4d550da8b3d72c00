"""Replays: recorded inputs, their files and sets, playing them back and comparing them."""
