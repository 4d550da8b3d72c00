"""Every default of the project, flags and internals alike, as plain values.

``python tests/support/golden.py`` writes them to tests/data/golden_settings.json: the explicit entry that a change needs.
"""

import ast
import importlib
import math
import pkgutil
import sys
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from places import DATA, ROOT

GOLDEN = DATA / "golden_settings.json"
RECIPES = DATA / "golden_recipes.json"
# Whose constants decide what is learned, how and from what.  Packages stand for all of their modules.
MODULES = (
    *("bc", "hardware", "rl.config", "rl.curriculum"),
    *("rl.experiment", "rl.evaluation", "rl.policy", "rl.ppo"),
    *("nppsim.decision", "nppsim.observe.statistics", "nppsim.planner.settings", "nppsim.reward"),
)
_PLAIN = (bool, int, float, str, type(None))


def golden():
    """Place -> name -> value; a value's text where JSON has no such thing."""
    found = {}
    for name in sorted(_names()):
        module = importlib.import_module(name)
        values = _constants(module) | _defaults(module)
        if values:
            found[name] = dict(sorted(values.items()))
    return found | _tables()


def _names():
    for name in MODULES:
        module = importlib.import_module(name)
        yield name
        if hasattr(module, "__path__"):
            yield from (
                one.name for one in pkgutil.walk_packages(module.__path__, f"{name}.") if "__main__" not in one.name
            )


def _constants(module):
    """Numbers and tuples of them in capitals that this module itself defines."""
    tree = ast.parse((ROOT / module.__file__).read_text(encoding="utf-8"))
    targets = [
        target
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    names = [target.id for target in targets if isinstance(target, ast.Name) and target.id.strip("_").isupper()]
    values = {name: getattr(module, name) for name in names}
    return {name: plain(value) for name, value in values.items() if _is_number(value)}


def _defaults(module):
    """Defaults of the fields of its dataclasses."""
    found = {}
    for owner in vars(module).values():
        if isinstance(owner, type) and is_dataclass(owner) and owner.__module__ == module.__name__:
            for one in fields(owner):
                if one.default is not MISSING and _is_plain(one.default):
                    found[f"{owner.__name__}.{one.name}"] = plain(one.default)
    return found


def recipes():
    """Recipe -> place of a setting -> its value as text."""
    from rl.config.files import recipe_names, recipe_settings
    from rl.config.resume import dotted

    return {
        name: {dotted(*key): _text(given.value) for key, given in recipe_settings(name).items()}
        for name in recipe_names()
    }


def _text(value):
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _tables():
    """Profiles, presets and architectures: settings that are objects."""
    from hardware import PROFILES
    from nppsim.reward import PRESETS
    from rl.policy.architectures import ARCHITECTURES

    tables = {"hardware profiles": PROFILES, "reward presets": PRESETS, "architectures": ARCHITECTURES}
    return {place: {name: plain(asdict(entry)) for name, entry in table.items()} for place, table in tables.items()}


def _is_number(value):
    return all(map(_is_number, value)) if isinstance(value, tuple) else isinstance(value, (bool, int, float))


def _is_plain(value):
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, (*_PLAIN, Path))


def plain(value):
    """The value as JSON gives it back."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value if isinstance(value, _PLAIN) and value not in (math.inf, -math.inf) else str(value)


if __name__ == "__main__":
    from nppsim.files import write_json

    write_json(RECIPES, recipes())
    print(f"written: {RECIPES}")
