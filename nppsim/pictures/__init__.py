"""Pictures of levels and runs (extra: video)."""
