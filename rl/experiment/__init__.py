"""The main job, comparisons, sweeps and reports; ``run.py`` runs the stages (``stages.py``) of each job (``jobs.py``)."""
