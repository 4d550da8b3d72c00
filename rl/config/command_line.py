"""The command line of ``scripts/train_and_compare.py``.

    config = resolve(["--experiment-name", "first", "--architectures", "mlp_baseline"])

Flags, help and limits come from the settings of ``rl.config``.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from nppsim.errors import ConfigError, needed
from nppsim.io.files import check_output_folder
from nppsim.io.reading import files_below
from nppsim.levels import campaign
from nppsim.levels.level_set import LevelSetError
from nppsim.replays.playback import is_named_like_replays
from nppsim.replays.replay import ReplayError
from nppsim.settings import Parser, Setting, settings_of
from nppsim.studio.command import check_packages
from rl import plugins
from rl.config.curriculum import STRATEGIES_WITH
from rl.config.experiment import IMITATION, REPLAYS, ExperimentConfig
from rl.config.files import (
    HOW,
    SECTIONS,
    Given,
    Settings,
    dotted,
    initials,
    known_settings,
    read_settings,
    recipe_settings,
    text_settings,
    toml_value,
)
from rl.config.resume import OVERRIDDEN, overridden, resumed_config, stored_config, with_settings
from rl.policy.architectures import ALIASES, ARCHITECTURES

_DATASETS = ("train_dataset", "dev_dataset", "test_dataset")
_MAKE_LEVELS = "make one with scripts/generate_levels.py, or give the path of an existing one"

_GROUPS = {  # section -> heading
    **dict.fromkeys(("bc", "teacher"), IMITATION),
    **dict.fromkeys(("ppo", "reward"), "PPO"),
    **dict.fromkeys(("profiling", "upload"), "output"),
    **dict.fromkeys(("stacking", "heads", "hierarchy"), "networks"),
    "": "experiment",
    "video": "evaluation",
}

_TITLES = ("experiment", "data", IMITATION, "PPO", "curriculum", "evaluation", "output", "hardware")  # the order

# Flags of other training programs that this command line refuses: reason -> (flag, default, meaning).
_REFUSED: dict[str, tuple[tuple[str, bool | int | float | str, str], ...]] = {
    "demonstrations are loaded into memory by the main process; leave it out": (
        ("bc-num-workers", 0, "number of processes that load demonstrations"),
    ),
    "dropout makes PPO's probability ratio differ from 1 before the first gradient step; leave it out": (
        ("deep-resnet-dropout", 0.0, "dropout rate in deep heads"),
    ),
    "the page of --visualize-training has its own environment and a speed control; leave it out": (
        ("vis-render-freq", 100, "decisions between pictures of a live window"),
        ("vis-env-idx", 0, "index of the environment in a live window"),
        ("vis-fps", 60, "frames per second of a live window"),
    ),
}

# (section, switch) -> settings of the section that have no effect while the switch is off.
_SWITCHED_OFF: dict[tuple[str, str], tuple[str, ...]] = {
    ("ppo", "schedules"): ("clip_range_end", "clip_range_vf_end", "ent_coef_end", "learning_rate_end_share"),
    ("ppo", "anneal_learning_rate"): ("learning_rate_end_share",),
    ("ppo", "bc_kl_coef_start"): ("bc_kl_share",),
    ("ppo", "bc_kl_share"): ("bc_kl_coef_start",),
    ("ppo", "critic_warmup_max_updates"): ("critic_warmup_explained_variance", "critic_warmup_min_updates"),
    ("curriculum", "early_advancement"): ("early_success",),
    ("curriculum", "trend_advancement"): ("trend_rise",),
    ("curriculum", "auto_adjustment"): ("adjustment_freq", "adjustment_step", "min_threshold"),
}


# Flag -> (section of the configuration or "" for fields of ExperimentConfig, setting).
FLAGS = {known.flag: (section, known) for _, section, known in known_settings() if known.flag}
REFUSED = {
    flag: Setting(meaning, flag=flag, refusal=reason, kind=type(default), default=default, switch=True)
    for reason, rows in _REFUSED.items()
    for flag, default, meaning in rows
}


def options(*known: Setting) -> frozenset[str]:
    """Return all spellings of the flags of these settings, including aliases and ``--no-`` forms."""
    names = [name for one in known for name in (one.flag, *one.aliases) if name]
    return frozenset(f"--{no}{name}" for name in names for no in ("", "no-"))


def options_of(*flags: str) -> frozenset[str]:
    """Return all spellings of flags, including aliases and ``--no-`` forms.  flags: names such as "output-dir"."""
    return options(*(FLAGS[flag][1] for flag in flags))


COMMAND_LINE = "command line"  # source of settings from flags
Part = TypeVar("Part")


def resolve(argv: Sequence[str]) -> ExperimentConfig:
    """Parse command-line arguments (without the program's name), check all settings and paths; return the configuration.

    Flags override ``--config`` files, and files override ``--recipe``.  With ``--resume-from`` the settings come from that
    folder, and other arguments must equal them.
    Raises ConfigError.
    """
    parser = _parser(everything="--help-all" in argv)
    parser.nothing_is_required()  # configuration files may contain required settings
    arguments = parser.parse_args(_entropy_of_both_ends(argv))
    if arguments.list_architectures:
        plugins.load(getattr(arguments, "plugin", ()))
        print(architecture_table())
        parser.exit()
    config = configured(_given(arguments))
    if arguments.show_config:
        print(as_toml(config), end="")
        parser.exit()
    return config


def configured(given: Settings) -> ExperimentConfig:
    """Load plugins, check settings and paths, and return the configuration; ConfigError if they are invalid."""
    if ("", "plugins") in given:
        plugins.load(given["", "plugins"].value)
    single = given.get(("", "single_level"))
    datasets = [given["", name].location for name in _DATASETS if ("", name) in given]
    if single and single.value is not None and datasets:
        raise ConfigError(f"replaces all datasets; leave out {' and '.join(datasets)}", single.location)
    config = _resumed(given) if ("", "resume_from") in given else _begun(given)
    for (section, name), one in given.items():
        _check_effect(config, section, name, one)
    check_prepared(config)
    return config


def _entropy_of_both_ends(argv: Sequence[str]) -> list[str]:
    """Prepend ``--ent-coef-end X`` if ``--ent-coef X`` is given; an explicit ``--ent-coef-end`` follows and overrides X."""
    ends = []  # of several, the last one counts, as for all flags
    for number, text in enumerate(argv):
        name, equals, value = text.partition("=")
        if name == "--ent-coef" and (equals or number + 1 < len(argv)):
            ends.append(f"--ent-coef-end={value if equals else argv[number + 1]}")
    return [*ends, *argv]


def _given(arguments: Namespace) -> Settings:
    """Collect settings from recipe, files and flags; later sources override earlier ones."""
    found = recipe_settings(arguments.recipe) if hasattr(arguments, "recipe") else {}
    for path in getattr(arguments, "config", ()):
        found |= read_settings(path)
    found |= text_settings(arguments.set_by_name, "--set", COMMAND_LINE)
    for flag, (section, known) in FLAGS.items():
        value = getattr(arguments, flag.replace("-", "_"), MISSING)
        if value is not MISSING:
            value = tuple(value) if isinstance(value, list) else value
            found[section, known.name] = Given(value, known.option, COMMAND_LINE)
    return found


def _begun(given: Settings) -> ExperimentConfig:
    """Return the configuration of a new experiment."""
    required = [known for known in _settings_of("") if known.default is MISSING]
    if absent := [known for known in required if ("", known.name) not in given]:
        spelled = ("/".join(f"--{name}" for name in (known.flag, *known.aliases)) for known in absent)
        raise ConfigError(f"the following arguments are required: {', '.join(spelled)}")
    parts: dict[str, Any] = {section: _built(owner, section, given) for section, owner in SECTIONS.items()}
    sources = {dotted(*key): one.source for key, one in given.items() if key[1] not in HOW}
    return _built(ExperimentConfig, "", given, **parts, sources=sources)


def _built(owner: type[Part], section: str, given: Settings, **more: Any) -> Part:
    """Build a section of the configuration; a ConfigError names the flag, or the file and key, of the invalid setting."""
    values = {name: one.value for (part, name), one in given.items() if part == section}
    try:
        return owner(**values, **more)
    except ConfigError as error:
        options = {known.name: known.option for known in _settings_of(section) if known.flag}
        options |= {name: one.location for (part, name), one in given.items() if part == section}
        raise (error.named(options[error.field]) if error.field in options else error) from None


def _resumed(given: Settings) -> ExperimentConfig:
    """Return the configuration of the run to resume; ConfigError if given settings differ from those of the run."""
    overrides = given.get(("", "resume_override"))
    stored = stored_config(given["", "resume_from"].value)
    config = overridden(stored, overrides.value if overrides else ())
    for location in (location for location, source in config.sources.items() if source != stored.sources.get(location)):
        section, _, name = location.rpartition(".")
        value = getattr(getattr(config, section) if section else config, name)
        _check_effect(config, section, name, Given(value, f"{OVERRIDDEN} {location}", OVERRIDDEN))
    return resumed_config(with_settings(config, given))


def _settings_of(section: str) -> list[Setting]:
    return list(settings_of(SECTIONS[section] if section else ExperimentConfig).values())


def check_prepared(config: ExperimentConfig) -> None:
    """Check input paths, optional packages, and the output folder's permissions and disk space; raise UserErrors."""
    begins = config.resume_from is None
    files = {
        "single-level": (config.single_level, "a level file"),
        "teacher": (config.teacher.file if begins else None, "an agent"),
        "init-from": (config.init_from if begins else None, "a checkpoint"),
    }
    for flag, (path, what) in files.items():
        found = path is None or path.is_file() or (flag == "single-level" and campaign.locate(path) is not None)
        _require(found, f"is no file; give {what}", flag, path)
    if config.single_level is None:
        for name in _DATASETS:
            flag = name.replace("_", "-")
            for folder in getattr(config, name):
                if campaign.locate(folder) is not None:
                    continue
                _require(folder.exists(), f"does not exist; {_MAKE_LEVELS}", flag, folder)
                some = folder.is_file() or any(files_below(folder, LevelSetError))
                _require(some, f"contains no levels; {_MAKE_LEVELS}", flag, folder)
    for replays in config.replay_data_dir:
        one_file = is_named_like_replays(replays) and replays.is_file()
        advice = "is neither a folder nor a *.replay or *.h5 file; give the folder of the replays"
        _require(one_file or replays.is_dir(), advice, REPLAYS, replays)
        advice = "contains no *.replay or *.h5 files; give another folder, or leave it out to train without imitation"
        some = one_file or any(files_below(replays, ReplayError, is_named_like_replays))
        _require(some, advice, REPLAYS, replays)
    config.video.check_packages()
    if config.visualize_training:
        check_packages()
    if config.upload.bucket:
        needed("boto3", "s3")
    check_output_folder(config.output_dir, "--output-dir", config.expected_bytes())


def _require(good: bool, advice: str, flag: str, path: Path | None) -> None:
    if not good:
        raise ConfigError(advice, f"--{flag}", path)


def _check_effect(config: ExperimentConfig, section: str, name: str, given: Given) -> None:
    """Raise ConfigError for a given setting that another setting makes ineffective.

    Settings from recipes and earlier runs, and default values in files, are exempt.
    """
    settings = {one.name: one for one in _settings_of(section)}
    known, location = settings[name], given.location
    if given.source.startswith(("recipe ", "run ")) or (given.source != COMMAND_LINE and given.value == known.default):
        return
    if name == "ent_coef_end" and given.value == config.ppo.ent_coef_start:
        return  # --ent-coef sets both ent_coef_start and ent_coef_end
    for (part, switch), names in _SWITCHED_OFF.items():
        if section == part and name in names and not getattr(getattr(config, part), switch):
            off = f"--no-{settings[switch].flag}" if settings[switch].switch else settings[switch].option
            off += "" if settings[switch].kind is bool else " 0"
            raise ConfigError(f"has no effect with {off}; leave one of them out", location)
    if not known.needs:
        return
    others = [FLAGS[flag] for flag in known.needs.split(" or ")]
    if not any(getattr(getattr(config, part) if part else config, other.name) for part, other in others):
        wanted = " or ".join(other.option for _, other in others)
        raise ConfigError(f"has no effect without {wanted}; add that, or leave this out", location)
    for_starts = config.curriculum.start_states and name in ("max_demonstrations_per_category", "mirror_demonstrations")
    elsewhere = for_starts or (known.needs != REPLAYS and config.init_from)
    if known.needs.startswith(REPLAYS) and not config.pretraining and not elsewhere:
        raise ConfigError("has no effect with --no-pretraining; leave one of them out", location)
    owners = STRATEGIES_WITH.get(name, ()) if section == "curriculum" else ()
    if owners and config.curriculum.chosen not in owners:  # e.g. a default value, which does not choose a strategy
        advice = f"has no effect with --curriculum {config.curriculum.chosen}, only with {', '.join(owners)}"
        raise ConfigError(f"{advice}; add --curriculum {owners[0]}, or leave this out", location)


# Flags that --help lists; --help-all lists all flags.
_FIRST_PAGE = (
    "experiment-name architectures train-dataset dev-dataset test-dataset single-level output-dir seeds "
    "resume-from init-from recipe config plugin frame-skip visualize-training debug save-freq "
    "replay-data-dir no-pretraining test-pretraining bc-epochs bc-batch-size bc-learning-rate "
    "total-timesteps time-budget-minutes gamma gae-lambda clip-range ent-coef-start initial-lr target-kl "
    "use-curriculum curriculum num-eval-episodes eval-freq skip-final-eval deterministic-eval record-eval-videos "
    "reward-preset hardware-profile num-envs device num-gpus mixed-precision"
)
FIRST_PAGE = frozenset(_FIRST_PAGE.split())
DRY_RUN = "dry-run"
ACTIONS = {
    "show-config": "print all settings and their sources as TOML for --config, and exit",
    DRY_RUN: "check levels, demonstrations, sizes and the hardware plan without writing files, and exit",
    "list-architectures": "print names, parameter counts, inputs and aliases of all networks, and exit",
}


class _TrainingParser(Parser):
    def _unknown(self, argument: str, given: argparse.Namespace) -> str:
        name = argument.split("=")[0].lstrip("-").replace("-", "_")
        for section, known in FLAGS.values():
            if name in (known.name, initials(known.name)) and section in ("ppo", ""):
                return f"unknown flag --{known.name.replace('_', '-')}; did you mean {known.option}?"
        return super()._unknown(argument, given)


def _parser(everything: bool = False) -> Parser:
    """Make the parser.  everything: list all flags in its help, not only the most important ones."""
    parser = _TrainingParser(
        prog="train_and_compare.py",
        usage="%(prog)s --experiment-name NAME --architectures NAME [NAME ...] [flags]",
        description="Imitation, then PPO, then evaluation with films and a report, for one or more networks.",
    )
    parser.add_argument("--help-all", action="help", help="list all flags")
    parser.add_argument(
        "--set", dest="set_by_name", action="append", default=[], metavar="SECTION.NAME=VALUE", help="set a field"
    )
    for name, meaning in ACTIONS.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    for title, flags in grouped().items():
        group = parser.add_argument_group(title)
        for section, known in flags:
            parser.add_setting(SECTIONS[section] if section else ExperimentConfig, known.name, group)
    refused = parser.add_argument_group("refused unless left at their defaults")
    for flag in REFUSED.values():
        parser.add_flag(flag, refused)
    if not everything:
        shown = {f"--{name}" for name in (*FIRST_PAGE, *ACTIONS, "help", "help-all", "set")}
        for action in parser._actions:
            if not shown.intersection(action.option_strings):
                action.help = argparse.SUPPRESS
    return parser


def grouped() -> dict[str, list[tuple[str, Setting]]]:
    """Return heading -> [(section, setting)] for the help and docs/flags.md."""
    groups: dict[str, list[tuple[str, Setting]]] = {title: [] for title in _TITLES}
    for section, known in FLAGS.values():
        groups.setdefault(known.group or _GROUPS.get(section, section), []).append((section, known))
    return groups


def as_toml(config: ExperimentConfig) -> str:
    """Return all settings as text of a ``--config`` file, with their sources as comments."""
    lines = []
    for section in ("", *SECTIONS):
        lines += ["", f"[{section}]"] if section else []
        part = getattr(config, section) if section else config
        for known in _settings_of(section):
            if known.name in HOW or known.refusal or (config.single_level and known.name.endswith("_dataset")):
                continue
            source = config.sources.get(dotted(section, known.name), "default")
            lines.append(f"{known.name} = {toml_value(getattr(part, known.name))}  # {' '.join(source.split())}")
    return "\n".join([*lines, ""])


def architecture_table() -> str:
    """Return a table of networks: name, number of parameters, observations, aliases."""
    from rl.policy.policy import build_policy

    lines = [f"{'architecture':<24}{'parameters':>12}  inputs"]
    for name, known in ARCHITECTURES.items():
        count = sum(parameter.numel() for parameter in build_policy(name).parameters())
        also = [alias for alias, meaning in ALIASES.items() if meaning == name]
        lines.append(f"{name:<24}{count:>12,}  {', '.join(known.observations)}{(also and f' (also {also[0]})') or ''}")
    lines += [f"{alias} is {meaning}" for alias, meaning in ALIASES.items() if meaning not in ARCHITECTURES]
    return "\n".join(lines)
