"""Pictures and films of levels and runs.  Needs the extra ``video``."""
