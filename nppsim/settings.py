"""Settings: dataclass fields with a command-line flag, a help text and limits; argument parsers made from settings.

@dataclass(frozen=True)
class OptimizerSettings:
    epochs: int = setting(50, "passes over the data", flag="epochs", low=1)

    def __post_init__(self) -> None:
        check_settings(self)  # ConfigError: "epochs 0: give a whole number of at least 1"

parser = Parser(description="Train.")
parser.add_setting(OptimizerSettings, "epochs")
given = parser.parse_args(["--epochs", "3"])
parser.build(OptimizerSettings, given)  # OptimizerSettings(epochs=3); error messages name "--epochs"
"""

import argparse
import functools
import numbers
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from nppsim.errors import ConfigError, did_you_mean, redact
from nppsim.levels.game_folder import expanded

_PLACEHOLDERS = {int: "N", float: "X", Path: "PATH"}
_KEY = "setting"  # key in the metadata of a dataclass field
_LARGEST = {int: 10**12, float: 1e9}  # largest absolute value of a number
_LIMITS = {  # field of Setting -> (its words in messages, comparison of a valid number with the limit)
    "low": ("of at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}
_TRUTH = {"on": True, "true": True, "off": False, "false": False}
_REMOTE = re.compile(r"(s3|gs|az|abfss?|hdfs|dbfs|hf|https?|s?ftp|ssh|file):/")  # Path("s3://a") is "s3:/a"
_NOT_LOCAL = "is not on this machine; give a local path (--s3-bucket uploads the folder of a run)"
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")  # start of a negative number; no flag starts like this

Owner = TypeVar("Owner")


@dataclass(frozen=True)
class Setting:
    """Properties of one setting.

    help: meaning, in one line.
    flag: name of the flag, without dashes.  If empty, the flag is ``flag_prefix`` + field name if the dataclass has
        ``flag_prefix: ClassVar[str]``; otherwise there is no flag.
    aliases: other names of the flag.
    metavar: placeholder of the value in the help; "" for the default one of its type.
    choices: values that the command line accepts; () for any.
    low, high, above, below: inclusive and exclusive limits of a number, or of each of several numbers.  None is always
        valid.
    needs: condition for an effect, which the code that combines several dataclasses checks.
    switch: True if a bool also has a flag ``--no-FLAG``; otherwise its only flag inverts the default.
    group: heading above the flag in the help; "" for the heading of its dataclass.
    refusal: reason why only the default is accepted; "" if other values are accepted, too.

    Set by ``settings_of`` from the dataclass field: ``name``; ``kind``, type of one value; ``many``, True for several
    values; ``optional``, True if None is allowed; ``default``, MISSING for a required setting.
    """

    help: str
    flag: str = ""
    aliases: tuple[str, ...] = ()
    metavar: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    needs: str = ""
    switch: bool = False
    group: str = ""
    refusal: str = ""
    name: str = ""
    kind: type = str
    many: bool = False
    optional: bool = False
    default: object = None

    @property
    def option(self) -> str:
        """The flag with its dashes."""
        return f"--{self.flag}"

    @property
    def inverts(self) -> bool:
        """True if the flag sets a bool to False, such as ``--no-pretraining`` for ``pretraining``."""
        return self.kind is bool and self.default is True and not self.switch

    @property
    def placeholder(self) -> str:
        """Placeholder of the value in help and documentation; "" for a flag without a value."""
        return "" if self.kind is bool else self.metavar or _PLACEHOLDERS.get(self.kind, "NAME")

    @property
    def shown_default(self) -> str:
        """Default as text for help and documentation; "off" for a bool without ``switch``: its flag is not given."""
        if self.default is MISSING:
            return "required"
        if self.default is None:
            return "none"
        if self.kind is bool:
            return "on" if self.switch and self.default else "off"
        if isinstance(self.default, tuple):
            return " ".join(map(str, self.default)) or "none"
        return f"{self.default:,}" if self.kind is int else str(self.default)

    def read(self, text: str) -> Any:
        """Parse one value; raise ValueError for text of another type.

        Integers may be written like ``1e6``.  The text ``none`` means None if the setting is an optional number.
        """
        if self.kind is bool:
            if text.lower() not in _TRUTH:
                raise ValueError("give on or off")
            return _TRUTH[text.lower()]
        if self.kind not in (int, float):
            return self.kind(text)
        if self.optional and text.lower() == "none":
            return None
        try:
            return _whole(text) if self.kind is int else float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a {'whole ' if self.kind is int else ''}number") from None

    def problem(self, value: object) -> str:
        """Describe the valid values if this value is invalid; otherwise return ""."""
        if value is None or value is MISSING:
            return ""
        values = value if self.many and isinstance(value, (tuple, list)) else (value,)
        if self.choices and not all(item in self.choices for item in values):
            return f"give one of {', '.join(self.choices)}"
        if self.kind is Path and any(map(is_remote, values)):
            return _NOT_LOCAL
        if self.kind not in (int, float):
            return ""
        return next(filter(None, map(self._number_problem, values)), "")

    def _number_problem(self, value: Any) -> str:
        """Describe the valid numbers if this value is not one of them; otherwise return ""."""
        limits = {name: limit for name in _LIMITS if (limit := getattr(self, name)) is not None}
        is_number = isinstance(value, numbers.Integral if self.kind is int else numbers.Real)
        if is_number and not isinstance(value, bool) and value == value:  # NaN differs from itself
            if abs(value) > (largest := _LARGEST[self.kind]):
                limits |= {"high": largest} if value > 0 else {"low": -largest}
            if all(_LIMITS[name][1](value, limit) for name, limit in limits.items()):
                return ""
        if self.low is not None and self.high is not None:
            words = [f"from {self.low:,} to {self.high:,}"]
        else:
            words = [f"{_LIMITS[name][0]} {limits[name]:,}" for name in _LIMITS if name in limits]
        noun = "whole number" if self.kind is int else "number"
        return f"give {f'{noun}s' if self.many else f'a {noun}'} {' and '.join(words)}".rstrip()


def is_remote(path: object) -> bool:
    """Return True if a path is a URL, which no function here reads or writes."""
    return isinstance(path, str | Path) and _REMOTE.match(str(path)) is not None


def _whole(text: str) -> int:
    """Return the integer that a text such as ``1000000``, ``1_000_000`` or ``1e6`` denotes; ValueError for other text."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def setting(default: Any, help: str, **details: Any) -> Any:
    """Return a dataclass field that is a setting.  default: MISSING if required.  details: other fields of ``Setting``."""
    return field(default=default, metadata={_KEY: Setting(help, **details)})


def same_setting(owner: type[Any], name: str, **changes: Any) -> Any:
    """Return a dataclass field with the setting ``name`` of another dataclass.  changes: replaced fields of ``Setting``."""
    setting = settings_of(owner)[name]
    return field(default=setting.default, metadata={_KEY: replace(setting, **changes)})


def settings_of(owner: Any) -> Mapping[str, Setting]:
    """Return the settings of a dataclass: field name -> Setting."""
    return _settings_of(owner)


@functools.cache  # a command line calls this for each of about a hundred fields
def _settings_of(owner: Any) -> Mapping[str, Setting]:
    hints = get_type_hints(owner)
    settings = {}
    prefix = getattr(owner, "flag_prefix", None)
    for attribute in fields(owner):
        if _KEY in attribute.metadata:
            flag = attribute.metadata[_KEY].flag
            if prefix is not None and not flag:
                flag = prefix + attribute.name.replace("_", "-")
            kind, many, optional = _kind(hints[attribute.name])
            derived = {"name": attribute.name, "flag": flag, "default": attribute.default}
            settings[attribute.name] = replace(
                attribute.metadata[_KEY], kind=kind, many=many, optional=optional, **derived
            )
    return MappingProxyType(settings)


def _kind(hint: Any) -> tuple[type, bool, bool]:
    """Return (type of one value, many, optional) of an annotation such as ``int | None`` or ``tuple[str, ...]``."""
    optional = get_origin(hint) in (Union, UnionType)
    if optional:
        hint = next(part for part in get_args(hint) if part is not type(None))
    return (get_args(hint)[0], True, optional) if get_origin(hint) is tuple else (hint, False, optional)


def require(condition: object, advice: str, field: str = "", value: object = None) -> None:
    """Raise ConfigError unless a condition holds."""
    if not condition:
        raise ConfigError(advice, field, value)


def check_settings(config: object) -> None:
    """Raise ConfigError for the first setting of a dataclass whose value is outside its limits."""
    for name, setting in settings_of(type(config)).items():
        value = getattr(config, name)
        if advice := setting.problem(value):
            raise ConfigError(advice, name, value)


class Parser(argparse.ArgumentParser):
    """Argument parser that takes flags from settings and raises one-line ConfigErrors.

    Flags cannot be abbreviated.  A flag of a dataclass field is in the parsed arguments only if the command line contains
    it; the dataclass supplies its default.
    """

    def __init__(self, **keywords: Any):
        super().__init__(**({"allow_abbrev": False} | keywords))
        self.color = False  # Python 3.14 colours the help by escape sequences, which ``errors.run`` escapes
        self._negative_number_matcher = _NEGATIVE_NUMBER  # argparse's own pattern rejects exponents before Python 3.14
        self._settings: dict[str, Setting] = {}  # attribute of the parsed arguments -> setting
        self._fields: dict[type[Any], dict[str, str]] = {}  # dataclass -> field -> flag

    def add_settings(self, owner: type[Any]) -> None:
        """Add the flags of all settings of a dataclass."""
        for setting in settings_of(owner).values():
            if setting.flag:
                self.add_setting(owner, setting.name)

    def add_setting(
        self, owner: type[Any], name: str, group: argparse._ArgumentGroup | None = None, **changes: Any
    ) -> None:
        """Add the flag of one field of a dataclass.  A flag that exists already then sets this field as well.

        group: argparse group that lists the flag in the help.
        changes: fields of ``Setting`` that differ on this command line.
        """
        setting = replace(settings_of(owner)[name], **changes)
        setting = setting if setting.flag else replace(setting, flag=name.replace("_", "-"))
        self._fields.setdefault(owner, {})[name] = setting.flag
        if setting.option not in self._option_string_actions:
            self._add(setting, group, argparse.SUPPRESS)

    def add_flag(self, flag: Setting, group: argparse._ArgumentGroup | None = None) -> None:
        """Add a flag that belongs to no dataclass.  The parsed arguments contain its value or its default."""
        self._add(flag, group, flag.default)

    def _add(self, flag: Setting, group: argparse._ArgumentGroup | None, default: object) -> None:
        text = flag.help
        if flag.default is not MISSING and flag.default is not None:
            text += f" (default: {flag.shown_default})"
        keywords: dict[str, Any] = {"dest": _attribute(flag.flag), "default": default, "help": text.replace("%", "%%")}
        keywords["required"] = flag.default is MISSING
        if flag.kind is bool and flag.switch:
            keywords["action"] = argparse.BooleanOptionalAction
        elif flag.kind is bool:
            keywords["action"] = "store_false" if flag.default else "store_true"
        else:
            keywords |= {"type": _typed(flag), "choices": flag.choices or None, "nargs": "+" if flag.many else None}
            if flag.many and default is argparse.SUPPRESS:
                keywords["action"] = "extend"  # a repeated flag adds its values
            keywords["metavar"] = None if flag.choices and not flag.metavar else flag.placeholder
        (group or self).add_argument(flag.option, *(f"--{alias}" for alias in flag.aliases), **keywords)
        self._settings[_attribute(flag.flag)] = flag

    def build(self, owner: type[Owner], arguments: argparse.Namespace, **more: Any) -> Owner:
        """Make a dataclass from the parsed values and the values ``more``.  ConfigErrors name flags instead of fields."""
        flags, given = self._fields.get(owner, {}), vars(arguments)
        values = {name: given[_attribute(flag)] for name, flag in flags.items() if _attribute(flag) in given}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        try:
            return owner(**(values | more))
        except ConfigError as error:
            raise (error.named(f"--{flags[error.field]}") if error.field in flags else error) from None

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Return the parsed arguments; raise ConfigError for unknown arguments and invalid values."""
        given, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0], given))
        return given

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """Return (parsed arguments, unknown arguments); raise ConfigError for invalid values.

        ``campaign:`` at the beginning of an argument is replaced by the game's folder (``nppsim.levels.game_folder``).
        """
        given, unknown = super().parse_known_args(map(expanded, sys.argv[1:] if args is None else args), namespace)
        for attribute, flag in self._settings.items():
            value = getattr(given, attribute, flag.default)
            require(not flag.refusal or value == flag.default, flag.refusal, flag.option)
            if advice := flag.problem(value):
                raise ConfigError(advice, flag.option, value)
        for action in self._actions:
            if action.type in (Path, None):  # arguments that are neither settings nor paths have the type str
                value = getattr(given, action.dest, None)
                for path in filter(is_remote, value if isinstance(value, list) else [value]):
                    raise ConfigError(_NOT_LOCAL, [*action.option_strings, str(action.metavar or action.dest)][0], path)
        return given, unknown

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(redact(message))

    def _unknown(self, argument: str, arguments: argparse.Namespace) -> str:
        name = argument.split("=")[0]  # without the value, which may be a secret
        if not name.startswith("-"):
            return f"unexpected argument {name!r}: give each value after its flag; --help lists all flags"
        options, remedy = set(self._option_string_actions), "--help lists all flags"
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                command = action.choices[getattr(arguments, action.dest)]
                remedy = " ".join(command.format_usage().split())
                if any(name in other._option_string_actions for other in action.choices.values()):
                    return f"unknown flag {name}; {remedy}"  # a flag of another command
                options |= set(command._option_string_actions)
        return f"unknown flag {name}{did_you_mean(name, options) or f'; {remedy}'}"


def _typed(flag: Setting) -> Callable[[str], Any]:
    """Return the function with which argparse parses a value of a flag."""

    def read(text: str) -> Any:
        try:
            return flag.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _attribute(flag: str) -> str:
    return flag.replace("-", "_")
