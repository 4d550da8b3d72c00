"""Mutations of the curriculum."""

from collections.abc import Callable

import numpy as np

from nppsim.batch import BatchSimulator
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.curriculum.learnability import Learnability
from rl.curriculum.learning_progress import LearningProgress
from rl.curriculum.manager import CurriculumManager
from rl.curriculum.prioritized_level_replay import PrioritizedLevelReplay
from rl.curriculum.stages import Stages
from rl.curriculum.start_states import StartStates
from tests.mutation.mutation import Patch, mutation


def _learned(patch: Patch, change: Callable[[CurriculumManager, list], None]) -> None:
    """Change the episodes that a strategy learns from: their levels, wins, returns and when they began."""

    def changed(original, manager, *given, **named):
        manager._count_pending()
        if given:  # as training calls it
            change(manager, manager._pending)
        manager._num_counted = len(manager._pending)
        original(manager, *given, **named)

    patch.wrap(CurriculumManager, "learn", changed)


@mutation("the drawn level is overwritten at the restart", "tests/rl/ppo/test_vec_env.py").wrap(BatchSimulator, "_step")
def _(original, sim, actions, next_level, *rest, **options):
    return original(sim, actions, np.zeros_like(next_level), *rest, **options)


@mutation("draws ignore the curriculum", "tests/rl/ppo/test_vec_env.py").wrap(CurriculumManager, "draw")
def _(original, sampler, n):
    hardest = np.flatnonzero(sampler.stage_of == len(sampler.stages) - 1)
    return hardest[sampler._rng.integers(0, len(hardest), n)].astype(np.int32)


mutation("always the same two levels are drawn", "tests/rl/ppo/test_vec_env.py").wrap(
    CurriculumManager, "draw", lambda original, sampler, n: (np.arange(n) % 2).astype(np.int32)
)


mutation("half of the levels are never drawn", "tests/rl/ppo/test_vec_env.py").wrap(
    CurriculumManager, "draw", lambda original, sampler, n: original(sampler, n) // 2 * 2
)


mutation("the stage never ends", "tests/rl/curriculum/test_stages.py").wrap(
    Stages, "reason_to_end", lambda original, strategy: ""
)


@mutation("a curriculum is built without being requested", "tests/rl/curriculum/test_stages.py").everywhere(
    make_sampler
)
def _(original, categories, config, seed, **more):
    return original(categories, CurriculumConfig(use_curriculum=True), seed, **more)


mutation("the requested curriculum is not built", "tests/rl/curriculum/test_stages.py").everywhere(
    make_sampler,
    lambda original, categories, config, seed, **more: original(categories, CurriculumConfig(), seed, **more),
)


mutation("weights of levels belong to other levels", "tests/rl/ppo/test_vec_env.py").wrap(
    CurriculumManager, "draw", lambda original, sampler, n: np.int32(len(sampler.stage_of) - 1) - original(sampler, n)
)


@mutation("waiting levels are not redrawn after an update", "tests/rl/curriculum/test_curriculum.py").wrap(
    CurriculumManager, "update"
)
def _(original, sampler, sim, *more, **named):
    waiting = sim.next_level.copy()
    original(sampler, sim, *more, **named)
    sim.next_level[:] = waiting


mutation("a stage ends after a few episodes", "tests/rl/curriculum/test_stages.py").set(
    Stages, "reason_to_end", lambda strategy: "threshold" if len(strategy.recent) >= 5 else ""
)


mutation("a stage ends by the upper end of its confidence interval", "tests/rl/curriculum/test_stages.py").wrap(
    Stages, "bounds", lambda original, *given: original(*given)[1:] * 2
)


@mutation("running episodes count as won", "tests/rl/curriculum/test_stages.py").wrap(Stages, "bounds")
def _(original, stages, outcomes, running):
    return original(stages, np.concatenate([outcomes, np.ones(running, np.uint8)]), 0)


@mutation("levels of other stages are never drawn", "tests/rl/curriculum/test_stages.py").wrap(Stages, "shares")
def _(original, stages):
    return np.eye(len(original(stages)))[stages.place]


mutation("levels without learning progress are drawn most", "tests/rl/curriculum/test_strategies.py").wrap(
    LearningProgress, "weigh", lambda original, strategy, weights: original(strategy, weights.max() + 1e-3 - weights)
)


mutation(
    "levels of low learnability are drawn nearly as often as those of high", "tests/rl/curriculum/test_strategies.py"
).wrap(Learnability, "expected_variance", lambda original, strategy: original(strategy) ** 0.5)


@mutation("the curriculum learns from every second update only", "tests/rl/curriculum/test_stages.py")
def _(patch: Patch) -> None:
    def change(manager, waiting):
        if manager.updates % 2:
            waiting.clear()

    _learned(patch, change)


mutation("start states never move back", "tests/rl/curriculum/test_start_states.py").set(
    StartStates, "_move", lambda starts, name, run, won: None
)


@mutation("replay prefers the newest levels to the stalest", "tests/rl/curriculum/test_strategies.py").wrap(
    PrioritizedLevelReplay, "_weights"
)
def _(original, strategy):
    last, seen = strategy.last, strategy.last >= 0
    strategy.last = np.where(seen, strategy.now - last + last[seen].min(initial=0), last).astype(np.int32)
    weights = original(strategy)
    strategy.last = last
    return weights


@mutation("the slow average is as fast as the fast one", "tests/rl/curriculum/test_strategies.py").wrap(
    LearningProgress, "average"
)
def _(original, strategy, *given):
    original(strategy, *given)
    strategy.slow = strategy.slow + 0.01 * (strategy.fast - strategy.slow)
