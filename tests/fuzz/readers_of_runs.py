"""Readers of the files of trainings, sweeps and exports, with valid files to damage."""

import io
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import stable_baselines3
import torch

import hardware
from bc.baselines import Metrics
from bc.demonstrations import ReplayFile, load_demonstrations
from bc.minari import MinariMetadata, export_minari, import_minari
from bc.train import BCResult
from nppsim.batch import BatchSimulator
from nppsim.errors import import_optional
from nppsim.generate import generate
from nppsim.io.files import write_bytes, write_json
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from nppsim.replays.replay import Replay
from rl.checks.check import Result, read_results, results_table, to_dict
from rl.config import EvaluationConfig, ExperimentConfig, PPOConfig
from rl.config.command_line import configured
from rl.config.curriculum import CurriculumConfig
from rl.config.files import Given, read_settings
from rl.config.resume import RUN_FILE
from rl.curriculum import make_sampler
from rl.evaluation.results import EpisodeRecord, aggregate
from rl.evaluation.video import Film
from rl.events import read_scalars
from rl.experiment import record
from rl.experiment.data import statistics_of_random_play
from rl.experiment.record import ExperimentRecord, RunRecord, results_view, summary
from rl.policy.onnx import OnnxPolicy, to_onnx
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.sb3 import SB3Policy, convert
from rl.ppo import make_ppo, update_benchmark
from rl.ppo.logs import CSV_FILE, CSVOutput
from rl.ppo.ppo import PPO
from rl.ppo.vec_env import BatchVecEnv
from rl.studio.training import read_experiment
from rl.tools import ab, sweep
from rl.tools.compare import Tolerance, compare_runs
from rl.tools.doctor import read_config
from rl.tools.export import methods_of
from rl.tools.sweep import read_space
from rl.training.model_selection import Evaluation
from rl.training.monitor import TrainingMonitor
from rl.training.runs import difference_table, differences, find_runs
from rl.upload import MANIFEST, Uploader
from tests.fuzz import damage
from tests.fuzz.damage import Reader, named

_EVENTS = "events.out.tfevents.0000000001.host.1.0"


def readers_of_runs() -> list[Reader]:
    """Return these readers."""
    by_json, by_csv = (damage.in_json,), (damage.in_csv,)
    by_toml = (damage.in_words, damage.in_toml, damage.in_toml)
    in_hdf5 = (damage.in_bytes, damage.in_hdf5, damage.in_hdf5)
    return [
        Reader("settings", "x.toml", lambda path: configured(_GIVEN | read_settings(path)), _settings, by_toml),
        Reader("sweep_plan", sweep.PLAN, _read_sweep_plan, _sweep_plan, by_json),
        Reader("comparison_plan", ab.PLAN, _read_comparison_plan, _comparison_plan, by_json),
        Reader("plan", record.PLAN_FILE, lambda path: record.read_plan(path.parent, _PLAN_REQUEST), _plan, by_json),
        Reader("finished", record.FINISHED_FILE, _read_finished, _finished, by_json),
        Reader(
            "clone",
            "bc_policy.safetensors",
            lambda path: record.load_pretrained(path.parent, "cpu", 4, path.name),
            _clones,
            (damage.in_checkpoint,),
        ),
        Reader(
            "training",
            "checkpoint_32.safetensors",
            _go_on,
            _trainings,
            (partial(damage.in_checkpoint, part="training"),),
        ),
        Reader(
            "timings",
            "timings.json",
            partial(update_benchmark.read_measurements, shape=update_benchmark.TIMINGS),
            _timings,
            by_json,
        ),
        Reader("manifest", MANIFEST, _read_manifest, _manifest, by_json),
        Reader("evaluation", "results.json", methods_of, _evaluation, by_json),
        Reader("configuration_alone", "config.json", named(read_config), _configuration, by_json),
        Reader("run", RUN_FILE, _read_run_file, _run_file, by_json),
        *(Reader(f"compared_{name}", name, _compare_stored, partial(_stored, name), by_json) for name in _STORED),
        Reader("run_table", CSV_FILE, lambda path: CSVOutput(path, rows=1), _table, by_csv),
        Reader("studio_experiment", CSV_FILE, _read_experiment, _table, by_csv),
        Reader("events", _EVENTS, lambda path: read_scalars(path.parent), _events, _IN_EVENTS),
        Reader("checks", "doctor.json", lambda path: results_table(read_results(path)), _checks, by_json),
        Reader("onnx", "x.onnx", OnnxPolicy.load, _networks, (damage.in_bytes, damage.in_onnx, damage.in_onnx)),
        Reader("archive", "x.zip", _convert, _archives, (damage.in_bytes, damage.in_zip)),
        Reader("minari", _DATA, named(_import_minari), _minari, in_hdf5),
    ]


