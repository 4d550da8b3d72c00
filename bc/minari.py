"""Demonstrations as Minari datasets, and back (extra ``minari``).

One dataset per category, ``npp/<category>/<source>-v0``, in Minari's folder (``MINARI_DATASETS_PATH``).  An episode of T
decisions holds T + 1 observations, T actions, rewards, terminations and truncations.  Its options, which Minari keeps
beside it, hold what makes it a demonstration again: the level's map (zlib, base64), name, frame skip and length in frames.

The environment's spec lacks the levels, which are with the episodes already: pass them when recovering it.

    levels = [file.replay.level for file in import_minari(name)]  # one per episode
    env = minari.load_dataset(name).recover_environment(levels=levels)
"""

import base64
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

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
from nppsim import hdf5
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.env import ENV_ID, NppEnv
from nppsim.errors import UserError, needed
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.progress import progress_bar
from nppsim.reading import inflate
from nppsim.replays.replay import MAX_BYTES, Replay, to_inputs

NAMESPACE = "npp"
FEW = 4  # episodes of a dataset that are compared with the simulator once they are written
CLOSE = 1e-6  # of rewards
_VARIABLE = "MINARI_DATASETS_PATH"  # Minari's, where its datasets lie
NO_LEVELS = "(the levels of the episodes: pass levels=..., see bc.minari)"
_ID = re.compile(rf"{NAMESPACE}/(?P<category>[\w-]+)/(?P<source>[a-z]\w*)-v\d+")


def dataset_id(category: str, source: str) -> str:
    """Minari's name of the demonstrations of one category; source: "planner", "human" or another word."""
    name = f"{NAMESPACE}/{category}/{source}-v0"
    if not _ID.fullmatch(name):
        raise DemonstrationError(f"{name}: no name for a Minari dataset; source and category must be single words")
    return name


@dataclass(frozen=True)
class About:
    """Metadata of a Minari dataset.  Raises DemonstrationError if the source is no name.

    source: who played: "planner", "human" or another word.
    code_permalink: address of the code that made the demonstrations, with its version.
    """

    source: str
    author: str
    author_email: str
    code_permalink: str

    def __post_init__(self) -> None:
        dataset_id("any", self.source)


def export_folder(folder: str, frame_skip: int, about: About, keys: Sequence[str]) -> list[str]:
    """Play a folder of replays back and export it; return the lines of a summary and the names of the datasets.

    For a process of its own: once a write has failed, HDF5 complains of every object on stderr and may crash in the end.
    While it writes, stderr is closed.
    """
    played = load_demonstrations(find_replays(folder), frame_skip, folder=folder, progress=progress_bar)
    found, bank, _places = with_bank(played)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    return [found.table(), *export_minari(found, about, bank=bank, observations=keys)]


def export_minari(
    found: DemonstrationSet,
    about: About,
    *,
    bank: LevelBank | None = None,
    observations: Sequence[str] = layout.VISION_FREE,
    progress: Callable[[Sequence[Demonstration]], Iterable[Demonstration]] = iter,
) -> list[str]:
    """Write one Minari dataset per category; returns their names.

    bank: of the levels, where the caller has it (``with_bank``).
    observations: keys or short names.
    progress: wraps the iteration over demonstrations.
    Raises DemonstrationError if there is no demonstration, an observation is unknown, a dataset of that name exists
    already, or none can be written; DatasetError if a category does not fit into memory.
    """
    minari = needed("minari", "minari")
    keys = observation_keys(observations)
    named = _by_name(found, about.source)
    bytes_each = sum(layout.SPECS[key].bytes for key in keys)
    for name, demonstrations in named.items():
        if name in minari.list_local_datasets():
            raise _taken(name)
        check_memory(name, sum(len(d.actions) + 1 for d in demonstrations), bytes_each)
    env = _environment(found, bank, keys)
    with _written_aside() as folder:
        for name, demonstrations in named.items():
            minari.create_dataset_from_buffers(
                name,
                list(_episodes(env, demonstrations, progress)),
                env,
                algorithm_name=about.source,
                author=about.author,
                author_email=about.author_email,
                code_permalink=about.code_permalink,
                description=(
                    f"N++ levels of category {demonstrations[0].category}, finished by: {about.source}. "
                    f"One action per {found.frame_skip} frames of 1/60 s. "
                    f"Observations: docs/observations.md, layout {layout.fingerprint(keys)}; reward preset default."
                ),
                requirements=[f"nppsim=={version('nppsim')}"],
                jpeg_encoding=False,
            )
            _check_written(folder / name / "data" / "main_data.hdf5", demonstrations, keys, found.frame_skip)
        _move(folder, list(named))
    return list(named)


