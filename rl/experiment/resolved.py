"""The settings of one training, resolved: each with its value and where that comes from.

    resolved(config, config.ppo.settled(plan), plan)["ppo.gamma"]     # {"value": 0.995, "source": "default"}

Sources: "default", "command line", "Python", "torchrun", "file PATH", "recipe NAME", "--resume-override", "hardware plan",
"profile NAME", "memory limit", "measurement"; where nobody kept them, a value that is not the default's counts as one of
the command line.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from hardware import Plan
from rl.config import ExperimentConfig, PPOConfig

DEFAULT, GIVEN, PLANNED = "default", "command line", "hardware plan"
_SOURCES = {"flag": GIVEN, "default": PLANNED}  # as the plan calls them
_WISHES = {"precision": "mixed_precision"}  # settings of the plan that the configuration calls otherwise


def resolved(config: ExperimentConfig, settings: PPOConfig, plan: Plan) -> dict[str, dict[str, Any]]:
    """Dotted name -> {"value", "source"} of every setting, and of everything that the hardware plan has chosen."""
    found = {
        name: {"value": value, "source": config.sources.get(name, source)}
        for name, value, source in _settings(config, config.to_dict())
        if name != "sources"
    }
    for name in ("learning_rate", "n_epochs"):  # which the plan settles
        if getattr(config.ppo, name) is None:
            chosen = plan.settings["epochs" if name == "n_epochs" else name]
            source = DEFAULT if chosen.value is None else _SOURCES.get(chosen.source, chosen.source)
            found[f"ppo.{name}"] = {"value": getattr(settings, name), "source": source}
    for name, chosen in plan.settings.items():
        if chosen.value is not None:
            source = _SOURCES.get(chosen.source, chosen.source)
            if source == GIVEN:
                source = config.sources.get(f"hardware.{_WISHES.get(name, name)}", GIVEN)
            found[f"plan.{name}"] = {"value": chosen.value, "source": source}
    return found


def _settings(config: Any, values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any, str]]:
    """(dotted name, plain value, source) of every field; values: the configuration as plain values."""
    found = []
    for one in fields(config):
        value = getattr(config, one.name)
        if is_dataclass(value):
            found += _settings(value, values[one.name], f"{prefix}{one.name}.")
        else:
            found.append((prefix + one.name, values[one.name], DEFAULT if value == _default(one) else GIVEN))
    return found


def _default(one: "Field[Any]") -> object:
    return one.default_factory() if one.default_factory is not MISSING else one.default
