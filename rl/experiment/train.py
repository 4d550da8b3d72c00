"""Entry points of the main job: ``train`` for Python and notebooks, ``start`` for the command line.

from rl.experiment.train import train

done = train(experiment_name="mine", architectures=["vision_free"], total_timesteps=1e6, reward={"win": 3.0})
done.success("vision_free"), done.agents[0]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from nppsim.errors import ConfigError, UserError
from nppsim.io.reading import read_json
from rl.config import ExperimentConfig
from rl.config.command_line import DRY_RUN, configured, resolve
from rl.config.files import Given, read_settings, recipe_settings, table_settings
from rl.config.resume import CONFIG, changes, resumed_config, stored_config, stored_metadata
from rl.distributed.launch import check_gpus, launch
from rl.distributed.ranks import RanksError, TorchrunEnvironment, process_group
from rl.experiment.record import SUMMARY
from rl.experiment.run import dry_run, run
from rl.log import Log
from rl.ppo.logs import OnMetrics

PYTHON = "Python"  # source of settings given to ``train``


@dataclass(frozen=True)
class FinishedExperiment:
    """A finished experiment.

    folder: folder of the experiment; docs/file_formats.md describes its files.
    results: content of results.json.
    agents: checkpoint of the delivered policy of each training, sorted by path.
    """

    folder: Path
    results: Mapping[str, Any]
    agents: tuple[Path, ...]

    def success(self, label: str, category: str = "all") -> float:
        """Return the mean over seeds of the share of won episodes on the test levels.

        label: architecture, with the condition if there are several, as in results.json.
        Raises KeyError for an unknown label or category, and without a final evaluation.
        """
        seeds = self.results["architectures"][label]["seeds"].values()
        return sum(seed["suites"]["test"][category]["success"] for seed in seeds) / len(seeds)


def train(
    *,
    recipe: str | None = None,
    config: str | Path | Sequence[str | Path] = (),
    resume_from: str | Path | None = None,
    trust_plugins: bool = False,
    log: Log = print,
    on_metrics: OnMetrics | None = None,
    callbacks: Sequence[BaseCallback] = (),
    **settings: Any,
) -> FinishedExperiment:
    """Run an experiment.

    recipe, config, resume_from, trust_plugins: values of the flags with these names.
    log: receives messages, one line per call.
    on_metrics: receives (decisions, metrics by tag) once per update of PPO, when the next row of progress.csv is written.
    callbacks: callbacks of Stable-Baselines3 for PPO; one training after another uses them.
    settings: flags with _ instead of -, or sections as dicts, as in a TOML file (docs/configuration.md).  They override
        the files of ``config``, and those files override the recipe.
    Raises ConfigError for invalid settings, and other UserErrors, e.g. for unusable levels.
    """
    given = recipe_settings(recipe) if recipe else {}
    files = [Path(path) for path in ([config] if isinstance(config, str | Path) else config)]
    for path in files:
        given |= read_settings(path, trust_plugins)
    flags = {name.replace("_", "-"): value for name, value in settings.items() if not isinstance(value, Mapping)}
    parts = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    given |= table_settings(_plain(flags | parts), "train()", PYTHON)
    if recipe:
        given["", "recipe"] = Given(recipe, "recipe", PYTHON)
    if files:
        given["", "config_files"] = Given(tuple(files), "config", PYTHON)
    if resume_from is not None:
        given["", "resume_from"] = Given(Path(resume_from), "resume_from", PYTHON)
    folder = run(configured(given, trust_plugins), log, on_metrics=on_metrics, callbacks=callbacks)
    results = read_json(folder / "results.json", ConfigError, "train again")
    return FinishedExperiment(folder, results, tuple(sorted(folder.rglob("agent.safetensors"))))


def _plain(value: Any) -> Any:
    """Return a Python value as the value that a TOML file would contain, e.g. "none" for None."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None:
        return "none"
    return str(value) if isinstance(value, Path) else value


def start(argv: Sequence[str], program: str | Path) -> int:
    """Run the experiment of a command line in one or several processes; return the exit status.

    program: path of the script that all processes run.
    """
    config, started = resolve(argv), TorchrunEnvironment.from_environment()
    if f"--{DRY_RUN}" in argv:
        dry_run(config)
        return 0
    if started is not None:
        config = as_started(config, started)
    settings = config.hardware
    if settings.distributed_backend and settings.processes == 1:
        advice = "needs several processes; add --num-gpus or --num-processes, or leave it out"
        raise ConfigError(advice, "--distributed-backend")
    if started is None and settings.processes > 1:
        check_gpus(config)
        return launch(program, argv, settings.processes)
    device = "cpu" if settings.num_gpus == 0 else settings.device
    with process_group(started, settings.distributed_backend, device) as ranks:
        try:
            run(config, ranks=ranks)
            ranks.broadcast(None)  # all processes end together
        except UserError as error:
            if not ranks.rank:
                raise
            if ranks.stop.by:  # a signal has ended all processes
                raise KeyboardInterrupt(f"{ranks.name}, by {ranks.stop.by}") from error
            raise error if isinstance(error, RanksError) else RanksError(f"{ranks.name}: {error}") from error
    return 0


def as_started(config: ExperimentConfig, started: TorchrunEnvironment) -> ExperimentConfig:
    """Return the configuration of a process started by torchrun; after a restart, it resumes the unfinished run.

    Raises ConfigError if the configuration is for another number of processes.
    """
    settings = config.hardware
    requested = settings.processes > 1 or settings.num_processes is not None or config.resume_from is not None
    if requested and settings.processes != started.size:
        advice = f"torchrun started {started.size} processes, but the number cannot change within a run"
        raise ConfigError(advice, "--num-processes", settings.processes)
    if not requested and started.size > 1:
        settings = replace(settings, num_processes=started.size)
        config = replace(config, hardware=settings, sources=config.sources | {"hardware.num_processes": "torchrun"})
    if not started.restarts or config.resume_from is not None:
        return config
    folder = find_unfinished(config)
    return config if folder is None else resumed_config(replace(config, resume_from=folder))


def find_unfinished(config: ExperimentConfig) -> Path | None:
    """Return the folder of the newest unfinished experiment with this name and these settings, or None."""
    for folder in sorted(config.output_dir.glob(f"{config.experiment_name}_*"), reverse=True):
        begun = (folder / CONFIG).is_file() and not (folder / SUMMARY).exists()
        stored = stored_metadata(folder) if begun else {}
        wanted = {"experiment_name": config.experiment_name, "plugins": list(config.plugins)}
        own = begun and {name: stored.get(name) for name in wanted} == wanted
        if own and not changes(stored_config(folder), config):
            return folder
    return None
