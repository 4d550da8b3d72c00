"""Export of demonstrations to Minari datasets, and import (extra ``minari``).

The export writes one dataset per category, ``npp/<category>/<source>-v0``, into Minari's folder (``MINARI_DATASETS_PATH``).
An episode of T decisions has T + 1 observations, and T actions, rewards, terminations and truncations.  The options of an
episode contain what the import needs: the level file (zlib, base64), the name, the frame skip and the length in frames.

The recovered environment has the level of each episode, in their order:

    env = minari.load_dataset(name).recover_environment()
    env.reset(options={"level": 3})         # the level of episode 3
"""

import base64
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np

from bc.dataset import check_memory, with_bank
from bc.demonstrations import (
    Demonstration,
    DemonstrationError,
    DemonstrationSet,
    ReplayFile,
    find_replays,
    load_demonstrations,
)
from nppsim.bank import LevelBank
from nppsim.errors import import_optional
from nppsim.gym import ENV_ID
from nppsim.gym.env import Levels, NppEnv
from nppsim.io import hdf5
from nppsim.io.progress import progress_bar
from nppsim.io.reading import inflate
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.replays.replay import MAX_BYTES, Replay, to_inputs

NAMESPACE = "npp"
_VARIABLE = "MINARI_DATASETS_PATH"  # environment variable with Minari's folder of datasets
_ID = re.compile(rf"{NAMESPACE}/(?P<category>[\w-]+)/(?P<source>[a-z]\w*)-v\d+")


def dataset_id(category: str, source: str) -> str:
    """Return the name of the dataset of one category.  Raises DemonstrationError if an argument is not one word."""
    name = f"{NAMESPACE}/{category}/{source}-v0"
    if not _ID.fullmatch(name):
        raise DemonstrationError(f"{name}: invalid name of a Minari dataset; source and category must be single words")
    return name


@dataclass(frozen=True)
class MinariMetadata:
    """Metadata of a dataset.

    source: origin of the demonstrations in one word, e.g. "planner" or "human".
    code_permalink: URL of the code that made the demonstrations, with its version.
    Raises DemonstrationError for a source of several words.
    """

    source: str
    author: str
    author_email: str
    code_permalink: str

    def __post_init__(self) -> None:
        dataset_id("any", self.source)


def export_folder(folder: str, frame_skip: int, about: MinariMetadata, keys: Sequence[str]) -> list[str]:
    """Export a folder of replays; return the lines to print: a table and the names of the datasets.

    Run it in a separate process: after a failed write, HDF5 may crash at exit.  HDF5 also prints an error for every
    object, so this function redirects stderr to /dev/null.
    """
    played = load_demonstrations(find_replays(folder), frame_skip, folder=folder, progress=progress_bar)
    demonstrations, bank, _ = with_bank(played)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    return [demonstrations.table(), *export_minari(demonstrations, about, bank=bank, observations=keys)]


def export_minari(
    found: DemonstrationSet,
    about: MinariMetadata,
    *,
    bank: LevelBank | None = None,
    observations: Sequence[str] = layout.VISION_FREE,
) -> list[str]:
    """Write one Minari dataset per category; return their names.

    bank: the compiled levels, if the caller has them (``with_bank``).
    observations: keys or short names of the observations in the dataset.
    Raises DemonstrationError if there is no demonstration, an observation is unknown, a dataset of that name exists, or
    writing fails.  Raises DatasetError if a category does not fit into memory.
    """
    minari = import_optional("minari", "minari")
    keys = observation_keys(observations)
    named = _by_name(found, about.source)
    bytes_each = sum(layout.SPECS[key].bytes for key in keys)
    for name, demonstrations in named.items():
        if name in minari.list_local_datasets():
            raise _taken(name)
        check_memory(name, sum(len(d.actions) + 1 for d in demonstrations), bytes_each)
    bank = bank or LevelBank(list(dict.fromkeys(d.level for d in found.demonstrations)), known=found.compiled)
    env = NppEnv(bank, observations=keys, frame_skip=found.frame_skip)
    with _temporary_folder() as folder:
        for name, demonstrations in named.items():
            env.spec = replace(
                gymnasium.spec(ENV_ID),
                entry_point="bc.minari:recovered_environment",
                vector_entry_point=None,
                kwargs={"dataset": name, "observations": list(keys), "frame_skip": found.frame_skip},
            )
            minari.create_dataset_from_buffers(
                name,
                list(_episodes(env, demonstrations)),
                env,
                algorithm_name=about.source,
                author=about.author,
                author_email=about.author_email,
                code_permalink=about.code_permalink,
                description=(
                    f"N++ levels of category {demonstrations[0].category}, played by: {about.source}. "
                    f"One action per {found.frame_skip} frames of 1/60 s. "
                    f"Observations: docs/observations.md, layout {layout.fingerprint(keys)}; reward preset default."
                ),
                requirements=[f"nppsim=={version('nppsim')}"],
                jpeg_encoding=False,
            )
        _move(folder, list(named))
    return list(named)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Let Minari write into a hidden sub-folder of its folder; delete the sub-folder at the end of the block.

    Raises DemonstrationError if writing fails; HDF5 may then crash at the end of the process.
    """
    import_optional("minari", "minari")
    from minari.storage.datasets_root_dir import get_dataset_path  # reads MINARI_DATASETS_PATH in each call

    root, before = get_dataset_path(), os.environ.get(_VARIABLE)
    try:
        with tempfile.TemporaryDirectory(prefix=".nppsim_", dir=root) as folder:
            os.environ[_VARIABLE] = folder
            yield Path(folder)
    except (OSError, RuntimeError) as error:  # errors of h5py are among these
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise DemonstrationError(
            f"{root}: Minari cannot write there ({reason}); free space, or set {_VARIABLE} to another folder"
        ) from error
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before


def _move(folder: Path, names: Sequence[str]) -> None:
    """Move complete datasets, and descriptions of new namespaces, from the temporary folder to its parent.

    Raises DemonstrationError if another process has exported a dataset of the same name in the meantime.
    """
    for description in folder.rglob("namespace_metadata.json"):
        target = folder.parent / description.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            description.rename(target)
    for name in names:
        try:
            (folder / name).rename(folder.parent / name)
        except OSError as error:
            if not (folder.parent / name).exists():
                raise
            raise _taken(name) from error


def _taken(name: str) -> DemonstrationError:
    return DemonstrationError(f"{name}: exists already; delete it with: minari delete {name}")


def observation_keys(observations: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of observations given as keys or short names.  Raises DemonstrationError for unknown names."""
    try:
        return layout.observation_keys(observations)
    except ValueError as error:
        raise DemonstrationError(f"observations: {error}") from error


