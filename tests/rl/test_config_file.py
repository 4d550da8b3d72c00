"""Settings from files and recipes: each one can be set, errors name file and key, and the later source wins."""

import json
import re
import shlex
from pathlib import Path

import pytest

from nppsim.errors import ConfigError
from rl.config.command_line import FLAGS, resolve
from rl.config.files import EXECUTION, known_settings, read_settings, recipe_names, recipe_settings, text_settings
from rl.config.resume import stored_config

from places import ROOT

REQUIRED = ["--experiment-name", "first", "--architectures", "vision_free"]
SETTINGS = [
    (section, known)
    for _, section, known in known_settings()
    if known.name not in EXECUTION and not known.refusal  # files cannot contain the others
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with empty datasets and replays where the defaults expect them."""
    for name in ("train/a.map", "dev/a.map", "test/b.map", "demonstrations/d.replay", "refined/d.replay"):
        (tmp_path / "datasets" / name).parent.mkdir(parents=True)
        (tmp_path / "datasets" / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text, name="mine.toml"):
    Path(name).write_text(text)
    return ["--config", name]


def test_all_settings_but_bc_seed_have_flags():
    without = {f"{section}.{known.name}" for _, section, known in known_settings() if not known.flag}
    assert without == {"bc.seed"}
    assert {known.flag for _, known in SETTINGS} <= FLAGS.keys()


def test_all_settings_read_from_file_and_text(folder):
    path = folder / "one.toml"
    for section, known in SETTINGS:
        value = {int: 5, float: 0.25, bool: True, str: "x", Path: "p"}[known.kind]
        if known.choices:
            value = known.choices[0]
        if known.problem(value):
            value = known.low or known.above + 1
        text = json.dumps([value] if known.many else value)
        path.write_text(f"[{section}]\n{known.name} = {text}\n" if section else f"{known.name} = {text}\n")
        by_text = text_settings([f"{section}.{known.name}={value}".lstrip(".")], "--set", "command line")
        wanted = Path(value) if known.kind is Path else value
        for found in (read_settings(path), by_text):
            ((place, given),) = found.items()
            assert place == (section, known.name)
            assert given.value == ((wanted,) if known.many else wanted)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_resolve_file_equals_flags(mark, folder):
    """Some editors begin UTF-8 files with a byte-order mark."""
    flags = shlex.split(
        "--total-timesteps 2e6 --gamma 0.99 --target-kl none --use-curriculum --seeds 1 2 --reward-win 2"
    )
    by_file = written(
        f'{mark}total-timesteps = 2e6\nseeds = [1, 2]\n[ppo]\ngamma = 0.99\ntarget_kl = "none"\n[curriculum]\n'
        "use-curriculum = true\n[reward]\nwin = 2"
    )
    found, wanted = resolve(REQUIRED + by_file), resolve(REQUIRED + flags)
    assert (found.ppo, found.seeds, found.curriculum) == (wanted.ppo, (1, 2), wanted.curriculum)
    assert (found.reward.weights.win, found.ppo.target_kl, type(found.ppo.total_timesteps)) == (2, None, int)


def test_resolve_flags_override_files_override_recipe(folder):
    first, second = written("[ppo]\ngamma = 0.9\nvf_coef = 0.1"), written("[ppo]\ngamma = 0.91", "second.toml")
    config = resolve(["--recipe", "foresight", "--experiment-name", "x", *first, second[1], "--vf-coef", "0.2"])
    assert (config.ppo.gamma, config.ppo.vf_coef, config.ppo.total_timesteps) == (0.91, 0.2, 8_000_000)
    assert config.sources["ppo.gamma"] == "file second.toml"
    assert config.sources["ppo.vf_coef"] == config.sources["experiment_name"] == "command line"
    assert config.sources["ppo.total_timesteps"] == config.sources["architectures"] == "recipe foresight"
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
def test_resolve_invalid_file_names_file_and_key(text, message, folder):
    with pytest.raises(ConfigError, match=message) as error:
        resolve(REQUIRED + written(text))
    assert "\n" not in str(error.value)


def test_resolve_file_may_contain_defaults_without_effect(folder):
    assert resolve(REQUIRED + written("[video]\nvideo_fps = 30")) == resolve(REQUIRED + written(""))


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--config", "none.toml", r"none.toml: cannot be read \(No such file"),
        ("--recipe", "quickstrt", r"--recipe quickstrt: .*quickstart.*did you mean 'quickstart'"),
        *(
            ("--total-timesteps", text, f"'{re.escape(text)}' is not a whole number")
            for text in ("1.5", "1e-3", "inf", "nan", "many", "none")
        ),
    ],
)
def test_resolve_unreadable_value_raises(flag, value, message, folder):
    with pytest.raises(ConfigError, match=message):
        resolve([*REQUIRED, flag, value])


def test_resolve_required_setting_in_a_file(folder):
    given = written('experiment-name = "x"')
    with pytest.raises(ConfigError, match="required: --architectures/--architecture$"):
        resolve(given)
    assert resolve([*given, "--architecture", "vision_free"]).experiment_name == "x"


def test_resolve_resume_with_a_file_must_agree(folder):
    (folder / "config.json").write_text(json.dumps(resolve(REQUIRED).to_dict()))
    same, other = written("[ppo]\ngamma = 0.995"), written("[ppo]\ngamma = 0.9", "other.toml")
    assert resolve(["--resume-from", ".", *same]).ppo.gamma == 0.995
    with pytest.raises(ConfigError, match="gamma is 0.995 in the run and 0.9 here"):
        resolve(["--resume-from", ".", *other])
    changed = resolve(["--resume-from", ".", "--resume-override", "target-kl=none", "clip-range=0.1"])
    assert (changed.ppo.target_kl, changed.ppo.clip_range) == (None, 0.1)
    assert changed.sources["ppo.clip_range"] == "--resume-override"


@pytest.mark.parametrize("text", ["1e6", "1000000", "1_000_000", "1.0e6"])
def test_resolve_integer_notations(text, folder):
    assert resolve([*REQUIRED, "--total-timesteps", text]).ppo.total_timesteps == 1_000_000


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_is_valid_and_documented(name, folder):
    given = recipe_settings(name)
    config = resolve(["--recipe", name])
    for (section, field), one in given.items():
        assert getattr(getattr(config, section) if section else config, field) == one.value
    assert f"| `{name}` |" in (ROOT / "docs" / "configuration.md").read_text()
