"""All readers of files with valid files to damage, for ``tests.fuzz.test_readers``."""

import json
from functools import partial
from pathlib import Path

import h5py
import numpy as np

import nppsim
from bc.dataset import BCDataset, DatasetConfig, load_or_build
from bc.demonstrations import find_replays
from nppsim.generate import generate
from nppsim.io.files import write_json
from nppsim.levels.campaign import to_line
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.measure.throughput import benchmark_report, load_result
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from nppsim.replays.inputs import load_inputs, save_inputs
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplaySet, ReplayWriter
from nppsim.replays.targets import Targets
from nppsim.simulate import Run
from rl.config import ExperimentConfig
from rl.config.resume import stored_config
from rl.evaluation.comparison import read_levels, write_levels
from rl.evaluation.results import DevHistory, EpisodeRecord, LevelWins, read_history
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.tools.reference import FORMAT as REFERENCE
from rl.tools.reference import VERSION, load_reference
from rl.training.digests import read_trail
from tests.fuzz import damage
from tests.fuzz.damage import Reader
from tests.fuzz.readers_of_messages import readers_of_messages
from tests.fuzz.readers_of_runs import readers_of_runs

RIGHT = 2  # the input byte
_OBSERVED = (("game_state",), ("game_state", "player_frame"))  # in datasets; images are drawn from states


def readers() -> dict[str, Reader]:
    """Return all readers by name."""
    by_json, by_hdf5 = (damage.in_json,), (damage.in_bytes, damage.in_hdf5, damage.in_hdf5)
    lines = (damage.in_json_lines,)
    by_fields = (damage.in_bytes, damage.in_place, damage.in_place)
    known = [
        Reader("level", "x.map", Level.load, _levels, by_fields),
        Reader("level_text", "x.level", Level.load, _level_texts, (damage.in_words, damage.in_bytes)),
        Reader("campaign", "x.txt", lambda path: list(LevelSet.at(path)), _campaigns, (*by_fields, damage.in_words)),
        Reader("targets", "x.txt", Targets, _targets, (damage.in_words, damage.in_bytes)),
        Reader("replay", "x.replay", Replay.load, _replays, by_fields),
        Reader("inputs", "x.inputs", partial(_read_inputs, _room()), _inputs, (damage.in_bytes, damage.in_zlib)),
        Reader("replay_set", "x.h5", _read_replay_set, _replay_sets, by_hdf5),
        Reader("dataset", "x.h5", _read_dataset, _datasets, by_hdf5),
        Reader("traces", "x.h5", nppsim.verify, _traces, by_hdf5),
        Reader("level_index", "index.json", _read_level_set, lambda folder: [_level_set(folder)], by_json),
        Reader("demonstration_index", "index.json", _read_demonstration_index, _demonstration_index, by_json),
        Reader("configuration", "config.json", _read_configuration, _configuration, by_json),
        Reader("benchmark", "x.json", _read_benchmark, _benchmark, by_json),
        Reader("reference", "x.json", load_reference, _reference, by_json),
        Reader("digest_trail", "digests.jsonl", lambda path: read_trail(path.parent), _digest_trail, lines),
        Reader("history", "dev_levels.jsonl", lambda path: read_history(path.parent), _history, lines),
        Reader("test_levels", "x.csv", lambda path: read_levels([path], "ppo"), _test_levels, (damage.in_csv,)),
        Reader(
            "checkpoint",
            "x.safetensors",
            checkpoint.load_policy,
            _checkpoints,
            (damage.in_bytes, damage.in_checkpoint, damage.in_checkpoint),
        ),
        *readers_of_runs(),
        *readers_of_messages(),
    ]
    return {reader.name: reader for reader in known}


# ---------------------------------------------------------------------------------------------------------------------
# Valid files


def _room(distance: int = 20) -> Level:
    """Return a flat room that is finished by running to the right."""
    exits = [((30, 94), (30 + distance, 94))]
    return Level.build(np.zeros((23, 42), np.uint8), (20, 94), exits=exits, title="a room")