def _by_name(found: DemonstrationSet, source: str) -> dict[str, list[Demonstration]]:
    """Group demonstrations by category: name of the dataset -> demonstrations."""
    named: dict[str, list[Demonstration]] = {}
    for demonstration in sorted(found.require_some().demonstrations, key=lambda d: d.category):
        named.setdefault(dataset_id(demonstration.category, source), []).append(demonstration)
    return named


def recovered_environment(dataset: str, levels: Levels | None = None, **settings: Any) -> NppEnv:
    """Make the environment of a dataset: Minari's ``recover_environment`` calls this function.

    dataset: name of the dataset, whose episodes contain their levels.
    levels: other levels, as in ``NppEnv``; None: those of the episodes.
    settings: further arguments of ``NppEnv``.
    Raises DemonstrationError, as ``import_minari``, if the dataset is not in Minari's folder under this name.
    """
    return NppEnv([file.replay.level for file in import_minari(dataset)] if levels is None else levels, **settings)


def _episodes(env: NppEnv, demonstrations: Sequence[Demonstration]) -> Iterator[object]:
    """Play the demonstrations and yield Minari's EpisodeBuffer of each."""
    from minari.data_collector import EpisodeBuffer  # Minari is an optional package

    level_index = {level: i for i, level in enumerate(env.simulator.bank.levels)}
    for number, demonstration in enumerate(demonstrations):
        yield EpisodeBuffer(**_episode(env, level_index[demonstration.level], demonstration, number))


def _episode(env: NppEnv, level: int, demonstration: Demonstration, number: int) -> dict:
    """Play one demonstration; return the fields of Minari's EpisodeBuffer."""
    observation, _info = env.reset(options={"level": level})
    observations, rewards, terminations, truncations = [observation], [], [], []
    for action in demonstration.actions.tolist():
        observation, reward, terminated, truncated, _info = env.step(action)
        observations.append(observation)
        rewards.append(reward)
        terminations.append(terminated)
        truncations.append(truncated)
    if not terminations[-1]:
        raise DemonstrationError(f"{demonstration.name}: does not finish within the time limit; remove this replay")
    return {
        "id": number,
        "options": {
            "level": base64.b64encode(zlib.compress(demonstration.level.to_bytes(), 9)).decode(),
            "name": demonstration.name,
            "frame_skip": env.simulator.frame_skip,
            "frames": len(demonstration.inputs),
        },
        "observations": {key: np.stack([step[key] for step in observations]) for key in observations[0]},
        "actions": demonstration.actions.astype(np.int64),
        "rewards": rewards,
        "terminations": terminations,
        "truncations": truncations,
    }


def import_minari(name: str) -> tuple[ReplayFile, ...]:
    """Return the replays of a dataset that ``export_minari`` wrote; ``load_demonstrations`` checks that they win.

    Raises DemonstrationError for an unknown name, and for a dataset that is damaged or has no levels.
    """
    import_optional("minari", "minari")
    from minari.storage.datasets_root_dir import get_dataset_path

    matched = _ID.fullmatch(name)
    path = Path(get_dataset_path(), name, "data", "main_data.hdf5")
    if matched is None or not path.is_file():
        raise DemonstrationError(f"{name}: no such dataset of nppsim; see `minari list local`")
    files = []
    # Not with Minari, which would import the environment named in the metadata of an untrusted file.
    with hdf5.reading(path, lambda reason: DemonstrationError(f"{path}: damaged ({reason}); export it again")) as file:
        for number in range(len(file)):
            original, replay = _replay(file[f"episode_{number}"], f"{name}, episode {number}")
            files.append(ReplayFile(f"{name}, episode {number}", original, matched["category"], replay))
    return tuple(files)


def _replay(episode: h5py.Group, label: str) -> tuple[str, Replay]:
    """Read the name and the replay of an episode; messages begin with ``label``.

    Raises DemonstrationError or one of hdf5.DAMAGE.
    """
    actions = episode["actions"]
    try:
        options = {name: episode.attrs[f"options/{name}"] for name in ("level", "name", "frame_skip", "frames")}
        frames = int(options["frames"])
        if actions.dtype.kind not in "iu" or not actions.size <= frames <= MAX_BYTES:
            raise ValueError(f"{actions.size} actions, {actions.dtype}, in {frames} frames")
        level = Level.from_bytes(inflate(base64.b64decode(options["level"], validate=True), MAX_BYTES), label)
        inputs = to_inputs(actions[()].reshape(-1), int(options["frame_skip"]), frames)
    except (KeyError, TypeError, ValueError) as error:
        raise DemonstrationError(f"{label}: no valid level or inputs ({error}); export it again") from error
    return str(options["name"]), Replay(level, inputs, True, label)
