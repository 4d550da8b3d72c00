"""What agents see: the layout of observations, vectors, images, statistics."""
