"""What is done with a planted fault in place: the main job at tiny size, a resume, a comparison, a benchmark, ..."""

import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import numpy as np

import hardware
from bc.demonstrations import find_replays, load_demonstrations
from bc.minari import About, export_minari
from bc.planned_demonstrations import make_demonstrations
from nppsim.batch import BatchSimulator
from nppsim.levels.level_set import LevelSet
from rl.command_line import resolve
from rl.config import ExperimentConfig
from rl.curriculum import make_sampler
from rl.curriculum_config import CurriculumConfig
from rl.doctor.doctor import MARKS, REHEARSAL, WARNING, Doctor, DoctorError, all_checks
from rl.experiment import evaluate, export
from rl.experiment.data import Log, audit_rewards, load_data
from rl.experiment.job import Job, make_jobs, train_one
from rl.experiment.run import run
from rl.ppo.alarms import AlarmError
from rl.ppo.vec_env import BatchVecEnv
from rl.search import job as solving
from rl.upload import Uploader

# Of every tiny run; later flags win.
TINY = (
    *("--experiment-name", "self-test", "--architectures", "vision_free", "--num-gpus", "0", "--no-mixed-precision"),
    *("--num-envs", "16", "--rollout-length", "32", "--minibatch-size", "128", "--n-epochs", "2"),
    *("--total-timesteps", "12288", "--eval-freq", "12288"),
    *("--num-eval-episodes", "4"),
)
IMITATION = (
    *("--bc-epochs", "8", "--bc-batch-size", "64"),
    *("--critic-warmup-max-updates", "2", "--learning-rate-warmup-updates", "2"),
)
AGENT = "datasets/agents/vision_free_foresight.safetensors"
SUPPORT = Path("tests/support")  # of a checkout, in which the self-test is made
FIRST_UPDATE, ACTOR_CHECKED = "first update checked", "the actor's first, checked"
_WARNINGS = (re.compile(r"decisions: warning: ([^:]+): (.*)"), re.compile(rf"^{re.escape(MARKS[WARNING])} (\w+): (.*)"))


class Noticed(Exception):
    """A warning that a run without the fault does not give."""

    def __init__(self, guard: str, message: str):
        super().__init__(guard, message)
        self.guard, self.message = guard, message


@dataclass
class Stage:
    """Where something is done, and how far it is.

    world: folder of levels and demonstrations.
    folder: to write to.
    flags: of the main job, beside those of every tiny run.
    expected: warnings that are no news, by name or word for word but for figures; None: all are only collected.
    moment: before, first update, during or after.
    warned: warnings so far, figures left out.
    """

    world: Path
    folder: Path
    flags: tuple[str, ...]
    expected: frozenset[str] | None
    moment: str = "before"
    warned: set[str] = field(default_factory=set)

    def log(self, line: str) -> None:
        """Take a line that a user would read; Noticed for an unexpected warning."""
        if FIRST_UPDATE in line:
            self.moment = "first update"
        elif ACTOR_CHECKED in line:
            self.moment = "during"
        for pattern in _WARNINGS:
            found = pattern.search(line)
            if found:
                moment = self.moment
                if pattern is _WARNINGS[1]:
                    self._doctors_moment()
                said = f"{found[1]}: {re.sub('[0-9.,]+', '#', found[2])}"  # the same with other figures is no news
                self.warned |= {said}
                if self.expected is not None and not {said, found[1]} & self.expected:
                    raise Noticed(f"warning: {found[1]}", found[2])
                self.moment = moment

    def _doctors_moment(self) -> None:
        """Once training has begun, the doctor looks at the actor's first update only."""
        if self.moment == "during":
            self.moment = "first update"

    def guard_of(self, error: Exception) -> str:
        """What has noticed, in a word or two."""
        if isinstance(error, DoctorError):
            self._doctors_moment()
            found = re.search(r"checks failed\. (\w+):", str(error))
            return f"doctor: {found[1]}" if found else "doctor"
        if isinstance(error, AlarmError):
            number, name = re.match(r"update (\d+): ([^:]+):", str(error)).groups()  # type: ignore[union-attr]
            self.moment = "first update" if int(number) <= 1 else "during"
            return f"alarm: {name}"
        return type(error).__name__

    def config(self, *flags: str) -> ExperimentConfig:
        """The tiny run's configuration."""
        data = {"train": "--train-dataset", "dev": "--dev-dataset", "test": "--test-dataset"}
        places = [part for name, flag in data.items() for part in (flag, str(self.world / name))]
        places += ["--output-dir", str(self.folder)]
        if "--no-pretraining" not in (*self.flags, *flags):
            places += [*IMITATION, "--replay-data-dir", str(self.world / "demonstrations")]
        config = resolve(_merged([*TINY, *places], [*self.flags, *flags]))
        return replace(
            config,
            bc=replace(config.bc, learning_rate=1e-3),  # so few demonstrations make few steps
            evaluation=replace(config.evaluation, periodic_episodes_per_category=3),
        )


