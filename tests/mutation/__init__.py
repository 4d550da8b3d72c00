"""Mutations of the product, each of which a test or a check must notice; ``python -m tests.mutation``."""
