"""Configuration of a run to resume: the stored one with the changes of --resume-override.

stored = stored_config(folder)
config = overridden(stored, ("total-timesteps=20000000",))
check_same(config, given)             # ConfigError if given settings differ
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nppsim.errors import REDACTED, ConfigError
from nppsim.io.reading import read_object
from nppsim.settings import require
from rl.config import ExperimentConfig, ForesightConfig, HardwareConfig, HeadsConfig, HierarchyConfig, StackingConfig
from rl.config.files import (
    EXECUTION,
    config_from_dict,
    dotted,
    known_settings,
    text_settings,
    value_of,
    with_settings,
)

CONFIG = "config.json"
RUN_FILE = "run.json"  # settings of one training, with their sources
DEMONSTRATIONS_FILE = "demonstrations.json"  # digest of the demonstrations, in the folder ``pretrain`` of a training
FINISHED_FILE = "finished.json"  # in the folder of a finished training
OVERRIDDEN = "--resume-override"  # source of overridden settings
_SAME_EPISODES = "policies of a run must be evaluated on the same episodes of the dev levels"
_PLAN_MADE = "the hardware plan was made when the run began"
_CURRICULUM_STATE = "the stored state of the curriculum depends on it"
_CURRICULUM = (
    "use_curriculum strategy stage_order start_states start_stage threshold stage_thresholds preset active_levels "
    "lp_timescale lp_slow lp_min_samples"
)
_NETWORKS: dict[str, type] = {
    "foresight": ForesightConfig,
    "heads": HeadsConfig,
    "stacking": StackingConfig,
    "hierarchy": HierarchyConfig,
}
# Setting that cannot change within a run -> reason, as in the constants above.
FIXED = {
    "frame_skip": "the policy was trained with it",
    "evaluation.periodic_episodes_per_category": _SAME_EPISODES,
    "evaluation.deterministic": _SAME_EPISODES,
    "evaluation.exploration_patience": _SAME_EPISODES,
    "evaluation.seed": _SAME_EPISODES,
    **{f"curriculum.{name}": _CURRICULUM_STATE for name in _CURRICULUM.split()},
    "curriculum.window": "the stored curves depend on it",
    "ppo.desync_episodes": "the first episodes have begun",
    "init_from": "PPO has begun",
    **{
        f"{section}.{one.name}": "it would be another network"
        for section, part in _NETWORKS.items()
        for one in fields(part)
        if one.name != "from_stage"
    },
    **{f"hardware.{one.name}": _PLAN_MADE for one in fields(HardwareConfig) if one.name != "distributed_backend"},
}


def stored_metadata(folder: Path) -> dict[str, Any]:
    """Return the content of a run's ``config.json``; ConfigError if it is missing or damaged."""
    exists = (folder / CONFIG).is_file()
    require(exists, "contains no config.json; give the folder of a run", "--resume-from", folder)
    return read_object(folder / CONFIG, ConfigError, "restore it")


def stored_config(folder: Path, trust_plugins: bool = False) -> ExperimentConfig:
    """Return the stored configuration of a run, which includes the changes of earlier resumes."""
    config = config_from_dict(stored_metadata(folder), str(folder / CONFIG), trust_plugins)
    hidden = [name for name, value in _values(config).items() if REDACTED in str(value)]
    advice = f"config.json does not contain {', '.join(hidden)}, possible secrets; begin a new run"
    require(not hidden, advice, "--resume-from", folder)
    return config


def resumed_config(config: ExperimentConfig) -> ExperimentConfig:
    """Return the stored configuration with its overrides; ConfigError unless it equals ``config``."""
    assert config.resume_from is not None
    return checked_resume(stored_config(config.resume_from), config)


def checked_resume(begun: ExperimentConfig, config: ExperimentConfig) -> ExperimentConfig:
    """Return the stored configuration ``begun`` with the overrides of ``config``; ConfigError unless both are equal."""
    assert config.resume_from is not None
    stored = overridden(begun, config.resume_override)
    _check_evaluated(begun, stored, config.resume_from)
    check_same(stored, config)
    execution: dict[str, Any] = {name: getattr(config, name) for name in EXECUTION}
    return replace(stored, **execution)


