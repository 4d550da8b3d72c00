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

    def changed(original, suite, *given, **named):
        original(suite, *given, **named)
        suite.simulator._static = change(suite.simulator._static)

    patch.wrap(EvaluationSuite, "__init__", changed)


def _recorded(patch: Patch, change: Callable[[Any], Any]) -> None:
    """Change the record of each episode."""
    patch.wrap(EvaluationSuite, "_record", lambda original, suite, *given: change(original(suite, *given)))


@mutation("evaluation counts time-outs as wins", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    def changed(original, suite, policy, **named):
        return [replace(one, outcome="won") for one in original(suite, policy, **named)]

    patch.wrap(EvaluationSuite, "run", changed)


@mutation("the final evaluation plays only won episodes again", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    def changed(original, suite, policy, **named):
        episodes = original(suite, policy, **named)
        return [one for one in episodes if one.outcome == "won"] or episodes

    patch.wrap(EvaluationSuite, "run", changed)


@mutation("evaluation counts episodes for the next category", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    def changed(original, suite, *arguments, **named):
        original(suite, *arguments, **named)
        suite._category = suite._category[1:] + suite._category[:1]

    patch.wrap(EvaluationSuite, "__init__", changed)


@mutation("evaluation plays one level of each category", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    def changed(original, categories, *arguments):
        return np.array([categories.index(categories[i]) for i in original(categories, *arguments)])

    patch.everywhere(suite._schedule, changed)


@mutation("evaluation plays with another frame skip", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    import rl.evaluation.suite as evaluation

    patch.set(evaluation, "BatchSimulator", lambda *a, **named: BatchSimulator(*a, **{**named, "frame_skip": 2}))


@mutation("every evaluation draws other random numbers", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    def changed(original, suite, policy, **named):
        suite.seed += 1
        return original(suite, policy, **named)

    patch.wrap(EvaluationSuite, "run", changed)


@mutation("evaluations are truncated at half of the time", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    _suites(patch, lambda static: static._replace(time_limit=static.time_limit // 2))


@mutation("random play never jumps", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    patch.set(
        RandomPolicy,
        "act",
        lambda self, obs, *, deterministic, rng: torch.randint(
            3, (len(next(iter(obs.values()))),), generator=rng
        ).numpy(),
    )


@mutation("gold of evaluated episodes is doubled", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    _recorded(patch, lambda one: replace(one, gold=one.gold + 1))


@mutation("returns of episodes are those of their last decision", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    _recorded(patch, lambda one: replace(one, ret=one.ret - 0.5))


@mutation(
    "evaluated episodes count for the category of the environment's first",
    tests=("tests/rl/evaluation/test_evaluation.py",),
)
def _(patch: Patch) -> None:
    """Whose levels are played one after another."""

    def changed(original, suite, number, *given):
        return replace(original(suite, number, *given), category=suite._category[number % 4])

    patch.wrap(EvaluationSuite, "_record", changed)


@mutation("the history of dev levels is that of the previous evaluation", tests=("tests/rl/tools/test_compare.py",))
def _(patch: Patch) -> None:
    earlier: list[LevelWins] = []

    def changed(original, history, decisions, wins):
        earlier.append(wins)
        other = earlier[-2] if len(earlier) > 1 else replace(wins, wins=np.maximum(wins.wins - 1, 0))
        original(history, decisions, other)

    patch.wrap(DevHistory, "add", changed)


@mutation("early stopping never updates its best", tests=("tests/rl/training/test_monitor.py",))
def _(patch: Patch) -> None:
    def changed(original, early, success):
        before = early.best
        stop = original(early, success)
        early.best = before
        return stop

    patch.wrap(EarlyStopping, "update", changed)


@mutation("early stopping counts all evaluations", tests=("tests/rl/training/test_monitor.py",))
def _(patch: Patch) -> None:
    def changed(original, early, success):
        original(early, success)
        return early.evaluations >= early.config.early_stopping_patience

    patch.wrap(EarlyStopping, "update", changed)


@mutation("a roll-back does not restore the optimiser", tests=("tests/rl/training/test_monitor.py",))
def _(patch: Patch) -> None:
    patch.wrap(
        PPO,
        "restore",
        lambda original, ppo, policy_state, *_: ppo.policy.load_state_dict(policy_state),
    )


@mutation("confidence intervals have 80 % coverage", tests=("tests/rl/evaluation/test_comparison.py",))
def _(patch: Patch) -> None:
    patch.set(intervals, "_INTERVAL", (10.0, 90.0))


@mutation("intervals are over episodes, not over levels", tests=("tests/rl/evaluation/test_results.py",))
def _(patch: Patch) -> None:
    def changed(original, wins):
        return intervals.wilson(int(wins.wins.sum()), int(wins.episodes.sum() * len(wins.wins)))

    patch.wrap(LevelWins, "interval", changed)


@mutation("intervals ignore the variance between seeds", tests=("tests/rl/evaluation/test_comparison.py",))
def _(patch: Patch) -> None:
    patch.wrap(intervals, "_seed_effects", lambda original, table, weight: 0 * original(table, weight))


@mutation("frames to the exit are those of all episodes", tests=("tests/rl/evaluation/test_results.py",))
def _(patch: Patch) -> None:
    def changed(original, episodes, wins):
        return original(episodes, wins) | {"median_frames": float(np.median([one.frames for one in episodes]))}

    patch.wrap(results, "_count", changed)


@mutation("the return of all is that of the episodes won", tests=("tests/rl/evaluation/test_evaluation.py",))
def _(patch: Patch) -> None:
    def changed(original, episodes, wins):
        won = [one.ret for one in episodes if one.won]
        return original(episodes, wins) | {"mean_return": float(np.mean(won)) if won else None}

    patch.wrap(results, "_count", changed)


@mutation("differences have the wrong sign", tests=("tests/rl/evaluation/test_comparison.py",))
def _(patch: Patch) -> None:
    def changed(original, a, b):
        found = original(a, b)
        bounds = found.ci95 and [-found.ci95[1], -found.ci95[0]]
        return replace(found, difference=-found.difference, ci95=bounds)

    patch.wrap(comparison, "_difference", changed)


@mutation("columns of the wins on each level change places", tests=("tests/rl/evaluation/test_comparison.py",))
def _(patch: Patch) -> None:
    def changed(original, path, methods):
        original(path, dict(zip(methods, reversed(list(methods.values())), strict=True)))

    patch.everywhere(comparison.write_levels, changed)


@mutation(
    "a player that backtracks does not return to what it remembered", tests=("tests/rl/policy/test_backtracking.py",)
)
def _(patch: Patch) -> None:
    def changed(original, player, rng):
        before = [values.copy() for values in player.inner.memory]
        taken_back = original(player, rng)
        for values, old in zip(player.inner.memory, before, strict=True):
            values[:] = old
        return taken_back

    patch.wrap(BacktrackingPlayer, "take_back", changed)


@mutation("records of episodes contain a decision that was taken back", tests=("tests/rl/policy/test_backtracking.py",))
def _(patch: Patch) -> None:
    def changed(original, player, rng):
        return {env: max(count - 1, 1) for env, count in original(player, rng).items()}

    patch.wrap(BacktrackingPlayer, "take_back", changed)
