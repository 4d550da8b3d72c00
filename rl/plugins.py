"""Plug-ins: the user's Python files and modules, which register networks, curriculum strategies or reward presets.

    load(["mine.py", "my_package.networks"])     # each calls e.g. rl.policy.architectures.register

docs/own_network.md has a complete example.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from nppsim.errors import ConfigError, UserError

TRUST_FLAG = "--trust-plugins"


_loaded: set[str] = set()  # ``_key`` of the plug-ins that this process has imported


def load_stored(stored: object, trusted: bool) -> None:
    """Import the plug-ins that a file names.

    stored: value of "plugins" in the file.
    trusted: import all of them; otherwise, only plug-ins that were imported before are accepted.
    Raises ConfigError if the file names other plug-ins, as importing them runs their code.
    """
    names = [str(name) for name in stored] if isinstance(stored, list | tuple) else []
    if others := [name for name in names if not trusted and _key(name) not in _loaded]:
        advice = f"if you trust this code, give {TRUST_FLAG}, or --plugin with the same names"
        raise ConfigError(f"names plug-ins, which would be executed: {', '.join(others)}; {advice}")
    load(names)


def _key(plugin: str) -> str:
    return os.path.realpath(plugin) if plugin.endswith(".py") else plugin


def load(plugins: Iterable[str]) -> None:
    """Import each plug-in, unless it was imported before.

    plugins: paths of Python files, or names of installed modules.
    Raises ConfigError if a plug-in is missing or raises an error.
    """
    for plugin in plugins:
        try:
            if plugin.endswith(".py"):
                _load_file(Path(plugin).resolve())
            else:
                importlib.import_module(plugin)
        except UserError:
            raise
        except Exception as error:  # the user's code may raise any error
            advice = f"cannot be imported ({type(error).__name__}: {error}); give a Python file, or an installed module"
            raise ConfigError(advice, "--plugin", plugin) from error
        _loaded.add(_key(plugin))


def _load_file(path: Path) -> None:
    # No dot in the name: pickle imports classes by module name, and a dot would mean a package.
    name = f"plugin_{path.stem.replace('.', '_')}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # its name ends with .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
