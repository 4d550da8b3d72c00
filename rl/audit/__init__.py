"""Optional checks of a running training (``--audit off|first|all``); they warn and never change the run."""
