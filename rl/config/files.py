"""Settings from TOML files, recipes and texts such as "ppo.gamma=0.99".

    total-timesteps = 2e6          # a flag, without its dashes
    [ppo]                          # a section of the configuration, as in config.json
    gae_lambda = 0.9
    target_kl = "none"             # None

    read_settings(Path("mine.toml"))["ppo", "gae_lambda"]     # Given(0.9, "mine.toml: [ppo] gae_lambda", "file mine.toml")
    text_settings(["ppo.gae_lambda=0.9"], "--set", "command line")

Recipes are TOML files of the package (``rl/recipes``).
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from nppsim.errors import REDACTED, ConfigError, did_you_mean
from nppsim.io.reading import PlainError, from_plain, read_object, read_toml
from nppsim.settings import Setting, require, settings_of
from rl import plugins
from rl.config import ExperimentConfig

RECIPES = Path(__file__).parent.parent / "recipes"
MAX_BYTES = 1 << 20  # maximum bytes of a TOML file
FILE_SOURCE = "file "  # beginning of the source of settings from TOML files
_REMEDY = "give a TOML file as in docs/configuration.md"
# Settings of the execution of a program, which do not affect results.
EXECUTION = (
    *("resume_from", "resume_override", "previous_checkpoint", "visualize_training", "debug", "audit", "silence"),
    *("config_files", "recipe"),
)
SECTIONS: dict[str, type] = {"": ExperimentConfig} | {
    f.name: f.type for f in fields(ExperimentConfig) if isinstance(f.type, type) and is_dataclass(f.type)
}


class Given(NamedTuple):
    """A value of a setting.

    location: flag, or file and key, for error messages.
    source: origin of the value, for run.json.
    """

    value: Any
    location: str
    source: str


Settings = dict[tuple[str, str], Given]  # (section, field) -> value; section "": field of ExperimentConfig


def dotted(section: str, name: str) -> str:
    """Join section and name, e.g. "ppo.gamma"."""
    return f"{section}.{name}".lstrip(".")


@functools.cache
def known_settings() -> tuple[tuple[str, str, Setting], ...]:
    """Return (name in messages, section or "" for fields of ExperimentConfig, setting) of all settings."""
    pairs = ((section, setting) for section, owner in SECTIONS.items() for setting in settings_of(owner).values())
    return tuple(
        (setting.flag if setting.flag and not setting.inverts else dotted(section, setting.name), section, setting)
        for section, setting in pairs
    )


def value_of(config: ExperimentConfig, section: str, name: str) -> Any:
    """Return the value of a setting."""
    return getattr(getattr(config, section) if section else config, name)


def with_settings(config: ExperimentConfig | None, given: Settings) -> ExperimentConfig:
    """Return the configuration with the given values; None stands for the defaults.

    A ConfigError names the flag, or the file and key, of the invalid setting.
    """
    parts = {part: _with_part(config and getattr(config, part), part, given) for part in SECTIONS if part}
    changed: ExperimentConfig = _with_part(config, "", given, **parts)
    return changed


def _with_part(old: Any, section: str, given: Settings, **more: Any) -> Any:
    values = {name: entry.value for (part, name), entry in given.items() if part == section}
    try:
        return SECTIONS[section](**values, **more) if old is None else replace(old, **values, **more)
    except ConfigError as error:
        names = {setting.name: setting.option for setting in settings_of(SECTIONS[section]).values() if setting.flag}
        names |= {name: entry.location for (part, name), entry in given.items() if part == section}
        raise (error.named(names[error.field]) if error.field in names else error) from None


def read_settings(path: Path, trust_plugins: bool = False) -> Settings:
    """Read settings from a TOML file or a run's config.json; a ConfigError names the file and the invalid key.

    trust_plugins: import the plug-ins that a config.json names; otherwise, they must have been imported before.
    """
    if path.suffix == ".json":
        return run_settings(path, trust_plugins)
    return table_settings(read_toml(path, ConfigError, MAX_BYTES, _REMEDY), str(path), f"{FILE_SOURCE}{path}")


def load_plugins(stored: object, location: str, trusted: bool) -> None:
    """Import the plug-ins that a file names (``plugins.load_stored``); a ConfigError begins with ``location``."""
    try:
        plugins.load_stored(stored, trusted)
    except ConfigError as error:
        raise ConfigError(f"{location}: {error}") from error


def run_settings(path: Path, trust_plugins: bool = False) -> Settings:
    """Read settings from a run's config.json, except those of the execution, and datasets if it has --single-level."""
    stored = read_object(path, ConfigError, "give config.json of a run")
    config = config_from_dict(stored, str(path), trust_plugins)
    settings: Settings = {}
    for flag, section, setting in shared_settings(config):
        value = value_of(config, section, setting.name)
        hidden = REDACTED in str(value)
        require(not hidden, f"{path} does not contain its value, a possible secret; use a TOML file", flag)
        settings[section, setting.name] = Given(value, f"{path}: {flag}", f"run {path}")
    return settings


def shared_settings(config: ExperimentConfig) -> list[tuple[str, str, Setting]]:
    """Return the ``known_settings`` that a file for other experiments contains."""
    single = config.single_level is not None
    return [
        (flag, section, setting)
        for flag, section, setting in known_settings()
        if not (setting.name in EXECUTION or setting.refusal or (single and setting.name.endswith("_dataset")))
    ]


