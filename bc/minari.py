"""Demonstrations as Minari datasets, and back (extra ``minari``).

One dataset per category, ``npp/<category>/<source>-v0``, in Minari's folder (``MINARI_DATASETS_PATH``).  An episode of T
decisions holds T + 1 observations, T actions, rewards, terminations and truncations.  Its options, which Minari keeps
beside it, hold what makes it a demonstration again: the level's map (zlib, base64), name, frame skip and length in frames.

The environment's spec lacks the levels, which are with the episodes already: pass them when recovering it.

    levels = [Replay.from_bytes(file.data).level for file in import_minari(name)]  # one per episode
    env = minari.load_dataset(name).recover_environment(levels=levels)
"""

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version

import gymnasium
import numpy as np

from bc.dataset import check_memory
from bc.demonstrations import Demonstration, DemonstrationError, DemonstrationSet, ReplayFile
from nppsim.env import ENV_ID, NppEnv
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.replays.replay import Replay, to_inputs

NAMESPACE = "npp"
_ID = re.compile(rf"{NAMESPACE}/(?P<category>[\w-]+)/(?P<source>[a-z]\w*)-v\d+")


def dataset_id(category: str, source: str) -> str:
    """Minari's name of the demonstrations of one category; source: "planner", "human" or another word."""
    name = f"{NAMESPACE}/{category}/{source}-v0"
    if not _ID.fullmatch(name):
        raise DemonstrationError(f"{name}: no name for a Minari dataset; source and category must be single words")
    return name


def export_minari(
    found: DemonstrationSet,
    source: str,
    *,
    observations: Sequence[str] = layout.VISION_FREE,
    reward: str = "default",
    author: str,
    author_email: str,
    code_permalink: str,
    progress: Callable[[Iterable], Iterable] = iter,
) -> list[str]:
    """Write one Minari dataset per category; returns their names.

    observations: keys or short names.  reward: preset.  author, author_email, code_permalink: what Minari asks for.
    progress: wraps the demonstrations as they are played.
    Raises DemonstrationError if there is no demonstration, an observation is unknown, or a dataset of that name exists
    already; DatasetError if a category does not fit into memory.
    """
    import minari
    from minari.data_collector import EpisodeBuffer

    found.require_some()
    try:
        keys = layout.observation_keys(observations)
    except ValueError as error:
        raise DemonstrationError(f"observations: {error}") from error
    by_category: dict[str, list[Demonstration]] = {}
    for demonstration in sorted(found.demonstrations, key=lambda d: d.category):
        by_category.setdefault(demonstration.category, []).append(demonstration)
    names = {category: dataset_id(category, source) for category in by_category}
    local = minari.list_local_datasets()
    if taken := [name for name in names.values() if name in local]:
        raise DemonstrationError(
            f"{taken[0]}: there is such a dataset already; delete it with: minari delete {taken[0]}"
        )
    for category, name in names.items():
        bytes_each = sum(layout.SPECS[key].bytes for key in keys)
        check_memory(name, sum(len(d.actions) + 1 for d in by_category[category]), bytes_each)
    for category, demonstrations in by_category.items():
        levels = {d.level.fingerprint: d.level for d in demonstrations}
        index = {fingerprint: i for i, fingerprint in enumerate(levels)}
        settings = {"observations": keys, "frame_skip": found.frame_skip, "reward": reward}
        env = NppEnv(list(levels.values()), **settings)
        env.spec = replace(gymnasium.spec(ENV_ID), kwargs=settings | {"observations": list(keys)})
        episodes = [
            EpisodeBuffer(**_episode(env, index[demonstration.level.fingerprint], demonstration, number))
            for number, demonstration in enumerate(progress(demonstrations))
        ]
        minari.create_dataset_from_buffers(
            names[category],
            episodes,
            env,
            algorithm_name=source,
            author=author,
            author_email=author_email,
            code_permalink=code_permalink,
            description=(
                f"N++ levels of category {category}, finished by: {source}. One action per {found.frame_skip} frames "
                f"of 1/60 s. Observations: docs/observations.md, layout {layout.fingerprint(keys)}; "
                f"reward preset {reward}."
            ),
            requirements=[f"nppsim=={version('nppsim')}"],
            jpeg_encoding=False,
        )
    return list(names.values())


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
    import minari

    matched = _ID.fullmatch(name)
    if matched is None or name not in minari.list_local_datasets():
        raise DemonstrationError(f"{name}: no such dataset of nppsim here; `minari list local` shows what there is")
    dataset = minari.load_dataset(name)
    metadata = dataset.storage.get_episode_metadata(range(dataset.total_episodes))
    files = []
    for episode, about in zip(dataset.iterate_episodes(), metadata, strict=True):
        place = f"{name}, episode {episode.id}"
        options = about.get("options", {})
        try:
            level = Level.from_bytes(zlib.decompress(base64.b64decode(options["level"], validate=True)), place)
            inputs = to_inputs(np.asarray(episode.actions), int(options["frame_skip"]), int(options["frames"]))
            original = str(options["name"])
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise DemonstrationError(f"{place}: no level to play it on ({error}); export it again") from error
        replay = Replay(level, inputs, True, place)
        files.append(ReplayFile(place, original, matched["category"], replay.to_bytes()))
    return tuple(files)
