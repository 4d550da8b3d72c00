"""Import the scripts of ``scripts/`` as modules."""

import importlib.util

from places import ROOT


def load_script(name):
    """Import ``scripts/NAME.py``."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script
