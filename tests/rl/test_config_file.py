"""Settings from files and recipes: every one can be set, what is wrong is named with file and key, and the later one wins."""

import json
import re
import shlex
from pathlib import Path

import pytest

from nppsim.errors import ConfigError
from nppsim.settings import settings_of
from rl.config import ExperimentConfig
from rl.config.command_line import FLAGS, resolve
from rl.config.files import HOW, SECTIONS, read_settings, recipe_names, recipe_settings, text_settings
from rl.config.resume import stored_config

from places import ROOT

REQUIRED = ["--experiment-name", "first", "--architectures", "vision_free"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with datasets and replays where the defaults expect them; nothing in them is read here."""
    for name in ("train/a.map", "dev/a.map", "test/b.map", "demonstrations/d.replay", "refined/d.replay"):
        (tmp_path / "datasets" / name).parent.mkdir(parents=True)
        (tmp_path / "datasets" / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text, name="mine.toml"):
    Path(name).write_text(text)
    return ["--config", name]


def everything():
    """(section, setting) of every field of the configuration that a file can set."""
    for section, owner in {"": ExperimentConfig, **SECTIONS}.items():
        for known in settings_of(owner).values():
            if known.name not in HOW:
                yield section, known


def test_no_field_is_without_a_flag():
    """But for those that follow from others, which neither flag nor file may set."""
    without = {f"{section}.{known.name}" for section, known in everything() if not known.flag}
    assert without == {"bc.seed"}
    assert {known.flag for _, known in everything()} - {""} <= FLAGS.keys()


def test_every_field_can_stand_in_a_file(folder):
    """With the value of its default, or a made-up one where that is none: what is read is what was written."""
    for section, known in everything():
        if known.refusal:
            continue
        value = {int: 5, float: 0.25, bool: True, str: "x", Path: "p"}[known.kind]
        if known.choices:
            value = known.choices[0]
        if known.problem(value):
            value = known.low or known.above + 1
        text = json.dumps([value] if known.many else value)
        path = folder / "one.toml"
        path.write_text(f"[{section}]\n{known.name} = {text}\n" if section else f"{known.name} = {text}\n")
        ((place, given),) = read_settings(path).items()
        wanted = Path(value) if known.kind is Path else value
        assert place == (section, known.name)
        assert given.value == ((wanted,) if known.many else wanted)


def test_every_field_is_set_by_its_place():
    for section, known in everything():
        if known.refusal:
            continue
        value = (
            known.choices[0]
            if known.choices
            else {int: "5", float: "0.25", bool: "true", str: "x", Path: "p"}[known.kind]
        )
        if known.kind in (int, float) and known.problem(known.kind(value)):
            value = str(known.low or known.above + 1)
        ((place, given),) = text_settings(
            [f"{section}.{known.name}={value}".lstrip(".")], "--set", "command line"
        ).items()
        assert place == (section, known.name)
        wanted = True if known.kind is bool else known.kind(value)
        assert given.value == ((wanted,) if known.many else wanted)


def test_a_file_sets_what_flags_would(folder):
    flags = shlex.split(
        "--total-timesteps 2e6 --gamma 0.99 --target-kl none --use-curriculum --seeds 1 2 --reward-win 2"
    )
    by_file = written(
        'total-timesteps = 2e6\nseeds = [1, 2]\n[ppo]\ngamma = 0.99\ntarget_kl = "none"\n[curriculum]\n'
        "use-curriculum = true\n[reward]\nwin = 2"
    )
    assert resolve(REQUIRED + by_file).ppo == resolve(REQUIRED + flags).ppo
    found = resolve(REQUIRED + by_file)
    assert (found.seeds, found.ppo.total_timesteps, found.ppo.target_kl, found.reward.weights.win) == (
        (1, 2),
        2e6,
        None,
        2,
    )
    assert type(found.ppo.total_timesteps) is int
    assert found.curriculum.use_curriculum


def test_flags_win_over_files_later_files_over_earlier_ones_and_all_over_a_recipe(folder):
    first, second = written("[ppo]\ngamma = 0.9\nvf_coef = 0.1"), written("[ppo]\ngamma = 0.91", "second.toml")
    flags = ["--recipe", "predecessor_2025_10", "--experiment-name", "x", *first, second[1], "--vf-coef", "0.2"]
    config = resolve(flags)
    assert (config.ppo.gamma, config.ppo.vf_coef, config.ppo.gae_lambda) == (0.91, 0.2, 0.998)
    assert config.sources["ppo.gamma"] == "file second.toml"
    assert config.sources["ppo.vf_coef"] == "command line"
    assert config.sources["ppo.gae_lambda"] == config.sources["architectures"] == "recipe predecessor_2025_10"
    assert "ppo.bc_kl_share" not in config.sources
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    assert stored_config(folder).sources == config.sources


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[ppo]\ngama = 0.9", r"mine.toml: \[ppo\] gama: is not a setting; did you mean 'gamma'"),
        ("[bc]\ngamma = 0.9", r"mine.toml: \[bc\] gamma: is not a setting"),
        ("[pop]\ngamma = 0.9", r"mine.toml: \[pop\]: is not a section of the configuration; did you mean 'ppo'"),
        ("total-timestep = 5", r"mine.toml: total-timestep: .* did you mean 'total-timesteps'"),
        ("[ppo]\ngamma = '0.9'", r"mine.toml: \[ppo\] gamma 0.9: give a number$"),
        ("[ppo]\ngamma = true", r"mine.toml: \[ppo\] gamma True: give a number$"),
        ("[ppo]\ngamma = 'none'", r"\[ppo\] gamma none: give a number$"),
        ("[ppo]\ngamma = nan", r"\[ppo\] gamma nan: give a number above 0 and at most 1"),
        ("[ppo]\ntotal_timesteps = 1.5", r"total_timesteps 1.5: give a whole number"),
        ("[ppo]\nscale_value_loss = 1", r"scale_value_loss 1: give true or false"),
        ("[curriculum]\nstrategy = 'easy'", r"strategy easy: known strategies are uniform, stages"),
        ("architectures = [1]", r"architectures 1: give a text in quotes, or a list of them"),
        ("[bc]\nseed = 4", r"mine.toml: \[bc\] seed: follows --seeds"),
        ("debug = true", r"mine.toml: debug: is not a setting"),
        ("resume-from = 'x'", r"mine.toml: resume-from: is not a setting"),
        ("gamma = 0.9\n[ppo]\ngamma = 0.8", r"\[ppo\] gamma: sets the same setting as mine.toml: gamma"),
        ("[ppo]\npbrs_gamma = 0.9", r"^mine.toml: \[ppo\] pbrs_gamma 0.9: differs from --gamma"),
        ("[video]\nvideo_fps = 60", r"^mine.toml: \[video\] video_fps: has no effect without --record-eval-videos"),
        ("gamma = \n", r"mine.toml: not TOML \(.*line 1"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_file_and_key(text, message, folder):
    with pytest.raises(ConfigError, match=message) as error:
        resolve(REQUIRED + written(text))
    assert "\n" not in str(error.value)


def test_a_file_may_repeat_a_default_that_has_no_effect(folder):
    assert resolve(REQUIRED + written("[video]\nvideo_fps = 30")) == resolve(REQUIRED + written(""))


def test_a_file_that_is_not_there_is_named(folder):
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read \(No such file"):
        resolve([*REQUIRED, "--config", "none.toml"])


def test_what_is_required_may_stand_in_a_file(folder):
    given = written('experiment-name = "x"')
    with pytest.raises(ConfigError, match="required: --architectures/--architecture$"):
        resolve(given)
    assert resolve([*given, "--architecture", "vision_free"]).experiment_name == "x"


def test_a_run_is_gone_on_with_only_where_a_file_agrees(folder):
    (folder / "config.json").write_text(json.dumps(resolve(REQUIRED).to_dict()))
    same, other = written("[ppo]\ngamma = 0.995"), written("[ppo]\ngamma = 0.9", "other.toml")
    assert resolve(["--resume-from", ".", *same]).ppo.gamma == 0.995
    with pytest.raises(ConfigError, match="gamma is 0.995 in the run and 0.9 here"):
        resolve(["--resume-from", ".", *other])
    changed = resolve(["--resume-from", ".", "--resume-override", "target-kl=none", "clip-range=0.1"])
    assert (changed.ppo.target_kl, changed.ppo.clip_range) == (None, 0.1)
    assert changed.sources["ppo.clip_range"] == "--resume-override"


@pytest.mark.parametrize("text", ["1e6", "1000000", "1_000_000", "1.0e6"])
def test_whole_numbers_may_be_written_as_people_do(text, folder):
    assert resolve([*REQUIRED, "--total-timesteps", text]).ppo.total_timesteps == 1_000_000


@pytest.mark.parametrize("text", ["1.5", "1e-3", "inf", "nan", "many", "none"])
def test_what_is_no_whole_number_is_refused(text, folder):
    with pytest.raises(ConfigError, match=f"'{re.escape(text)}' is not a whole number"):
        resolve([*REQUIRED, "--total-timesteps", text])


# ------------------------------------------------------------------ recipes


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("foresight", {"bc.epochs": 4, "ppo.total_timesteps": 8_000_000, "ppo.time_budget_minutes": 10.0}),
        ("predecessor_2025_10", {"ppo.gamma": 0.999, "ppo.gae_lambda": 0.998, "hardware.num_envs": 14}),
        ("fine_tuning_2025_10", {"ppo.gamma": 0.99, "ppo.learning_rate": 1e-4, "ppo.n_epochs": 5}),
        ("grid_world_2025", {"ppo.gamma": 0.977, "ppo.gae_lambda": 0.916, "ppo.clip_range": 0.1}),
    ],
)
def test_published_values_of_recipes(name, values):
    given = {f"{section}.{field}": one.value for (section, field), one in recipe_settings(name).items()}
    assert values.items() <= given.items()


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_makes_a_configuration_and_the_documents_describe_it(name, folder):
    given = recipe_settings(name)
    required = ["--experiment-name", "x"] if ("", "experiment_name") not in given else []
    config = resolve(["--recipe", name, *required])
    for (section, field), one in given.items():
        assert getattr(getattr(config, section) if section else config, field) == one.value
    assert f"| `{name}` |" in (ROOT / "docs" / "configuration.md").read_text()


def test_an_unknown_recipe_is_refused_with_the_names_of_all(folder):
    with pytest.raises(ConfigError, match=r"--recipe quickstrt: .*quickstart.*did you mean 'quickstart'"):
        resolve([*REQUIRED, "--recipe", "quickstrt"])
