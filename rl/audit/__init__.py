"""Optional checks of a running training (``--audit off|first|all``); they only warn and do not change the run."""
