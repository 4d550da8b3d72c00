"""Faults of levels, physics, observations, rewards, episodes and the curriculum."""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from nppsim import reward
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.outcomes import WON
from rl.curriculum import make_sampler
from rl.curriculum.manager import CurriculumManager
from rl.curriculum.stages import Stages
from rl.curriculum_config import CurriculumConfig
from rl.experiment import follower
from rl.experiment.follower import make_env
from rl.ppo.ppo import BatchPPO
from rl.ppo.vec_env import BatchVecEnv
from tests.mutation.mutations import Plants, fault

CURRICULUM = ("--use-curriculum", "--curriculum-min-episodes", "20")
PERMUTED = np.array([0, 2, 1, 3, 5, 4])  # left and right change places


# ---------------------------------------------------------------------------------------------------------------------
# Actions and physics


@fault("left and right change places in the simulator", "F28", "F114")
def _(plant: Plants) -> None:
    plant.wrap(
        BatchSimulator,
        "step",
        lambda original, sim, actions, *asleep, **named: original(sim, PERMUTED[np.asarray(actions)], *asleep, **named),
    )


@fault("actions arrive one decision late", "F28", "H6")
def _(plant: Plants) -> None:
    held: dict[int, np.ndarray] = {}

    def changed(original, sim, actions, *asleep, **named):
        late = held.get(id(sim), np.zeros_like(actions))
        held[id(sim)] = np.array(actions)
        return original(sim, late, *asleep, **named)

    plant.wrap(BatchSimulator, "step", changed)


@fault("walls of the levels are a tile away", "F10", "F27", "F46")
def _(plant: Plants) -> None:
    def changed(original, bank, levels, *arguments, **named):
        original(bank, levels, *arguments, **named)
        bank.world.segments["x"] += 24
        bank.world.segments["y"] += 24

    plant.wrap(LevelBank, "__init__", changed)


@fault("decisions of training last one frame", "F51", "H35", "H17")
def _(plant: Plants) -> None:
    _training_simulator(plant, frame_skip=1)


@fault("training reads another discount than PPO", "F33")
def _(plant: Plants) -> None:
    _training_simulator(plant, gamma=0.9)


@fault("another reward preset than asked for", "F44", "H17")
def _(plant: Plants) -> None:
    _training_simulator(plant, reward="legacy_october")


def _training_simulator(plant: Plants, **other: object) -> None:
    plant.set(follower, "BatchSimulator", lambda *arguments, **named: BatchSimulator(*arguments, **{**named, **other}))


@fault("evaluation plays with another frame skip", "F44")
def _(plant: Plants) -> None:
    import rl.evaluation.suite as evaluation

    plant.set(evaluation, "BatchSimulator", lambda *a, **named: BatchSimulator(*a, **{**named, "frame_skip": 2}))


