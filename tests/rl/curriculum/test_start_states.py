"""Start states: where episodes begin, which results count, and resumption, also with another bank."""

from functools import cache

import numpy as np
import pytest

from benchmarks.curriculum import sizes_of_curriculum
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.physics.outcomes import DIED, WON
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import make_sampler
from rl.curriculum.start_states import FADE, MAX_LOSSES, MAX_WINS, STEPS, GuideRun, Prefixes, StartStateError

from learners import as_text, make_ppo, roll_out, stored
from worlds import RIGHT, corridor

LEVELS = [corridor(door=40), corridor(door=60), corridor(door=80)]
NOTHING = 0


def winning(level):
    """Actions that win a corridor: running to the right."""
    sim = BatchSimulator([level], 1, observations=("game_state",), threads=1)
    sim.reset()
    for count in range(1, 1000):
        sim.step(np.array([RIGHT]))
        if sim.finished.size:
            assert sim.episode["outcome"][0] == WON
            return np.full(count, RIGHT)
    raise AssertionError("no episode was won")


@cache
def wins():
    """Fingerprint -> actions that win, of each level."""
    return {level.fingerprint: winning(level) for level in LEVELS}


def made(levels=LEVELS, num_envs=8, strategy="uniform", runs=None, seed=0, begin=True, **settings):
    """(sampler, simulator), with demonstrations of the levels."""
    sim = BatchSimulator(levels, num_envs, observations=("game_state", "reachability_features"), threads=1)
    config = CurriculumConfig(strategy=strategy, start_states=True, **settings)
    sampler = make_sampler(["simple"] * len(levels), config, seed)
    sampler.starts.add(wins() if runs is None else runs)
    if begin:
        sampler.start(sim)
    return sampler, sim


def play(sampler, sim, decide, steps):
    """Return the records of ended episodes, and whether each began at the true start of its level."""
    ended, true = [], []
    for _ in range(steps):
        actions = decide(sampler)
        sampler.watch(sim, actions)
        sim.step(actions)
        if sim.finished.size:
            ended.append(sampler.next_episodes(sim))
            true.append(sampler.true_starts)
    return np.concatenate(ended), np.concatenate(true)


def helped(sampler):
    """Win episodes from start states, and none from the true start."""
    return np.where(sampler.starts.began > 0, RIGHT, NOTHING)


def idle(sampler):
    return np.full(len(sampler.starts.began), NOTHING)


def test_begin_restores_state_after_prefix():
    sampler, sim = made(num_envs=4)
    rng, levels = np.random.default_rng(1), np.array([0, 1, 2, 0])
    while not sampler.starts.began.all():
        others = sampler.starts.began == 0
        sim.reset(np.where(others, levels, -1))
        sampler.starts.begin(sim, np.flatnonzero(others), rng)
    alone = BatchSimulator(LEVELS, 1, observations=("game_state", "reachability_features"), threads=1)
    for env in range(4):
        run = wins()[LEVELS[sim.level[env]].fingerprint]
        prefix = run[: sampler.starts.began[env]]
        assert len(prefix) == len(run) * (STEPS - 1) // STEPS
        alone.reset(sim.level[env : env + 1])
        for action in prefix:
            alone.step(np.array([action]))
        for key, values in alone.obs.items():
            assert np.array_equal(sim.obs[key][env], values[0]), key
        assert sim.state.ninja[env] == alone.state.ninja[0]
        assert sim.state.progress["decisions"][env] == 0
        assert not sim.state.terms[env].any()
        assert sim.state.progress["potential"][env] == alone.state.progress["potential"][0] > 0


def test_start_share_limits_start_states_and_statistics_exclude_them():
    sampler, sim = made(num_envs=16, start_share=0.25)
    ended, true = play(sampler, sim, idle, 3000)
    share = 1 - true.mean()
    assert abs(share - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(true)), (share, len(true))
    assert sampler.metrics()["curriculum/episodes"] == true.sum()
    assert sampler.metrics()["start_states/episodes"] == (~true).sum()
    assert 0 < sampler.metrics()["start_states/known"] < 1
    assert ((ended["frames"] > ended["decisions"] * sim.frame_skip) == ~true).all()


def test_wins_from_start_states_move_them_to_the_level_start():
    sampler, sim = made(num_envs=16)
    for _ in range(12):
        ended, true = play(sampler, sim, helped, 800)
        assert (ended["outcome"][~true] == WON).all()
        assert not (ended["outcome"][true] == WON).any()
        sampler.update(sim)
    found = sampler.metrics()
    assert found["curriculum_stages/simple_success_rate"] == 0
    assert found["start_states/success_rate"] == 1
    assert all(run.position < 2 for run in sampler.starts.runs.values()), "wins there, losses at the true start"
    assert found["start_states/reached"] >= 3