def _check_written(file: Path, demonstrations: Sequence[Demonstration], keys: Sequence[str], frame_skip: int) -> None:
    """DemonstrationError unless the file holds these demonstrations, and of a few what the batch simulator shows of them."""
    few = set(np.linspace(0, len(demonstrations) - 1, FEW).astype(int).tolist())
    with h5py.File(file) as stored:
        if len(stored) != len(demonstrations):
            raise DemonstrationError(f"{file}: holds {len(stored)} episodes, not {len(demonstrations)}")
        for number, demonstration in enumerate(demonstrations):
            episode, place = stored[f"episode_{number}"], f"{file}, episode {number}"
            _name, replay = _replay(episode, place)
            if replay.level != demonstration.level or not np.array_equal(replay.inputs, demonstration.inputs):
                raise DemonstrationError(f"{place}: is not {demonstration.name}, as it was written")
            if number in few and (other := _other_than_played(episode, demonstration, keys, frame_skip)):
                raise DemonstrationError(f"{place}: {other} is not what {demonstration.name} shows")


def _other_than_played(
    episode: h5py.Group, demonstration: Demonstration, keys: Sequence[str], frame_skip: int
) -> str | None:
    """Return what differs between a written episode and the batch simulator; None if nothing does."""
    sim = BatchSimulator([demonstration.level], 1, observations=keys, frame_skip=frame_skip, threads=1)
    obs = sim.reset()
    for t, action in enumerate(demonstration.actions):
        for key in keys:
            if not np.array_equal(np.ravel(episode["observations"][key][t]), obs[key][0].ravel()):  # flat, or with axes
                return f"{key} before decision {t}"
        obs = sim.step(np.array([action]))
        if abs(float(episode["rewards"][t]) - float(sim.rewards[0])) > CLOSE:
            return f"the reward of decision {t}"
        ends = bool(episode["terminations"][t]), bool(episode["truncations"][t])
        if ends != (bool(sim.terminated[0]), bool(sim.truncated[0])):
            return f"the end after decision {t}"
    return None


@contextmanager
def _written_aside() -> Iterator[Path]:
    """Minari writes into a hidden folder among its own, which is removed at the end of the block.

    DemonstrationError if it cannot.  HDF5 is then beyond repair and may crash as the process ends.
    """
    needed("minari", "minari")
    from minari.storage.datasets_root_dir import get_dataset_path  # reads the environment variable on each call

    root, before = get_dataset_path(), os.environ.get(_VARIABLE)
    try:
        with tempfile.TemporaryDirectory(prefix=".nppsim_", dir=root) as folder:
            os.environ[_VARIABLE] = folder
            yield Path(folder)
    except (OSError, RuntimeError) as error:  # of h5py, too
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise DemonstrationError(
            f"{root}: Minari cannot write there ({reason}); make room, or set {_VARIABLE} to another folder"
        ) from error
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before


def _move(folder: Path, names: Sequence[str]) -> None:
    """Datasets that are complete take their place beside ``folder``, and so do the descriptions of new namespaces.

    DemonstrationError where another process has exported one of that name meanwhile; it is left alone.
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
    return DemonstrationError(f"{name}: there is such a dataset already; delete it with: minari delete {name}")


def observation_keys(observations: Sequence[str]) -> tuple[str, ...]:
    """Keys of observations given as keys or short names.  DemonstrationError for an unknown one."""
    try:
        return layout.observation_keys(observations)
    except ValueError as error:
        raise DemonstrationError(f"observations: {error}") from error


def _by_name(found: DemonstrationSet, source: str) -> dict[str, list[Demonstration]]:
    """Name of the dataset -> demonstrations of its category."""
    named: dict[str, list[Demonstration]] = {}
    for demonstration in sorted(found.require_some().demonstrations, key=lambda d: d.category):
        named.setdefault(dataset_id(demonstration.category, source), []).append(demonstration)
    return named


def _environment(found: DemonstrationSet, bank: LevelBank | None, keys: tuple[str, ...]) -> NppEnv:
    """Return the environment for recording; its spec, which Minari stores, has no levels.

    The spec names a folder that does not exist, so that no other levels are played by mistake.
    """
    bank = bank or LevelBank(list(dict.fromkeys(d.level for d in found.demonstrations)), known=found.compiled)
    env = NppEnv(bank, observations=keys, frame_skip=found.frame_skip)
    kwargs = {"levels": NO_LEVELS, "observations": list(keys), "frame_skip": found.frame_skip, "reward": "default"}
    env.spec = replace(gymnasium.spec(ENV_ID), kwargs=kwargs)
    return env


def _episodes(
    env: NppEnv,
    demonstrations: Sequence[Demonstration],
    progress: Callable[[Sequence[Demonstration]], Iterable[Demonstration]],
) -> Iterator[object]:
    """Minari's EpisodeBuffer of each demonstration."""
    from minari.data_collector import EpisodeBuffer  # an extra

    place = {level: i for i, level in enumerate(env.simulator.bank.levels)}
    for number, demonstration in enumerate(progress(demonstrations)):
        yield EpisodeBuffer(**_episode(env, place[demonstration.level], demonstration, number))


