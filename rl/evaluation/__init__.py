"""Evaluation of agents: episodes, results, films."""
