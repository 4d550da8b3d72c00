"""Simulate missing packages."""

import sys


class _Hidden:
    """An import finder that hides some packages."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(monkeypatch, *names):
    """Let imports of these packages fail as if they were not installed, until the end of the test."""
    for module in [module for module in sys.modules if module.split(".")[0] in names]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [_Hidden(names), *sys.meta_path])
