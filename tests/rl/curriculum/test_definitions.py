"""Probabilities of levels equal the definition of each strategy, computed episode by episode."""

import numpy as np
import pytest

from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.curriculum.learning_progress import Preset

CATEGORIES = ("simplest", "simple", "medium")
EACH = 12  # levels of a category
UPDATES = 20


def plain_learnability(sampler, history):
    """p (1 - p) of each level, expected under a Beta posterior.  Its prior is the success of the level's cell with the
    weight of 20 episodes.  Counts of a level halve every 20 episodes per level of the cell, those of the cell every
    300."""
    cell, count = sampler.levels.cell, len(sampler.levels)
    cell_won, cell_played = np.zeros(sampler.levels.cells), np.zeros(sampler.levels.cells)
    won, played = np.zeros(count), np.zeros(count)
    for levels, wins, _ in history:
        for one in range(sampler.levels.cells):
            members, here = np.flatnonzero(cell == one), cell[levels] == one
            cell_won[one] = cell_won[one] * 2.0 ** (-here.sum() / 300) + wins[here].sum()
            cell_played[one] = cell_played[one] * 2.0 ** (-here.sum() / 300) + here.sum()
            for level in members:
                decay, mine = 2.0 ** (-here.sum() / 20 / len(members)), levels == level
                won[level], played[level] = won[level] * decay + wins[mine].sum(), played[level] * decay + mine.sum()
    share = 0.2 if sampler.config.uniform_share is None else sampler.config.uniform_share
    a = won + 20 * ((cell_won + 1) / (cell_played + 2))[cell]
    b = played + 20 - a
    variance = a * b / (a + b) / (a + b + 1)
    return (1 - share) * variance / variance.sum() + share / count


def plain_replay(sampler, history):
    """By rank of the mean size of advantages and by age; levels that were never played have equal probabilities."""
    config, count, now = sampler.config, len(sampler.levels), len(history)
    score, last = np.zeros(count), np.full(count, -1)
    for update, (levels, _, advantage) in enumerate(history, 1):
        size = np.maximum(advantage, 0) if config.replay_score == "positive" else np.abs(advantage)
        for level in set(levels.tolist()):
            score[level], last[level] = size[levels == level].astype(np.float64).mean(), update
    seen = sorted(np.flatnonzero(last > 0).tolist(), key=lambda level: (-score[level], level))
    chances = np.full(count, 1 / count)
    by_rank = np.array([(rank + 1) ** (-1 / config.replay_temperature) for rank in range(len(seen))])
    ages = np.array([now - last[level] for level in seen], float)
    by_age = ages / ages.sum() if ages.any() else np.full(len(seen), 1 / len(seen))
    mixed = (1 - config.replay_staleness) * by_rank / by_rank.sum() + config.replay_staleness * by_age
    chances[seen] = mixed * len(seen) / count
    return (1 - (config.uniform_share or 0)) * chances + (config.uniform_share or 0) / count


def plain_progress(sampler, history):
    """Difference of a fast and a slow running average of each level's success, relative to those of the other levels."""
    preset, count = Preset.of(sampler.config), len(sampler.levels)
    outcomes = [[] for _ in range(count)]
    for levels, wins, _ in history:
        for level, won in zip(levels.tolist(), wins.tolist(), strict=True):
            outcomes[level].append(won)
    score, scored = np.zeros(count), np.zeros(count, bool)
    for level, won in enumerate(outcomes):
        if len(won) < preset.min_samples:
            continue
        scored[level] = True
        baseline = min(float(np.mean(won[: preset.min_samples])), 0.75)
        means = []
        for rate in (preset.timescale, preset.timescale * preset.slow):
            weight = (1 - rate) ** np.arange(len(won))[::-1]
            means.append(float(weight @ np.array(won, float) / weight.sum()))
        score[level] = abs(means[0] - means[1]) / (1 - baseline)
    weight = np.ones(count)
    if scored.any():
        mine = score[scored]
        z = (mine - mine.mean()) / max(mine.std(), 0.02) if len(mine) > 2 else mine
        weight[scored] = 1 / (1 + np.exp(-np.clip(preset.amplification * z, -50, 50)))
        weight[~scored] = weight[scored].mean()
    return (1 - preset.uniform_share) * weight / weight.sum() + preset.uniform_share / count


PLAIN = {"learnability": plain_learnability, "plr": plain_replay, "learning_progress": plain_progress}


@pytest.mark.parametrize("strategy", list(PLAIN))
def test_levels_are_drawn_as_often_as_the_definition_says(strategy):
    categories = [name for name in CATEGORIES for _ in range(EACH)]
    sampler, rng = make_sampler(categories, CurriculumConfig(strategy=strategy), 0), np.random.default_rng(1)
    skill, history = rng.random(len(categories)), []
    for _ in range(UPDATES):
        levels = rng.permutation(np.repeat(np.arange(2, len(categories)), rng.integers(0, 4, len(categories) - 2)))
        won, advantage = rng.random(len(levels)) < skill[levels], rng.normal(size=len(levels)).astype(np.float32)
        history.append((levels, won, advantage))
        sampler.record(levels, won)
        sampler.learn(decided=levels, advantages=advantage)
    wanted = PLAIN[strategy](sampler, history)
    np.testing.assert_allclose(sampler.probabilities(), wanted / wanted.sum(), rtol=1e-6)
