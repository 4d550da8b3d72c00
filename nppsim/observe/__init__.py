"""Observations: layout, vectors, images, graphs, statistics."""
