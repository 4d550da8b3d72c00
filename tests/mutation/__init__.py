"""Mutations of the product, each of which a test must notice; ``python -m tests.mutation``."""
