"""The main job, its comparison and its report.  Start with ``run.py``: it runs the ``stages.py`` of each of its ``jobs.py``."""
