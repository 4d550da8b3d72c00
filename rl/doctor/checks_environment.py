"""Environments and rewards: one set of rules everywhere, and rewards that add up to what is wanted."""

from collections.abc import Mapping

import numpy as np
from gymnasium import spaces

from nppsim import reward as rewards
from nppsim.actions import NUM_ACTIONS
from nppsim.bank import MAX_TIME_LIMIT, TIME_LIMIT_BASE, TIME_LIMIT_PER_PX, LevelBank
from nppsim.batch import BatchSimulator
from nppsim.env import NppEnv
from nppsim.spaces import as_spaces_have_it
from rl.config import ExperimentConfig, PPOConfig
from rl.doctor.checks_data import Levels
from rl.doctor.doctor import BEFORE, CheckWarned, check, derived, require
from rl.doctor.samples import bytes_differ
from rl.evaluation.suite import EvaluationSuite
from rl.policy.architectures import Architecture
from rl.ppo.vec_env import BatchVecEnv

DECISIONS = 150  # of random play, in each of 32 environments
LEVELS = 32  # that are played on, spread over the training levels
_PROGRAM = "this is a mistake in the program, not in your settings"


@derived
def some_levels(env: BatchVecEnv) -> LevelBank:
    """A bank of a few training levels of all categories: pictures of all of them would take seconds."""
    bank = env.sim.bank
    chosen = np.unique(np.linspace(0, len(bank) - 1, LEVELS).astype(int)).tolist()
    return LevelBank([bank.levels[i] for i in chosen], known=dict(zip(bank.levels, bank.compiled, strict=True)))


@derived
def ledger(env: BatchVecEnv, some_levels: LevelBank) -> "Ledger":
    """Random play by the rules of training, at least 1,000 decisions."""
    return Ledger(twin(env.sim, some_levels, 32), DECISIONS)


def twin(sim: BatchSimulator, bank: LevelBank, num_envs: int, threads: int | None = 1) -> BatchSimulator:
    """A simulator with the same rules, to play with."""
    return BatchSimulator(
        bank,
        num_envs,
        frame_skip=sim.frame_skip,
        observations=sim.keys,
        reward=sim.reward_config,
        gamma=sim.gamma,
        threads=threads,
        stacking=sim.stacking,
    )


@check(BEFORE)
def rules_are_the_same_everywhere(
    config: ExperimentConfig,
    settings: PPOConfig,
    architecture: Architecture,
    env: BatchVecEnv,
    suites: Mapping[str, EvaluationSuite],
) -> str:
    """Training and evaluations have the configured frame skip, rewards, discount, observations and six actions; they
    differ in levels and sizes only."""
    wanted = {
        "frame skip": config.frame_skip,
        "observations": architecture.observations,
        "stacks": architecture.stacking,
        "rewards": config.reward.weights,
        "discount": settings.gamma,
    }
    for name, sim in {"training": env.sim, **{name: suite.simulator for name, suite in suites.items()}}.items():
        found = {
            "frame skip": sim.frame_skip,
            "observations": sim.keys,
            "stacks": sim.stacking,
            "rewards": sim.reward_config,
            "discount": sim.gamma,
        }
        for what, value in wanted.items():
            require(found[what] == value, f"{what} of {name} is {found[what]}, not {value}", _PROGRAM)
        limit = np.minimum(TIME_LIMIT_BASE + TIME_LIMIT_PER_PX * sim.bank.path_length, MAX_TIME_LIMIT)
        late = int((np.abs(sim.bank.time_limit - limit) > 1).sum())
        require(not late, f"the time limit of {late} levels of {name} is not that of their ways", _PROGRAM)
    require(env.action_space == spaces.Discrete(NUM_ACTIONS), f"training has actions {env.action_space}", _PROGRAM)
    return f"frame skip {config.frame_skip}, discount {settings.gamma}, rewards {config.reward}"


@check(BEFORE)
def rewards_are_ordered(config: ExperimentConfig, settings: PPOConfig, levels: Levels, env: BatchVecEnv) -> str:
    """Winning is worth more than waiting, waiting no less than dying, and approaching pays: by arithmetic, per category."""
    names = np.array([category for _, category in levels["train"]])
    lengths, win = env.sim.bank.path_length, env.sim.reward_config.win
    require(win > 0, f"winning is worth {win:g}", "choose --reward-preset default, or give winning a reward")
    by_category = {name: lengths[names == name].tolist() for name in dict.fromkeys(names.tolist())}
    rows = rewards.audit(env.sim.reward_config, settings.gamma, config.frame_skip, by_category)
    problems = [f"{row.category}: {problem}" for row in rows for problem in row.problems]
    if problems:
        remedy = "raise --gamma towards 1, or choose --reward-preset default"
        require(not config.reward.is_default, problems[0], remedy)
        raise CheckWarned(f"{len(problems)} problems of rewards {config.reward}, e.g. {problems[0]}", remedy)
    smallest = min(rows, key=lambda row: row.win_return - max(row.timeout_return, row.death_return))
    return (
        f"{len(rows)} categories; smallest lead on {smallest.category}: win {smallest.win_return:+.2f}, time-out "
        f"{smallest.timeout_return:+.2f}, death {smallest.death_return:+.2f}"
    )


