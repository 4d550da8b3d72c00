"""Stored runs, also of other versions of the project, and the settings, data and machines in which they differ.

    for run in find_runs(folder):                # folder of an experiment, or of one training in it
        run.label, run.seed                      # "vision_free", 1
        run.facts["settings"]["ppo.gamma"]       # Fact("0.995", "default")
    found = differences([old.facts, new.facts])
    explanation(divergence, found)               # "because ppo.gae_lambda 0.95 → 0.92"

Only stored files are read.  What a version does not write is absent; settings unknown to this version are included.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from nppsim.files import table
from nppsim.reading import read_json
from rl.config.resume import FINISHED_FILE
from rl.doctor.divergence import Divergence
from rl.evaluation.results import History, ResultsError, read_history
from rl.events import Scalars, event_folders, read_scalars
from rl.ppo.digests import Row, read_trail

RUN_FILE = "run.json"  # of one training: its settings with their sources
DEMONSTRATIONS_FILE = "demonstrations.json"  # in ``pretrain``: digest of the demonstrations
# Parts of a run's facts, and the key of config.json that holds each.
PARTS = {"settings": "", "data": "data", "versions": "versions", "machine": "host", "environment": "environment"}
# Keys of config.json that are no settings, or only name a run.
_NO_SETTINGS = {
    *("machine", "command", "sources", "architectures"),
    *("experiment_name", "output_dir", "resume_from", "seeds", "debug", "config_files", "recipe"),
}
# Settings that are paths; "data" has digests of what is there.
PLACES = ("train_dataset", "dev_dataset", "test_dataset", "single_level", "replay_data_dir")
_SEED = re.compile(r"seed_(\d+)")


class Fact(NamedTuple):
    """A value in words, and its source ("default", "command line", "profile ...", ...; "" if unknown)."""

    value: str
    source: str = ""

    def __str__(self) -> str:
        return f"{self.value} ({self.source})" if self.source else self.value


ABSENT = Fact("–")  # in a run of another version

Facts = dict[str, dict[str, Fact]]  # part of PARTS -> dotted name -> Fact


@dataclass(frozen=True, eq=False)
class Run:
    """One training.

    label: architecture, with the condition where the experiment has several.
    seed: None if unknown.
    machine: in words; "" if unknown.
    speed: decisions_per_s, and share of each phase; None unless the training has finished.
    """

    folder: Path
    label: str
    seed: int | None
    facts: Facts = field(repr=False)
    machine: str
    speed: dict | None

    @cached_property
    def trail(self) -> list[Row]:
        """Digest trail; [] without one."""
        return read_trail(self.folder)

    @cached_property
    def history(self) -> History | None:
        """Success on each dev level; None if not stored."""
        return read_history(self.folder)

    @cached_property
    def scalars(self) -> dict[str, Scalars]:
        """Tag -> its values; {} without event files."""
        own = self.folder / "tensorboard"  # below the folder there may be those of seeds that were added
        place = own if own.is_dir() else self.folder
        return read_scalars(place) if event_folders(place) else {}

    @property
    def finished(self) -> bool:
        """True if the training, including its final evaluation, is over."""
        return (self.folder / FINISHED_FILE).is_file()

    @property
    def machine_key(self) -> str:
        """Processor, cores and system; speeds are compared only where these are equal."""
        host = self.facts["machine"]
        return ", ".join(fact.value for fact in host.values()) or self.machine


def find_runs(folder: Path) -> list[Run]:
    """Trainings in the folder of an experiment, or the one in a training's own folder.  ResultsError without any."""
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such folder; give that of an experiment, or of one training in it")
    folder = folder.absolute()
    root = next((place for place in (folder, *folder.parents[:3]) if (place / "config.json").is_file()), None)
    if root is None:
        raise ResultsError(f"{folder}: no config.json there or above; give the folder of an experiment")
    config = _read_json(root / "config.json")
    found = [place for place in (*sorted(folder.rglob("*")), folder) if _is_training(place)]
    if not found:
        raise ResultsError(f"{folder}: no training has begun there; give the folder of an experiment that has")
    try:
        return [_read(root, place, config) for place in found]
    except (TypeError, KeyError, AttributeError) as error:
        raise ResultsError(
            f"{root}: damaged files of an experiment ({type(error).__name__}: {error}); use another run"
        ) from error


def _is_training(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("progress.csv", "tensorboard", RUN_FILE))


def _read(root: Path, folder: Path, config: dict) -> Run:
    names = folder.relative_to(root).parts
    seeds = [int(found[1]) for name in names if (found := _SEED.fullmatch(name))]
    label = ", ".join(name for name in names if not _SEED.fullmatch(name))
    own = _read_json(folder / RUN_FILE)
    known = config.get("seeds", [])
    seed = own.get("seed", seeds[0] if seeds else known[0] if len(known) == 1 else None)
    results = _read_json(root / "results.json")
    entry = results.get("architectures", {}).get(label, {}).get("seeds", {}).get(str(seed), {})
    facts = {part: _flat(config.get(key, {})) for part, key in PARTS.items() if key}
    demonstrations = _read_json(folder / "pretrain" / DEMONSTRATIONS_FILE)
    facts["data"] |= _flat({"demonstrations": demonstrations} if demonstrations else {})
    facts["settings"] = _settings(config, own)
    facts["settings"] |= {"seed": Fact(str(seed)), "architecture": Fact(label.partition(",")[0])}
    return Run(folder, label, seed, facts, config.get("machine", ""), entry.get("speed"))