def _episode(env: NppEnv, level: int, demonstration: Demonstration, number: int) -> dict:
    """The fields of Minari's EpisodeBuffer."""
    observation, _info = env.reset(options={"level": level})
    seen, rewards, terminations, truncations = [observation], [], [], []
    for action in demonstration.actions.tolist():
        observation, reward, terminated, truncated, _info = env.step(action)
        seen.append(observation)
        rewards.append(reward)
        terminations.append(terminated)
        truncations.append(truncated)
    if not terminations[-1]:
        raise DemonstrationError(f"{demonstration.name}: does not end its level within the time limit; leave it out")
    return {
        "id": number,
        "options": {
            "level": base64.b64encode(zlib.compress(demonstration.level.to_bytes(), 9)).decode(),
            "name": demonstration.name,
            "frame_skip": env.simulator.frame_skip,
            "frames": len(demonstration.inputs),
        },
        "observations": {key: np.stack([step[key] for step in seen]) for key in seen[0]},
        "actions": demonstration.actions.astype(np.int64),
        "rewards": rewards,
        "terminations": terminations,
        "truncations": truncations,
    }


def import_minari(name: str) -> tuple[ReplayFile, ...]:
    """The replays of a dataset that ``export_minari`` made, ready for ``load_demonstrations``, which plays them back.

    Raises DemonstrationError for a name that is not there, and for a dataset without the levels.
    """
    needed("minari", "minari")
    from minari.storage.datasets_root_dir import get_dataset_path

    matched = _ID.fullmatch(name)
    path = Path(get_dataset_path(), name, "data", "main_data.hdf5")
    if matched is None or not path.is_file():
        raise DemonstrationError(f"{name}: no such dataset of nppsim here; `minari list local` shows what there is")
    files = []
    try:  # not with Minari: it believes the file, and imports what its metadata name as environment
        file = hdf5.open_file(path)
        try:
            for number in range(len(file)):
                original, replay = _replay(file[f"episode_{number}"], f"{name}, episode {number}")
                files.append(ReplayFile(f"{name}, episode {number}", original, matched["category"], replay))
        finally:
            hdf5.close(file)
    except UserError:
        raise
    except hdf5.DAMAGE as error:
        raise DemonstrationError(f"{path}: damaged ({hdf5.reason(error)}); export it again") from error
    return tuple(files)


def _replay(episode: h5py.Group, place: str) -> tuple[str, Replay]:
    """The name and the replay of an episode in Minari's file.  DemonstrationError, or one of hdf5.DAMAGE."""
    actions = episode["actions"]
    try:
        options = {name: episode.attrs[f"options/{name}"] for name in ("level", "name", "frame_skip", "frames")}
        frames = int(options["frames"])
        if actions.dtype.kind not in "iu" or not actions.size <= frames <= MAX_BYTES:
            raise ValueError(f"{actions.size} actions, {actions.dtype}, in {frames} frames")
        level = Level.from_bytes(inflate(base64.b64decode(options["level"], validate=True), MAX_BYTES), place)
        inputs = to_inputs(actions[()].reshape(-1), int(options["frame_skip"]), frames)
    except (KeyError, TypeError, ValueError) as error:
        raise DemonstrationError(f"{place}: no level to play it on ({error}); export it again") from error
    return str(options["name"]), Replay(level, inputs, True, place)
