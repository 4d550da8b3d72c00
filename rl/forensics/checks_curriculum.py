"""The curriculum: on made-up outcomes it prefers what is being learned; a stage ends when it is mastered, and not before."""

from dataclasses import replace

import numpy as np

from rl.curriculum import CurriculumManager, make_sampler
from rl.curriculum_config import CurriculumConfig
from rl.forensics.doctor import BEFORE, CheckSkipped, check, require
from rl.train.vec_env import BatchVecEnv

EACH = 4  # levels of a category that are always lost, always won, and learned
UPDATES = 40
_PROGRAM = "this is a mistake in the program, not in your settings: please report it"


@check(BEFORE)
def levels_that_teach_are_preferred(env: BatchVecEnv) -> str:
    """On made-up outcomes, levels that are being learned are drawn no less often than those that are always lost, or won."""
    config = env.sampler.config
    if config.chosen not in ("learnability", "plr", "learning_progress"):
        raise CheckSkipped(f"{config.chosen} does not look at single levels")
    categories = [name for name in env.sampler.stages for _ in range(3 * EACH)]
    kind, rng = np.arange(len(categories)) % 3, np.random.default_rng(0)  # lost, won, learned
    sampler = make_sampler(categories, config, 0)
    for update in range(UPDATES):
        levels = rng.permutation(np.repeat(np.arange(len(categories)), 2))
        learned, surprise = rng.random(len(levels)) < update / UPDATES, rng.normal(size=len(levels))
        sampler.record(levels, np.where(kind[levels] == 2, learned, kind[levels] == 1))
        sampler.learn(decided=levels, advantages=np.where(kind[levels] == 2, surprise, 0.01))
    share = np.array([sampler.probabilities()[kind == number].sum() for number in range(3)])
    told = f"always lost {share[0]:.0%}, always won {share[1]:.0%}, learned {share[2]:.0%} of the draws"
    require(share[2] >= 0.999 * share.max(), told, _PROGRAM)
    return told


@check(BEFORE)
def stages_end_when_they_are_mastered(env: BatchVecEnv) -> str:
    """On made-up outcomes, a stage whose success is below its threshold goes on, whatever still runs; one that is always won
    ends; and levels of all stages are drawn at any time."""
    config, stages = env.sampler.config, env.sampler.stages
    if config.chosen != "stages" or len(stages) < 2:
        raise CheckSkipped(f"{config.chosen} of {len(stages)} categories has no stages to go on to")
    episodes = max(config.min_episodes, 300)
    began = make_sampler(stages, config, 0).stage
    threshold = config.threshold_of(began)
    if began == stages[-1] or not 0.05 < threshold < 0.98 or episodes >= config.adjustment_freq:
        raise CheckSkipped(f"{began} is the last stage, or its threshold of {threshold} is not for made-up outcomes")
    below = threshold - 0.02
    for success, running, goes_on in ((0.0, 0, True), (below, 0, True), (below, episodes // 4, True), (1.0, 0, False)):
        sampler = _after(stages, config, began, success, episodes, running)
        require(
            (sampler.stage == began) == goes_on,
            f"after {episodes} episodes with a success of {success:.2f}, where {threshold} ends it, stage {began} "
            f"{'has ended' if goes_on else 'goes on'}",
            _PROGRAM,
        )
        rarest = float(sampler.probabilities().min())
        require(rarest > 0, f"in stage {sampler.stage} some levels are never drawn", _PROGRAM)
    return f"{began} ends at {threshold}"


def _after(
    stages: tuple[str, ...], config: CurriculumConfig, began: str, success: float, episodes: int, running: int
) -> CurriculumManager:
    """A curriculum whose first stage has had so many episodes with this success, evenly spread; so many others still run."""
    sampler = make_sampler(stages, replace(config, start_stage=began), 0)
    level = np.full(episodes, stages.index(began))
    sampler.record(level, np.diff(np.floor(success * np.arange(episodes + 1) + 1e-9)) > 0)
    sampler.learn(level[:running], np.zeros(running, np.int64))
    return sampler
