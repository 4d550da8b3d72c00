"""Pictures of running environments, for Gymnasium's wrappers and for a window."""

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

pytest.importorskip("PIL")

from nppsim.gym.env import NppEnv
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.pictures import live
from nppsim.pictures.region import RenderError

from worlds import mixed_level, small_room, straight

RIGHT = 2
LEVELS = [straight(name="short"), straight(length=24, name="long")]


def fresh(env):
    """The present picture drawn without any cache: uint8[H, W, 3]."""
    view = env._renderer._views[0]
    scene, (left, top) = view._scene, view._corner
    looks = scene.looks_now(view._geometry, env.simulator.state.entities[0], env.simulator.state.movers[0])
    box = (0, 0, scene.width, scene.height)
    whole = env.render()
    part = np.asarray(scene.part(box, looks, np.array(view._path), view._ninja, movers=True))
    whole[top : top + box[3], left : left + box[2]] = part
    return whole


@pytest.mark.parametrize("level", [mixed_level(3), mixed_level(4, kinds=(5, 14, 16, 26)), LEVELS[0]], ids=str)
def test_incremental_pictures_equal_full_redraw(level):
    """Except for the order of overlapping objects, and for rounding where movers are blended with the background."""
    env = NppEnv([level], render_mode="rgb_array", render_size=(528, 300))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(30):
        if step % 6 == 0:
            difference = np.abs(env.render().astype(int) - fresh(env))
            assert (difference.max(axis=2) > 16).mean() < 2e-3, step
        *_, terminated, truncated, _ = env.step(int(rng.integers(6)))
        if terminated or truncated:
            break
    assert step > 3


def test_restored_environment_draws_the_path_of_the_snapshot():
    env = NppEnv([mixed_level(3), LEVELS[0]], render_mode="rgb_array", render_size=(528, 300))
    env.reset(options={"level": 0})
    for _ in range(10):
        env.step(RIGHT)
    expected, snapshot = env.render(), env.snapshot()
    for _ in range(5):
        env.step(RIGHT)
    env.reset(options={"level": 1})
    env.restore(snapshot)
    for one in (env, env.clone()):
        difference = np.abs(one.render().astype(int) - expected)
        assert (difference.max(axis=2) > 16).mean() < 2e-3
    blind = NppEnv(env.bank)
    blind.reset(options={"level": 0})
    with pytest.raises(ValueError, match="without render_mode"):
        env.restore(blind.snapshot())


def test_pictures_of_levels_have_one_size():
    env = NppEnv(LEVELS, render_mode="rgb_array", render_size=(320, 200))
    shapes = set()
    for level in range(2):
        env.reset(options={"level": level})
        first = env.render()
        env.step(RIGHT)
        second = env.render()
        assert first.dtype == np.uint8 and (first != second).any()
        shapes |= {first.shape, second.shape}
    assert shapes == {(200, 320, 3)}
    assert NppEnv(LEVELS).render() is None
    with pytest.raises(RenderError, match="30 x 30 px is too small; give at least 44 x 25"):
        NppEnv(LEVELS, render_mode="rgb_array", render_size=(30, 30))


def test_static_entities_drawn_once_per_level(monkeypatch):
    live._stage.cache_clear()
    env = NppEnv(LEVELS, render_mode="rgb_array", render_size=(320, 200))
    for _ in range(3):
        for level in range(2):
            env.reset(options={"level": level})
            for _ in range(4):
                env.step(RIGHT)
                env.render()
    assert live._stage.cache_info().misses == 2


def test_taken_switch_and_open_exit_drawn():
    level = small_room(switch=2)
    env = NppEnv([level], render_mode="rgb_array", render_size=(528, 300))
    env.reset(seed=0)
    before = env.render()
    while not env.simulator.state.ninja["switch_taken"][0]:
        env.step(RIGHT)
    env.render()
    view = env._renderer._views[0]
    scene, (left, top) = view._scene, view._corner
    exit_ = next(e for e in scene.entities if e.kind == 3)
    k = scene.ppt / 24
    x = left + round((exit_.at[0] - 24 * scene.region[0]) * k)
    y = top + round((exit_.at[1] - 24 * scene.region[1]) * k)
    assert (env.render()[y - 3 : y + 3, x - 3 : x + 3] != before[y - 3 : y + 3, x - 3 : x + 3]).any()


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP"])
def test_vector_env_renders_each_environment(mode):
    envs = NppVectorEnv(LEVELS, 3, autoreset_mode=mode, render_mode="rgb_array", render_size=(160, 100))
    assert NppVectorEnv(LEVELS).render() is None
    envs.reset(seed=0)
    alone = NppEnv(LEVELS, render_mode="rgb_array", render_size=(160, 100))
    alone.reset(options={"level": int(envs.simulator.level[1])})
    for _ in range(5):
        envs.step([0, RIGHT, 0])
        alone.step(RIGHT)
    pictures = envs.render()
    assert [picture.shape for picture in pictures] == [(100, 160, 3)] * 3
    np.testing.assert_array_equal(pictures[1], alone.render())
    for _ in range(150):  # through ends of episodes
        envs.step([RIGHT] * 3)
    assert len(envs.render()) == 3


def test_add_render_observation_wrapper_works():
    env = NppEnv(LEVELS, render_mode="rgb_array", render_size=(160, 100))
    seen, _ = wrappers.AddRenderObservation(env, render_only=True).reset(seed=0)
    assert seen.shape == (100, 160, 3)
    both = wrappers.AddRenderObservation(env, render_only=False)
    seen, _ = both.reset(seed=0)
    assert both.observation_space.contains(seen)


@pytest.mark.filterwarnings("ignore")  # moviepy's own
def test_record_video_wrappers_write_videos(tmp_path):
    pytest.importorskip("moviepy")
    av = pytest.importorskip("av")
    env = gymnasium.make("nppsim/Npp-v0", levels=LEVELS, render_mode="rgb_array", render_size=(160, 100))
    env = wrappers.RecordVideo(env, str(tmp_path / "one"))
    env.reset(seed=0)
    while not any(env.step(RIGHT)[2:4]):
        pass
    env.close()
    envs = NppVectorEnv(LEVELS, 4, autoreset_mode="NEXT_STEP", render_mode="rgb_array", render_size=(160, 100))
    envs = wrappers.vector.RecordVideo(envs, str(tmp_path / "many"), video_length=10)
    envs.reset(seed=0)
    for _ in range(20):
        envs.step([RIGHT] * 4)
    envs.close()
    assert NppVectorEnv(LEVELS, render_mode="rgb_array")._renderer._views[0].size == live.SMALL_PICTURE_SIZE
    for folder, size in (("one", (160, 100)), ("many", (320, 200))):
        (film,) = sorted((tmp_path / folder).glob("*.mp4"))[:1]
        with av.open(str(film)) as container:
            frame = next(container.decode(video=0))
            assert (frame.width, frame.height) == size


def test_human_mode_shows_steps_in_window(monkeypatch):
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # no screen is needed
    with pytest.warns(UserWarning, match="HumanRendering"):
        env = gymnasium.make("nppsim/Npp-v0", levels=LEVELS, render_mode="human", render_size=(160, 100))
    env.reset(seed=0)
    env.step(RIGHT)
    assert env.render() is None
    screen = pygame.display.get_surface()
    assert screen.get_size() == (160, 100)
    shown = pygame.surfarray.array3d(screen).transpose(1, 0, 2)
    np.testing.assert_array_equal(shown, env.unwrapped._renderer.picture(0))
    env.close()
    assert not pygame.display.get_init()