def _merged(flags: list[str], others: list[str]) -> list[str]:
    """Flags with values, the later ones winning."""
    chosen: dict[str, list[str]] = {}
    current: list[str] = []
    for part in [*flags, *others]:
        if part.startswith("--"):
            current = chosen[part.replace("--no-mixed", "--mixed")] = [part]
        else:
            current.append(part)
    return [part for parts in chosen.values() for part in parts]


def job_of(stage: Stage, *flags: str, log: Log | None = None) -> Job:
    """The tiny run up to where its one training begins.  log: in place of the stage's."""
    config = stage.config(*flags)
    data = load_data(config, stage.log)
    audit_rewards(config, data, stage.log)
    (job,) = make_jobs(config, data, hardware.detect(), stage.folder / "run", None, log or stage.log)
    return job


Plant = Callable[[], None]


def run_job(stage: Stage, plant: Plant) -> None:
    """The main job, without its report."""
    plant()
    train_one(job_of(stage))
    stage.moment = "after"


def run_shadow(stage: Stage, plant: Plant) -> None:
    """A few steps with the slow twins beside them, as with NPPSIM_SHADOW=1."""
    plant()
    levels = LevelSet.open(stage.world / "train")
    sim = BatchSimulator([levels[i] for i in range(4)], 4, shadow=True, threads=1)
    rng = np.random.default_rng(0)
    sim.reset()
    for _ in range(8):
        sim.step(rng.integers(0, 6, 4))
    assert sim.shadow is not None
    if sim.shadow.mismatches or not sim.shadow.comparisons:
        raise Noticed("shadow twins", f"{sim.shadow.mismatches} mismatches: {dict(sim.shadow.kinds)}")


def run_twins(stage: Stage, plant: Plant) -> None:
    """The slow twins of ``scripts/doctor.py``, along demonstrations."""
    job = job_of(stage)
    plant()
    sim = BatchSimulator(job.data.bank, 4, observations=job.observations, threads=1)
    env = BatchVecEnv(sim, make_sampler(job.data.train_categories, CurriculumConfig(), 0))
    only = ["slow_twins_agree_along_demonstrations"]
    Doctor(stage.log, only=only).examine(REHEARSAL, env=env, replays=job.config.replay_data_dir)


def run_vec_env(stage: Stage, plant: Plant) -> None:
    """A few steps as Stable-Baselines3's own algorithms make them."""
    plant()
    levels = LevelSet.open(stage.world / "train")
    chosen = [levels[i] for i in range(4)]
    env = BatchVecEnv(BatchSimulator(chosen, 4, threads=1), make_sampler(["simplest"] * 4, CurriculumConfig(), 0))
    env.reset()
    for _ in range(4):
        env.step(np.zeros(4, np.int64))


def run_resume(stage: Stage, plant: Plant) -> None:
    """A run that is interrupted after its first update, the fault, and the rest of the run."""
    short = ("--total-timesteps", "3072", "--eval-freq", "0", "--no-pretraining")
    plain = stage.log

    def interrupt(line: str) -> None:
        plain(line)
        if FIRST_UPDATE in line:
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
    try:
        train_one(job_of(stage, *short, log=interrupt))
    except KeyboardInterrupt:
        plant()
        train_one(job_of(stage, *short))
    stage.moment = "after"