def test_wins_from_level_start_reduce_start_states():
    sampler, _ = made()
    chances = []
    for wins in range(MAX_WINS + 1):
        sampler.starts.update(np.array([wins, 0, 0]))
        chances.append(sampler.starts._probability.tolist())
    for wins, (first, *others) in enumerate(chances):
        assert first == (0.25 * FADE**wins if wins < MAX_WINS else 0)
        assert others == [0.25, 0.25]
    assert LEVELS[0].fingerprint not in sampler.starts.runs


def test_best_attempt_becomes_a_start_state():
    """The policy runs for 10 decisions and then waits; each episode begins where the previous best one ended."""
    sampler, sim = made(levels=[corridor(door=80)], runs={}, num_envs=4)
    won = []

    def run_briefly(sampler):
        return np.where(sim.state.progress["decisions"][:4] < 10, RIGHT, NOTHING)

    for _ in range(40):
        ended, true = play(sampler, sim, run_briefly, 300)
        won.append(((ended["outcome"] == WON) & ~true).sum())
        assert not ((ended["outcome"] == WON) & true).any()
        sampler.update(sim)
        if any(won):
            break
    assert any(won), "no episode came further than from the true start"
    (run,) = sampler.starts.runs.values()
    assert run.wins
    assert len(run.actions) > 30


@pytest.mark.parametrize("better", [0, 1])
def test_end_two_episodes_of_one_level_stores_the_better(better):
    """In any environment: a win is preferred to an attempt, and an attempt with more progress to one with less."""
    level = LEVELS[0].fingerprint
    for win in (True, False):
        sampler, sim = made(runs={}, num_envs=2)
        starts = sampler.starts
        starts.runs[level] = GuideRun(np.full(20, RIGHT, np.uint8), wins=False, progress=0.3)
        starts.update(np.zeros(len(LEVELS), int))
        tracks = starts.tracks
        tracks.known[:] = True
        tracks.length[:], tracks.best_at[:] = 30, 25
        tracks.best[:] = 0.5 * starts._unit
        starts.began[better] = 18 if win else 0
        tracks.best[better] *= 1.0 if win else 1.6
        sim.finished = np.array([0, 1])
        ended = np.zeros(2, sim.episode.dtype)
        ended["outcome"] = DIED
        if win:
            ended["outcome"][better] = WON
        starts.end(sim, ended)
        run = starts.runs[level]
        assert run.wins == win
        assert win or run.progress == pytest.approx(0.8)


def test_attempt_without_progress_is_dropped():
    sampler, sim = made(levels=[corridor(door=80)], runs={}, num_envs=4)
    play(sampler, sim, lambda sampler: np.where(sampler.starts.tracks.length < 10, RIGHT, NOTHING), 300)
    (run,) = sampler.starts.runs.values()
    assert not run.wins
    tried = 0
    while sampler.starts.runs and tried < 50:
        play(sampler, sim, idle, 300)
        tried += 1
    assert not sampler.starts.runs
    assert sampler.starts.episodes >= MAX_LOSSES


@pytest.mark.parametrize(("success", "place"), [(0.1, "late"), (0.4, "early")])
def test_start_position_follows_success_threshold(success, place):
    sampler, _ = made(start_threshold=0.25)
    starts, rng, found = sampler.starts, np.random.default_rng(0), []
    name, run = next(iter(starts.runs.items()))
    run.position = 5.0
    for _ in range(400):
        starts._move(name, run, bool(rng.random() < success))
        found.append(run.position)
    assert (np.median(found) > 6) == (place == "late")
    assert (np.median(found) < 2) == (place == "early")


def test_losses_from_level_start_reactivate_start_states():
    sampler, sim = made(num_envs=16)
    for run in sampler.starts.runs.values():
        run.position = 0.0
    sampler.update(sim)
    assert sampler.metrics()["start_states/levels"] == 0
    play(sampler, sim, idle, 600)
    assert sampler.metrics()["start_states/levels"] > 0


@pytest.mark.parametrize("strategy", CURRICULA)
def test_load_state_dict_draws_same_start_states(strategy):
    sampler, sim = made(strategy=strategy)
    for _ in range(3):
        play(sampler, sim, helped, 250)
        sampler.update(sim)
    state = stored(sampler.state_dict())
    rows, waiting = sim.snapshot(slice(None)), sim.next_level.copy()
    other, again = made(strategy=strategy, seed=5, runs={}, begin=False)
    again.restore(slice(None), rows)
    again.next_level[:] = waiting
    again.observe()
    other.load_state_dict(state)
    assert as_text(other.state_dict()) == as_text(state)
    found = []
    for one, where in ((sampler, sim), (other, again)):
        ended, true = play(one, where, helped, 250)
        one.update(where)
        rows = where.snapshot(slice(None)).tobytes()
        found.append((ended.tolist(), true.tolist(), as_text(one.state_dict()), rows))
    assert str(found[0]) == str(found[1])
    assert "False" in str(found[0][1])