_DATA = "main_data.hdf5"
_IN_EVENTS = (damage.in_bytes, damage.in_events)
_GIVEN = {
    ("", "experiment_name"): Given("x", "--experiment-name", "flag"),
    ("", "architectures"): Given(("vision_free",), "--architectures", "flag"),
}
_PLAN_REQUEST = hardware.PlanRequest(device="cpu")


def _levels() -> list[Level]:
    return [generate("simplest", seed)[0] for seed in range(2)]


# ---------------------------------------------------------------------------------------------------------------------
# Settings and plans


def _settings(folder: Path) -> list[Path]:
    path = folder / "x.toml"
    path.write_text(
        'experiment-name = "x"\narchitectures = ["vision_free"]\ntotal-timesteps = 2e6\nseeds = [0, 1]\n[ppo]\n'
        'gae_lambda = 0.9\ntarget_kl = "none"\nn_epochs = 4\n[curriculum]\n'
    )
    return [path]


def _sweep() -> sweep.Sweep:
    return sweep.Sweep(read_space(["initial-lr=1e-4..1e-2:log"]), common=("--architectures", "vision_free"))


def _sweep_plan(folder: Path) -> list[Path]:
    sweep._write_or_check_plan(_sweep(), folder)
    return [folder / sweep.PLAN]


def _read_sweep_plan(path: Path) -> None:
    sweep._write_or_check_plan(_sweep(), path.parent)


_COMPARED = ab.ABSettings(("--initial-lr", "1e-3"), ("--initial-lr", "1e-4"), ("--architectures", "vision_free"), (0,))


def _comparison_plan(folder: Path) -> list[Path]:
    ab._write_or_check_plan(_COMPARED, folder)
    return [folder / ab.PLAN]


def _read_comparison_plan(path: Path) -> None:
    ab._write_or_check_plan(_COMPARED, path.parent)


def _plan(folder: Path) -> list[Path]:
    record.save_plan(folder, hardware.plan(("game_state",), _PLAN_REQUEST), _PLAN_REQUEST)
    return [folder / record.PLAN_FILE]


def _timings(folder: Path) -> list[Path]:
    timings = {"wall": [1.0, 0.5], "processor": [1.0, 0.9], "others": 0.1, "date": "2026-01-01"}
    write_json(folder / "timings.json", {"mlp, update of 256: float32 by 1; a machine": timings})
    return [folder / "timings.json"]


def _read_manifest(path: Path) -> dict[str, dict]:
    uploader: Any = SimpleNamespace(bucket="b")
    return Uploader._read_manifest(uploader, path)


def _manifest(folder: Path) -> list[Path]:
    entry = {"key": "p/a", "bytes": 3, "modified_ns": 5}
    write_json(folder / MANIFEST, {"bucket": "b", "prefix": "p", "objects": {"a": entry}})
    return [folder / MANIFEST]


# ---------------------------------------------------------------------------------------------------------------------
# Runs


def _episodes() -> list[EpisodeRecord]:
    inputs, outcomes = np.zeros(4, np.uint8), ("won", "died")
    return [
        EpisodeRecord(i, f"level {i}", "simplest", level, inputs, outcomes[i], 4, 1, 0.5, 0, 100.0)
        for i, level in enumerate(_levels())
    ]


def _imitated() -> BCResult:
    metrics = Metrics(1.0, 0.5, 0.4, (0.5,) * 6)
    return BCResult(
        2, 1, False, metrics, metrics, {"most frequent": metrics}, 10, 4, (1,) * 6, ({"loss": 1.0},), None, 2.0
    )


def _finished(folder: Path) -> list[Path]:
    record.save_run(
        RunRecord(
            architecture="vision_free",
            pretrained=True,
            label="vision_free",
            title="vision_free",
            seed=0,
            folder=folder,
            played={"ppo": _episodes(), "bc": _episodes(), "random": []},
            bc_result=_imitated(),
            transfer=None,
            speed={"decisions_per_s": 1000.0, "share": {"update": 1.0}},
            plan=hardware.plan(("game_state",), _PLAN_REQUEST),
            films=[Film("simplest", "a", "won", 60, "a.mp4", "a.png")],
            events=[{"at": 5, "stopped": "no improvement"}, {"at": 6, "delivered": "the BC policy"}],
            wall_time_s=12.5,
            curriculum={"strategy": "stages", "events": [{"at": 5, "reason": "mastered"}]},
            settings={"ppo.gamma": {"value": 0.99, "source": "default"}},
        )
    )
    return [folder / record.FINISHED_FILE]


