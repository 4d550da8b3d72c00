"""Mutations: deliberate mistakes in functions of the product, each with the tests that must fail.

    mutation("advantages have the wrong sign", "tests/rl/ppo/test_losses.py").everywhere(
        normalized, lambda original, *arguments: -original(*arguments)
    )

    @mutation("times are in milliseconds", "tests/rl/test_events.py").wrap(SummaryWriter, "add_scalar")
    def _(original, *arguments): ...

    @mutation("two changes at once", "tests/rl/test_events.py")
    def _(patch: Patch) -> None: ...

This folder has one file per subsystem; ``python -m tests.mutation`` applies the mutations one at a time.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


class Patch(ExitStack):
    """Changes to the product that are undone when the block ends; ``changed`` lists the names."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[str] = []

    def set(self, owner: Any, name: str, value: object) -> None:
        """Replace an attribute of a module, class or object, or an entry of a dictionary."""
        self.changed.append(f"{getattr(owner, '__name__', type(owner).__name__)}.{name}")
        if isinstance(owner, MutableMapping):
            self.enter_context(mock.patch.dict(owner, {name: value}))
        else:
            self.enter_context(mock.patch.object(owner, name, value))

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace a function of a class or module by ``around(original, *arguments)``."""
        self.set(owner, name, _wrapped(getattr(owner, name), around))

    def everywhere(self, function: Callable[..., Any], around: Callable[..., Any]) -> None:
        """Replace a function of a module wherever it has been imported, as if its source were changed."""
        changed = _wrapped(function, around)
        for module in list(sys.modules.values()):
            if _is_ours(module):
                for attribute, value in list(vars(module).items()):
                    if value is function:
                        self.set(module, attribute, changed)


def _is_ours(module: Any) -> bool:
    """Return True for modules of this checkout, except mutations, which call the original."""
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    path = Path(file)
    return path.is_relative_to(ROOT) and path.parent != FOLDER and ".venv" not in path.parts


def _wrapped(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    return changed


@dataclass(frozen=True)
class Mutation:
    """A mistake that tests must notice.

    name: description of the mistake.
    tests: test files, at least one of which must fail.
    inject: function that applies the change.
    subsystem: name of the file in this folder.
    """

    name: str
    tests: tuple[str, ...]
    inject: Callable[[Patch], None]
    subsystem: str = ""


_MUTATIONS: dict[str, Mutation] = {}
_FUNCTION: Any = object()  # the value is the decorated function


class mutation:
    """Register a mutation: by decorating a function of a ``Patch``, or with the one change that a method names.

    The last argument of a method may be left out; then the method is a decorator of the new or changed function.
    """

    def __init__(self, name: str, *tests: str):
        if name in _MUTATIONS:
            raise ValueError(f"there is a mutation {name!r} already")
        self.name, self.tests = name, tests
        self.subsystem = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]

    def __call__(self, inject: Callable[[Patch], None]) -> None:
        """Register a function that applies the mutation."""
        _MUTATIONS[self.name] = Mutation(self.name, self.tests, inject, self.subsystem)

    def _change(self, method: str, *arguments: Any) -> Any:
        if arguments[-1] is _FUNCTION:
            return lambda function: self._change(method, *arguments[:-1], function)
        return self(lambda patch: getattr(patch, method)(*arguments))

    def set(self, owner: Any, name: str, value: object = _FUNCTION) -> Any:
        """Register a call of ``Patch.set``."""
        return self._change("set", owner, name, value)

    def wrap(self, owner: Any, name: str, around: Callable[..., Any] = _FUNCTION) -> Any:
        """Register a call of ``Patch.wrap``."""
        return self._change("wrap", owner, name, around)

    def everywhere(self, function: Callable[..., Any], around: Callable[..., Any] = _FUNCTION) -> Any:
        """Register a call of ``Patch.everywhere``."""
        return self._change("everywhere", function, around)


def all_mutations() -> list[Mutation]:
    """Return all mutations, file by file."""
    for found in pkgutil.iter_modules([str(FOLDER)]):
        if not found.name.startswith(("_", "test_")):
            importlib.import_module(f"tests.mutation.{found.name}")
    return list(_MUTATIONS.values())
