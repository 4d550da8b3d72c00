"""Public names of a package, imported at their first use: the import of Numba takes two seconds."""

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def import_lazily(package: str, modules: Mapping[str, str]) -> None:
    """Give a package the attributes ``modules``, {name: module that defines it}, which are imported at their first use.

    An attribute with the name of a submodule, such as ``nppsim.simulate``, stays the function when the submodule is imported.
    Other values cannot be assigned to the attributes.
    """

    def keep(_: ModuleType, value: object) -> None:
        if not isinstance(value, ModuleType):  # Python assigns an imported submodule
            raise AttributeError(f"public names of {package} cannot be replaced; replace them in their modules")

    def public(name: str) -> property:
        def get(_: ModuleType) -> Any:
            return getattr(importlib.import_module(modules[name]), name)

        return property(get, keep)

    sys.modules[package].__class__ = type("LazyPackage", (ModuleType,), {name: public(name) for name in modules})