def run_defaults(stage: Stage, plant: Plant) -> None:
    """The comparison of all defaults with the golden file, as the tests make it."""
    sys.path.insert(0, str(SUPPORT.resolve()))
    golden = importlib.import_module("golden")
    recorded = json.loads(golden.GOLDEN.read_text())
    plant()
    different = [
        f"{place}: {name}"
        for place, values in golden.golden().items()
        for name, value in values.items()
        if recorded.get(place, {}).get(name, "absent") != value
    ]
    stage.moment = "tests"
    if different:
        raise Noticed("golden defaults", ", ".join(different))


def run_secrets(stage: Stage, plant: Plant) -> None:
    """What would be stored of a configuration that has a secret in it; the tests look at it so."""
    secret = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
    os.environ["AWS_SECRET_ACCESS_KEY"] = secret  # of this process, which does nothing else
    plant()
    stage.moment = "tests"
    if secret in json.dumps(stage.config("--experiment-name", secret).to_dict()):
        raise Noticed("search of what is stored", "the secret is in it")


def run_plan(stage: Stage, plant: Plant) -> None:
    """A plan of hardware, whose warnings are printed before training."""
    plant()
    config = stage.config()
    made = hardware.plan(("state",), config.hardware.plan_request(config.ppo.total_timesteps))
    for warning in made.warnings:
        raise Noticed("the plan's warnings", warning)


def run_compare(stage: Stage, plant: Plant) -> None:
    """Two runs, the second with the fault, and scripts/compare_runs.py; status 1 has noticed something."""
    short = ("--total-timesteps", "1024", "--eval-freq", "0", "--no-pretraining", "--skip-final-eval")
    folders: list[str] = []
    for _ in range(2):
        folders.append(str(run(stage.config(*short, "--experiment-name", f"run{len(folders)}"), stage.log)))
        plant()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # Speed is another matter: in runs of a second it is the machine's, not the fault's.
        status = _script("compare_runs").main([*folders, "--exact", "--speed-tolerance", "1000"])
    stage.moment = "after"
    if status:
        told = [line for line in printed.getvalue().splitlines() if line.strip() and not line.startswith("|-")]
        raise Noticed(f"compare_runs.py, exit status {status}", " ".join(told[:6]))


def run_seeds(stage: Stage, plant: Plant) -> None:
    """An experiment with two seeds."""
    plant()
    short = ("--total-timesteps", "1024", "--eval-freq", "0", "--no-pretraining", "--skip-final-eval")
    run(stage.config(*short, "--seeds", "1", "2"), stage.log)


def run_report(stage: Stage, plant: Plant) -> None:
    """An experiment with its evaluation, results and report."""
    plant()
    run(stage.config("--total-timesteps", "3072", "--eval-freq", "0"), stage.log)
    stage.moment = "after"


def run_evaluate(stage: Stage, plant: Plant) -> None:
    """scripts/evaluate.py with a shipped agent."""
    plant()
    levels = ("--levels", str(stage.world / "test"), "--output-dir", str(stage.folder))
    with contextlib.redirect_stdout(io.StringIO()):
        evaluate.run(*evaluate.parse([AGENT, *levels]))
    stage.moment = "after"


def run_export(stage: Stage, plant: Plant) -> None:
    """scripts/export.py with a shipped agent."""
    plant()
    with contextlib.redirect_stdout(io.StringIO()):
        export.run(export.parse([AGENT, "--hub", str(stage.folder / "hub")]))
    stage.moment = "after"


def run_solve(stage: Stage, plant: Plant) -> None:
    """scripts/solve.py on two levels, with runs to learn from."""
    plant()
    stage.moment = "after"
    two = LevelSet.open(stage.world / "test")
    LevelSet.write(stage.folder / "two", [(two[i], two.entries[i]) for i in (0, len(two) - 1)])
    places = ("--agent", AGENT, "--out", str(stage.folder / "solved"), "--workers", "1", "--films", "0")
    searched = ("--budget", "100000", "--polish", "20000", "--demonstrations", str(stage.folder / "found"))
    with contextlib.redirect_stdout(io.StringIO()):
        solving.run(*solving.parse([str(stage.folder / "two"), *places, *searched]))


def run_levels(stage: Stage, plant: Plant) -> None:
    """scripts/generate_levels.py, and scripts/make_demonstrations.py for what it has made."""
    plant()
    stage.moment = "after"
    made, script = str(stage.folder / "made"), _script("generate_levels")
    asked = ("--category", "simplest", "simpler", "--count", "2", "--seed", "1", "--workers", "1", "--out", made)
    with contextlib.redirect_stdout(io.StringIO()):
        script.run(*script.parse(asked))
    make_demonstrations(made, stage.folder / "runs", workers=1)