def _win(level: Level) -> Run:
    return nppsim.simulate(level, np.full(400, RIGHT, np.uint8))


def _won(distance: int = 20) -> Replay:
    level = _room(distance)
    return Replay(level, np.full(_win(level).frames, RIGHT, np.uint8), True, f"room {distance}")


def _levels(folder: Path) -> list[Path]:
    paths = [folder / f"{category}.map" for category in ("simplest", "advanced")]
    for path in paths:
        generate(path.stem, 1)[0].save(path)
    return paths


def _level_texts(folder: Path) -> list[Path]:
    path = folder / "advanced.level"
    generate("advanced", 1)[0].save(path)
    return [path]


def _campaigns(folder: Path) -> list[Path]:
    levels = [generate(category, 1)[0] for category in ("simplest", "advanced")]
    (folder / "x.txt").write_text("".join(f"{to_line(level)}\n" for level in levels))
    return [folder / "x.txt"]


def _targets(folder: Path) -> list[Path]:
    (folder / "x.txt").write_text("# mine\nS-C-12-03 12.567\nS-C-12-04, score 91.2\n0123456789ab 7\n")
    return [folder / "x.txt"]


def _replays(folder: Path) -> list[Path]:
    replay = _won()
    replay.save(folder / "compact.replay")
    data = (folder / "compact.replay").read_bytes()
    (folder / "compact0.replay").write_bytes(data[4:12] + data[13:])
    Replay(replay.level, replay.inputs).save(folder / "attract.replay", "attract")
    return sorted(folder.glob("*.replay"))


def _inputs(folder: Path) -> list[Path]:
    save_inputs(folder / "packed.inputs", _won())
    return [folder / "packed.inputs"]


def _replay_sets(folder: Path) -> list[Path]:
    path = folder / "some.h5"
    with ReplayWriter(path) as writer:
        for distance in (20, 30, 40):
            writer.append(_won(distance), category="simple", source="run")
    return [path]


def _datasets(folder: Path) -> list[Path]:
    with ReplayWriter(folder / "replays.h5") as writer:
        for distance in (20, 30, 40):
            writer.append(_won(distance), category="simple")
    configs = [DatasetConfig(observations=observed) for observed in _OBSERVED]
    made = [load_or_build(folder / "replays.h5", folder, config, log=lambda text: None) for config in configs]
    return [Path(dataset.path) for dataset in made]


def _traces(folder: Path) -> list[Path]:
    path = folder / "traces.h5"
    with h5py.File(path, "w") as file:  # with the library's oldest format, as traces of others are
        for distance in (20, 30):
            level = _room(distance)
            run = _win(level)
            case = file.create_group(f"rooms/{distance}")
            frames = [run.position, run.velocity, run.ninja_state, run.airborne, run.walled, run.floor_normal, run.gold]
            case["map"] = np.frombuffer(level.to_bytes(), np.uint8)
            case["inputs"] = np.full(run.frames, RIGHT, np.uint8)
            case.create_dataset("frames", data=np.column_stack(frames), compression="gzip")
            case["entities"] = run.entities
            case.create_dataset("entity_state", data=run.entity_state, compression="gzip")
            case["movers"] = np.empty((0, 2), np.int16)
    return [path]


def _level_set(folder: Path) -> Path:
    LevelSet.write(folder / "set", [(_room(), LevelEntry("simple")), (_room(30), LevelEntry("simple", seed=3))])
    return folder / "set" / "index.json"


def _demonstration_index(folder: Path) -> list[Path]:
    path = folder / "index.json"
    write_json(
        path, {"format": "nppsim demonstrations", "demonstrations": [{"file": "a.replay", "category": "simple"}]}
    )
    return [path]


def _episodes() -> list[EpisodeRecord]:
    level, inputs = _room(), np.zeros(4, np.uint8)
    outcomes = ("won", "died", "timeout")
    return [
        EpisodeRecord(i, f"level {i}", "simple", level, inputs, outcomes[i % 3], 4, 1, 0.5, 0, 100.0) for i in range(6)
    ]


