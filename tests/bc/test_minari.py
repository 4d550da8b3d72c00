"""Demonstrations written as Minari datasets, loaded by Minari itself, and read back."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import bc.minari
import nppsim
from bc.__main__ import main
from bc.dataset import DatasetError, check_memory
from bc.demonstrations import DemonstrationError, ReplayFile, load_demonstrations
from bc.minari import MinariMetadata, dataset_id, export_minari, import_minari
from nppsim import NppEnv
from nppsim.observe import layout
from nppsim.replays.replay import Replay

from worlds import corridor

minari = pytest.importorskip("minari")
ABOUT = {"author": "A. Nyone", "author_email": "a@example.org", "code_permalink": "https://example.org/code"}
RIGHT = 2


@pytest.fixture
def found(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    files = []
    for k, category in enumerate(("simple", "simple", "simplest")):
        level = corridor(20, 24 + k, 32)
        files.append(
            ReplayFile(f"r{k}", f"r{k}", category, Replay(level, np.full(400, RIGHT, np.uint8), True).to_bytes())
        )
    return load_demonstrations(files, 4)


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
def test_export_dataset_equals_environment_observations(found):
    names = export_minari(found, MinariMetadata("planner", **ABOUT))
    assert names == ["npp/simple/planner-v0", "npp/simplest/planner-v0"]
    dataset = minari.load_dataset("npp/simple/planner-v0")
    assert dataset.total_episodes == 2
    assert dataset.storage.metadata["author"] == {"A. Nyone"}
    assert dataset.storage.metadata["algorithm_name"] == "planner"
    for episode, demonstration in zip(dataset.iterate_episodes(), found.demonstrations[:2], strict=True):
        decisions = len(demonstration.actions)
        np.testing.assert_array_equal(episode.actions, demonstration.actions)
        assert len(episode.rewards) == len(episode.terminations) == decisions
        assert episode.terminations[-1] and not episode.terminations[:-1].any() and not episode.truncations.any()
        env = NppEnv([demonstration.level])
        observation, _ = env.reset()
        for t in range(decisions + 1):
            for key in layout.VISION_FREE:
                np.testing.assert_array_equal(episode.observations[key][t], observation[key])
            if t < decisions:
                observation, reward, *_ = env.step(int(episode.actions[t]))
                assert episode.rewards[t] == reward


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
def test_import_exported_dataset_restores_demonstrations(found):
    names = export_minari(found, MinariMetadata("human", **ABOUT))
    files = [file for name in names for file in import_minari(name)]
    assert [len(file.replay.inputs) for file in files] == [len(d.inputs) for d in found.demonstrations]
    again = load_demonstrations(files, 4)
    assert [d.level for d in again.demonstrations] == [d.level for d in found.demonstrations]
    for ours, theirs in zip(found.demonstrations, again.demonstrations, strict=True):
        assert (ours.name, ours.category) == (theirs.name, theirs.category)
        np.testing.assert_array_equal(ours.actions, theirs.actions)
    with pytest.raises(DemonstrationError, match="exists already"):
        export_minari(found, MinariMetadata("human", **ABOUT))


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
def test_recovered_environment_replays_episodes(found, tmp_path, monkeypatch):
    (name, _) = export_minari(found, MinariMetadata("planner", **ABOUT), observations=("state", "player_frame"))
    dataset = minari.load_dataset(name)
    env = dataset.recover_environment()
    assert len(env.unwrapped.bank) == dataset.total_episodes
    assert set(env.observation_space) == {"game_state", "player_frame"}
    for i, episode in enumerate(dataset.iterate_episodes()):
        observation, _ = env.reset(options={"level": i})
        for t, action in enumerate(episode.actions):
            for key, values in episode.observations.items():
                np.testing.assert_array_equal(values[t], observation[key])
            observation, reward, terminated, *_ = env.step(int(action))
            assert (reward, terminated) == (episode.rewards[t], episode.terminations[t])
    assert dataset.recover_environment(levels=[corridor(20, 30, 32)]).unwrapped.bank.levels == [corridor(20, 30, 32)]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(DemonstrationError, match=f"{name}: no such dataset of nppsim; see `minari list local`"):
        dataset.recover_environment()


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
def test_export_simultaneous_second_export_raises_error(found, tmp_path, monkeypatch):
    about, episodes = MinariMetadata("planner", **ABOUT), bc.minari._episodes

    def meanwhile(env, demonstrations):
        yield from episodes(env, demonstrations)
        with monkeypatch.context() as other:
            other.setattr(bc.minari, "_episodes", episodes)
            other.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))  # meanwhile ours is a hidden folder in it
            if not (tmp_path / "minari" / "npp").exists():
                export_minari(found, replace(about, author="another"))

    monkeypatch.setattr(bc.minari, "_episodes", meanwhile)
    with pytest.raises(DemonstrationError, match="npp/simple/planner-v0"):
        export_minari(found, about)
    assert minari.load_dataset("npp/simple/planner-v0").storage.metadata["author"] == {"another"}
    assert not list((tmp_path / "minari").glob(".nppsim_*"))


def test_import_unknown_or_invalid_name_raises_error(found):
    with pytest.raises(DemonstrationError, match="npp/simple/human-v0: no such dataset"):
        import_minari("npp/simple/human-v0")
    with pytest.raises(DemonstrationError, match="single words"):
        dataset_id("simple", "two words")
    with pytest.raises(DemonstrationError, match="single words"):
        MinariMetadata("two words", **ABOUT)
    with pytest.raises(DemonstrationError, match="observations: unknown observation 'smell'"):
        export_minari(found, MinariMetadata("planner", **ABOUT), observations=("smell",))


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
@pytest.mark.parametrize("damage", [{"level": "no base64"}, {"level": "AAAA"}, {"frame_skip": "four"}, {"frames": 1}])
def test_import_unplayable_episode_raises_error(found, damage):
    name, _ = export_minari(found, MinariMetadata("planner", **ABOUT))
    storage = minari.load_dataset(name).storage
    storage.update_episode_metadata([{f"options/{key}": value for key, value in damage.items()}], [1])
    with pytest.raises(DemonstrationError, match="planner-v0, episode 1: .*; export it again"):
        import_minari(name)


def test_export_larger_than_memory_raises_error_before_playback(found, monkeypatch):
    monkeypatch.setattr(bc.minari, "check_memory", partial(check_memory, available_bytes=1000))
    with pytest.raises(DatasetError, match="npp/simple/planner-v0"):
        export_minari(found, MinariMetadata("planner", **ABOUT))


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
def test_commands_export_then_import_restores_replays(found, tmp_path, capsys):
    for k, demonstration in enumerate(found.demonstrations):
        Replay(demonstration.level, demonstration.inputs, True).save(tmp_path / f"{k}.replay")
    waiting = np.zeros(4 * (int(nppsim.LevelBank([demonstration.level]).time_limit[0]) // 4), np.uint8)
    Replay(demonstration.level, np.concatenate([waiting, demonstration.inputs]), True).save(tmp_path / "slow.replay")
    about = [f"--{name.replace('_', '-')}={value}" for name, value in ABOUT.items()]
    assert main(["minari-export", str(tmp_path), "--source", "planner", "--observations", "state", *about]) == 0
    assert list(minari.load_dataset("npp/uncategorised/planner-v0").observation_space) == ["game_state"]
    printed = capsys.readouterr().out
    assert "longer than the time limit: 1" in printed and printed.endswith("npp/uncategorised/planner-v0\n")
    assert main(["minari-import", "npp/uncategorised/planner-v0", str(tmp_path / "back")]) == 0
    assert len(list((tmp_path / "back" / "uncategorised").glob("*.replay"))) == 3
    assert main(["minari-import", "npp/uncategorised/planner-v0", str(tmp_path / "back")]) == 2
    assert "00000.replay: exists already" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["minari-import", "npp/uncategorised/planner-v0", str(tmp_path / "file")]) == 2
    assert f"OUT {tmp_path / 'file'}: cannot be written (" in capsys.readouterr().err
    assert main(["minari-import", "npp/simple/planner-v0", str(tmp_path / "back")]) == 2
    assert capsys.readouterr().err.startswith("error: npp/simple/planner-v0: no such dataset")
