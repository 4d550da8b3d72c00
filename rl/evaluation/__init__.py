"""What an agent reaches: evaluation, results, films."""
