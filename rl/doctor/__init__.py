"""What keeps a run honest: checks before and during training, planted faults, digests, comparison of runs."""
