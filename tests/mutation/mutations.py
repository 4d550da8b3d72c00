"""Planted faults: each changes the product as a mistake in it would, so that the real guards can prove that they see it.

    @fault("advantages have the wrong sign", "F65")
    def _(plant: Plants) -> None:
        plant.around(normalised, lambda original, *given: -original(*given))

The faults are in ``tests/mutation/plants_*.py``, one file per area; ``tests.mutation.runner`` plants them one at a time.
A plant is no part of any guard: guards know nothing of it, and were not written for it.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import tests.mutation

OURS = ("rl", "bc", "hardware", "nppsim")


class Plants(ExitStack):
    """Changes to the product that are undone when the block ends."""

    def set(self, owner: Any, name: str, value: object) -> None:
        """An attribute of a module, class or object, or an entry of a dictionary."""
        if isinstance(owner, MutableMapping):
            self.enter_context(mock.patch.dict(owner, {name: value}))
        else:
            self.enter_context(mock.patch.object(owner, name, value))

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """A function of a class or module: ``around(original, *arguments)`` is called in its stead."""
        self.set(owner, name, _wrapped(getattr(owner, name), around))

    def around(self, function: Callable[..., Any], around: Callable[..., Any]) -> None:
        """A function of a module, wherever in our packages it has been imported: as if its source were changed."""
        changed = _wrapped(function, around)
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] in OURS:
                for attribute, value in list(vars(module).items()):
                    if value is function:
                        self.set(module, attribute, changed)


def _wrapped(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    return changed


@dataclass(frozen=True)
class Fault:
    """Something that can be wrong, or a run in which nothing is.

    name: what is.
    numbers: of the failures in docs/lab/failures.md that it stands for.
    plant: makes it so; None: nothing is wrong, and nothing may be noticed.
    stage: what is done with the fault in place, a name of ``tests.mutation.runner.STAGES``.
    flags: of the main job, beside those of every tiny run.
    """

    name: str
    numbers: tuple[str, ...]
    plant: Callable[[Plants], None] | None
    stage: str = "job"
    flags: tuple[str, ...] = ()


_FAULTS: dict[str, Fault] = {}


def fault(
    name: str, *numbers: str, stage: str = "job", flags: tuple[str, ...] = ()
) -> Callable[[Callable[[Plants], None]], Callable[[Plants], None]]:
    """Register a function that plants a fault; see ``Fault``."""

    def register(plant: Callable[[Plants], None]) -> Callable[[Plants], None]:
        if name in _FAULTS:
            raise ValueError(f"there is a fault {name!r} already")
        _FAULTS[name] = Fault(name, numbers, plant, stage, flags)
        return plant

    return register


def all_faults() -> list[Fault]:
    """Every fault, file by file."""
    for module in sorted(found.name for found in pkgutil.iter_modules(tests.mutation.__path__)):
        if module.startswith("plants_"):
            importlib.import_module(f"tests.mutation.{module}")
    return list(_FAULTS.values())
