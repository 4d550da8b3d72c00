"""Finished or interrupted trainings as their folders tell them, also those of other versions of the project.

    for run in find_runs(folder):                # an experiment's folder, or that of one training in it
        run.label, run.seed                      # "vision_free", 1
        run.facts["settings"]["ppo.gamma"]       # Fact("0.995", "default")

Only stored files are read; what a version does not write is absent here, and what it does not know is kept by name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from nppsim.reading import read_json
from rl.config.resume import FINISHED_FILE
from rl.doctor.digests import Row, read_trail
from rl.evaluation.history import History, read_history
from rl.evaluation.results import ResultsError
from rl.events import Scalars, event_folders, read_scalars

RUN_FILE = "run.json"  # of one training: its settings with their sources
DEMONSTRATIONS_FILE = "demonstrations.json"  # of its imitation, in ``pretrain``: what was learned from
# Parts of a run's facts, as the table of differences has them, and where config.json keeps each.
PARTS = {"settings": "", "data": "data", "versions": "versions", "machine": "host", "environment": "environment"}
_OTHERS = ("machine", "command", "sources")  # further keys of config.json that are no settings
NAMES = (
    "experiment_name",
    "output_dir",
    "resume_from",
    "seeds",
    "debug",
    "config_files",
    "recipe",
)  # settings that name or repeat a run
PLACES = (
    "train_dataset",
    "dev_dataset",
    "test_dataset",
    "single_level",
    "replay_data_dir",
)  # "data" knows what is there
_SEED = re.compile(r"seed_(\d+)")


class Fact(NamedTuple):
    """A value in words, and where it comes from ("default", "command line", "profile ...", ...); "" if unknown."""

    value: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.source})" if self.source else self.value


@dataclass(frozen=True, eq=False)
class Run:
    """One training.

    folder: its own.
    label: architecture, with the condition where the experiment has several.
    seed: of its random numbers; None where nothing tells.
    facts: part of PARTS -> name -> Fact; "settings" have dotted names.
    machine: in words; "" where nothing tells.
    speed: decisions_per_s, and share of each phase; None unless the training has finished.
    """

    folder: Path
    label: str
    seed: int | None
    facts: dict[str, dict[str, Fact]] = field(repr=False)
    machine: str
    speed: dict | None

    @cached_property
    def trail(self) -> list[Row]:
        """Of digests; [] where there is none."""
        return read_trail(self.folder)

    @cached_property
    def history(self) -> History | None:
        """Success on the dev levels; None where it is not stored level by level."""
        return read_history(self.folder)

    @cached_property
    def scalars(self) -> dict[str, Scalars]:
        """Tag -> its values; {} where nothing was logged."""
        own = self.folder / "tensorboard"  # below the folder there may be those of seeds that were added
        place = own if own.is_dir() else self.folder
        return read_scalars(place) if event_folders(place) else {}

    @property
    def finished(self) -> bool:
        """Whether the training is over, its final evaluation included."""
        return (self.folder / FINISHED_FILE).is_file()

    @property
    def machine_key(self) -> str:
        """Processor, cores and system: figures of speed are compared only where it is the same; "" where nothing tells."""
        host = self.facts["machine"]
        return ", ".join(fact.value for fact in host.values()) or self.machine


def find_runs(folder: Path) -> list[Run]:
    """The trainings of an experiment's folder, or the one of a training's own folder.

    Raises ResultsError where there is none.
    """
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such folder; give that of an experiment, or of one training in it")
    root = next(
        (place for place in (folder, *folder.absolute().parents[:3]) if (place / "config.json").is_file()), None
    )
    if root is None:
        raise ResultsError(f"{folder}: no config.json there or above; give the folder of an experiment")
    config = _read_json(root / "config.json")
    found = sorted(place for place in folder.absolute().rglob("*") if _is_training(place))
    if _is_training(folder):
        found.append(folder.absolute())
    if not found:
        raise ResultsError(f"{folder}: no training has begun there; give the folder of an experiment that has")
    try:
        return [_read(root.absolute(), place, config) for place in found]
    except (TypeError, KeyError, AttributeError) as error:
        raise ResultsError(
            f"{root}: the files of the experiment are none ({type(error).__name__}: {error}); they were changed by hand: use "
            "another run"
        ) from error


def _is_training(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("progress.csv", "tensorboard", RUN_FILE))


def _read(root: Path, folder: Path, config: dict) -> Run:
    names = folder.relative_to(root).parts
    seeds = [int(found[1]) for name in names if (found := _SEED.fullmatch(name))]
    label = ", ".join(name for name in names if not _SEED.fullmatch(name))
    own = _read_json(folder / RUN_FILE) if (folder / RUN_FILE).is_file() else {}
    known = config.get("seeds", [])
    seed = own.get("seed", seeds[0] if seeds else known[0] if len(known) == 1 else None)
    results = _read_json(root / "results.json") if (root / "results.json").is_file() else {}
    entry = results.get("architectures", {}).get(label, {}).get("seeds", {}).get(str(seed), {})
    facts = {part: _facts(config.get(key, {})) for part, key in PARTS.items() if key}
    cloned = folder / "pretrain" / DEMONSTRATIONS_FILE
    facts["data"] |= _facts({"demonstrations": _read_json(cloned)} if cloned.is_file() else {})
    named = {"seed": Fact(str(seed)), "architecture": Fact(label.partition(",")[0])}
    facts["settings"] = _settings(config, own) | named
    return Run(folder, label, seed, facts, config.get("machine", ""), entry.get("speed"))


def _settings(config: dict, own: dict) -> dict[str, Fact]:
    """Name -> Fact of every setting that is no mere name; ``own``, of the training itself, knows more."""
    left_out = {*PARTS.values(), *_OTHERS, *NAMES, "architectures"}
    plain = _facts({name: value for name, value in config.items() if name not in left_out})
    known = own.get("settings", {})
    resolved = {
        name: Fact(_words(one["value"]), one["source"])
        for name, one in known.items()
        if name.split(".")[0] not in left_out
    }
    return plain | resolved


def _facts(values: Mapping[str, Any], prefix: str = "") -> dict[str, Fact]:
    """Nested values by dotted names."""
    found: dict[str, Fact] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _facts(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = Fact(_words(value))
    return found


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _read_json(path: Path) -> dict:
    data = read_json(path, ResultsError, "it was cut off or changed: use another run")
    if not isinstance(data, dict):
        raise ResultsError(f"{path}: not a JSON object; give the folder of an experiment")
    return data