@fault("episodes are cut off at a quarter of their time limit", "F5")
def _(plant: Plants) -> None:
    def changed(original, sim):
        static = original(sim)
        return static._replace(time_limit=static.time_limit // 4)

    plant.wrap(BatchSimulator, "_make_static", changed)


@fault("the simulator's arrays are made anew at each reset", "F3", "F19")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        sim = ppo.sim
        for key in list(sim.obs):
            sim.obs[key] = sim.obs[key].copy()
        return original(ppo)

    plant.wrap(BatchPPO, "_begin_next_episodes", changed)


@fault("two environments share their state", "H15")
def _(plant: Plants) -> None:
    def changed(original, sim, actions, *asleep, **named):
        if sim.num_envs > 8:
            sim.restore(1, sim.snapshot(0))
        return original(sim, actions, *asleep, **named)

    plant.wrap(BatchSimulator, "step", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Observations


@fault("positions of switch and exit are 0", "F107", "F106", "H25")
def _(plant: Plants) -> None:
    def changed(original, sim, *arguments):
        original(sim, *arguments)
        if "entity_positions" in sim.obs:
            sim.obs["entity_positions"][:] = 0
        return None

    plant.wrap(BatchSimulator, "_run", changed)


@fault("the ninja's position is not read by the network", "F106")
def _(plant: Plants) -> None:
    from rl.policy.networks import NormalizeObservations

    def changed(original, layer, observations):
        normalised = original(layer, observations)
        normalised[:, :2] = 0
        return normalised

    plant.wrap(NormalizeObservations, "forward", changed)


@fault("observations of training are scaled by ten", "F72", "F113")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        for values in ppo.sim.obs.values():
            if values.dtype == np.float32:
                values *= 10
        return original(ppo, t)

    plant.wrap(BatchPPO, "_decide", changed)


@fault("observations are those of the step before", "H5", "H6")
def _(plant: Plants) -> None:
    held: dict[int, dict[str, np.ndarray]] = {}

    def changed(original, sim, *arguments):
        original(sim, *arguments)
        now = {key: values.copy() for key, values in sim.obs.items()}
        for key, values in held.get(id(sim), now).items():
            sim.obs[key][:] = values
        held[id(sim)] = now

    plant.wrap(BatchSimulator, "_run", changed)


@fault("NaN in an observation", "F116")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        if ppo.updates == 3 and t == 5:
            ppo.sim.obs["game_state"][0, 2] = np.nan
        return original(ppo, t)

    plant.wrap(BatchPPO, "_decide", changed)


@fault("ways are measured from a point 24 px away", "H26", stage="shadow")
def _(plant: Plants) -> None:
    def changed(original, bank, *arguments, **named):
        original(bank, *arguments, **named)
        bank.paths.distance[:] = np.roll(bank.paths.distance, 2, axis=-1)

    plant.wrap(LevelBank, "__init__", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Rewards


def _weights(plant: Plants, **weights: Any) -> None:
    plant.set(reward.PRESETS, "default", replace(reward.PRESETS["default"], **weights))


@fault("no shaping", "F11", "F101")
def _(plant: Plants) -> None:
    _weights(plant, shaping=0.0)


@fault("shaping with the wrong sign", "H8", "F101")
def _(plant: Plants) -> None:
    _weights(plant, shaping=-2.0)


@fault("the time penalty eats up the rest", "F98")
def _(plant: Plants) -> None:
    _weights(plant, time=-0.02)


@fault("death is better than waiting", "F99", "H10")
def _(plant: Plants) -> None:
    _weights(plant, death=0.5)


@fault("winning is worth nothing", "F11", "F97")
def _(plant: Plants) -> None:
    _weights(plant, win=0.0)


@fault("the simulator gets other weights than the preset has", "F11", "F22", "F23")
def _(plant: Plants) -> None:
    def changed(original, config):
        record = original(config)
        record["shaping"] = 0.0
        return record

    plant.wrap(reward.RewardConfig, "record", changed)


@fault("no reward reaches the rollout", "F97", "F23")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t] = 0

    plant.wrap(BatchPPO, "_store_outcome", changed)


@fault("rewards are capped at 0.05", "F58")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t].clamp_(-0.05, 0.05)

    plant.wrap(BatchPPO, "_store_outcome", changed)


@fault("rewards of the last decision of an episode are lost", "F4")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t][ppo.rollout_buffer.episode_ends[t]] = 0

    plant.wrap(BatchPPO, "_store_outcome", changed)


@fault("rewards go to the neighbouring environment", "F26", "F66")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.rewards[t] = ppo.rollout_buffer.rewards[t].roll(1)

    plant.wrap(BatchPPO, "_store_outcome", changed)


@fault("shaping counts twice", "H9", "F26")
def _(plant: Plants) -> None:
    def changed(original, sim, actions, *asleep, **named):
        before = sim.state.terms[: sim.num_envs, 4].copy()
        obs = original(sim, actions, *asleep, **named)
        goes_on = ~(sim.terminated | sim.truncated)
        sim.rewards[goes_on] += (sim.state.terms[: sim.num_envs, 4] - before)[goes_on].astype(np.float32)
        return obs

    plant.wrap(BatchSimulator, "step", changed)


