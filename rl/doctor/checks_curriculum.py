"""The curriculum: it knows its levels; on made-up outcomes it prefers what teaches, and stages end when they are mastered."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet, LevelSetError
from rl.config import ExperimentConfig
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import CurriculumManager, make_sampler
from rl.curriculum.learning_progress import Preset
from rl.curriculum.start_states import MOST_LOSSES, STEPS, Run, StartStates
from rl.curriculum.strategy import THIRDS
from rl.doctor.doctor import BEFORE, CheckSkipped, check, require
from rl.ppo.vec_env import BatchVecEnv

EACH = 4  # levels of a category that are always lost, always won, and learned
UPDATES = 40
History = list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # of each update: levels, wins, advantages of its episodes
_PROGRAM = "this is a mistake in the program, not in your settings"


@check(BEFORE)
def levels_that_teach_are_preferred(env: BatchVecEnv) -> str:
    """On made-up outcomes, levels that are being learned are drawn no less often than those that are always lost, or won."""
    config = env.sampler.config
    if config.chosen not in ("learnability", "plr", "learning_progress"):
        raise CheckSkipped(f"{config.chosen} does not look at single levels")
    categories = [name for name in env.sampler.stages for _ in range(3 * EACH)]
    if config.chosen == "learning_progress" and (
        (preset := Preset.of(config)).success_bonus or preset.pool < len(categories)
    ):
        raise CheckSkipped("a bonus for success, or a pool of few levels, prefers others on purpose")
    kind, rng = np.arange(len(categories)) % 3, np.random.default_rng(0)  # lost, won, learned
    sampler = make_sampler(categories, config, 0)
    for update in range(UPDATES):
        levels = rng.permutation(np.repeat(np.arange(len(categories)), 2))
        learned, surprise = rng.random(len(levels)) < update / UPDATES, np.abs(rng.normal(size=len(levels)))
        sampler.record(levels, np.where(kind[levels] == 2, learned, kind[levels] == 1))
        sampler.learn(decided=levels, advantages=np.where(kind[levels] == 2, surprise, 0.01))
    share = np.array([sampler.probabilities()[kind == number].sum() for number in range(3)])
    told = f"always lost {share[0]:.0%}, always won {share[1]:.0%}, learned {share[2]:.0%} of the draws"
    require(share[2] >= 0.999 * share.max(), told, _PROGRAM)
    return told


@check(BEFORE)
def levels_weigh_what_their_strategy_says(env: BatchVecEnv) -> str:
    """On made-up outcomes, the chances of levels are those of the strategy's definition, worked out episode by episode."""
    config = env.sampler.config
    if config.chosen not in PLAIN:
        raise CheckSkipped(f"{config.chosen} is looked at by other checks")
    categories = [name for name in env.sampler.stages for _ in range(3 * EACH)]
    config = replace(config, active_levels=None, stage_order=())
    sampler, rng = make_sampler(categories, config, 0), np.random.default_rng(1)
    skill, history = rng.random(len(categories)), []
    for _ in range(UPDATES // 2):
        levels = rng.permutation(np.repeat(np.arange(2, len(categories)), rng.integers(0, 4, len(categories) - 2)))
        won, surprise = rng.random(len(levels)) < skill[levels], rng.normal(size=len(levels)).astype(np.float32)
        history.append((levels, won, surprise))
        sampler.record(levels, won)
        sampler.learn(decided=levels, advantages=surprise)
    wanted = PLAIN[config.chosen](sampler, history)
    wanted = wanted / wanted.sum()
    found = sampler.probabilities()
    worst = int(np.abs(found - wanted).argmax())
    told = (
        f"level {worst} of {len(wanted)} is drawn with {found[worst]:.4%}, by the definition with {wanted[worst]:.4%}"
    )
    require(bool(np.allclose(found, wanted, rtol=1e-6)), told, _PROGRAM)
    return f"{config.chosen}, {len(wanted)} levels, {len(history)} updates"


def plain_learnability(sampler: CurriculumManager, history: History) -> np.ndarray:
    """p (1 - p) of each level, expected under a Beta posterior: 20 episodes' worth of its cell's success, and its own, which
    count half after 20 episodes per level of the cell, the cell's after 300."""
    cell, count = sampler.levels.cell, len(sampler.levels)
    cell_won, cell_played = np.zeros(sampler.levels.cells), np.zeros(sampler.levels.cells)
    won, played = np.zeros(count), np.zeros(count)
    for levels, wins, _ in history:
        for one in range(sampler.levels.cells):
            members, here = np.flatnonzero(cell == one), cell[levels] == one
            cell_won[one] = cell_won[one] * 2.0 ** (-here.sum() / 300) + wins[here].sum()
            cell_played[one] = cell_played[one] * 2.0 ** (-here.sum() / 300) + here.sum()
            for level in members:
                kept, mine = 2.0 ** (-here.sum() / 20 / len(members)), levels == level
                won[level], played[level] = won[level] * kept + wins[mine].sum(), played[level] * kept + mine.sum()
    share = 0.2 if sampler.config.uniform_share is None else sampler.config.uniform_share
    a = won + 20 * ((cell_won + 1) / (cell_played + 2))[cell]
    b = played + 20 - a
    variance = a * b / (a + b) / (a + b + 1)
    return (1 - share) * variance / variance.sum() + share / count


def plain_replay(sampler: CurriculumManager, history: History) -> np.ndarray:
    """By the rank of how far the critic was off, and by age; levels that were never played, evenly."""
    config, count, now = sampler.config, len(sampler.levels), len(history)
    score, last = np.zeros(count), np.full(count, -1)
    for update, (levels, _, surprise) in enumerate(history, 1):
        size = np.maximum(surprise, 0) if config.replay_score == "positive" else np.abs(surprise)
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


def plain_progress(sampler: CurriculumManager, history: History) -> np.ndarray:
    """The distance of a fast and a slow running average of each level's success, as it stands out among the others."""
    preset, count = Preset.of(sampler.config), len(sampler.levels)
    plain = preset.early == 0.5 and not preset.success_bonus and not preset.temperature and preset.pool >= count
    if not plain or sampler.config.formulas != "mended" or sampler.config.basic_progress:
        raise CheckSkipped("only the usual formulas, of a pool that holds all levels, are worked out here")
    outcomes: list[list[bool]] = [[] for _ in range(count)]
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


@check(BEFORE)
def cells_are_of_one_family(
    config: ExperimentConfig, levels: Mapping[str, Sequence[tuple[Level, str]]], env: BatchVecEnv
) -> str:
    """Levels whose success the curriculum takes for alike, its cells, are of one category and one family, and parted by the
    length of their ways."""
    family: dict[str, str] = {}
    for one in map(LevelSet.at, () if config.single_level else config.train_dataset):
        for i, entry in enumerate(one.entries):
            with suppress(LevelSetError):  # one that cannot be read, and is left out
                family.setdefault(one.fingerprint(i), entry.generator)
    of_family: dict[tuple[str, str], list[tuple[float, int]]] = {}
    facts = zip(levels["train"], env.sim.bank.path_length.tolist(), env.sampler.levels.cell.tolist(), strict=True)
    for (level, category), length, cell in facts:
        of_family.setdefault((category, family.get(level.fingerprint, "")), []).append((length, cell))
    owner: dict[int, tuple[str, str]] = {}
    for name, members in of_family.items():
        cells = [cell for _, cell in sorted(members)]
        told = f"the curriculum's cells of {name[0]} levels made by {name[1] or 'nobody known'} "
        require(len(set(cells)) == min(THIRDS, len(cells)), f"{told}are {len(set(cells))}", _PROGRAM)
        require(cells == sorted(cells), f"{told}do not follow the length of their ways", _PROGRAM)
        strange = [owner[cell] for cell in set(cells) if owner.setdefault(cell, name) != name]
        require(not strange, f"{told}hold others, too: {strange}", _PROGRAM)
    return f"{len(owner)} cells of {len(of_family)} families"


@check(BEFORE)
def start_states_move(env: BatchVecEnv) -> str:
    """On made-up outcomes, starts along a run move a step back after a win and forward after losses, as the threshold says;
    a run that never wins is given up."""
    config = env.sampler.config
    if not config.start_states:
        raise CheckSkipped("episodes begin where their levels do")
    starts, actions = StartStates(config), np.zeros(10 * STEPS, np.uint8)
    starts.runs = {"won": Run(actions, wins=True), "lost": Run(actions, wins=False)}
    forth = config.start_threshold / (1 - config.start_threshold)
    wanted = float(STEPS - 1)
    for won in (True, True, True, False, True, False, False):
        starts._move("won", starts.runs["won"], won)
        wanted = wanted - 1 if won else min(wanted + forth, STEPS - 1)
        found = starts.runs["won"]
        right = abs(found.position - wanted) < 1e-9 and len(found.prefix) == 10 * int(wanted)
        require(right, f"episodes begin at step {found.position:g} of a run, not {wanted:g}", _PROGRAM)
    for _ in range(MOST_LOSSES):
        require("lost" in starts.runs, "a run that is no win is given up too early", _PROGRAM)
        starts._move("lost", starts.runs["lost"], False)
    require("lost" not in starts.runs, "a run that leads nowhere is kept for ever", _PROGRAM)
    return f"{STEPS} steps, {forth:.2g} forth after a loss"


@check(BEFORE)
def stages_end_when_they_are_mastered(env: BatchVecEnv) -> str:
    """On made-up outcomes, a stage whose success is below its threshold goes on, whatever still runs; one that is always won
    ends; and levels of all stages are drawn at any time."""
    config, stages = replace(env.sampler.config, regression_threshold=None), env.sampler.stages
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