def _read_finished(path: Path) -> object:
    run = record.read_run(path.parent, _levels())
    if run is None:
        return None
    config = ExperimentConfig(experiment_name="x", architectures=("vision_free",))
    done = ExperimentRecord(config, datetime(2026, 1, 1), "m", {}, {}, []).with_run(run)
    return results_view(done, path.parent), summary(done)


def _policy() -> NppPolicy:
    statistics = ObservationStatistics(layout.VISION_FREE)
    rng = np.random.default_rng(0)
    specs = [layout.SPECS[key] for key in statistics.keys]
    statistics.update({spec.key: rng.normal(size=(20, *spec.shape)).astype(np.float32) for spec in specs})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build_policy("vision_free", statistics)


def _clones(folder: Path) -> list[Path]:
    policy = _policy()
    probe = {"game_state": np.zeros((2, 26), np.float32)}
    clone = record.PretrainedPolicy(policy, _imitated(), probe, {"level": np.zeros(3, np.int8)})
    record.save_pretrained(folder, clone, 4, {}, "bc_policy.safetensors")
    return [folder / "bc_policy.safetensors"]


def _environments(gamma: float) -> BatchVecEnv:
    sim = BatchSimulator(_levels(), 4, observations=layout.VISION_FREE, gamma=gamma, threads=1)
    return BatchVecEnv(sim, make_sampler(["simplest", "simplest"], CurriculumConfig(), 0))


@cache
def _statistics() -> ObservationStatistics:
    return statistics_of_random_play(_environments(0.9), 0)


def _evaluate(policy: NppPolicy, decisions: int) -> Evaluation:
    raise AssertionError("evaluations are off")


@contextmanager
def _training(folder: Path) -> Iterator[tuple[PPO, TrainingMonitor]]:
    """Run a small PPO with its callbacks, which write their files to a folder."""
    plan_request = replace(_PLAN_REQUEST, num_envs=4, rollout_length=8, minibatch_size=32, precision="float32")
    plan = hardware.plan(layout.VISION_FREE, plan_request)
    config = ExperimentConfig(
        experiment_name="x",
        architectures=("vision_free",),
        save_freq=32,
        ppo=PPOConfig(total_timesteps=96, n_epochs=1),
        evaluation=EvaluationConfig(eval_freq=0),
    )
    settings = config.ppo.settled(plan)
    env = _environments(settings.gamma)
    with torch.random.fork_rng(devices=[]):
        ppo = make_ppo(env, "vision_free", settings, plan, statistics=_statistics(), seed=0)
        yield ppo, TrainingMonitor(config, folder, folder, _evaluate, None, lambda line: None)


