"""Levels: entity types, the level file, tiles, and sets of levels."""