def test_attach_other_bank_keeps_runs_of_common_levels():
    """In the other bank, levels have other indices, one is new and one is missing."""
    sampler, sim = made()
    play(sampler, sim, helped, 300)
    state = stored(sampler.starts.state_dict())
    positions = {name: run.position for name, run in sampler.starts.runs.items()}
    levels = [corridor(door=70), LEVELS[2], LEVELS[0]]
    other, elsewhere = made(levels, runs={}, num_envs=32)
    other.starts.load_state_dict(state | {"tracks": None, "began": np.zeros(32, int)})
    other.starts.attach(elsewhere, np.zeros(3, int))
    other.start(elsewhere)
    assert (other.starts._probability > 0).tolist() == [False, True, True]
    assert {name: run.position for name, run in other.starts.runs.items()} == positions
    ended, true = play(other, elsewhere, helped, 600)
    assert set(ended["level"][~true].tolist()) == {1, 2}
    assert (ended["outcome"][~true] == WON).all()


def test_attach_other_bank_clears_cached_states():
    sampler, sim = made()
    play(sampler, sim, helped, 300)
    prefixes = sampler.starts._prefixes
    assert len(prefixes)
    levels = LEVELS[::-1]
    _, elsewhere = made(levels)
    sampler.starts.attach(elsewhere, np.zeros(3, int))
    assert not len(prefixes)


def test_prefixes_state_run_too_short_raises():
    _, sim = made()
    with pytest.raises(StartStateError, match=r"a stored run ends at decision \d+ of 500"):
        Prefixes().state(sim, 0, np.full(500, RIGHT))


def test_load_state_dict_saved_without_start_states_raises():
    state = make_sampler(["simple"] * 3, CurriculumConfig(), 0).state_dict()
    with pytest.raises(ConfigError, match="--start-states"):
        made()[0].load_state_dict(state)


def test_prefixes_over_max_bytes_evicts(monkeypatch):
    monkeypatch.setattr("rl.curriculum.start_states.MAX_BYTES", 1)
    _, sim = made()
    prefixes = Prefixes()
    first = prefixes.state(sim, 0, np.full(3, RIGHT))
    prefixes.state(sim, 1, np.full(3, RIGHT))
    assert len(prefixes) == 1
    assert np.array_equal(prefixes.state(sim, 0, np.full(3, RIGHT)), first)


def test_many_episodes_memory_is_bounded():
    sampler, sim = made(num_envs=16)

    def sometimes_helped(sampler):
        return np.where((sampler.starts.began > 0) & (np.arange(16) % 4 == 0), RIGHT, NOTHING)

    for _ in range(8):
        play(sampler, sim, sometimes_helped, 1000)
        sampler.update(sim)
    assert sampler.metrics()["start_states/episodes"] > 100, "the window of the latest 100 is full"
    before = sizes_of_curriculum(sampler)
    assert {
        f"StartStates.{name}" for name in ("runs", "began", "_recent", "_tracks", "_prefixes", "_level_index")
    } < set(before)
    states = sampler.starts._prefixes
    assert len(states) == len(LEVELS) * (STEPS - 1)
    assert before["StartStates._prefixes"].nbytes >= states.nbytes
    assert before["StartStates._prefixes"].entries >= len(states) + states.nbytes
    assert before["StartStates._tracks"].nbytes > sampler.starts.tracks.actions.nbytes
    for _ in range(2):
        play(sampler, sim, sometimes_helped, 1000)
        sampler.update(sim)
    after = sizes_of_curriculum(sampler)
    assert {name for name in after if after[name] != before[name]} == set()


def test_prefixes_state_with_stops_caches_intermediate_states():
    _, sim = made()
    prefixes, run = Prefixes(), np.full(9, RIGHT)
    prefixes.state(sim, 0, run, stops=[3, 6])
    assert len(prefixes) == 3
    for length in (3, 6, 9):
        assert np.array_equal(prefixes.state(sim, 0, run[:length]), Prefixes().state(sim, 0, run[:length]))
    assert len(prefixes) == 3


# ---------------------------------------------------------------------------------------------------------------------
# In training


def learner(**settings):
    """A small PPO with start states, whose episodes are short."""
    ppo, scalars = make_ppo(
        frame_skip=16, num_envs=8, rollout_length=64, curriculum=CurriculumConfig(start_states=True), **settings
    )
    return ppo, scalars


def test_rollout_marks_decisions_of_start_states():
    ppo, _ = learner()
    for _ in range(3):
        roll_out(ppo)
    decided = ppo._decided
    assert (decided == -1).any()
    assert (decided >= 0).any()