class Ledger:
    """Random play on some levels, with what each decision earned.

    rewards: float32[T, N].
    terms: float64[T, N, 8], of each decision.
    ends: bool[T, N].
    potentials: float64[T + 1, N], before each decision (of the next episode after an end), and after the last.
    episodes: EPISODE_DTYPE[E], with the environment and decision of each end: int64[E].
    """

    def __init__(self, sim: BatchSimulator, decisions: int, seed: int = 0):
        rng, n = np.random.default_rng(seed), sim.num_envs
        sim.reset(rng.integers(0, len(sim.bank), n))
        sim.next_level[:] = rng.integers(0, len(sim.bank), n)
        self.rewards = np.zeros((decisions, n), np.float32)
        self.terms = np.zeros((decisions, n, rewards.NUM_TERMS))
        self.ends = np.zeros((decisions, n), bool)
        self.potentials = np.zeros((decisions + 1, n))
        episodes, where = [], []
        for t in range(decisions):
            self.potentials[t] = sim.state.progress["potential"][:n]
            before = sim.state.terms[:n].copy()
            sim.step(rng.integers(0, NUM_ACTIONS, n))
            after = sim.state.terms[:n].copy()
            after[sim.finished] = sim.episode["terms"][sim.finished]
            self.rewards[t], self.terms[t] = sim.rewards, after - before
            self.ends[t, sim.finished] = True
            episodes.append(sim.episode[sim.finished].copy())
            where += [(env, t) for env in sim.finished.tolist()]
        self.potentials[decisions] = sim.state.progress["potential"][:n]
        self.episodes = np.concatenate(episodes)
        self.where = np.array(where, np.int64).reshape(-1, 2)


@check(BEFORE)
def rewards_add_up(ledger: "Ledger") -> str:
    """The rewards of an episode's decisions sum to its return, and its terms do; no term is counted twice or lost."""
    off = np.abs(ledger.terms.sum(axis=2) - ledger.rewards)
    gap, rounded = off.max(), 2**-23 * np.abs(ledger.rewards)
    require(
        bool((off < 1e-5 + rounded).all()),
        f"a decision's terms sum to {gap:.3g} more or less than its reward",
        _PROGRAM,
    )
    for episode, (i, end) in zip(ledger.episodes, ledger.where, strict=True):
        starts = np.flatnonzero(ledger.ends[:end, i])
        first = starts[-1] + 1 if len(starts) else 0
        paid = float(ledger.rewards[first : end + 1, i].sum())
        ret, terms = float(episode["ret"]), float(episode["terms"].sum())
        require(
            abs(paid - ret) < 1e-4 * max(1, abs(ret)) and abs(terms - ret) < 1e-9 * max(1, abs(ret)),
            f"an episode paid {paid:.6f}, reports a return of {ret:.6f} and terms of {terms:.6f}",
            _PROGRAM,
        )
        require(
            int(episode["decisions"]) == end + 1 - first,
            f"an episode of {end + 1 - first} decisions reports {episode['decisions']}",
            _PROGRAM,
        )
    return f"{ledger.rewards.size} decisions, {len(ledger.episodes)} episodes"


@check(BEFORE)
def shaping_telescopes(env: BatchVecEnv, ledger: "Ledger", settings: PPOConfig) -> str:
    """The shaping of a decision is gamma times the potential after it minus that before, with PPO's gamma; an end has
    none: so it cannot change which policy is best."""
    shaping = ledger.terms[..., rewards.TERMS.index("shaping")]
    if not shaping.any():
        weight = env.sim.reward_config.shaping
        require(weight == 0, f"shaping has weight {weight} and never fires", _PROGRAM)
        return "no shaping is configured"
    expected = settings.gamma * ledger.potentials[1:] - ledger.potentials[:-1]
    died = np.zeros_like(ledger.ends)
    for episode, (i, end) in zip(ledger.episodes, ledger.where, strict=True):
        died[end, i] = episode["outcome"] != 0
    expected = np.where(died, -ledger.potentials[:-1], expected)
    compared = ~ledger.ends | died  # what a time-out's last potential was is not kept
    gap = float(np.abs(shaping - expected)[compared].max())
    require(gap < 1e-6, f"shaping is off by up to {gap:.3g} with gamma {settings.gamma}", "leave --pbrs-gamma out")
    return f"{int(compared.sum())} decisions, off by {gap:.0e}"


