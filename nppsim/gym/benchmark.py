"""The benchmark of docs/benchmark.md: tracks, level sets and their environments.

    env = gymnasium.make("nppsim/Npp-Hard-v1", split="dev", track="state")
    levels = level_set("hard/dev")

Gymnasium ids: ``nppsim/Npp-Easy-v1`` and ``nppsim/Npp-Hard-v1``.
"""

import hashlib
import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nppsim.bank import LevelBank
from nppsim.errors import ConfigError, did_you_mean
from nppsim.generate.make import make_level_set
from nppsim.generate.resemblance import is_selected
from nppsim.gym.env import NppEnv
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.io.reading import read_object
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.observe import layout
from nppsim.planner.plan import first_run

_STATE = ("game_state", "entity_positions", "switch_states", "hazards", "surroundings")
# Track -> observations that its policies may use.  A track includes the observations of those before it.
TRACKS: dict[str, tuple[str, ...]] = {
    "pixels": layout.IMAGES,
    "state-no-paths": layout.observation_keys((*layout.IMAGES, *_STATE)),
    "state": tuple(key for key in layout.ALL if key != "foresight"),
    "look-ahead": layout.ALL,
}
DEFAULT_OBSERVATIONS: dict[str, tuple[str, ...]] = {  # of the environments
    "pixels": layout.IMAGES,
    "state-no-paths": _STATE,
    "state": layout.VISION_FREE,
    "look-ahead": (*layout.VISION_FREE, "foresight"),
}
NAMES = ("easy/train", "easy/dev", "easy/test", "hard/dev", "hard/test")
HIDDEN = "hard/hidden"
HARD_CATEGORY, HARD_MIN_PATH = "campaign_like", 1250.0  # px
# Frames of the planner.  With unlimited patience, it finishes a tenth more of the candidates and takes 1.6 times as long.
HARD_BUDGET, HARD_PATIENCE = 2_000_000, 500_000
HARD_SEEDS = {"hard/train": 63001, "hard/dev": 63002, "hard/test": 63003}
HIDDEN_SHA256 = (
    "c52537dbcdf553995dc165963f046dab9ebaef33a0343d876c829566e9488af9"  # of the file with the seed of the hidden levels
)


def level_set(name: str) -> LevelSet:
    """Return the levels of a split, such as "easy/test".  Raises ConfigError for an unknown name or without the data."""
    if name not in NAMES:
        raise ConfigError(f"is not a split; give {', '.join(NAMES)}{did_you_mean(name, NAMES)}", "levels", name)
    return LevelSet.open(folder_of(name))


def folder_of(name: str) -> Path:
    """Return the folder of a split.  Raises ConfigError if the data are not installed."""
    benchmark, split = name.split("/")
    datasets: Path | None = importlib.import_module("nppsim_agents").DATASETS
    folder = datasets and datasets / (split if benchmark == "easy" else f"{benchmark}/{split}")
    if folder is None or not folder.is_dir():
        raise ConfigError("is not installed; use a checkout or a wheel with datasets/", "levels", name)
    return folder


