"""Faults of rollouts, updates, schedules, curricula and of the guards themselves that a third adversary chose: those that
nothing noticed before their guards were built."""

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from stable_baselines3.common import on_policy_algorithm
from stable_baselines3.common.logger import Logger

from rl import command_line
from rl.curriculum import make_sampler
from rl.curriculum.learnability import Learnability
from rl.curriculum.learning_progress import LearningProgress
from rl.curriculum.manager import CurriculumManager
from rl.curriculum.prioritized_level_replay import PrioritizedLevelReplay
from rl.curriculum.start_states import StartStates
from rl.curriculum.strategy import Strategy
from rl.curriculum_config import CurriculumConfig
from rl.doctor import checklist, doctor, reference
from rl.policy import commands
from rl.ppo import growth
from rl.ppo.alarms import Alarms
from rl.ppo.checkpoints import Checkpoints
from rl.ppo.draws import Bet
from rl.ppo.guard import EarlyStopping, Retention
from rl.ppo.logs import GrowingTable, ScalarOutput
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.passes import Passes, importance, priorities
from rl.ppo.ppo import BatchPPO, desynchronise
from rl.ppo.recurrent import RecurrentPPO
from rl.ppo.rollout import TensorRolloutBuffer, estimated
from rl.ppo.steering import steered
from rl.ppo_config import PPOConfig
from tests.mutation.mutations import Plants, fault
from tests.mutation.plants_hierarchy import SUBTASKS_ON
from tests.mutation.plants_told import STAGED
from tests.mutation.plants_unlisted import OFTEN

PLAIN = ("--no-pretraining",)
PRIORITISED = (*PLAIN, "--prioritised-alpha", "0.6")
ANEW = (*PLAIN, "--returns-from", "current", "--vtrace-rho-clip", "1.0")
STEERED = (*PLAIN, "--desired-kl", "0.01")
IN_TIME = (*PLAIN, "--time-budget-minutes", "0.2")
STOPPING = ("--eval-freq", "1024", "--enable-early-stopping", "--early-stopping-min-evaluations", "1")
REPLAY = (*PLAIN, "--curriculum", "plr")
LEARNABLE = (*PLAIN, "--curriculum", "learnability")
MANY = (*PLAIN, "--architectures", "vision_free+gru", "--num-envs", "64", "--rollout-length", "16")

# ---------------------------------------------------------------------------------------------------------------------
# Rollouts and updates


