"""The scripts of ``scripts/`` as modules, which tests call without starting a process."""

import importlib.util

from places import ROOT


def load_script(name):
    """``scripts/NAME.py`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script