def generate_hard(
    split: str | Path,
    out: Path,
    count: int,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> LevelSet:
    """Generate the first levels of a hard split, or continue an interrupted generation.

    split: key of HARD_SEEDS, or for the hidden levels the file with the digest HIDDEN_SHA256,
        ``{"seed": N, "salt": TEXT}``.
    out: folder of the level set, which has an index only.
    count: number of levels.
    workers, cluster, progress: as in ``make_level_set``.
    Raises ConfigError for another file, and GenerateError as ``make_level_set``.
    """
    seed = HARD_SEEDS[split] if isinstance(split, str) else hidden_seed(split)
    return make_level_set(
        out,
        [HARD_CATEGORY],
        count,
        seed,
        select=is_hard,
        verify=finish,
        index_only=True,
        workers=workers,
        cluster=cluster,
        progress=progress,
    )


def hidden_seed(file: Path) -> int:
    """Read the seed of the hidden levels.  Raises ConfigError for another file."""
    if hashlib.sha256(file.read_bytes()).hexdigest() != HIDDEN_SHA256:
        raise ConfigError(f"is not the file with SHA-256 {HIDDEN_SHA256}", "seed file", file)
    return int(read_object(file, ConfigError, "restore it")["seed"])


def has_long_path(level: Level) -> bool:
    """Decide whether the path from the spawn to the exit is as long as that of a hard level must be."""
    bank = LevelBank([level])
    return bool(bank.reachable[0]) and bank.path_length[0] >= HARD_MIN_PATH


def is_hard(level: Level) -> bool:
    """Decide whether a candidate may become a hard level: a long path, and statistics like official levels."""
    return has_long_path(level) and is_selected(level)


def finish(level: Level) -> int | None:
    """Return the length in frames of a run that finishes a candidate, or None if the planner finds none."""
    run = first_run(level, HARD_BUDGET, HARD_PATIENCE)
    return None if run is None else run.frames


def first_levels(levels: LevelSet, count: int | None, setting: str) -> LevelSet:
    """Return ``count`` levels of a set (``first_of_each``); None: all.

    Raises ConfigError, which names ``setting``, for a count out of range.
    """
    if count is None:
        return levels
    chosen = first_of_each([entry.category for entry in levels.entries], count, setting)
    return LevelSet(levels.path, [levels.entries[i] for i in chosen])


def first_of_each(categories: Sequence[str], count: int, setting: str) -> list[int]:
    """Return ``count`` indices in ascending order: the first level of each category, then the second ones, and so on.

    A smaller count gives a subset of a larger one.  Raises ConfigError, which names ``setting``, for a count out of range.
    """
    if not 1 <= count <= len(categories):
        raise ConfigError(f"give 1 to {len(categories)}", setting, count)
    seen: Counter[str] = Counter()
    turns = []
    for i, category in enumerate(categories):
        turns.append((seen[category], i))
        seen[category] += 1
    return sorted(i for _, i in sorted(turns)[:count])


def track_of(observations: Sequence[str]) -> str:
    """Return the first track that allows these observations."""
    return next(track for track, allowed in TRACKS.items() if {*observations} <= {*allowed})


def _levels(benchmark: str, split: str, num_train_levels: int | None) -> LevelSet:
    if num_train_levels is not None and split != "train":
        raise ConfigError('limits the split "train" only; leave it out', "num_train_levels", num_train_levels)
    splits = [name.partition("/")[2] for name in NAMES if name.startswith(f"{benchmark}/")]
    if split not in splits:
        raise ConfigError(f"Npp-{benchmark.capitalize()}-v1 has {', '.join(splits)}", "split", split)
    return first_levels(level_set(f"{benchmark}/{split}"), num_train_levels, "num_train_levels")


def _observations(track: str) -> dict[str, tuple[str, ...]]:
    """Return the default setting of a track.  Raises ConfigError for an unknown track."""
    if track not in TRACKS:
        raise ConfigError(f"is not a track; give {', '.join(TRACKS)}{did_you_mean(track, TRACKS)}", "track", track)
    return {"observations": DEFAULT_OBSERVATIONS[track]}


def make(
    benchmark: str, split: str = "train", track: str = "state", num_train_levels: int | None = None, **settings: Any
) -> NppEnv:
    """Make an environment of the benchmark.

    split: "train", "dev" or "test".
    track: key of TRACKS, which sets the default of ``observations``.
    num_train_levels: use only this number of training levels (``first_levels``).
    settings: further arguments of ``NppEnv``.
    """
    settings = _observations(track) | settings
    return NppEnv(_levels(benchmark, split, num_train_levels), **settings)


def make_vec(
    benchmark: str, split: str = "train", track: str = "state", num_train_levels: int | None = None, **settings: Any
) -> NppVectorEnv:
    """Make a vector environment of the benchmark; see ``make``.  settings: further arguments of ``NppVectorEnv``."""
    settings = _observations(track) | settings
    return NppVectorEnv(_levels(benchmark, split, num_train_levels), **settings)
