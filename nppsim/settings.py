"""Settings: dataclass fields that carry their flag, help and limits, and command lines made from them.

@dataclass(frozen=True)
class Training:
    epochs: int = setting(50, "passes over the data", flag="epochs", low=1)

    def __post_init__(self) -> None:
        check_settings(self)  # ConfigError: "epochs 0: give a whole number of at least 1"

parser = Parser(description="Train.")
parser.add_setting(Training, "epochs")
parser.build(Training, parser.parse_args(["--epochs", "3"]))  # Training(epochs=3); its errors say "--epochs"
"""

import argparse
import functools
import math
import numbers
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from nppsim.errors import ConfigError, did_you_mean, redact
from nppsim.game_folder import expanded

_PLACEHOLDERS = {int: "N", float: "X", Path: "PATH"}
_KEY = "setting"  # of a field's metadata
_LARGEST = {int: 10**12, float: 1e9}  # numbers without a limit of their own are no larger, nor smaller than minus that
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")  # how one begins; no flag begins so

Owner = TypeVar("Owner")


@dataclass(frozen=True)
class Setting:
    """Properties of one setting.

    help: what it means, in a line.
    flag: its flag, without dashes; "" for that of its name in a dataclass with ``flag_prefix: ClassVar[str]``, else for none.
    aliases: other names of the flag.
    metavar: what stands for the value in the help; "" for the usual one of its kind.
    choices: the values that a command line accepts; () for any.
    low, high, above, below: limits of a number, or of each of several; a value of None passes.  Without ``high``, none is
        larger in size than a million millions (whole numbers) or a thousand millions.
    needs: the flag without which this one has no effect.
    switch: whether ``--no-FLAG`` exists too; without it the flag of a truth value turns the default around.
    group: heading under which the flag stands; "" for that of its dataclass.
    refusal: why nothing but the default is accepted.

    Known from the field itself: its name; kind, the type of one value; many, whether there may be several; optional,
    whether there may be none (None); default (MISSING: it must be given).
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
    def placeholder(self) -> str:
        """Placeholder of the value in help and documents; "" for a flag without one."""
        return "" if self.kind is bool else self.metavar or _PLACEHOLDERS.get(self.kind, "NAME")

    @property
    def shown_default(self) -> str:
        """The default as people write it; a flag that turns something off is "off" until it is given."""
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
        """One value from a text: numbers such as ``1e6`` are whole, ``none`` is no number where there may be none.

        ValueError says what the text is not.
        """
        number = self.kind in (int, float)
        if number and self.optional and text.lower() == "none":
            return None
        try:
            return _whole(text) if self.kind is int else self.kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is no {'whole ' if self.kind is int else ''}number") from None

    def problem(self, value: object) -> str:
        """Return what to give instead of this value; "" if it is valid."""
        if value is None or value is MISSING or self.kind not in (int, float):
            return ""
        values = value if self.many and isinstance(value, (tuple, list)) else (value,)
        if all(map(self._is_good, values)):
            return ""
        if self.low is not None and self.high is not None:
            limits = [f"from {self.low:,} to {self.high:,}"]
        else:
            ends = {"of at least": self.low, "above": self.above, "at most": self.high, "below": self.below}
            largest, given = _LARGEST[self.kind], [one for one in values if isinstance(one, (int, float))]
            if self.high is self.below is None and any(one > largest for one in given):
                ends["at most"] = largest
            if self.low is self.above is None and any(one < -largest for one in given):
                ends["of at least"] = -largest
            limits = [f"{words} {limit:,}" for words, limit in ends.items() if limit is not None]
        whole = "whole " if self.kind is int else ""
        return f"give {f'{whole}numbers' if self.many else f'a {whole}number'} {' and '.join(limits)}".rstrip()

    def _is_good(self, value: object) -> bool:
        wanted = numbers.Integral if self.kind is int else numbers.Real
        if isinstance(value, bool) or not isinstance(value, wanted):
            return False
        try:
            number = float(value)
        except OverflowError:  # a whole number beyond all floats
            return False
        return (
            math.isfinite(number)
            and (self.high is not None or abs(number) <= _LARGEST[self.kind])
            and (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


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
    """A dataclass field that is a setting; ``details``: as for ``Setting``.  A default of MISSING: it must be given."""
    return field(default=default, metadata={_KEY: Setting(help, **details)})


def same_setting(owner: type[Any], name: str, **changes: Any) -> Any:
    """A dataclass field that is the setting ``name`` of another dataclass; ``changes``: as for ``Setting``."""
    known = settings_of(owner)[name]
    return field(default=known.default, metadata={_KEY: replace(known, **changes)})


def settings_of(owner: Any) -> Mapping[str, Setting]:
    """The settings of a dataclass, by the names of their fields."""
    return _settings_of(owner)


@functools.cache  # command lines ask for each of a hundred fields
def _settings_of(owner: Any) -> Mapping[str, Setting]:
    hints = get_type_hints(owner)
    found = {}
    prefix = getattr(owner, "flag_prefix", None)
    for one in fields(owner):
        if _KEY in one.metadata:
            flag = one.metadata[_KEY].flag
            if prefix is not None and not flag:
                flag = prefix + one.name.replace("_", "-")
            kind, many, optional = _kind(hints[one.name])
            found[one.name] = replace(
                one.metadata[_KEY],
                name=one.name,
                flag=flag,
                kind=kind,
                many=many,
                optional=optional,
                default=one.default,
            )
    return MappingProxyType(found)


def _kind(hint: Any) -> tuple[type, bool, bool]:
    """(type of one value, whether there may be several, whether there may be none) of an annotation such as
    ``int | None`` or ``tuple[str, ...]``."""
    optional = get_origin(hint) in (Union, UnionType)
    if optional:
        hint = next(part for part in get_args(hint) if part is not type(None))
    return (get_args(hint)[0], True, optional) if get_origin(hint) is tuple else (hint, False, optional)


def check_settings(config: object) -> None:
    """ConfigError for the first setting of a dataclass whose value is outside its limits."""
    for name, known in settings_of(type(config)).items():
        value = getattr(config, name)
        if advice := known.problem(value):
            raise ConfigError(advice, name, value)


class Parser(argparse.ArgumentParser):
    """An argument parser whose refusals are ConfigErrors in one line, and whose flags may be settings.

    Flags cannot be abbreviated.  A flag that sets a field of a dataclass leaves no trace in the parsed arguments unless
    it was given: its default lives in the dataclass.
    """

    def __init__(self, **keywords: Any):
        super().__init__(**({"allow_abbrev": False} | keywords))
        self._negative_number_matcher = _NEGATIVE_NUMBER  # argparse's own rejects exponents before Python 3.14
        self._settings: dict[str, Setting] = {}  # by the attribute of the parsed arguments
        self._fields: dict[type[Any], dict[str, str]] = {}  # flag of each field of each dataclass

    def add_settings(self, owner: type[Any]) -> None:
        """Add every setting of a dataclass that has a flag."""
        for known in settings_of(owner).values():
            if known.flag:
                self.add_setting(owner, known.name)

    def add_setting(
        self, owner: type[Any], name: str, group: argparse._ArgumentGroup | None = None, **changes: Any
    ) -> None:
        """Add the flag of one field of a dataclass; a flag that is there already then sets this field, too.

        group: where the flag stands in the help.
        changes: as for ``Setting``, where this command line differs.
        """
        known = replace(settings_of(owner)[name], **changes)
        known = known if known.flag else replace(known, flag=name.replace("_", "-"))
        self._fields.setdefault(owner, {})[name] = known.flag
        if known.option not in self._option_string_actions:
            self._add(known, group, argparse.SUPPRESS)

    def add_flag(self, flag: Setting, group: argparse._ArgumentGroup | None = None) -> None:
        """Add a flag that belongs to no dataclass; the parsed arguments have its value, or its default."""
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
                keywords["action"] = "extend"  # given twice, it has the values of both
            keywords["metavar"] = None if flag.choices and not flag.metavar else flag.placeholder
        (group or self).add_argument(flag.option, *(f"--{alias}" for alias in flag.aliases), **keywords)
        self._settings[_attribute(flag.flag)] = flag

    def build(self, owner: type[Owner], arguments: argparse.Namespace, **more: Any) -> Owner:
        """Make the dataclass from the given values and ``more``; its ConfigErrors name flags instead of fields."""
        flags = self._fields.get(owner, {})
        given = {name: _attribute(flag) for name, flag in flags.items() if hasattr(arguments, _attribute(flag))}
        values = {name: getattr(arguments, attribute) for name, attribute in given.items()}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        try:
            return owner(**(values | more))
        except ConfigError as error:
            raise (error.named(f"--{flags[error.field]}") if error.field in flags else error) from None

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """The arguments; ConfigError in one line for what cannot be understood, or is out of limits."""
        given, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0], given))
        return given

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """(arguments, those that are not known); ConfigError for a flag whose value is out of limits or refused.

        ``campaign:`` at the beginning of an argument becomes the game's folder (``nppsim.game_folder``).
        """
        given, unknown = super().parse_known_args(map(expanded, sys.argv[1:] if args is None else args), namespace)
        for attribute, flag in self._settings.items():
            value = getattr(given, attribute, flag.default)
            if flag.refusal and value != flag.default:
                raise ConfigError(flag.refusal, flag.option)
            if advice := flag.problem(value):
                raise ConfigError(advice, flag.option, value)
        return given, unknown

    def nothing_is_required(self) -> None:
        """Make every flag optional, for callers that have the values from another source."""
        for action in self._actions:
            action.required = False

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(redact(message))

    def _unknown(self, argument: str, given: argparse.Namespace) -> str:
        name = argument.split("=")[0]  # never echo a value: it may be a secret
        if not name.startswith("-"):
            return f"unexpected argument {name!r}: a value follows its flag; --help lists all flags"
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return self._unknown_to(action.choices[getattr(given, action.dest)], name, action.choices.values())
        return f"unknown flag {name}{did_you_mean(name, self._option_string_actions) or '; --help lists all flags'}"

    def _unknown_to(self, command: "Parser", name: str, commands: Iterable["Parser"]) -> str:
        """The message for a flag that a sub-command does not have: a similar flag, or the usage, e.g. if only others do."""
        of_another = any(name in other._option_string_actions for other in commands)
        near = (
            "" if of_another else did_you_mean(name, {**self._option_string_actions, **command._option_string_actions})
        )
        return f"unknown flag {name}{near or '; ' + ' '.join(command.format_usage().split())}"


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
