"""Training from Python or a notebook: what ``scripts/train_and_compare.py`` does, called as a function.

from rl.experiment.train import train

done = train(experiment_name="mine", architectures=["vision_free"], total_timesteps=1e6, reward={"win": 3.0})
done.success("vision_free"), done.agents[0]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nppsim.errors import ConfigError
from nppsim.reading import read_json
from rl.config.command_line import configured
from rl.config.files import Given, read_settings, recipe_settings, table_settings
from rl.experiment.data import Log
from rl.experiment.run import run

PYTHON = "Python"  # as the record of a run calls where a value comes from


@dataclass(frozen=True)
class Finished:
    """An experiment that has ended.

    folder: where everything is; its layout is in docs/file_formats.md.
    results: what results.json says.
    agents: the policies that were delivered, one of each training.
    """

    folder: Path
    results: Mapping[str, Any]
    agents: tuple[Path, ...]

    def success(self, label: str, category: str = "all") -> float:
        """Share of the test levels' episodes that were won, mean over the seeds.

        label: the architecture, as results.json has it.
        KeyError for others, and where the final evaluation was skipped.
        """
        seeds = self.results["architectures"][label]["seeds"].values()
        return sum(seed["suites"]["test"][category]["success"] for seed in seeds) / len(seeds)


def train(
    *,
    recipe: str | None = None,
    config: Sequence[str | Path] = (),
    resume_from: str | Path | None = None,
    log: Log = print,
    **settings: Any,
) -> Finished:
    """Run an experiment to its end.

    recipe, config, resume_from: as the flags of these names.
    log: receives lines for people.
    settings: flags with _ for -, or parts of the configuration as dicts, as in a TOML file (docs/configuration.md);
        these win over files, and files over the recipe.
    Raises ConfigError for settings that cannot work, and the other UserErrors of the main job.
    """
    given = recipe_settings(recipe) if recipe else {}
    for path in config:
        given |= read_settings(Path(path))
    flags = {name.replace("_", "-"): value for name, value in settings.items() if not isinstance(value, Mapping)}
    parts = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    given |= table_settings(_plain(flags | parts), "train()", PYTHON)
    if recipe:
        given["", "recipe"] = Given(recipe, "recipe", PYTHON)
    if config:
        given["", "config_files"] = Given(tuple(map(Path, config)), "config", PYTHON)
    if resume_from is not None:
        given["", "resume_from"] = Given(Path(resume_from), "resume_from", PYTHON)
    folder = run(configured(given), log)
    results = read_json(folder / "results.json", ConfigError, "train again")
    return Finished(folder, results, tuple(sorted(folder.rglob("agent.safetensors"))))


def _plain(value: Any) -> Any:
    """As a TOML file would have it."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if value is None:
        return "none"
    return str(value) if isinstance(value, Path) else value