@check(BEFORE)
def dense_rewards_fire(env: BatchVecEnv, ledger: "Ledger") -> str:
    """Every term with a weight that should show within 1,000 decisions of random play does."""
    config = env.sim.reward_config
    counts = {name: int((ledger.terms[..., i] != 0).sum()) for i, name in enumerate(rewards.TERMS)}
    dense = [name for name in ("time", "shaping", "closest", "exploration") if getattr(config, name)]
    silent = [name for name in dense if not counts[name]]
    require(not silent, f"never in {ledger.rewards.size} decisions: {', '.join(silent)}", _PROGRAM)
    unwanted = [name for name, count in counts.items() if count and not getattr(config, name)]
    require(not unwanted, f"fires without a weight: {', '.join(unwanted)}", _PROGRAM)
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


@check(BEFORE)
def decisions_last_frame_skip_frames(env: BatchVecEnv, some_levels: LevelBank, config: ExperimentConfig) -> str:
    """An action is held for exactly ``frame_skip`` frames, unless the episode ends in them."""
    sim = twin(env.sim, some_levels, 16)
    sim.reset(np.arange(16) % len(sim.bank))
    rng = np.random.default_rng(0)
    compared = 0
    for _ in range(30):
        before = sim.state.ninja["frame"][:16].copy()
        sim.step(rng.integers(0, NUM_ACTIONS, 16))
        goes_on = ~(sim.terminated | sim.truncated)
        lasted = (sim.state.ninja["frame"][:16] - before)[goes_on]
        require(
            bool((lasted == config.frame_skip).all()),
            f"decisions last {sorted(set(lasted.tolist()))} frames, {config.frame_skip} are configured",
            _PROGRAM,
        )
        compared += len(lasted)
    return f"{compared} decisions of {config.frame_skip} frames"


@check(BEFORE)
def many_play_like_one(env: BatchVecEnv, some_levels: LevelBank) -> str:
    """A batch of environments, with one thread or several, and a single Gymnasium environment play the same: rewards,
    ends, observations and action masks byte for byte."""
    levels = np.arange(64) % len(some_levels)
    batch, threads = twin(env.sim, some_levels, 64), twin(env.sim, some_levels, 64, threads=3)
    alone = NppEnv(
        levels=some_levels,
        frame_skip=env.sim.frame_skip,
        observations=env.sim.keys,
        reward=env.sim.reward_config,
        gamma=env.sim.gamma,
        stacking=env.sim.stacking,
    )
    batch.reset(levels)
    threads.reset(levels)
    first, _ = alone.reset(options={"level": 0})
    _same("observations of one alone at the start", {k: v[0] for k, v in as_spaces_have_it(batch.obs).items()}, first)
    rng, running = np.random.default_rng(0), True
    for t in range(60):
        masks = batch.action_masks()
        require(bool((masks == threads.action_masks()).all()), f"action masks differ at decision {t}", _PROGRAM)
        actions = rng.integers(0, NUM_ACTIONS, 64)
        if running:
            require(bool((masks[0] == alone.action_masks()).all()), f"masks of one alone differ at {t}", _PROGRAM)
            obs, paid, terminated, truncated, _ = alone.step(int(actions[0]))
        batch.step(actions)
        threads.step(actions)
        _same(f"threads at decision {t}", _outcome(batch) | batch.obs, _outcome(threads) | threads.obs)
        if running:
            mine = (float(batch.rewards[0]), bool(batch.terminated[0]), bool(batch.truncated[0]))
            theirs = (float(np.float32(paid)), terminated, truncated)
            require(mine == theirs, f"one alone gets {theirs} at decision {t}, in a batch {mine}", _PROGRAM)
            running = not (terminated or truncated)
            if running:
                _same(
                    f"observations of one alone at {t}", {k: v[0] for k, v in as_spaces_have_it(batch.obs).items()}, obs
                )
    return "64 environments, 60 decisions, 1 and 3 threads, and one alone"


def _outcome(sim: BatchSimulator) -> dict[str, np.ndarray]:
    return {"rewards": sim.rewards, "terminated": sim.terminated, "truncated": sim.truncated}


def _same(what: str, first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> None:
    different = bytes_differ(first, second)
    require(not different, f"{what}: {', '.join(different[:6])} differ", _PROGRAM)
