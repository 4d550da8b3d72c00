"""Search space of a sweep: settings with ranges or lists of values.

    initial-lr=1e-4..1e-2:log       a range, uniform on a logarithmic scale
    ppo.gae_lambda=0.9..0.99        a field of the configuration instead of a flag
    minibatch-size=1024,2048,4096   a list of values

The equivalent lines of a TOML file: ``initial-lr = "1e-4..1e-2:log"``, ``minibatch-size = [1024, 2048]``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nppsim.errors import ConfigError
from nppsim.reading import read_toml
from nppsim.settings import Setting
from rl.config.files import find_setting, read_text, toml_value

if TYPE_CHECKING:
    import optuna

_FORM = "give NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=A,B,C"
_REMEDY = 'give a TOML file with lines such as initial-lr = "1e-4..1e-2:log" or minibatch-size = [1024, 2048]'
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Dimension:
    """One setting to sweep.

    name: flag without its leading dashes, or dotted field of the configuration.
    known: default, type and limits of the setting.
    values: (lowest, highest) number of a range, or the texts to choose from.
    is_range: True for a range.
    log: draw uniformly on a logarithmic scale.
    """

    name: str
    known: Setting
    values: tuple[Any, ...]
    is_range: bool = False
    log: bool = False

    def __str__(self) -> str:
        if self.is_range:
            return f"{self.name}={self.values[0]}..{self.values[1]}{':log' if self.log else ''}"
        return f"{self.name}={','.join(self.values)}"

    def draw(self, trial: "optuna.Trial") -> Any:
        """Draw a value for a trial: a number, or one of the texts."""
        if not self.is_range:
            return trial.suggest_categorical(self.name, self.values)
        draw = trial.suggest_int if self.known.kind is int else trial.suggest_float
        return draw(self.name, *self.values, log=self.log)

    def toml(self, value: Any) -> str:
        """Return a drawn value as TOML; ConfigError for an invalid text."""
        if self.is_range:
            return repr(value)
        text = ",".join(value.split()) if self.known.many else value
        return toml_value(read_text(self.known, text, f"--sweep {self.name} {value}"))


Space = tuple[Dimension, ...]


def read_space(texts: Sequence[str], file: Path | None = None) -> Space:
    """Parse the texts of ``--sweep`` and a TOML file; raise ConfigError if a text or line cannot be parsed."""
    given = [(text, *_parted(text)) for text in texts]
    if file is not None:
        given += [(f"{file}: {name}", name, value) for name, value in _read_file(file)]
    space = tuple(_dimension(name, value, location) for location, name, value in given)
    if not space:
        if file is not None:
            raise ConfigError(f"contains no settings; {_REMEDY}", "--sweep-file", file)
        raise ConfigError("nothing to sweep; give --sweep NAME=VALUES, or --sweep-file")
    swept = [(one.known.name, one.known.flag) for one in space]
    if doubled := [location for i, (location, *_) in enumerate(given) if swept[i] in swept[:i]]:
        raise ConfigError("sweeps a setting twice; give each once", "--sweep", doubled[0])
    return space


def _parted(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ConfigError(_FORM, "--sweep", text)
    return name.strip().lstrip("-"), value.strip()


def _read_file(path: Path) -> Iterable[tuple[str, str]]:
    """Yield (name, values as text in the form of ``--sweep``) of each setting in a TOML file."""
    for key, value in read_toml(path, ConfigError, _MAX_BYTES, _REMEDY).items():
        table = {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
        for name, one in table.items():
            if isinstance(one, list):
                yield name, ",".join(map(_text, one))
            elif isinstance(one, str):
                yield name, one
            else:
                raise ConfigError(_REMEDY, f"{path}: {name}", one)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _dimension(name: str, value: str, location: str) -> Dimension:
    part, _, field = name.rpartition(".")
    _, known = find_setting(part, field, f"--sweep {location}")
    low, dots, rest = value.partition("..")
    if not dots:
        texts = tuple(one.strip() for one in value.split(","))
        if len(set(texts)) != len(texts):
            raise ConfigError("names a value twice", "--sweep", location)
        return Dimension(name, known, texts)
    high, colon, scale = rest.partition(":")
    if known.kind not in (int, float) or known.many or (colon and scale != "log"):
        raise ConfigError(f"is not a valid range; {_FORM}", "--sweep", location)
    try:
        ends = known.read(low), known.read(high)
    except ValueError as error:
        raise ConfigError(f"{error}; {_FORM}", "--sweep", location) from error
    if None in ends or not ends[0] < ends[1] or (colon and ends[0] <= 0):
        raise ConfigError(f"give two numbers, the lower one first{', above 0' if colon else ''}", "--sweep", location)
    return Dimension(name, known, ends, is_range=True, log=bool(colon))


def drawn(space: Space, trial: "optuna.Trial") -> dict[str, Any]:
    """Draw a value of every swept setting for a trial; return name -> value."""
    return {one.name: one.draw(trial) for one in space}


def toml_text(space: Space, values: Mapping[str, Any]) -> str:
    """Return the drawn settings of a trial as text of a ``--config`` file.  values: name -> drawn value."""
    lines: list[str] = []
    tables: dict[str, list[str]] = {}
    for one in space:
        part, _, name = one.name.rpartition(".")
        (tables.setdefault(part, []) if part else lines).append(f"{name} = {one.toml(values[one.name])}")
    for part, rows in tables.items():
        lines += [f"[{part}]", *rows]
    return "\n".join(lines) + "\n"
