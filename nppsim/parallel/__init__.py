"""Worker processes and clusters."""
