"""The main job and its report; ``run.py`` runs the stages (``stages.py``) of each training (``setup.py``)."""