def run_minari(stage: Stage, plant: Plant) -> None:
    """A Minari dataset of a few demonstrations."""
    os.environ["MINARI_DATASETS_PATH"] = str(stage.folder)
    plant()
    stage.moment = "after"
    found = load_demonstrations(find_replays(stage.world / "demonstrations")[:4], 4, folder=stage.world)
    with contextlib.redirect_stdout(io.StringIO()):
        export_minari(found, About("planner", "a", "a@example.org", "https://example.org"))


def run_upload(stage: Stage, plant: Plant) -> None:
    """An upload into a store that is in this process."""
    plant()
    stage.moment = "after"
    uploader = Uploader.__new__(Uploader)
    uploader.bucket, uploader.prefix = "bucket", "run"
    uploader._client, uploader._errors = _Store(), (OSError,)
    run = stage.folder / "run"
    (run / "videos").mkdir(parents=True)
    for name in ("config.json", "agent.safetensors", "events.jsonl", "videos/a.mp4"):
        (run / name).write_text(name)
    uploader.sync(run)


class _Store:
    """A store of objects, as far as an upload asks it."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}

    def upload_file(self, path: str, bucket: str, key: str) -> None:
        self.objects[key] = Path(path).stat().st_size

    def get_paginator(self, name: str) -> "_Store":
        return self

    def paginate(self, Bucket: str, Prefix: str) -> list[dict]:
        return [{"Contents": [{"Key": key, "Size": size} for key, size in self.objects.items()]}]


def run_probes(stage: Stage, plant: Plant) -> None:
    """The probe environments of ``scripts/doctor.py``."""
    plant()
    Doctor(stage.log, only=[info.name for info in all_checks() if info.group == "probes"]).examine(REHEARSAL)


def _benchmark(plant: Plant, *flags: str, timed: bool = False) -> None:
    """scripts/perf_benchmark.py; any exit status but 0 has noticed something.

    timed: also that rounds vary, or are slow; where that is not asked, it is the machine's.
    """
    script = _script("perf_benchmark")
    of_time = {script.UNSTABLE, script.REGRESSION}
    small = ("--num-envs", "8", "--iterations", "400" if timed else "40", "--rounds", "6", "--warmup", "40")

    def measured(*flags: str) -> tuple[int, str]:
        """Exit status and last line, of as many trials as it takes: what is of time may be a busy machine's."""
        for _ in range(20 if timed else 1):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                status = script.main([*small, *flags])
            if status not in of_time:
                break
        return status, printed.getvalue().strip().splitlines()[-1]

    if "--baseline" in flags:
        measured("--output", flags[-1])
    plant()
    status, told = measured(*flags)
    if status and (timed or status not in of_time):
        raise Noticed(f"perf_benchmark.py, exit status {status}", told)


def _script(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, Path("scripts") / f"{name}.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def run_baseline(stage: Stage, plant: Plant) -> None:
    """A benchmark against one that was stored before."""
    _benchmark(plant, "--baseline", str(stage.folder / "baseline.json"), timed=True)


STAGES: dict[str, Callable[[Stage, Plant], None]] = {
    "job": run_job,
    "shadow": run_shadow,
    "twins": run_twins,
    "vec_env": run_vec_env,
    "resume": run_resume,
    "defaults": run_defaults,
    "secrets": run_secrets,
    "plan": run_plan,
    "compare": run_compare,
    "seeds": run_seeds,
    "report": run_report,
    "evaluate": run_evaluate,
    "export": run_export,
    "solve": run_solve,
    "levels": run_levels,
    "minari": run_minari,
    "upload": run_upload,
    "probes": run_probes,
    "benchmark": lambda stage, plant: _benchmark(plant, timed=True),
    "benchmark_baseline": run_baseline,
    "benchmark_validation": lambda stage, plant: _benchmark(plant, "--shadow"),
    "benchmark_recorded": lambda stage, plant: _benchmark(
        plant, "--actions", "recorded", "--replays", str(stage.world / "demonstrations")
    ),
}
