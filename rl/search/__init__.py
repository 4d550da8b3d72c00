"""Search on top of a trained agent: finish levels that it does not finish alone, and shorten its runs.

``solve`` searches one level, ``command`` is ``scripts/solve.py``.  Results and cost: docs/search_and_export.md.
"""