def _configuration(folder: Path) -> list[Path]:
    path = folder / "config.json"
    write_json(path, ExperimentConfig(experiment_name="x", architectures=("vision_free",)).to_dict())
    return [path]


def _benchmark(folder: Path) -> list[Path]:
    path = folder / "x.json"
    summary = dict.fromkeys(("mean", "sd", "min", "max", "p50", "p95", "p99"), 1.0)
    facts = {
        "format": "nppsim benchmark",
        "version": 2,
        "machine": {"cpu": "c", "cores": 2, "system": "s"},
        "versions": {"numpy": "2"},
        "settings": {"source": "s", "observations": ["game_state"], "frame_skip": 4},
        "phase": "",
        "date": "2026-01-01 00:00:00",
        "build": {"commit": "a" * 40, "changed_files": "0"},
        "decisions_per_round": 10,
        "decisions_per_s": 9.0,
        "decisions_per_s_sd": 0.5,
        "cv": 0.1,
        "round_s": [1.0, 1.1],
        "calibration": {"python": [1.0, 1.0], "numba": [1.0, 1.0]},
        "relative": {"python": 1.0, "numba": 1.0},
        "summary": summary,
        "stability": "good",
    }
    write_json(path, facts)
    return [path]


def _reference(folder: Path) -> list[Path]:
    path = folder / "x.json"
    metrics = {"train/loss": [{"at": 100, "low": 0.0, "high": 1.0}]}
    speed = {"machine": {"low": 1.0, "high": 2.0}}
    write_json(
        path,
        {
            "format": REFERENCE,
            "version": VERSION,
            "label": "x",
            "metrics": metrics,
            "seconds_per_million_decisions": speed,
        },
    )
    return [path]


def _digest_trail(folder: Path) -> list[Path]:
    path = folder / "digests.jsonl"
    lines = [{"update": n, "digests": {"actions": "ab"}, "schedule": {"progress": 0.5 * n}} for n in (1, 2)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [path]


def _history(folder: Path) -> list[Path]:
    for decisions in (0, 1000):
        DevHistory(folder).add(decisions, LevelWins.count(_episodes()))
    return [folder / "dev_levels.jsonl"]


def _test_levels(folder: Path) -> list[Path]:
    write_levels(folder / "x.csv", {"ppo": LevelWins.count(_episodes())})
    return [folder / "x.csv"]


def _checkpoints(folder: Path) -> list[Path]:
    statistics = ObservationStatistics(layout.VISION_FREE)
    rng = np.random.default_rng(0)
    specs = [layout.SPECS[key] for key in statistics.keys]
    statistics.update({spec.key: rng.normal(size=(20, *spec.shape)).astype(np.float32) for spec in specs})
    policy = build_policy("vision_free", statistics)
    training = {"optimizer": policy.optimizer.state_dict(), "window": np.arange(3), "names": ("a", b"b", float("inf"))}
    return [checkpoint.save(folder / "x.safetensors", policy, frame_skip=4, config={"lr": 1e-3}, training=training)]


# ---------------------------------------------------------------------------------------------------------------------
# Readers that need more than a path


def _read_inputs(level: Level, path: Path) -> Replay:
    return load_inputs(path, level)


def _read_replay_set(path: Path) -> list[Replay]:
    with ReplaySet(path) as replays:
        return list(replays)


def _read_dataset(path: Path) -> object:
    dataset = BCDataset.open(path)
    return dataset.observe(np.arange(0, len(dataset), 7)), dataset.runs(), dataset.class_weights(0.5)


def _read_level_set(path: Path) -> list[Level]:
    index = _level_set(path.parent)
    index.write_bytes(path.read_bytes())
    return list(LevelSet.open(index.parent))


def _read_demonstration_index(path: Path) -> object:
    (path.parent / "a.replay").touch()
    return find_replays(path.parent)


def _read_configuration(path: Path) -> ExperimentConfig:
    return stored_config(path.parent)


def _read_benchmark(path: Path) -> str:
    load_result(path)
    return benchmark_report(path.parent)