@fault("rewards of the simulator are off by a thousandth", "F127", "F26", stage="shadow")
def _(plant: Plants) -> None:
    def changed(original, sim, *arguments, **named):
        original(sim, *arguments, **named)
        sim.rewards *= np.float32(1.001)

    plant.wrap(BatchSimulator, "_run", changed)


@fault("an observation is off by a unit in the last place", "F127", stage="shadow")
def _(plant: Plants) -> None:
    def changed(original, sim, *arguments, **named):
        original(sim, *arguments, **named)
        sim.obs["game_state"][0, 0] = np.nextafter(sim.obs["game_state"][0, 0], np.float32(np.inf))

    plant.wrap(BatchSimulator, "_run", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Episodes


@fault("time-outs are reported as ends of the game", "H11")
def _(plant: Plants) -> None:
    def changed(original, sim, actions, *asleep, **named):
        obs = original(sim, actions, *asleep, **named)
        sim.terminated |= sim.truncated
        sim.truncated[:] = False
        return obs

    plant.wrap(BatchSimulator, "step", changed)


@fault("ends of episodes do not reach the rollout", "F46")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.rollout_buffer.episode_ends[t] = False

    plant.wrap(BatchPPO, "_store_outcome", changed)


@fault("the level changes in the middle of an episode", "F48")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        actions = original(ppo, t)
        if t == 7:
            ppo.sim.state.ninja["level"][0] = (ppo.sim.state.ninja["level"][0] + 1) % len(ppo.sim.bank)
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("only won episodes are recorded", "F63", "F54")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        ended = original(ppo)
        return ended[ended["outcome"] == WON]

    plant.wrap(BatchPPO, "_begin_next_episodes", changed)


@fault("decisions are counted by step, not by environment", "F34")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        ended = original(ppo)
        ppo.num_timesteps -= 7
        return ended

    plant.wrap(BatchPPO, "_begin_next_episodes", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Curriculum


@fault("the drawn level is overwritten at the restart", "H1", "F104", flags=CURRICULUM)
def _(plant: Plants) -> None:
    def changed(original, sim, actions, next_level, *rest, **options):
        return original(sim, actions, np.zeros_like(next_level), *rest, **options)

    plant.wrap(BatchSimulator, "_step", changed)


@fault("draws ignore the curriculum", "F49", "H2", flags=CURRICULUM)
def _(plant: Plants) -> None:
    def changed(original, sampler, n):
        hardest = np.flatnonzero(sampler.stage_of == len(sampler.stages) - 1)
        return hardest[sampler._rng.integers(0, len(hardest), n)].astype(np.int32)

    plant.wrap(CurriculumManager, "draw", changed)


@fault("always the same two levels are drawn", "H27", "F155", "F104")
def _(plant: Plants) -> None:
    plant.wrap(CurriculumManager, "draw", lambda original, sampler, n: (np.arange(n) % 2).astype(np.int32))


@fault("an episode is counted three times", "H40", "F54", flags=CURRICULUM)
def _(plant: Plants) -> None:
    def changed(original, sampler, levels, wins, *rest):
        for _ in range(3):
            original(sampler, levels, wins, *rest)

    plant.wrap(CurriculumManager, "record", changed)


@fault("outcomes are credited to the levels drawn next", "H40", "F154", flags=CURRICULUM)
def _(plant: Plants) -> None:
    def changed(original, sampler, levels, wins, *rest):
        original(sampler, np.roll(len(sampler.stage_of) - 1 - np.asarray(levels), 1), wins, *rest)

    plant.wrap(CurriculumManager, "record", changed)


@fault("all outcomes are recorded as lost", "F54", flags=CURRICULUM)
def _(plant: Plants) -> None:
    plant.wrap(
        CurriculumManager,
        "record",
        lambda original, sampler, levels, wins, *rest: original(sampler, levels, np.zeros(len(wins), bool), *rest),
    )


@fault("outcomes are recorded ten episodes late", "F154", flags=CURRICULUM)
def _(plant: Plants) -> None:
    waiting: list[tuple[int, bool]] = []

    def changed(original, sampler, levels, wins, *rest):
        waiting.extend(zip(np.asarray(levels).tolist(), np.asarray(wins).tolist(), strict=True))
        if len(waiting) >= 10:
            original(sampler, [level for level, _ in waiting], [won for _, won in waiting])
            waiting.clear()

    plant.wrap(CurriculumManager, "record", changed)


@fault("the stage never ends", "F102", "F105", "F103", flags=(*CURRICULUM, "--curriculum-adjustment-freq", "20"))
def _(plant: Plants) -> None:
    plant.wrap(Stages, "reason_to_end", lambda original, strategy: "")


@fault("a curriculum where none was asked for", "F17")
def _(plant: Plants) -> None:
    def changed(original, categories, config, seed, **more):
        return original(categories, CurriculumConfig(use_curriculum=True), seed, **more)

    plant.around(make_sampler, changed)


@fault("the curriculum that was asked for is not made", "F17", "F51", flags=CURRICULUM)
def _(plant: Plants) -> None:
    plant.around(
        make_sampler,
        lambda original, categories, config, seed, **more: original(categories, CurriculumConfig(), seed, **more),
    )


@fault("the curriculum does not know what made its levels", "F49", flags=("--curriculum", "learnability"))
def _(plant: Plants) -> None:
    plant.around(
        make_sampler,
        lambda original, categories, config, seed, **more: original(
            categories, config, seed, **more | {"families": None}
        ),
    )


@fault("every episode scans all episodes before it", "F143", "F144", "F149", "F150", "F160")
def _(plant: Plants) -> None:
    slept = {"count": 0}

    def changed(original, sampler, levels, wins, *rest):
        original(sampler, levels, wins, *rest)
        slept["count"] += len(levels)
        time.sleep(5e-3 * slept["count"])

    plant.wrap(CurriculumManager, "record", changed)


@fault("each update takes longer than the one before", "F142")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        time.sleep(0.05 * ppo.updates)
        return original(ppo)

    plant.wrap(BatchPPO, "_return_variance", changed)


@fault("labels of finished episodes are kept for ever", "F148", "F158")
def _(plant: Plants) -> None:
    def changed(original, sampler, levels, wins, *rest):
        original(sampler, levels, wins, *rest)
        labels = sampler.__dict__.setdefault("labels", {})
        for level in np.asarray(levels).tolist():
            labels |= {f"{level}, episode {len(labels)}, label {number}": level for number in range(20)}

    plant.wrap(CurriculumManager, "record", changed)


@fault("a list in the trainer grows with every decision", "F157")
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        ppo.__dict__.setdefault("trace", []).append(t)
        return original(ppo, t)

    plant.wrap(BatchPPO, "_decide", changed)


@fault("every update keeps 40 MB", "F157")
def _(plant: Plants) -> None:
    kept: list[np.ndarray] = []

    def changed(original, ppo):
        kept.append(np.ones(5_000_000))
        return original(ppo)

    plant.wrap(BatchPPO, "_return_variance", changed)


@fault("environments of training and sampler know different levels", "F48")
def _(plant: Plants) -> None:
    def changed(original, *arguments):
        env = original(*arguments)
        env.sampler.stage_of = env.sampler.stage_of[::-1].copy()
        return env

    plant.around(make_env, changed)


@fault("info dictionaries are shared and written to", "H45", stage="vec_env")
def _(plant: Plants) -> None:
    def changed(original, env):
        result = original(env)
        result[3][0]["extra"] = 1
        return result

    plant.wrap(BatchVecEnv, "step_wait", changed)
