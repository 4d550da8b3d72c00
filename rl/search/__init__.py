"""Search guided by a trained agent: find runs on levels that the agent does not finish alone, and shorten runs.

``solve`` searches one level; ``command`` implements ``scripts/solve.py``.  docs/search_and_export.md has results and costs.
"""
