"""What agents see: the layout of observations, vectors, images, graphs, statistics."""
