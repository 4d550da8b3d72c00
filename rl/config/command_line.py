"""The command line of ``scripts/train_and_compare.py``.

    config = resolve(["--experiment-name", "first", "--architectures", "mlp_baseline"])

Flags, help and limits come from the settings of ``rl.config``.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any

from nppsim.errors import import_optional
from nppsim.io.files import check_output_folder
from nppsim.io.reading import files_below
from nppsim.levels import campaign
from nppsim.levels.level_set import LevelSetError
from nppsim.replays.playback import is_replay_file
from nppsim.replays.replay import ReplayError
from nppsim.settings import Parser, Setting, require, settings_of
from nppsim.studio.command import check_packages
from rl import plugins
from rl.config.conditions import COMMAND_LINE, check_effects
from rl.config.curriculum import implied_strategy
from rl.config.experiment import IMITATION, ExperimentConfig
from rl.config.files import (
    EXECUTION,
    FILE_SOURCE,
    SECTIONS,
    Given,
    Settings,
    dotted,
    known_settings,
    load_plugins,
    read_settings,
    recipe_settings,
    shared_settings,
    text_settings,
    toml_value,
    value_of,
    with_settings,
)
from rl.config.resume import OVERRIDDEN, checked_resume, overridden, stored_config
from rl.plugins import TRUST_FLAG
from rl.policy.architectures import ALIASES, ARCHITECTURES

_DATASETS = ("train_dataset", "dev_dataset", "test_dataset")
_MAKE_LEVELS = "make one with scripts/generate_levels.py, or give the path of an existing one"

_REFUSED: dict[str, dict[str, int | float | str]] = {  # reason -> flag -> its only accepted value
    "demonstrations are loaded into memory by the main process; leave it out": {"bc-num-workers": 0},
    "dropout makes PPO's probability ratio differ from 1 before the first gradient step; leave it out": {
        "deep-resnet-dropout": 0.0
    },
    "the page of --visualize-training has its own environment and a speed control; leave it out": {
        "vis-render-freq": 100,
        "vis-env-idx": 0,
        "vis-fps": 60,
    },
    "only examples/ablations.py trains this variant, for comparisons; leave it out": {
        "gradient-zeroing": "step",
        "curriculum-formulas": "mended",
        "curriculum-lp-exploration-bonus": 0.1,
    },
}
# Flag -> (section of the configuration or "" for fields of ExperimentConfig, setting).
FLAGS = {setting.flag: (section, setting) for _, section, setting in known_settings() if setting.flag}
REFUSED = {
    flag: Setting(reason, flag=flag, refusal=reason, kind=type(default), default=default)
    for reason, defaults in _REFUSED.items()
    for flag, default in defaults.items()
}
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
DRY_RUN, TRUST_PLUGINS = "dry-run", TRUST_FLAG.removeprefix("--")
ACTIONS = {
    "show-config": "print all settings and their sources as TOML for --config, and exit",
    DRY_RUN: "check levels, demonstrations, sizes and the hardware plan without writing files, and exit",
    TRUST_PLUGINS: "import the plug-ins that files of --config and --resume-from name, which runs their code",
    "list-architectures": "print names, parameter counts, inputs and aliases of all networks, and exit",
}


def options(*settings: Setting) -> frozenset[str]:
    """Return all spellings of the flags of these settings, including aliases and ``--no-`` forms."""
    names = [name for setting in settings for name in (setting.flag, *setting.aliases) if name]
    return frozenset(f"--{no}{name}" for name in names for no in ("", "no-"))


def options_of(*flags: str) -> frozenset[str]:
    """Return all spellings of flags, including aliases and ``--no-`` forms.  flags: names such as "output-dir"."""
    return options(*(FLAGS[flag][1] for flag in flags))


def resolve(argv: Sequence[str]) -> ExperimentConfig:
    """Parse command-line arguments (without the program's name), check all settings and paths; return the configuration.

    Flags override ``--config`` files, and files override ``--recipe``.  With ``--resume-from`` the settings come from that
    folder, and other arguments must equal them.
    Raises ConfigError.
    """
    parser = _parser(everything="--help-all" in argv)
    arguments = parser.parse_args(argv)
    if arguments.list_architectures:
        plugins.load(getattr(arguments, "plugin", ()))
        print(architecture_table())
        parser.exit()
    config = configured(_given(arguments), arguments.trust_plugins)
    if arguments.show_config:
        print(as_toml(config), end="")
        parser.exit()
    return config


def configured(given: Settings, trust_plugins: bool = False) -> ExperimentConfig:
    """Load plugins, check settings and paths, and return the configuration; ConfigError if they are invalid.

    trust_plugins: also load plugins that files and a run to resume name.
    """
    if plugin := given.get(("", "plugins")):
        if plugin.source.startswith(FILE_SOURCE):
            load_plugins(plugin.value, plugin.location, trust_plugins)
        else:
            plugins.load(plugin.value)
    single = given.get(("", "single_level"))
    datasets = " and ".join(given["", name].location for name in _DATASETS if ("", name) in given)
    if single and single.value is not None:
        require(not datasets, f"replaces all datasets; leave out {datasets}", single.location)
    config = _resumed(given, trust_plugins) if ("", "resume_from") in given else _begun(given)
    check_effects(config, given)
    check_prepared(config)
    return config


def _given(arguments: Namespace) -> Settings:
    """Collect settings from recipe, files and flags; later sources override earlier ones."""
    plugins.load(getattr(arguments, "plugin", ()))
    settings = recipe_settings(arguments.recipe) if hasattr(arguments, "recipe") else {}
    for path in getattr(arguments, "config", ()):
        settings |= read_settings(path, arguments.trust_plugins)
    settings |= text_settings(arguments.set_by_name, "--set", COMMAND_LINE)
    for flag, (section, setting) in FLAGS.items():
        value = getattr(arguments, flag.replace("-", "_"), MISSING)
        if value is not MISSING:
            value = tuple(value) if isinstance(value, list) else value
            settings[section, setting.name] = Given(value, setting.option, COMMAND_LINE)
    return settings


def _begun(given: Settings) -> ExperimentConfig:
    """Return the configuration of a new experiment; ConfigError without the required settings."""
    required = [setting for setting in settings_of(ExperimentConfig).values() if setting.default is MISSING]
    absent = [setting for setting in required if ("", setting.name) not in given]
    spelled = ("/".join(f"--{name}" for name in (setting.flag, *setting.aliases)) for setting in absent)
    require(not absent, f"the following arguments are required: {', '.join(spelled)}")
    use = given.get(("curriculum", "use_curriculum"))
    if use and use.value and ("curriculum", "strategy") not in given:
        strategy = implied_strategy(name for section, name in given if section == "curriculum")
        given = given | {("curriculum", "strategy"): use._replace(value=strategy)}
    sources = {dotted(*key): entry.source for key, entry in given.items() if key[1] not in EXECUTION}
    return replace(with_settings(None, given), sources=sources)


def _resumed(given: Settings, trust_plugins: bool) -> ExperimentConfig:
    """Return the configuration of the run to resume; ConfigError if given settings differ from those of the run."""
    overrides = given["", "resume_override"].value if ("", "resume_override") in given else ()
    begun = stored_config(given["", "resume_from"].value, trust_plugins)
    config = overridden(begun, overrides)
    check_effects(config, text_settings(overrides, OVERRIDDEN, OVERRIDDEN))
    return checked_resume(begun, with_settings(config, given))


def check_prepared(config: ExperimentConfig) -> None:
    """Check input paths, optional packages, and the output folder's permissions and disk space; raise UserErrors."""
    files: dict[str, tuple[Path | None, str]] = {"single-level": (config.single_level, "a level file")}
    if config.resume_from is None:
        files |= {"teacher": (config.teacher.file, "an agent"), "init-from": (config.init_from, "a checkpoint")}
    for flag, (path, what) in files.items():
        found = path is None or path.is_file() or (flag == "single-level" and campaign.locate(path) is not None)
        require(found, f"is no file; give {what}", f"--{flag}", path)
    for name in _DATASETS if config.single_level is None else ():
        for folder in getattr(config, name):
            if campaign.locate(folder) is None:
                option = f"--{name.replace('_', '-')}"
                require(folder.exists(), f"does not exist; {_MAKE_LEVELS}", option, folder)
                exists = folder.is_file() or any(files_below(folder, LevelSetError))
                require(exists, f"contains no levels; {_MAKE_LEVELS}", option, folder)
    for replays in config.replay_data_dir:
        one_file = replays.is_file() and is_replay_file(replays)
        advice = "is neither a folder nor a *.replay or *.h5 file; give the folder of the replays"
        require(one_file or replays.is_dir(), advice, "--replay-data-dir", replays)
        exists = one_file or any(
            files_below(replays, ReplayError, lambda file: file.is_file() and is_replay_file(file))
        )
        advice = "contains no *.replay or *.h5 files; give another folder, or leave it out to train without imitation"
        require(exists, advice, "--replay-data-dir", replays)
    config.video.check_packages()
    if config.visualize_training:
        check_packages()
    if config.upload.bucket:
        import_optional("boto3", "s3")
    check_output_folder(config.output_dir, "--output-dir", config.expected_bytes())


def _parser(everything: bool = False) -> Parser:
    """Make the parser.  everything: list all flags in its help, not only the most important ones."""
    parser = Parser(
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
        for section, setting in flags:
            optional: dict[str, Any] = {"default": None} if setting.default is MISSING else {}  # files may contain it
            parser.add_setting(SECTIONS[section], setting.name, group, **optional)
    refused = parser.add_argument_group("refused unless left at their defaults")
    for flag in REFUSED.values():
        parser.add_flag(flag, refused)
    if not everything:
        shown = {f"--{name}" for name in (*FIRST_PAGE, *(ACTIONS.keys() - {TRUST_PLUGINS}), "help", "help-all", "set")}
        for action in parser._actions:
            if not shown.intersection(action.option_strings):
                action.help = argparse.SUPPRESS
    return parser


def grouped() -> dict[str, list[tuple[str, Setting]]]:
    """Return heading -> [(section, setting)] for the help and docs/flags.md."""
    groups: dict[str, list[tuple[str, Setting]]] = {}
    for section, setting in FLAGS.values():
        title = setting.group or getattr(SECTIONS[section], "group", IMITATION)
        groups.setdefault(title, []).append((section, setting))
    return groups


def as_toml(config: ExperimentConfig) -> str:
    """Return all settings as text of a ``--config`` file, with their sources as comments."""
    lines: dict[str, list[str]] = {section: ["", f"[{section}]"] if section else [] for section in SECTIONS}
    for _, section, setting in shared_settings(config):
        source = config.sources.get(dotted(section, setting.name), "default")
        value = toml_value(value_of(config, section, setting.name))
        lines[section].append(f"{setting.name} = {value}  # {' '.join(source.split())}")
    return "\n".join([*(line for part in lines.values() for line in part), ""])


def architecture_table() -> str:
    """Return a table of networks: name, number of parameters, observations, aliases."""
    from rl.policy.policy import build_policy

    lines = [f"{'architecture':<24}{'parameters':>12}  inputs"]
    for name, network in ARCHITECTURES.items():
        count = sum(parameter.numel() for parameter in build_policy(name).parameters())
        also = [alias for alias, meaning in ALIASES.items() if meaning == name]
        lines.append(
            f"{name:<24}{count:>12,}  {', '.join(network.observations)}{(also and f' (also {also[0]})') or ''}"
        )
    lines += [f"{alias} is {meaning}" for alias, meaning in ALIASES.items() if meaning not in ARCHITECTURES]
    return "\n".join(lines)
