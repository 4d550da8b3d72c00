"""Code of the user's own: files that are imported before names of networks, strategies and presets are looked up.

    load(["mine.py", "my_package.networks"])     # they call rl.policy.architectures.register and the like

docs/own_network.md has a whole one.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from nppsim.errors import ConfigError, UserError

FLAG = "--plugin"


def load(plugins: Iterable[str]) -> None:
    """Import each, a Python file or the name of a module that is installed, unless that was done before.

    ConfigError where there is none, or where it fails.
    """
    for plugin in plugins:
        try:
            _load_file(Path(plugin).resolve()) if plugin.endswith(".py") else importlib.import_module(plugin)
        except UserError:
            raise
        except Exception as error:  # whatever the user's code does
            advice = f"cannot be imported ({type(error).__name__}: {error}); give a Python file, or an installed module"
            raise ConfigError(advice, FLAG, plugin) from error


def _load_file(path: Path) -> None:
    # without a dot, which would make it part of a package: pickle imports classes by the names of their modules
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
