"""Settings from TOML files, recipes and texts such as "ppo.gamma=0.99".

    total-timesteps = 2e6          # a flag, without its dashes
    [ppo]                          # a section of the configuration, as in config.json
    gae_lambda = 0.9
    target_kl = "none"             # None

    read_settings(Path("mine.toml"))["ppo", "gae_lambda"]     # Given(0.9, "mine.toml: [ppo] gae_lambda", "file mine.toml")
    text_settings(["ppo.gae_lambda=0.9"], "--set", "command line")

Recipes are TOML files of the package (``rl/recipes``).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nppsim.errors import REDACTED, ConfigError, did_you_mean
from nppsim.io.reading import PlainError, from_plain, read_object, read_toml
from nppsim.settings import Setting, settings_of
from rl import plugins
from rl.config import ExperimentConfig

RECIPES = Path(__file__).parent.parent / "recipes"
MAX_BYTES = 1 << 20  # maximum bytes of a TOML file
_REMEDY = "give a TOML file as in docs/configuration.md"
# Settings of how the program runs, which do not affect results.
HOW = (
    *("resume_from", "resume_override", "previous_checkpoint", "visualize_training", "debug", "audit", "silence"),
    *("config_files", "recipe"),
)
SECTIONS: dict[str, type] = {
    f.name: f.type for f in fields(ExperimentConfig) if isinstance(f.type, type) and is_dataclass(f.type)
}
_TRUTH = {"on": True, "true": True, "off": False, "false": False}


class Given(NamedTuple):
    """A value of a setting.

    location: flag, or file and key, for error messages.
    source: origin of the value, for run.json.
    """

    value: Any
    location: str
    source: str


Settings = dict[tuple[str, str], Given]  # (section, field) -> value; section "": field of ExperimentConfig


def read_settings(path: Path) -> Settings:
    """Read settings from a TOML file or a run's config.json; a ConfigError names the file and the invalid key."""
    if path.suffix == ".json":
        return run_settings(path)
    return table_settings(read_toml(path, ConfigError, MAX_BYTES, _REMEDY), str(path), f"file {path}")


def run_settings(path: Path) -> Settings:
    """Read settings from a run's config.json, except those in HOW, refused flags, and datasets if it has --single-level."""
    config = config_from_dict(read_object(path, ConfigError, "give config.json of a run"), str(path))
    found: Settings = {}
    for usual, section, known in known_settings():
        value = getattr(getattr(config, section) if section else config, known.name)
        if known.name in HOW or known.refusal or (config.single_level and known.name.endswith("_dataset")):
            continue
        if REDACTED in str(value):
            raise ConfigError(f"{path} does not contain its value, a possible secret; use a TOML file", usual)
        found[section, known.name] = Given(value, f"{path}: {usual}", f"run {path}")
    return found


def config_from_dict(data: Mapping[str, Any], location: str = "config.json") -> ExperimentConfig:
    """Make a configuration from the result of ``ExperimentConfig.to_dict``; other entries of config.json are ignored.

    location: name of the file, for error messages.
    Raises ConfigError for missing, unknown and invalid settings.
    """
    known = {one.name for one in fields(ExperimentConfig)}
    named = data.get("plugins", ())
    try:
        plugins.load([str(one) for one in named] if isinstance(named, list) else ())
        config: ExperimentConfig = from_plain(ExperimentConfig, {name: data[name] for name in data if name in known})
    except ConfigError as error:
        raise ConfigError(f"{location}: {error}") from error
    except PlainError as error:
        advice = "if it is from another version of the project, use that version, or give flags"
        raise ConfigError(f"{location}: missing or unknown settings ({error}); {advice}") from error
    return config


def dotted(section: str, name: str) -> str:
    """Join section and name, e.g. "ppo.gamma"."""
    return f"{section}.{name}".lstrip(".")


def known_settings() -> Iterator[tuple[str, str, Setting]]:
    """Yield (name in messages, section or "" for fields of ExperimentConfig, setting)."""
    for section, owner in {"": ExperimentConfig, **SECTIONS}.items():
        for known in settings_of(owner).values():
            negated = known.kind is bool and known.default and not known.switch  # as in --no-pretraining
            name = dotted(section, known.name)
            yield (known.flag if known.flag and not negated else name), section, known


def recipe_settings(name: str) -> Settings:
    """Read a recipe; ConfigError for an unknown name."""
    if name not in recipe_names():
        known = ", ".join(recipe_names()) + did_you_mean(name, recipe_names())
        raise ConfigError(f"is not a recipe; known: {known}", "--recipe", name)
    data = read_toml(RECIPES / f"{name}.toml", ConfigError, MAX_BYTES, _REMEDY)
    return table_settings(data, f"recipe {name}", f"recipe {name}")


