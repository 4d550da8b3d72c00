"""The main job, its comparison and its report."""
