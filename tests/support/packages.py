"""Packages made to look as if they were not installed."""

import sys


class _Hidden:
    """A finder that finds nothing of some packages, and keeps others from finding it."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(monkeypatch, *names):
    """Until the end of the test, importing any of these packages fails as if it were not installed."""
    for module in [module for module in sys.modules if module.split(".")[0] in names]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [_Hidden(names), *sys.meta_path])
