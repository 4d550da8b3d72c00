"""Damaged files of every format for every reader (``make fuzz``)."""
