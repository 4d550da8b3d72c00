"""Train, dev and test levels: which levels are held out or refused, and when each set is played."""

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import LevelEntry, LevelSet, LevelSetError
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from rl.config.command_line import check_prepared, resolve
from rl.config.experiment import DEV_LEVELS
from rl.config.resume import other_levels
from rl.curriculum import make_sampler
from rl.evaluation.levels import skip_or_raise
from rl.evaluation.suite import EvaluationSuite
from rl.experiment.data import hold_out, load_data, load_demonstrations, merge_level_sets, runs_without_imitation
from rl.experiment.run import run

from recordings import winning_inputs
from worlds import corridor

pytestmark = pytest.mark.usefixtures("blank_charts")


def quiet(line):
    pass


def halls(first, count, category="simple"):
    """Levels that differ in where their door stands."""
    return [(corridor(door=30 + first + i), LevelEntry(category)) for i in range(count)]


@pytest.fixture
def folders(tmp_path):
    """12 training levels of one category with a demonstration each, one level of another, 3 dev and 3 test levels."""
    LevelSet.write(tmp_path / "train", halls(0, 12) + halls(30, 1, "lonely"))
    LevelSet.write(tmp_path / "dev", halls(15, 3))
    LevelSet.write(tmp_path / "test", halls(20, 3))
    with ReplayWriter(tmp_path / "demonstrations.h5") as writer:
        for level, entry in halls(0, 12) + halls(30, 1, "lonely"):
            writer.append(Replay(level, winning_inputs(level), True), category=entry.category)
    return tmp_path


def configuration(folders, *flags):
    return resolve([
        "--experiment-name", "x", "--architectures", "vision_free", "--train-dataset", str(folders / "train"),
        "--test-dataset", str(folders / "test"), "--output-dir", str(folders / "out"), *map(str, flags),
    ])  # fmt: skip


def test_runs_without_imitation_returns_demonstrations(folders):
    flags = ["--replay-data-dir", folders / "demonstrations.h5", "--dev-dataset", folders / "dev"]
    without = configuration(folders, *flags, "--no-pretraining", "--start-states")
    data = load_data(without, quiet)
    runs = runs_without_imitation(without, data, quiet)
    assert runs.keys() == {level.fingerprint for level, _ in data.train}
    assert all(len(actions) for actions in runs.values())
    assert runs_without_imitation(configuration(folders, *flags), data, quiet) == {}
    assert runs_without_imitation(configuration(folders, "--no-pretraining"), data, quiet) == {}


def test_load_data_without_dev_dataset_holds_out_training_levels(folders):
    data = load_data(configuration(folders), quiet)
    assert (len(data.train), len(data.dev), len(data.test)) == (11, 2, 3)
    assert {category for _, category in data.dev} == {"simple"}, "the only level of a category is trained on"
    assert not {level for level, _ in data.dev} & set(data.bank.levels)
    assert load_data(configuration(folders, "--seeds", 5), quiet).fingerprints == data.fingerprints


def test_load_data_with_dev_dataset_holds_out_nothing(folders):
    data = load_data(configuration(folders, "--dev-dataset", folders / "dev"), quiet)
    assert (len(data.train), len(data.dev), len(data.test)) == (13, 3, 3)


