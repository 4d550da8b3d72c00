"""Stored runs of this and other versions of the project, and differences between their settings, data and machines.

    for run in find_runs(folder):                # folder of an experiment, or of one training in it
        run.label, run.seed                      # "vision_free", 1
        run.metadata["settings"]["ppo.gamma"]       # MetadataEntry("0.995", "default")
    found = differences([old.metadata, new.metadata])
    explanation(divergence, found)               # "because ppo.gae_lambda 0.95 → 0.92"

An entry is a stored value: a setting, a digest of data, a version, or a property of the machine.  Only stored files are read.
Metadata that another version did not store are absent.  Settings that this version does not know are included.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from nppsim.io.files import table
from nppsim.io.reading import mismatch, read_object
from rl.config.resume import DEMONSTRATIONS_FILE, FINISHED_FILE, RUN_FILE
from rl.evaluation.results import History, ResultsError, read_history
from rl.events import Scalars, event_folders, read_scalars
from rl.training.digests import Divergence, Row, read_trail

# Kind of metadata of a run -> its key in config.json; settings have no key of their own.
PARTS = {"settings": "", "data": "data", "versions": "versions", "machine": "host", "environment": "environment"}
# Keys of config.json that are not settings, or have no effect on training.
_NOT_SETTINGS = {
    *("machine", "command", "sources", "architectures"),
    *("experiment_name", "output_dir", "resume_from", "seeds", "debug", "config_files", "recipe"),
}
# Settings that are paths.  They do not explain a divergence, as the part "data" has digests of the contents.
PATH_SETTINGS = ("train_dataset", "dev_dataset", "test_dataset", "single_level", "replay_data_dir")
_SEED = re.compile(r"seed_(\d+)")
_SPEED = {"decisions_per_s": float, "share": {...: float}}  # shape of StoredRun.speed
_REMEDY = "it is damaged: use another run"


class MetadataEntry(NamedTuple):
    """A value as text, and its source ("default", "command line", "profile ...", ...; "" if unknown)."""

    value: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.source})" if self.source else self.value


ABSENT = MetadataEntry("–")  # not stored by the version of the run

Metadata = dict[str, dict[str, MetadataEntry]]  # key of PARTS -> dotted name -> MetadataEntry


@dataclass(frozen=True, eq=False)
class StoredRun:
    """One training."""

    folder: Path
    label: str  # architecture, followed by the condition if the experiment has several
    seed: int | None  # random seed, or None if unknown
    metadata: Metadata = field(repr=False)
    machine: str  # description of the machine, or "" if unknown
    speed: dict | None  # ``decisions_per_s``, and ``share`` of each phase; None unless the training has finished

    @cached_property
    def digests(self) -> list[Row]:
        """Lines of the digest file, or [] if there is none."""
        return read_trail(self.folder)

    @cached_property
    def history(self) -> History | None:
        """Success on each dev level, or None if it was not stored."""
        return read_history(self.folder)

    @cached_property
    def scalars(self) -> dict[str, Scalars]:
        """Scalars by tag; {} without event files."""
        own = self.folder / "tensorboard"  # not all event files below the folder, which may belong to other seeds
        folder = own if own.is_dir() else self.folder
        return read_scalars(folder) if event_folders(folder) else {}

    @property
    def finished(self) -> bool:
        """True if the training and its final evaluation have finished."""
        return (self.folder / FINISHED_FILE).is_file()

    @property
    def machine_key(self) -> str:
        """Processor, cores and operating system; speeds are compared only if these are equal."""
        host = self.metadata["machine"]
        return ", ".join(entry.value for entry in host.values()) or self.machine


def find_runs(folder: Path) -> list[StoredRun]:
    """Return all trainings in the folder of an experiment or of a training.  Raises ResultsError if there are none."""
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such folder; give the folder of an experiment, or of one training in it")
    folder = folder.absolute()
    root = next((parent for parent in (folder, *folder.parents[:3]) if (parent / "config.json").is_file()), None)
    if root is None:
        raise ResultsError(f"{folder}: no config.json in it or in a folder above; give the folder of an experiment")
    config = _read_json(root / "config.json")
    marks = ("progress.csv", "tensorboard", RUN_FILE)  # a training has at least one of these
    folders = (*sorted(folder.rglob("*")), folder)
    run_folders = [path for path in folders if any((path / mark).exists() for mark in marks)]
    if not run_folders:
        raise ResultsError(f"{folder}: no training has begun in it; give the folder of another experiment")
    try:
        return [_read_run(root, path, config) for path in run_folders]
    except (TypeError, KeyError, AttributeError) as error:
        raise ResultsError(
            f"{root}: damaged files of an experiment ({type(error).__name__}: {error}); use another run"
        ) from error


def _read_run(root: Path, folder: Path, config: dict) -> StoredRun:
    names = folder.relative_to(root).parts
    seeds = [int(match[1]) for name in names if (match := _SEED.fullmatch(name))]
    label = ", ".join(name for name in names if not _SEED.fullmatch(name))
    own = _read_json(folder / RUN_FILE)
    known = config.get("seeds", [])
    seed = own.get("seed", seeds[0] if seeds else known[0] if len(known) == 1 else None)
    results = _read_json(root / "results.json")
    entry = results.get("architectures", {}).get(label, {}).get("seeds", {}).get(str(seed), {})
    speed = entry.get("speed")
    if (wrong := mismatch(speed, (_SPEED, None), "speed")) or (speed and speed["decisions_per_s"] <= 0):
        raise ResultsError(f"{root / 'results.json'}: {wrong or 'decisions_per_s should be positive'}; {_REMEDY}")
    metadata = {part: _flatten(config.get(key, {})) for part, key in PARTS.items() if key}
    demonstrations = _read_json(folder / "pretrain" / DEMONSTRATIONS_FILE)
    metadata["data"] |= _flatten({"demonstrations": demonstrations} if demonstrations else {})
    metadata["settings"] = _settings(config, own)
    metadata["settings"] |= {"seed": MetadataEntry(str(seed)), "architecture": MetadataEntry(label.partition(",")[0])}
    return StoredRun(folder, label, seed, metadata, config.get("machine", ""), speed)


def _settings(config: dict, own: dict) -> dict[str, MetadataEntry]:
    """Return all settings by dotted name.  ``own`` (run.json) takes precedence over ``config`` (config.json)."""
    left_out = {*PARTS.values(), *_NOT_SETTINGS}
    plain = _flatten({name: value for name, value in config.items() if name not in left_out})
    resolved = {
        name: MetadataEntry(_to_text(entry["value"]), entry["source"])
        for name, entry in own.get("settings", {}).items()
        if name.split(".")[0] not in left_out
    }
    return plain | resolved


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, MetadataEntry]:
    """Return nested values by dotted names."""
    entries: dict[str, MetadataEntry] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            entries |= _flatten(value, f"{prefix}{name}.")
        else:
            entries[prefix + name] = MetadataEntry(_to_text(value))
    return entries


def _to_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _read_json(path: Path) -> dict:
    return read_object(path, ResultsError, _REMEDY)


# ---------------------------------------------------------------------------------------------------------------------
# Differences

COLUMNS = {2: ("old", "new"), 3: ("old", "broken", "fixed")}
_MAX_LENGTH = 60  # largest number of characters of a value in tables
_SIZES = tuple(f"settings.{part}.{name}" for name in ("num_envs", "rollout_length") for part in ("plan", "hardware"))
_ARITHMETIC = tuple(f"settings.{name}" for name in ("plan.precision", "plan.device", "plan.torch_threads")) + (
    "settings.hardware.mixed_precision",
)
_INITIAL = ("settings.architecture", "settings.seed")
_RETURNS = ("settings.ppo.gae_lambda", "settings.ppo.gamma")
# Part of a digest file -> name prefixes of the metadata that may cause the part to differ first, most probable first.
CAUSES = {
    "observations": (*_INITIAL, "settings.frame_skip", *_SIZES, "data.train", "settings.curriculum."),
    "log_probs": (*_INITIAL, *_ARITHMETIC, *_SIZES),
    "values": (*_INITIAL, *_ARITHMETIC, *_SIZES),
    "actions": (*_INITIAL, *_SIZES),
    "rewards": ("settings.reward.", "settings.ppo.gamma", "settings.frame_skip"),
    "episode_ends": ("settings.frame_skip", "data.train"),
    "advantages": _RETURNS,
    "returns": _RETURNS,
    "curriculum": ("settings.curriculum.", "settings.seed", "data.train"),
    "environments": ("data.train", *_SIZES, "settings.seed"),
    "parameters": (
        *_INITIAL, "settings.bc.", "data.demonstrations", "settings.pretraining", "settings.test_pretraining",
        "settings.mirror_demonstrations", "settings.max_demonstrations_per_category", "settings.ppo.",
        "settings.plan.epochs", "settings.plan.minibatch_size", *_ARITHMETIC, "data.train",
    ),
    "optimiser": (*_INITIAL, "settings.ppo.learning_rate", "settings.plan.learning_rate", "settings.ppo."),
    "random": ("settings.seed", "settings.plan.minibatch_size", "settings.ppo.n_epochs", "settings.plan.epochs"),
}  # fmt: skip


@dataclass(frozen=True)
class MetadataDifference:
    """An entry that differs between runs."""

    part: str
    name: str
    values: tuple[MetadataEntry, ...]  # the entry in each run

    def __str__(self) -> str:
        return f"{self.name} {' → '.join(entry.value for entry in self.values)}"


def differences(runs: Sequence[Metadata]) -> list[MetadataDifference]:
    """Return the metadata in which runs differ.  An entry that a run did not store is ABSENT."""
    different = []
    for part in PARTS:
        tables = [metadata.get(part, {}) for metadata in runs]
        for name in dict.fromkeys(name for metadata in tables for name in metadata):
            values = tuple(metadata.get(name, ABSENT) for metadata in tables)
            if len({entry.value for entry in values}) > 1:
                different.append(MetadataDifference(part, name, values))
    return different


def difference_table(found: Sequence[MetadataDifference], columns: Sequence[str]) -> str:
    """Format a table with one row per difference, with the source of each value if it is known."""
    rows = [(row.part, row.name, *(_short(str(entry)) for entry in row.values)) for row in found]
    return table(("what", "name", *columns), rows, "l" * (2 + len(columns)))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def explanation(divergence: Divergence, found: Sequence[MetadataDifference]) -> str:
    """Return the probable reason for a divergence; the text begins with "because", "perhaps" or "and"."""
    known = [row for row in found if ABSENT not in row.values and row.name not in PATH_SETTINGS]
    for cause in CAUSES.get(divergence.part, ()):
        if chosen := [row for row in known if f"{row.part}.{row.name}".startswith(cause)]:
            return f"because {', '.join(map(str, chosen[:3]))}"
    for part in PARTS:
        if chosen := [row for row in known if row.part == part]:
            return f"perhaps because of different {part}: {', '.join(map(str, chosen[:3]))}"
    if divergence.schedule:
        values = ", ".join(f"{name} {a:g} → {b:g}" for name, (a, b) in divergence.schedule.items())
        return f"because of scheduled settings ({values}), which depend on the clock if there is a time budget"
    return "and no recorded entry differs: look for non-determinism (threads, GPU, hardware faults), or a resumed run"