@fault("probabilities and values of the last environment are those of the decision before", "F66", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        actions, buffer = original(ppo, t), ppo.rollout_buffer
        if t:
            buffer.values[t, -1], buffer.log_probs[t, -1] = (
                buffer.values[t - 1, -1],
                buffer.log_probs[t - 1, -1].clone(),
            )
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("values of the last environment are those of the decision before", "F66", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        actions, buffer = original(ppo, t), ppo.rollout_buffer
        if t:
            buffer.values[t, -1] = buffer.values[t - 1, -1]
        return actions

    plant.wrap(BatchPPO, "_decide", changed)


@fault("decisions that are drawn more often weigh no less", "F65", flags=PRIORITISED)
def _(plant: Plants) -> None:
    plant.around(importance, lambda original, chances, beta: torch.ones(len(chances)))


@fault("the weights that undo priorities are turned around", "F65", flags=PRIORITISED)
def _(plant: Plants) -> None:
    plant.around(importance, lambda original, chances, beta: original(chances, -beta))


@fault("priorities are asked for and not drawn by", "F51", "F57", flags=PRIORITISED)
def _(plant: Plants) -> None:
    plant.around(priorities, lambda original, advantages, alpha: np.full(len(advantages), 1 / len(advantages)))


@fault("ratios of V-trace are upside down", "F65", flags=ANEW)
def _(plant: Plants) -> None:
    def changed(original, *given):
        return original(*given[:6], *(1 / one if isinstance(one, torch.Tensor) else one for one in given[6:]))

    plant.around(estimated, changed)


@fault("targets are to be estimated anew, and are not", "F51", "F57", flags=ANEW)
def _(plant: Plants) -> None:
    plant.set(Passes, "_estimate_again", lambda passes, later: None)


@fault("advantages of later passes are not normalised", "F65", flags=ANEW)
def _(plant: Plants) -> None:
    def changed(original, passes, later):
        original(passes, later)
        passes.samples = dataclasses.replace(passes.samples, advantages=5 * passes.samples.advantages)

    plant.wrap(Passes, "_estimate_again", changed)


@fault("what time cut off is added a second time in later passes", "H11", flags=ANEW)
def _(plant: Plants) -> None:
    def changed(original, passes, later):
        original(passes, dataclasses.replace(later, cut_off_values=torch.zeros_like(later.cut_off_values)))

    plant.wrap(Passes, "_estimate_again", changed)


@fault("the order of decisions does not come from the seed", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.wrap(
        TensorRolloutBuffer,
        "minibatches",
        lambda original, buffer, size, rng: original(buffer, size, np.random.default_rng()),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Settings and schedules


@fault(
    "settings of single stages are ignored",
    "F51",
    "F57",
    flags=(*PLAIN, *STAGED, "--curriculum-stage-ent-coef", "simplest=0.05"),
)
def _(plant: Plants) -> None:
    plant.set(CurriculumConfig, "changes_in", lambda config, stage: {})


@fault(
    "a stage has the settings of the next one",
    "F33",
    flags=(*PLAIN, *STAGED, "--curriculum-stage-gamma", "simpler=0.99"),
)
def _(plant: Plants) -> None:
    plant.wrap(CurriculumConfig, "changes_in", lambda original, config, stage: original(config, "simpler"))


@fault("a steered learning rate stays where it is", "F50", "F57", flags=STEERED)
def _(plant: Plants) -> None:
    plant.around(steered, lambda original, rate, kl, desired: rate)


@fault("a steered learning rate takes steps of a factor of ten", "F50", flags=STEERED)
def _(plant: Plants) -> None:
    def changed(original, rate, kl, desired):
        return rate * (original(rate, kl, desired) / rate) ** 5.7

    plant.around(steered, changed)


@fault("what updates are steered to is not annealed", "F50", flags=STEERED)
def _(plant: Plants) -> None:
    plant.set(PPOConfig, "desired_kl_at", lambda config, progress: config.desired_kl and 0.1 * config.desired_kl)


@fault("PPO replaces some of its settings", "F51", "H17", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(original, ppo, env, architecture, config, *given, **named):
        config = dataclasses.replace(config, vf_coef=1.5, ent_coef_end=config.ent_coef_start)
        original(ppo, env, architecture, config, *given, **named)

    plant.wrap(BatchPPO, "__init__", changed)


@fault("the curriculum has its defaults in place of what was asked for", "F51", "F57", flags=(*PLAIN, *STAGED))
def _(plant: Plants) -> None:
    def changed(original, categories, config, seed, **named):
        return original(categories, CurriculumConfig(strategy=config.chosen), seed, **named)

    plant.around(make_sampler, changed)


@fault("a recipe wins over flags", "F51", "F53", flags=("--recipe", "predecessor_2025_10", "--gamma", "0.98"))
def _(plant: Plants) -> None:
    def changed(original, arguments):
        recipe = command_line.recipe_settings(arguments.recipe)
        return original(arguments) | {key: one for key, one in recipe.items() if key == ("ppo", "gamma")}

    plant.wrap(command_line, "_given", changed)


@fault("first episodes are to be cut short, and are not", "F51", "F57", flags=(*PLAIN, "--desync-episodes"))
def _(plant: Plants) -> None:
    plant.around(desynchronise, lambda original, sim, rng: None)


@fault("a time budget ends after a tenth of it", "F34", flags=IN_TIME)
def _(plant: Plants) -> None:
    def progress(ppo):
        return min(1.0, ppo.spent / (6 * ppo.config.time_budget_minutes))

    plant.set(BatchPPO, "progress", property(progress))


@fault("training's clock runs at double speed", "F34", flags=IN_TIME)
def _(plant: Plants) -> None:
    def spent(ppo):
        return ppo.spent_before + (0.0 if math.isnan(ppo._began) else 2 * (time.perf_counter() - ppo._began))

    plant.set(BatchPPO, "spent", property(spent))


# ---------------------------------------------------------------------------------------------------------------------
# The curriculum, and subtasks


@fault("scores of levels are those of other decisions", "F49", "F66", flags=REPLAY)
def _(plant: Plants) -> None:
    def changed(original, manager, *given, **named):
        if len(given) == 4 and given[3] is not None:  # as training calls it
            given = *given[:3], np.ascontiguousarray(given[3].T).reshape(given[3].shape)
        original(manager, *given, **named)

    plant.wrap(CurriculumManager, "learn", changed)


@fault("a decision is credited to the level that begins after it", "F49", "H40", flags=REPLAY)
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo._decided[t] = ppo.sampler.credited(ppo.sim)

    plant.wrap(BatchPPO, "_store_outcome", changed)


def _learned(plant: Plants, change: Callable[[CurriculumManager, list], None]) -> None:
    """Change the episodes that a strategy learns from: their levels, wins, returns and when they began."""

    def changed(original, manager, *given, **named):
        manager._settle()
        if given:  # as training calls it
            change(manager, manager._waiting)
        manager._settled = len(manager._waiting)
        original(manager, *given, **named)

    plant.wrap(CurriculumManager, "learn", changed)


@fault(
    "the curriculum learns the outcomes of other levels", "F49", "H40", flags=(*PLAIN, "--curriculum", "learnability")
)
def _(plant: Plants) -> None:
    def change(manager, waiting):
        waiting[:] = [(levels, ~won, *more) for levels, won, *more in waiting]

    _learned(plant, change)


@fault(
    "the curriculum learns from every second update only",
    "F49",
    "F154",
    flags=(*PLAIN, "--curriculum", "learning_progress"),
)
def _(plant: Plants) -> None:
    def change(manager, waiting):
        if manager.updates % 2:
            waiting.clear()

    _learned(plant, change)


@fault("episodes that still run are not told to the curriculum", "F154", flags=(*PLAIN, *STAGED))
def _(plant: Plants) -> None:
    def changed(original, manager, *given, **named):
        original(manager, *((None, None, *given[2:]) if len(given) == 4 else given), **named)

    plant.wrap(CurriculumManager, "learn", changed)


@fault("start states never move back", "F49", flags=(*PLAIN, "--use-curriculum", "--start-states"))
def _(plant: Plants) -> None:
    plant.set(StartStates, "_move", lambda starts, name, run, won: None)


@fault("what teaches a little is drawn nearly as often as what teaches much", "F49", flags=LEARNABLE)
def _(plant: Plants) -> None:
    plant.wrap(Learnability, "expected_variance", lambda original, strategy: original(strategy) ** 0.5)


@fault("levels are replayed by age the wrong way round", "F49", flags=REPLAY)
def _(plant: Plants) -> None:
    def changed(original, strategy):
        last, seen = strategy.last, strategy.last >= 0
        strategy.last = np.where(seen, strategy.now - last + last[seen].min(initial=0), last).astype(np.int32)
        weights = original(strategy)
        strategy.last = last
        return weights

    plant.wrap(PrioritizedLevelReplay, "_weights", changed)


@fault("the slow average is as fast as the fast one", "F49", flags=(*PLAIN, "--curriculum", "learning_progress"))
def _(plant: Plants) -> None:
    def changed(original, strategy, *given):
        original(strategy, *given)
        strategy.slow = strategy.slow + 0.01 * (strategy.fast - strategy.slow)

    plant.wrap(LearningProgress, "_average", changed)


@fault("the memory of one environment in two is never cleared", "F46", "H15", flags=MANY)
def _(plant: Plants) -> None:
    def changed(original, ppo, t):
        original(ppo, t)
        ppo.states[32:] = ppo._after[32:]

    plant.wrap(RecurrentPPO, "_prepare_decision", changed)


@fault("levels are drawn with numbers that no seed decides", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(original, strategy, n):
        strategy.rng = np.random.default_rng()
        return original(strategy, n)

    plant.wrap(Strategy, "draw", changed)


@fault("a subtask is held against where another environment was", "H15", flags=(*PLAIN, *SUBTASKS_ON))
def _(plant: Plants) -> None:
    def changed(original, held, envs, chosen, obs):
        original(held, envs, chosen, {key: values[::-1] for key, values in obs.items()})

    plant.wrap(commands.Commands, "give", changed)


@fault("exploring is done after two thirds of a tile", "F65", flags=(*PLAIN, *SUBTASKS_ON))
def _(plant: Plants) -> None:
    plant.set(commands, "EXPLORED_PX", 16.0)


# ---------------------------------------------------------------------------------------------------------------------
# Evaluations, checkpoints and curves


@fault("evaluations come half as often as asked for", "F51", flags=(*PLAIN, *OFTEN))
def _(plant: Plants) -> None:
    def changed(original, monitor, what):
        original(monitor, what)
        monitor._next[what] += monitor._periods[what] * (what == "evaluation")

    plant.wrap(TrainingMonitor, "_is_done", changed)


@fault("early stopping counts all evaluations", "F51", flags=(*PLAIN, *STOPPING, "--early-stopping-patience", "4"))
def _(plant: Plants) -> None:
    def changed(original, early, success):
        original(early, success)
        return early.evaluations >= early.config.early_stopping_patience

    plant.wrap(EarlyStopping, "update", changed)


@fault("after a roll-back the actor is pulled no closer", "F96", flags=OFTEN)
def _(plant: Plants) -> None:
    def lost(original, retention, success):
        fallen = retention.cloned is not None and success.mean() < retention.cloned.mean()
        return original(retention, success - 1.0) if fallen else None

    plant.set(BatchPPO, "hold_closer", lambda ppo: None)
    plant.wrap(Retention, "lost", lost)


@fault("the newest checkpoints are removed in place of the oldest", "F41", flags=(*PLAIN, "--save-freq", "1024"))
def _(plant: Plants) -> None:
    def changed(kept):
        for path in [one for one in kept.made() if one != kept.final][kept.keep :]:
            path.unlink()

    plant.set(Checkpoints, "prune", changed)


@fault("no checkpoint is made while training goes on", "F41", flags=(*PLAIN, "--save-freq", "1024"))
def _(plant: Plants) -> None:
    plant.set(TrainingMonitor, "_checkpoint", lambda monitor: monitor._is_done("checkpoint"))


@fault("columns of the table are shifted where one is added", "F93", "F61", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.wrap(
        GrowingTable,
        "_rewrite",
        lambda original, log, rows: original(log, [row[1:] + row[:1] for row in map(list, rows)]),
    )


@fault("columns of a row are those of its neighbours in the table", "F93", "F61", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(original, log, values, *given):
        names = sorted(values)
        moved = dict(zip(names, [values[name] for name in [*names[1:], names[0]]], strict=True))
        original(log, moved if log.rows > 2 else values, *given)

    plant.wrap(GrowingTable, "write", changed)


@fault("after some updates curves show the row before", "F93", "F62", flags=PLAIN)
def _(plant: Plants) -> None:
    rows: list[dict] = []

    def changed(original, output, values, *given):
        rows.append(dict(values))
        original(output, rows[-2] if len(rows) > 5 else values, *given)

    plant.wrap(ScalarOutput, "write", changed)


@fault("the curves of episodes show their maximum", "F61", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.set(on_policy_algorithm, "safe_mean", lambda values: float(np.max(values)) if len(values) else math.nan)


@fault(
    "decisions per second since the start are counted three times",
    "F61",
    "F156",
    flags=(*PLAIN, "--total-timesteps", "65536"),
)
def _(plant: Plants) -> None:
    def changed(original, logger, tag, value, *given, **named):
        original(logger, tag, 3 * value if tag == "time/fps" else value, *given, **named)

    plant.wrap(Logger, "record", changed)


# ---------------------------------------------------------------------------------------------------------------------
# The guards themselves


@fault("audits are never made", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.set(Alarms, "_due", property(lambda alarms: False))


@fault("what is certainly wrong is told and does not stop the run", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(monitor, faults):
        for one in faults:
            monitor._happened("note", one.text)

    plant.set(TrainingMonitor, "_heed", changed)


@fault("a trend is looked for the wrong way round", "F1", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.around(growth.falling, lambda original, values: original(values[::-1]))


@fault("warnings of alarms are swallowed", "F1", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.wrap(Alarms, "new", lambda original, alarms, faults: [one for one in original(alarms, faults) if one.stop])


@fault("bets on draws are never won", "F49", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.set(Bet, "won", property(lambda bet: False))


@fault("a check that fails passes", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.around(doctor.require, lambda original, good, found, remedy: None)


@fault("a worse run is better than its reference", "F1", flags=PLAIN)
def _(plant: Plants) -> None:
    def changed(original, *given):
        held = original(*given)
        return dataclasses.replace(held, verdict={"worse": "better", "better": "worse"}.get(held.verdict, held.verdict))

    plant.around(reference._held, changed)


@fault("the checklist takes what falls for a rise", "F1", flags=PLAIN)
def _(plant: Plants) -> None:
    plant.around(
        checklist._trend,
        lambda original, curves, tag, what, direction, why: original(curves, tag, what, -direction, why),
    )