def recipe_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def text_settings(texts: Sequence[str], flag: str, source: str) -> Settings:
    """Parse texts NAME=VALUE of a flag, such as "seeds=1,2", "ppo.schedules=off" or "ppo.target_kl=none".

    Commas separate several values; "none" is None or an empty list.  source: origin of the settings, for run.json.
    """
    found: Settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        part, _, field = name.strip().lstrip("-").rpartition(".")
        if not (equals and field):
            raise ConfigError("give NAME=VALUE, e.g. ppo.gae_lambda=0.9", flag, name)
        _, known = find_setting(part, field, f"{flag} {name}")
        plain = read_text(known, value.strip(), f"{flag} {text}")
        own = table_settings({part: {field: plain}} if part else {field: plain}, flag, source)
        if known.name == "ent_coef_start" and ("ppo", "ent_coef_end") in found:
            own.pop(("ppo", "ent_coef_end"), None)  # ent_coef sets the end only if no text does
        found |= own
    return found


def read_text(known: Setting, text: str, location: str) -> Any:
    """Convert a text to the value that a TOML file would contain."""
    if text.lower() in ("none", "null", "") and (known.optional or known.many):
        return "none"
    if known.many:
        return [_read_one(known, one, location) for one in text.strip("[]").split(",")]
    return _read_one(known, text, location)


def _read_one(known: Setting, text: str, location: str) -> Any:
    text = text.strip().strip("\"'")
    if known.kind is bool:
        if text.lower() not in _TRUTH:
            raise ConfigError("give on or off", location)
        return _TRUTH[text.lower()]
    try:
        return known.read(text) if known.kind in (int, float) else text
    except ValueError as error:
        raise ConfigError(str(error), location) from error


def table_settings(data: Mapping[str, Any], file: str, source: str) -> Settings:
    """Check the content of a TOML file and return its settings.

    file: name of the file, for error messages.
    source: origin of the settings, for run.json.
    """
    found: Settings = {}
    ends = None
    for key, value in data.items():
        part = key if isinstance(value, dict) else ""
        if part and part not in SECTIONS:
            raise ConfigError(f"is not a section of the configuration{_near(part, SECTIONS)}", f"{file}: [{part}]")
        for name, one in (value if part else {key: value}).items():
            location = f"{file}: {f'[{part}] ' if part else ''}{name}"
            section, known = find_setting(part, name, location)
            if (section, known.name) in found:
                raise ConfigError(f"sets the same setting as {found[section, known.name].location}", location)
            found[section, known.name] = Given(_value(known, one, location), location, source)
            if name in known.aliases and known.name == "ent_coef_start":  # sets start and end, like the flag --ent-coef
                ends = found[section, known.name]
    if ends:
        found.setdefault(("ppo", "ent_coef_end"), ends)
    return found


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
    for usual, section, known in known_settings():
        if known.name not in HOW and part in ("", section):
            own = (known.name,) if section == part else ()
            for one in (usual, *known.aliases, *own):
                names.setdefault(one, (section, known))
    if name not in names:
        raise ConfigError(f"is not a setting{_near(name, names)}", location)
    section, known = names[name]
    if known.refusal:
        raise ConfigError(known.refusal, location)
    return section, known


def _near(name: str, known: Mapping[str, object]) -> str:
    short = [one for one in known if initials(one) == name]
    if short:
        return f"; did you mean {short[0]}?"
    return did_you_mean(name, known) or f"; known: {', '.join(sorted(known))}"


def initials(name: str) -> str:
    """Return the first letters of all words, such as lr for learning_rate; "" for a single word."""
    return "".join(part[0] for part in name.split("_") if part) if "_" in name else ""


def _value(known: Setting, value: Any, location: str) -> Any:
    """Convert a value of a TOML file; ConfigError for a wrong type or a value outside the limits."""
    if value == "none" and known.optional:
        return None
    if value == "none" and known.many:
        return ()
    if known.many:
        taken: Any = tuple(_one(known, one, location) for one in (value if isinstance(value, list) else [value]))
    else:
        taken = _one(known, value, location)
    advice = known.problem(taken)
    if advice:
        raise ConfigError(advice, location, value)
    return taken


def _one(known: Setting, value: Any, location: str) -> Any:
    if known.kind is float and type(value) is int and abs(value) < 1 << 1023:  # within the range of float
        return float(value)
    if known.kind is int and type(value) is float and value.is_integer():  # 1e6 is a float in TOML
        return int(value)
    if known.kind is Path and type(value) is str and "\0" not in value:
        return Path(value)
    if type(value) is known.kind:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false"}.get(known.kind, "a text in quotes")
    raise ConfigError(f"give {wanted}{', or a list of them' if known.many else ''}", location, value)