@cache
def _trained() -> dict[str, bytes]:
    """Return the files of an interrupted training by name."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with _training(folder) as (ppo, monitor):
            monitor.begin(ppo)
            ppo.learn(64, callback=monitor)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _trainings(folder: Path) -> list[Path]:
    path = folder / "checkpoint_32.safetensors"
    path.write_bytes(_trained()["checkpoints/checkpoint_32.safetensors"])
    return [path]


def _go_on(path: Path) -> None:
    folder = path.parent / "run"
    for name, data in _trained().items():
        write_bytes(folder / name, path.read_bytes() if Path(name).name == path.name else data)
    with _training(folder) as (ppo, monitor):
        monitor.begin(ppo)
        for _ in range(8):
            ppo.sim.step(np.full(4, 2))


def _evaluation(folder: Path) -> list[Path]:
    write_json(folder / "results.json", {"suites": {"test": aggregate(_episodes())}, "settings": {}})
    return [folder / "results.json"]


def _configuration(folder: Path) -> list[Path]:
    write_json(folder / "config.json", ExperimentConfig(experiment_name="x", architectures=("vision_free",)).to_dict())
    return [folder / "config.json"]


def _run_file(folder: Path) -> list[Path]:
    settings = {"ppo.total_timesteps": {"value": 2000, "source": "default"}, "seed": {"value": 1, "source": "--seed"}}
    write_json(folder / RUN_FILE, {"label": "x", "seed": 1, "pretrained": False, "settings": settings})
    return [folder / RUN_FILE]


def _read_run_file(path: Path) -> object:
    write_json(path.parent / "config.json", {})
    return find_runs(path.parent), read_experiment(path.parent)


_STORED: dict[str, dict] = {
    RUN_FILE: {"seed": 1},
    "config.json": {
        "machine": "m",
        "seeds": [1],
        "host": {"cpu": "c"},
        "data": {"train": {"key": "k"}},
        "frame_skip": 4,
    },
    "results.json": {
        "architectures": {"": {"seeds": {"1": {"speed": {"decisions_per_s": 9.0, "share": {"update": 0.5}}}}}}
    },
}


def _stored(name: str, folder: Path) -> list[Path]:
    write_json(folder / name, _STORED[name])
    return [folder / name]


def _compare_stored(path: Path) -> object:
    """Compare a training that has the damaged file with itself."""
    for name, data in _STORED.items():
        if name != path.name:
            write_json(path.parent / name, data)
    (path.parent / _EVENTS).write_bytes(_event_file(("sim/decisions_per_s", "sim/update_s")))
    runs = find_runs(path.parent)
    compared = compare_runs(runs, runs, Tolerance())
    return difference_table(differences([run.metadata for run in runs]), ("a",)), [one.text() for one in compared]


def _table(folder: Path) -> list[Path]:
    rows = (
        "time/total_timesteps,eval/all_success,train/loss,curriculum/current_stage_idx,curriculum_stages/simple_share",
        ",0.25,,,",
        "10,,1.5,0,1",
        "20,0.5,nan,0,1",
        "",
    )
    (folder / CSV_FILE).write_text("\n".join(rows))
    return [folder / CSV_FILE]


def _read_experiment(path: Path) -> object:
    write_json(path.parent / "config.json", {})
    write_json(path.parent / RUN_FILE, {"seed": 1})
    return read_experiment(path.parent)


def _events(folder: Path) -> list[Path]:
    (folder / _EVENTS).write_bytes(_event_file(("train/loss", "bc/loss")))
    return [folder / _EVENTS]


@cache
def _event_file(tags: tuple[str, str]) -> bytes:
    event = import_optional("tensorboard.compat.proto.event_pb2", "train").Event
    summary = import_optional("tensorboard.compat.proto.summary_pb2", "train").Summary
    out = io.BytesIO()
    writer = import_optional("tensorboard.summary.writer.record_writer", "train").RecordWriter(out)
    writer.write(event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
    for step in range(6):
        value = summary.Value(tag=tags[step % 2], simple_value=step / 2)
        writer.write(event(wall_time=2.0, step=step, summary=summary(value=[value])).SerializeToString())
    return out.getvalue()


def _checks(folder: Path) -> list[Path]:
    results = [Result("weights", "network", "checkpoint", "ok", "finite", "", 0.5)]
    write_json(folder / "doctor.json", to_dict(results))
    return [folder / "doctor.json"]


# ---------------------------------------------------------------------------------------------------------------------
# Files of other programs


def _networks(folder: Path) -> list[Path]:
    (folder / "x.onnx").write_bytes(to_onnx(_policy(), frame_skip=4))
    return [folder / "x.onnx"]


def _archives(folder: Path) -> list[Path]:
    sim = BatchSimulator(_levels()[:1], 2, observations=layout.VISION_FREE, threads=1)
    policy = {"architecture": "vision_free", "statistics": _policy().statistics}
    env = BatchVecEnv(sim, make_sampler(["simplest"], CurriculumConfig(), 0))
    stable_baselines3.PPO(SB3Policy, env, n_steps=4, batch_size=8, device="cpu", policy_kwargs=policy, seed=0).save(
        folder / "x.zip"
    )
    with zipfile.ZipFile(folder / "x.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (folder / "x.zip").write_bytes(damage.zipped(members))  # without the time
    return [folder / "x.zip"]


def _convert(path: Path) -> Path:
    return convert(path, path.parent / "out.safetensors", frame_skip=4, trust_pickle=True)


@cache
def _dataset() -> dict[str, bytes]:
    """Return the files of Minari's folder with one small dataset by name."""
    with tempfile.TemporaryDirectory() as place, _minari_in(Path(place)):
        level = Level.build(np.zeros((23, 42), np.uint8), (20, 94), exits=[((30, 94), (50, 94))])
        replay = Replay(level, np.full(400, 2, np.uint8), True).to_bytes()
        found = load_demonstrations([ReplayFile("r", "r", "simplest", replay)], 4)
        about = MinariMetadata(
            "own", author="A. N.", author_email="a@example.org", code_permalink="https://example.org"
        )
        export_minari(found, about, observations=("game_state",))
        return {
            str(path.relative_to(place)): path.read_bytes() for path in sorted(Path(place).rglob("*")) if path.is_file()
        }


@contextmanager
def _minari_in(folder: Path) -> Iterator[None]:
    with patch.dict(os.environ, MINARI_DATASETS_PATH=str(folder)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _minari(folder: Path) -> list[Path]:
    write_bytes(folder / _DATA, next(data for path, data in _dataset().items() if Path(path).name == _DATA))
    return [folder / _DATA]


def _import_minari(path: Path) -> object:
    folder = path.parent / "minari"
    for name, data in _dataset().items():
        write_bytes(folder / name, path.read_bytes() if Path(name).name == _DATA else data)
    with _minari_in(folder):
        return import_minari("npp/simplest/own-v0")