def _check_evaluated(begun: ExperimentConfig, stored: ExperimentConfig, folder: Path) -> None:
    """Raise ConfigError if overrides change the final evaluation, and a training of the run was evaluated already."""
    before, after = (
        (config.evaluation.num_eval_episodes, config.evaluation.skip_final_eval) for config in (begun, stored)
    )
    if before != after and (over := next(folder.rglob(FINISHED_FILE), None)):
        name = "num-eval-episodes" if before[0] != after[0] else "skip-final-eval"
        advice = f"{over.parent} was evaluated with the old value; leave this out, or use scripts/evaluate.py"
        raise ConfigError(advice, OVERRIDDEN, name)


def overridden(config: ExperimentConfig, overrides: Sequence[str]) -> ExperimentConfig:
    """Apply overrides such as "ppo.gamma=0.99"; ConfigError for settings that cannot change within a run."""
    wanted = text_settings(overrides, OVERRIDDEN, OVERRIDDEN)
    for key, entry in wanted.items():
        location = dotted(*key)
        if location in FIXED and changes(config, with_settings(config, {key: entry})):
            advice = f"cannot change within a run: {FIXED[location]}; begin a new run"
            raise ConfigError(advice, OVERRIDDEN, location)
    sources = config.sources | {dotted(*key): OVERRIDDEN for key in wanted}
    changed = replace(with_settings(config, wanted), sources=sources)
    guarded = [
        settings.evaluation.retention_guard and settings.evaluation.in_training for settings in (config, changed)
    ]
    starts = "with_pretrain" in config.conditions and guarded == [False, True]
    advice = "the retention guard cannot start within a run; add evaluation.retention_guard=off"
    require(not starts, advice, OVERRIDDEN, " ".join(overrides))
    return changed


def check_same(stored: ExperimentConfig, given: ExperimentConfig) -> None:
    """Raise ConfigError unless both configurations have the same settings, except those of the execution."""
    different = changes(stored, given)
    if different:
        values = (f"{name} is {_text(was)} in the run and {_text(now)} here" for name, (was, now) in different.items())
        fixed = {name for name, section, setting in known_settings() if dotted(section, setting.name) in FIXED}
        accepted = " ".join(f"{name}={_text(now)}" for name, (_, now) in different.items())
        change = "begin a new run" if fixed & set(different) else f"accept the change with --resume-override {accepted}"
        advice = f"began with other settings: {'; '.join(values)}. Leave them out to resume unchanged, or {change}"
        raise ConfigError(advice, "--resume-from", given.resume_from)


def changes(before: ExperimentConfig, after: ExperimentConfig) -> dict[str, list[object]]:
    """Return name -> [value before, value after] of the settings that differ."""
    old, new = _values(before), _values(after)
    return {name: [old[name], new[name]] for name in old if old[name] != new[name]}


def _values(config: ExperimentConfig) -> dict[str, object]:
    """Return setting's name in --resume-override -> value, for all settings except those of the execution."""
    known = known_settings()
    return {
        name: value_of(config, section, setting.name)
        for name, section, setting in known
        if setting.name not in EXECUTION
    }


def _text(value: object) -> str:
    """Return a value as text for an override."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def other_levels(stored: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the names of datasets whose levels differ.

    stored, found: name of a dataset -> digest of its levels, when the run began and now.
    """
    return [name for name, digest in found.items() if stored.get(name, digest) != digest]


def check_levels(stored: Mapping[str, Any], fingerprints: Mapping[str, str], folder: Path) -> None:
    """Raise ConfigError unless the levels are those of the run.

    stored: content of the run's config.json.
    fingerprints: name of a dataset -> digest of its current levels.
    """
    if other := other_levels(stored.get("data", {}), fingerprints):
        advice = f"the {' and '.join(other)} levels differ from those of the run; restore them, or begin a new run"
        raise ConfigError(advice, "--resume-from", folder)