def test_hold_back_keeps_mirror_images_together():
    pairs = [(shape, "many") for level, _ in halls(0, 20) for shape in (level, mirror(level))]
    train, dev = hold_out(pairs)
    assert len(dev) == 4 and {mirror(level) for level, _ in dev} == {level for level, _ in dev}
    assert sorted(level.fingerprint for level, _ in train + dev) == sorted(level.fingerprint for level, _ in pairs)
    many = [(corridor(switch=25 + i % 30, door=60 + i // 30), "many") for i in range(600)]
    assert len(hold_out(many)[1]) == DEV_LEVELS


def test_load_demonstrations_excludes_held_out_levels(folders):
    config = configuration(folders, "--replay-data-dir", folders / "demonstrations.h5", "--mirror-demonstrations")
    data, messages = load_data(config, quiet), []
    dataset = load_demonstrations(config, data, ("game_state",), 0, messages.append)
    held_back = {shape.fingerprint for level, _ in data.dev for shape in (level, mirror(level))}
    assert len(set(dataset.level_fingerprints)) == 22 and not set(dataset.level_fingerprints) & held_back
    assert "used for evaluation: 2" in messages[0]
    everything = load_demonstrations(
        configuration(folders, "--replay-data-dir", folders / "demonstrations.h5", "--dev-dataset", folders / "dev"),
        load_data(configuration(folders, "--dev-dataset", folders / "dev"), quiet), ("game_state",), 0, quiet,
    )  # fmt: skip
    assert len(everything.names) == 13, "another cache"


def test_load_data_several_folders_without_duplicates(folders):
    LevelSet.write(folders / "more", [*halls(11, 3), *halls(13, 1)])  # the first is the last of train
    messages = []
    config = configuration(folders, "--train-dataset", folders / "more", "--dev-dataset", folders / "dev")
    data = load_data(config, messages.append)
    assert len(data.train) == 15 == len(set(data.bank.levels))
    (line,) = [line for line in messages if line.startswith("left out")]
    first, second = line.split(", ")
    assert "more/simple/000000.map = " in first and first.endswith("train/simple/000011.map")
    assert "more/simple/000003.map = " in second and second.endswith("more/simple/000002.map")
    assert list(data.fingerprints) == ["train", "dev", "test"]
    assert len(set(data.fingerprints.values())) == 3
    LevelSet.append(folders / "test", halls(13, 1))
    with pytest.raises(LevelSetError, match=r"1 of 4 levels of .*test are also in .*more"):
        load_data(config, quiet)


def test_load_data_category_all_raises(folders):
    LevelSet.write(folders / "named", halls(40, 1, "all"))
    with pytest.raises(LevelSetError, match='category "all" is reserved'):
        load_data(configuration(folders, "--train-dataset", folders / "named"), quiet)


def test_other_levels_returns_changed_datasets():
    began = {"train": "1", "dev": "3"}
    assert not other_levels(began, {"train": "1", "dev": "3"})
    assert other_levels(began, {"train": "1", "dev": "4"}) == ["dev"]


def test_load_demonstrations_several_folders_is_one_dataset(folders):
    (folders / "mine").mkdir()
    with ReplayWriter(folders / "mine" / "demonstrations.h5") as writer:
        for level, entry in halls(11, 2):
            writer.append(Replay(level, winning_inputs(level), True), category=entry.category)
    places = [folders / "demonstrations.h5", folders / "mine"]
    config = configuration(folders, "--replay-data-dir", *places, "--dev-dataset", folders / "dev")
    messages = []
    dataset = load_demonstrations(config, load_data(config, quiet), ("game_state",), 0, messages.append)
    assert len(dataset.names) == 14
    assert {name.partition("/")[0] for name in dataset.names} == {"demonstrations", "mine"}
    twice = "mine/demonstrations.h5#0: same level and actions as demonstrations/demonstrations.h5#11"
    assert twice in messages[0]
    again = load_demonstrations(config, load_data(config, quiet), ("game_state",), 0, messages.append)
    assert again.key == dataset.key and " and ".join(map(str, places)) in messages[1]


@pytest.mark.parametrize(("name", "first", "earlier"), [("dev", 3, "train"), ("test", 3, "train"), ("test", 15, "dev")])
def test_load_data_shared_level_raises(folders, name, first, earlier):
    ((shared, entry),) = halls(first, 1)
    LevelSet.append(folders / name, [(mirror(shared), entry)])
    with pytest.raises(LevelSetError, match=f"1 of 4 levels of .*{name} are also in .*{earlier}"):
        load_data(configuration(folders, "--dev-dataset", folders / "dev"), quiet)


def test_load_data_without_dev_levels_raises(tmp_path):
    LevelSet.write(tmp_path / "train", halls(0, 1))
    LevelSet.write(tmp_path / "test", halls(1, 1))
    with pytest.raises(ConfigError, match=r"--train-dataset .*give --dev-dataset, or --eval-freq 0"):
        load_data(configuration(tmp_path), quiet)
    assert load_data(configuration(tmp_path, "--eval-freq", 0), quiet).dev == []


@pytest.mark.usefixtures("one_thread")
def test_run_without_evaluations_needs_no_dev_levels(tmp_path):
    LevelSet.write(tmp_path / "train", halls(0, 1))
    LevelSet.write(tmp_path / "test", halls(1, 1))
    sizes = "--num-envs 4 --rollout-length 16 --minibatch-size 32 --total-timesteps 64 --device cpu"
    flags = [*sizes.split(), "--eval-freq", "0", "--skip-final-eval"]
    assert list(run(configuration(tmp_path, *flags), quiet).rglob("agent.safetensors"))


@pytest.mark.usefixtures("one_thread")
def test_run_plays_test_levels_once_at_the_end(folders, monkeypatch):
    """Imitation, training and dev levels are played before the first test level."""
    names = {"train": halls(0, 12) + halls(30, 1), "dev": halls(15, 3), "test": halls(20, 3)}
    name_of = {level: name for name, levels in names.items() for level, _ in levels}
    stepped, evaluated = [], []
    step, play = BatchSimulator.step, EvaluationSuite.run

    def seen_step(sim, actions, asleep=None):
        stepped.append("+".join(sorted({name_of[level] for level in sim.bank.levels})))
        return step(sim, actions, asleep)

    def seen_run(suite, policy, **options):
        evaluated.append(("+".join(sorted({name_of[level] for level in suite.bank.levels})), type(policy).__name__))
        return play(suite, policy, **options)

    monkeypatch.setattr(BatchSimulator, "step", seen_step)
    monkeypatch.setattr(EvaluationSuite, "run", seen_run)
    run(configuration(
        folders, "--dev-dataset", folders / "dev", "--replay-data-dir", folders / "demonstrations.h5", "--bc-epochs", 1,
        "--total-timesteps", 1500, "--num-envs", 8, "--rollout-length", 64, "--eval-freq", 600, "--num-eval-episodes", 3,
    ), quiet)  # fmt: skip
    final = [("test", "RandomPolicy"), ("test", "NppPolicy"), ("test", "NppPolicy")]
    assert evaluated[-3:] == final
    assert {levels for levels, _ in evaluated[:-3]} == {"dev"}
    phases = [name for name, _ in groupby(stepped)]
    assert phases[-1] == "test" and "test" not in phases[:-1]
    assert {"train", "dev"} == set(phases[:-1])


def resolved(tmp_path, *more):
    flags = ["--output-dir", tmp_path, *more]
    for name in ("train", "dev", "test"):
        flags += [f"--{name}-dataset", tmp_path / name]
    return resolve(["--experiment-name", "x", "--architectures", "vision_free", "--eval-freq", "0", *map(str, flags)])


def test_load_data_bad_levels_listed_or_skipped(tmp_path):
    for name, seeds in (("train", (1, 2)), ("test", (3,)), ("dev", (4,))):
        (tmp_path / name).mkdir()
        for seed in seeds:
            generate("simplest", seed)[0].save(tmp_path / name / f"{seed}.map")
    (tmp_path / "train" / "cut.map").write_bytes(bytes(100))
    (tmp_path / "train" / "torn.level").write_text("nppsim level 1\n")
    rooms = np.ones((23, 42), np.uint8)
    rooms[5, 2:8] = rooms[5, 20:30] = 0  # the spawn is in one, the exit in the other
    Level.build(rooms, (18, 26), exits=[((94, 26), (106, 26))]).save(tmp_path / "train" / "shut.map")
    with pytest.raises(
        LevelSetError, match=r"3 levels cannot .*cut\.map: .*torn\.level: .*shut\.map: no path .*--skip-bad-levels"
    ):
        load_data(resolved(tmp_path), log=print)
    said = []
    data = load_data(resolved(tmp_path, "--skip-bad-levels"), log=said.append)
    assert len(data.train) == 2 == len(data.bank)
    assert [line for line in said if line.endswith("shut.map: no path from the start to the exit")]
    assert len([line for line in said if line.startswith("left out: ")]) == 3
    for name in ("cut.map", "torn.level"):
        (tmp_path / "train" / name).unlink()
    with pytest.raises(LevelSetError, match=r"1 levels cannot .*shut\.map: no path .*--skip-bad-levels"):
        load_data(resolved(tmp_path), log=print)


def test_joined_logs_level_warnings(tmp_path):
    for number in range(7):
        level = corridor(door=30 + number)
        (tmp_path / f"{number}.map").write_bytes(level.to_bytes() + b"\0" * (number != 6))
    log = []
    merge_level_sets([LevelSet.open(tmp_path)], log.append)
    assert log[0] == f"warning: {tmp_path}/0.map: byte 1245: the last record has 1 of 5 bytes; it is ignored"
    assert [line.startswith(f"warning: {tmp_path}/") for line in log] == [True] * 5 + [False]
    assert log[5] == "warning: and 1 more like these"


def test_load_data_level_files_and_replays(tmp_path):
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        (tmp_path / name).mkdir()
        generate("simplest", seed)[0].save(tmp_path / name / "a.map")
    played, typed = generate("simplest", 4)[0], generate("simplest", 5)[0]
    Replay(played, np.zeros(4, np.uint8)).save(tmp_path / "played.replay")
    typed.save(tmp_path / "typed.level")
    places = [str(tmp_path / name) for name in ("train", "played.replay", "typed.level")]
    config = replace(resolved(tmp_path), train_dataset=tuple(map(Path, places)))
    check_prepared(config)
    data = load_data(config, log=print)
    assert [category for _, category in data.train] == ["uncategorised", "single", "single"]
    assert [level for level, _ in data.train[1:]] == [played, typed]


def test_load_data_unknown_categories_logged_and_ordered(tmp_path):
    for i, place in enumerate(("train/zebra", "train/ant", "train/simple", "test/simple", "dev/simple")):
        (tmp_path / place).mkdir(parents=True)
        generate("simplest", i)[0].save(tmp_path / place / "a.map")
    said = []
    data = load_data(resolved(tmp_path), log=said.append)
    assert any("of unknown difficulty: ant, zebra; as stages they come last, in this order" in line for line in said)
    said.clear()
    config = resolved(tmp_path, "--use-curriculum", "--curriculum-stage-order", "zebra", "ant")
    data = load_data(config, log=said.append)
    assert not any("does not know" in line for line in said)
    assert make_sampler(data.train_categories, config.curriculum, 0).levels.names == ("zebra", "ant", "simple")
    config = resolved(tmp_path, "--use-curriculum", "--curriculum-stage-order", "bee")
    with pytest.raises(ConfigError, match="no training level has this category; the categories are ant, simple, zebra"):
        make_sampler(data.train_categories, config.curriculum, 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--curriculum-start-stage bee", "--curriculum-start-stage bee: no training level has this category"),
        ("--curriculum-stage-order bee", "--curriculum-stage-order bee: no training level has this category"),
        (
            "--curriculum-stage-thresholds bee=0.5",
            "--curriculum-stage-thresholds: the training dataset has no levels of",
        ),
        ("--curriculum-stage-gamma bee=0.9", "--curriculum-stage-gamma: the training dataset has no levels of bee"),
        ("--use-hierarchical-ppo --hierarchical-from-stage bee", "--hierarchical-from-stage bee: the training dataset"),
        (
            "--gradient-accumulation 3",
            "--gradient-accumulation 3: a pass over a rollout of vision_free has 2 minibatches",
        ),
    ],
)
def test_run_settings_not_fitting_data_leave_no_folder(flags, message, folders):
    sizes = "--num-envs 4 --rollout-length 16 --minibatch-size 32 --device cpu --curriculum stages"
    with pytest.raises(ConfigError, match=message):
        run(configuration(folders, *sizes.split(), *flags.split()), quiet)
    assert not (folders / "out").exists()


def test_load_data_train_generators(folders, tmp_path):
    made = [generate("simplest", seed) for seed in range(1, 7)]
    LevelSet.write(tmp_path / "made", made)
    config = replace(configuration(folders), train_dataset=(tmp_path / "made", folders / "train"))
    data = load_data(config, quiet)
    generators = {level.fingerprint: entry.generator for level, entry in made}
    assert len(set(generators.values())) > 1
    assert data.train_generators == [generators.get(level.fingerprint, "") for level, _ in data.train]
    assert "" in data.train_generators, "what was not generated belongs to no generator"


def test_skip_or_raise_many_levels_names_the_first_and_the_number_of_others():
    with pytest.raises(LevelSetError, match="7 levels cannot be used: 0.map: bad; .*4.map: bad; and 2 more; fix"):
        skip_or_raise([f"{i}.map: bad" for i in range(7)], False, print)
