"""The product under planted faults: which guard notices each, and that sound runs set off none."""