def _settings(config: dict, own: dict) -> dict[str, Fact]:
    """Every setting by dotted name; ``own`` settings of the training, with sources, win over those of the experiment."""
    left_out = {*PARTS.values(), *_NO_SETTINGS}
    plain = _flat({name: value for name, value in config.items() if name not in left_out})
    resolved = {
        name: Fact(_words(one["value"]), one["source"])
        for name, one in own.get("settings", {}).items()
        if name.split(".")[0] not in left_out
    }
    return plain | resolved


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Fact]:
    """Nested values by dotted names."""
    found: dict[str, Fact] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = Fact(_words(value))
    return found


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _read_json(path: Path) -> dict:
    """The object in a file; {} without that file."""
    if not path.is_file():
        return {}
    data = read_json(path, ResultsError, "it was cut off or changed: use another run")
    if not isinstance(data, dict):
        raise ResultsError(f"{path}: not a JSON object; give the folder of an experiment")
    return data


# ---------------------------------------------------------------------------------------------------------------------
# Differences

COLUMNS = {2: ("old", "new"), 3: ("old", "broken", "fixed")}
_LONGEST = 60  # characters of a value that are shown
_SIZES = tuple(f"settings.{part}.{name}" for name in ("num_envs", "rollout_length") for part in ("plan", "hardware"))
_ARITHMETIC = tuple(f"settings.{name}" for name in ("plan.precision", "plan.device", "plan.torch_threads")) + (
    "settings.hardware.mixed_precision",
)
_START = ("settings.architecture", "settings.seed")
_RETURNS = ("settings.ppo.gae_lambda", "settings.ppo.gamma")
# Part of a digest trail -> beginnings of the names of facts that change it first, the most probable first.
CAUSES = {
    "observations": (*_START, "settings.frame_skip", *_SIZES, "data.train", "settings.curriculum."),
    "log_probs": (*_START, *_ARITHMETIC, *_SIZES),
    "values": (*_START, *_ARITHMETIC, *_SIZES),
    "actions": (*_START, *_SIZES),
    "rewards": ("settings.reward.", "settings.ppo.gamma", "settings.frame_skip"),
    "episode_ends": ("settings.frame_skip", "data.train"),
    "advantages": _RETURNS,
    "returns": _RETURNS,
    "curriculum": ("settings.curriculum.", "settings.seed", "data.train"),
    "environments": ("data.train", *_SIZES, "settings.seed"),
    "parameters": (
        *_START, "settings.bc.", "data.demonstrations", "settings.pretraining", "settings.test_pretraining",
        "settings.mirror_demonstrations", "settings.max_demonstrations_per_category", "settings.ppo.",
        "settings.plan.epochs", "settings.plan.minibatch_size", *_ARITHMETIC, "data.train",
    ),
    "optimiser": (*_START, "settings.ppo.learning_rate", "settings.plan.learning_rate", "settings.ppo."),
    "random": ("settings.seed", "settings.plan.minibatch_size", "settings.ppo.n_epochs", "settings.plan.epochs"),
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A fact that differs between runs, with its value in each."""

    part: str
    name: str
    values: tuple[Fact, ...]

    def __str__(self) -> str:
        return f"{self.name} {' → '.join(fact.value for fact in self.values)}"


def differences(runs: Sequence[Facts]) -> list[Difference]:
    """Facts in which runs differ; a fact that one of them lacks is ABSENT there."""
    found = []
    for part in PARTS:
        tables = [facts.get(part, {}) for facts in runs]
        for name in dict.fromkeys(name for facts in tables for name in facts):
            values = tuple(facts.get(name, ABSENT) for facts in tables)
            if len({fact.value for fact in values}) > 1:
                found.append(Difference(part, name, values))
    return found


def difference_table(found: Sequence[Difference], columns: Sequence[str]) -> str:
    """A row for each difference, with the source of each value where it is known."""
    rows = [(row.part, row.name, *(_short(str(fact)) for fact in row.values)) for row in found]
    return table(("what", "name", *columns), rows, "l" * (2 + len(columns)))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def explanation(divergence: Divergence, found: Sequence[Difference]) -> str:
    """Probable reason of a divergence among the recorded differences, beginning with "because", "perhaps" or "and"."""
    known = [row for row in found if ABSENT not in row.values and row.name not in PLACES]
    for cause in CAUSES.get(divergence.part, ()):
        if chosen := [row for row in known if f"{row.part}.{row.name}".startswith(cause)]:
            return f"because {', '.join(map(str, chosen[:3]))}"
    for part in PARTS:
        if chosen := [row for row in known if row.part == part]:
            return f"perhaps because of different {part}: {', '.join(map(str, chosen[:3]))}"
    if divergence.schedule:
        values = ", ".join(f"{name} {a:g} → {b:g}" for name, (a, b) in divergence.schedule.items())
        return f"because of the schedule ({values}): a time budget makes it follow the clock"
    return "and no recorded fact differs: look for what does not repeat (threads, GPU, a fault), or a resume"
