"""Mutations of evaluation, results, comparisons and films."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from nppsim.batch import BatchSimulator
from nppsim.measure import intervals
from rl.evaluation import comparison, results, suite
from rl.evaluation.results import DevHistory, LevelWins
from rl.evaluation.suite import EvaluationSuite, RandomPolicy
from rl.policy.backtracking import BacktrackingPlayer
from rl.ppo.ppo import PPO
from rl.training.model_selection import EarlyStopping
from tests.mutation.mutation import Patch, mutation


def _suites(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change the simulator of every evaluation."""

    def changed(original, *given):
        sim = original(*given)
        sim._static = change(sim._static)
        return sim

    patch.wrap(EvaluationSuite, "_simulator", changed)


def _recorded(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change the record of each episode."""
    patch.wrap(EvaluationSuite, "_record", lambda original, suite, *given: change(original(suite, *given)))


@mutation("evaluation counts time-outs as wins", "tests/rl/evaluation/test_evaluation.py").wrap(EvaluationSuite, "run")
def _(original, suite, policy, **named):
    return [replace(one, outcome="won") for one in original(suite, policy, **named)]


@mutation(
    "evaluation acts on the observations of the previous decision", "tests/rl/evaluation/test_evaluation.py"
).wrap(suite, "player_of")
def _(original, *given):
    player = original(*given)
    act, before = player.act, []

    def late(obs, envs, **named):
        before.append({key: values.copy() for key, values in obs.items()})
        late = before[-2:][0]
        fits = all(late[key].shape == values.shape for key, values in obs.items())
        return act(late if fits else obs, envs, **named)

    player.act = late
    return player


@mutation("the final evaluation plays only won episodes again", "tests/rl/evaluation/test_evaluation.py").wrap(
    EvaluationSuite, "run"
)
def _(original, suite, policy, **named):
    episodes = original(suite, policy, **named)
    return [one for one in episodes if one.outcome == "won"] or episodes


@mutation("evaluation counts episodes for the next category", "tests/rl/evaluation/test_evaluation.py").wrap(
    EvaluationSuite, "__init__"
)
def _(original, suite, *arguments, **named):
    original(suite, *arguments, **named)
    suite._category = suite._category[1:] + suite._category[:1]


@mutation("evaluation plays one level of each category", "tests/rl/evaluation/test_evaluation.py").everywhere(
    suite._schedule
)
def _(original, categories, *arguments):
    return np.array([categories.index(categories[i]) for i in original(categories, *arguments)])


@mutation("evaluation plays with another frame skip", "tests/rl/evaluation/test_evaluation.py")
def _(patch: Patch) -> None:
    import rl.evaluation.suite as evaluation

    patch.set(evaluation, "BatchSimulator", lambda *a, **named: BatchSimulator(*a, **{**named, "frame_skip": 2}))


@mutation("every evaluation draws other random numbers", "tests/rl/evaluation/test_evaluation.py").wrap(
    EvaluationSuite, "run"
)
def _(original, suite, policy, **named):
    suite.seed += 1
    return original(suite, policy, **named)


@mutation("evaluations are truncated at half of the time", "tests/rl/evaluation/test_evaluation.py")
def _(patch: Patch) -> None:
    _suites(patch, lambda static: static._replace(time_limit=static.time_limit // 2))


mutation("random play never jumps", "tests/rl/evaluation/test_evaluation.py").set(
    RandomPolicy,
    "act",
    lambda self, obs, *, deterministic, rng: torch.randint(3, (len(next(iter(obs.values()))),), generator=rng).numpy(),
)


@mutation("gold of evaluated episodes is doubled", "tests/rl/evaluation/test_evaluation.py")
def _(patch: Patch) -> None:
    _recorded(patch, lambda one: replace(one, gold=one.gold + 1))


@mutation("returns of episodes are those of their last decision", "tests/rl/evaluation/test_evaluation.py")
def _(patch: Patch) -> None:
    _recorded(patch, lambda one: replace(one, ret=one.ret - 0.5))


@mutation(
    "evaluated episodes count for the category of the environment's first", "tests/rl/evaluation/test_evaluation.py"
)
def _(patch: Patch) -> None:
    """Whose levels are played one after another."""

    def changed(original, suite, number, *given):
        return replace(original(suite, number, *given), category=suite._category[number % 4])

    patch.wrap(EvaluationSuite, "_record", changed)


@mutation("the history of dev levels is that of the previous evaluation", "tests/rl/tools/test_compare.py")
def _(patch: Patch) -> None:
    earlier: list[LevelWins] = []

    def changed(original, history, decisions, wins):
        earlier.append(wins)
        other = earlier[-2] if len(earlier) > 1 else replace(wins, wins=np.maximum(wins.wins - 1, 0))
        original(history, decisions, other)

    patch.wrap(DevHistory, "add", changed)


@mutation("early stopping never updates its best", "tests/rl/training/test_monitor.py").wrap(EarlyStopping, "update")
def _(original, early, success):
    before = early.best
    stop = original(early, success)
    early.best = before
    return stop


@mutation("early stopping counts all evaluations", "tests/rl/training/test_monitor.py").wrap(EarlyStopping, "update")
def _(original, early, success):
    original(early, success)
    return early.evaluations >= early.config.early_stopping_patience


mutation("a roll-back does not restore the optimiser", "tests/rl/training/test_monitor.py").wrap(
    PPO, "restore", lambda original, ppo, policy_state, *_: ppo.policy.load_state_dict(policy_state)
)


mutation("confidence intervals have 80 % coverage", "tests/rl/evaluation/test_comparison.py").set(
    intervals, "_INTERVAL", (10.0, 90.0)
)


@mutation("intervals are over episodes, not over levels", "tests/rl/evaluation/test_results.py").wrap(
    LevelWins, "interval"
)
def _(original, wins):
    return intervals.wilson(int(wins.wins.sum()), int(wins.episodes.sum() * len(wins.wins)))


mutation("intervals ignore the variance between seeds", "tests/rl/evaluation/test_comparison.py").wrap(
    intervals, "_seed_effects", lambda original, table, weight: 0 * original(table, weight)
)


@mutation("frames to the exit are those of all episodes", "tests/rl/evaluation/test_results.py").wrap(results, "_count")
def _(original, episodes, wins):
    return original(episodes, wins) | {"median_frames": float(np.median([one.frames for one in episodes]))}


@mutation("the return of all is that of the episodes won", "tests/rl/evaluation/test_evaluation.py").wrap(
    results, "_count"
)
def _(original, episodes, wins):
    won = [one.ret for one in episodes if one.won]
    return original(episodes, wins) | {"mean_return": float(np.mean(won)) if won else None}


@mutation("differences have the wrong sign", "tests/rl/evaluation/test_comparison.py").wrap(comparison, "_difference")
def _(original, a, b):
    found = original(a, b)
    bounds = found.ci95 and [-found.ci95[1], -found.ci95[0]]
    return replace(found, difference=-found.difference, ci95=bounds)


@mutation("columns of the wins on each level change places", "tests/rl/evaluation/test_comparison.py").everywhere(
    comparison.write_levels
)
def _(original, path, methods):
    original(path, dict(zip(methods, reversed(list(methods.values())), strict=True)))


@mutation(
    "a player that backtracks does not return to what it remembered", "tests/rl/policy/test_backtracking.py"
).wrap(BacktrackingPlayer, "backtrack")
def _(original, player, rng):
    before = [values.copy() for values in player.inner.memory]
    backtracked = original(player, rng)
    for values, old in zip(player.inner.memory, before, strict=True):
        values[:] = old
    return backtracked


@mutation("records of episodes contain a decision that was taken back", "tests/rl/policy/test_backtracking.py").wrap(
    BacktrackingPlayer, "backtrack"
)
def _(original, player, rng):
    return {env: max(count - 1, 1) for env, count in original(player, rng).items()}
