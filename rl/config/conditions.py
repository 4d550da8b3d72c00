"""Conditions for the effect of a setting (``Setting.needs``), such as "ppo.schedules and ppo.clip_range_vf".

" and " joins parts that must all hold; within a part, " or " joins alternatives.  An alternative is a setting that is on,
``not`` and a setting, or a setting and its values ("curriculum.strategy=plr|learnability").
"""

from nppsim.settings import Setting, require, settings_of
from rl.config import ExperimentConfig
from rl.config.files import SECTIONS, Settings, value_of

COMMAND_LINE = "command line"  # source of settings from flags
_OTHER = ("recipe ", "run ")  # begin sources whose settings are for several experiments


def check_effects(config: ExperimentConfig, given: Settings) -> None:
    """Raise ConfigError for a given setting that has no effect in this configuration.

    Settings from recipes and other runs, and default values in files, are exempt.
    """
    for (section, name), entry in given.items():
        setting = settings_of(SECTIONS[section])[name]
        is_default = entry.source != COMMAND_LINE and entry.value == setting.default
        if not setting.needs or is_default or entry.source.startswith(_OTHER):
            continue
        for part in setting.needs.split(" and "):
            text = described(part)
            remedy = "add that, or leave this out" if text.startswith("without") else "leave one of them out"
            require(_holds(config, part), f"has no effect {text}; {remedy}", entry.location)


def described(part: str) -> str:
    """Describe the opposite of a part of a condition, e.g. "without --curriculum stages" or "with --no-schedules"."""
    texts = [_described(condition) for condition in part.split(" or ")]
    joined = " or " if all(text.startswith("without") for text in texts) else " and "
    return joined.join([texts[0], *(text.removeprefix("without ") if joined == " or " else text for text in texts[1:])])


def _described(alternative: str) -> str:
    _, setting, negated, values = _parsed(alternative)
    if values:
        return f"without {' or '.join(f'{setting.option} {value}' for value in values)}"
    if negated or setting.inverts:
        return f"with {setting.option}"
    if setting.switch and setting.default:
        return f"with --no-{setting.flag}"
    return (
        f"with {setting.option} 0" if setting.kind in (int, float) and setting.default else f"without {setting.option}"
    )


def _holds(config: ExperimentConfig, part: str) -> bool:
    for alternative in part.split(" or "):
        section, setting, negated, values = _parsed(alternative)
        value = value_of(config, section, setting.name)
        if (value in values if values else bool(value)) != negated:
            return True
    return False


def _parsed(alternative: str) -> tuple[str, Setting, bool, list[str]]:
    """Return (section, setting, True after ``not``, values)."""
    name, _, values = alternative.removeprefix("not ").partition("=")
    section, _, field = name.rpartition(".")
    setting = settings_of(SECTIONS[section])[field]
    return section, setting, alternative.startswith("not "), values.split("|") if values else []