def config_from_dict(
    data: Mapping[str, Any], location: str = "config.json", trust_plugins: bool = False
) -> ExperimentConfig:
    """Make a configuration from the result of ``ExperimentConfig.to_dict``; other entries of config.json are ignored.

    location: name of the file, for error messages.
    trust_plugins: import the plug-ins that it names; otherwise, they must have been imported before.
    Raises ConfigError for missing, unknown and invalid settings.
    """
    names = {field.name for field in fields(ExperimentConfig)}
    load_plugins(data.get("plugins"), location, trust_plugins)
    try:
        config: ExperimentConfig = from_plain(ExperimentConfig, {name: data[name] for name in data if name in names})
    except ConfigError as error:
        raise ConfigError(f"{location}: {error}") from error
    except PlainError as error:
        advice = "if it is from another version of the project, use that version, or give flags"
        raise ConfigError(f"{location}: missing or unknown settings ({error}); {advice}") from error
    return config


def recipe_settings(name: str) -> Settings:
    """Read a recipe; ConfigError for an unknown name."""
    names = recipe_names()
    known = f"{', '.join(names)}{did_you_mean(name, names)}"
    require(name in names, f"is not a recipe; known: {known}", "--recipe", name)
    data = read_toml(RECIPES / f"{name}.toml", ConfigError, MAX_BYTES, _REMEDY)
    return table_settings(data, f"recipe {name}", f"recipe {name}")


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def text_settings(texts: Sequence[str], flag: str, source: str) -> Settings:
    """Parse texts NAME=VALUE of a flag, such as "seeds=1,2", "ppo.schedules=off" or "ppo.target_kl=none".

    source: origin of the settings, for run.json.
    """
    settings: Settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        part, _, field = name.strip().lstrip("-").rpartition(".")
        require(equals and field, "give NAME=VALUE, e.g. ppo.gae_lambda=0.9", flag, name)
        section, setting = find_setting(part, field, f"{flag} {name}")
        settings[section, setting.name] = Given(read_text(setting, value, f"{flag} {name}"), flag, source)
    return settings


def read_text(setting: Setting, text: str, location: str) -> Any:
    """Parse the value of a setting; ConfigError if it is invalid.

    Commas separate several values; "none" is None or an empty list.
    """
    text = text.strip()
    if text.lower() in ("none", "null", "") and (setting.optional or setting.many):
        return None if setting.optional else ()
    parts = text.strip("[]").split(",") if setting.many else [text]
    try:
        values = tuple(setting.read(part.strip().strip("\"'")) for part in parts)
    except ValueError as error:
        raise ConfigError(str(error), location) from error
    return _checked(setting, values if setting.many else values[0], location)


def _checked(setting: Setting, value: Any, location: str) -> Any:
    if advice := setting.problem(value):
        raise ConfigError(advice, location, value)
    return value


def table_settings(data: Mapping[str, Any], file: str, source: str) -> Settings:
    """Check the content of a TOML file and return its settings.

    file: name of the file, for error messages.
    source: origin of the settings, for run.json.
    """
    settings: Settings = {}
    for key, value in data.items():
        part = key if isinstance(value, dict) else ""
        near = did_you_mean(part, filter(None, SECTIONS), cutoff=0)
        require(part in SECTIONS, f"is not a section of the configuration{near}", f"{file}: [{part}]")
        for name, item in (value if part else {key: value}).items():
            location = f"{file}: {f'[{part}] ' if part else ''}{name}"
            section, setting = find_setting(part, name, location)
            if (section, setting.name) in settings:
                raise ConfigError(f"sets the same setting as {settings[section, setting.name].location}", location)
            settings[section, setting.name] = Given(_from_toml(setting, item, location), location, source)
    return settings


def toml_value(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool | str | Path) or value is None:
        plain = "none" if value is None else value if isinstance(value, bool) else str(value)
        return json.dumps(plain, ensure_ascii=False)
    return repr(value)


def find_setting(part: str, name: str, location: str) -> tuple[str, Setting]:
    """Find a setting; return (section, setting).

    part: TOML table that contains the name, "" for the top level.
    location: flag, or file and key, for error messages.
    """
    names: dict[str, tuple[str, Setting]] = {}
    for flag, section, setting in known_settings():
        if setting.name not in EXECUTION and part in ("", section):
            own = (setting.name,) if section == part else ()
            for alias in (flag, *setting.aliases, *own):
                names.setdefault(alias, (section, setting))
    require(name in names, f"is not a setting{did_you_mean(name, names, cutoff=0)}", location)
    section, setting = names[name]
    require(not setting.refusal, setting.refusal, location)
    return section, setting


def _from_toml(setting: Setting, value: Any, location: str) -> Any:
    """Convert a value of a TOML file; ConfigError for a wrong type or a value outside the limits."""
    if value == "none" and (setting.optional or setting.many):
        return None if setting.optional else ()
    values = value if setting.many and isinstance(value, list) else [value]
    items = tuple(_one_from_toml(setting, item, location) for item in values)
    return _checked(setting, items if setting.many else items[0], location)


def _one_from_toml(setting: Setting, value: Any, location: str) -> Any:
    if setting.kind is float and type(value) is int and abs(value) < 1 << 1023:  # within the range of float
        return float(value)
    if setting.kind is int and type(value) is float and value.is_integer():  # 1e6 is a float in TOML
        return int(value)
    if setting.kind is Path and type(value) is str and "\0" not in value:
        return Path(value)
    if type(value) is setting.kind:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(setting.kind, "a text in quotes")
    raise ConfigError(f"give {wanted}{', or a list of them' if setting.many else ''}", location, value)
