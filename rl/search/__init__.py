"""Search on top of a trained agent: finishes what it does not finish alone, and finds shorter ways.

``solve`` is the search; ``job`` does what ``scripts/solve.py`` is asked for: reads levels, writes runs, films and a page.
What it reaches, and what it costs: docs/search_and_export.md.
"""
