"""Faults of what is imitated, measured, counted and told, as a second adversary chose them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bc.train as imitation
from bc import baselines
from bc import dataset as demonstrations
from bc.batches import Batches
from bc.dataset import content_key, split_by_level
from bc.demonstrations import load_demonstrations as load_replays
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.measure import intervals
from nppsim.observe.statistics import ObservationStatistics
from rl.distillation import Distiller
from rl.evaluation import comparison, results, video
from rl.evaluation.history import DevHistory
from rl.evaluation.results import LevelWins, aggregate
from rl.evaluation.suite import EvaluationSuite, RandomPolicy
from rl.experiment import data as experiment_data
from rl.experiment import distill, evaluate, units
from rl.experiment import job as main_job
from rl.experiment import record as records
from rl.policy import export
from tests.mutation.mutations import Plants, fault
from tests.mutation.plants_unlisted import OFTEN

TEACHER = ("--teacher", "datasets/agents/vision_free_foresight.safetensors", "--teacher-decisions", "2048")
TWO = ("--seeds", "1", "2")
BOTH = ("--test-pretraining",)

# ---------------------------------------------------------------------------------------------------------------------
# Demonstrations and the dataset


@fault("imitation learns from a tenth and is validated on the rest", "H29", "F118")
def _(plant: Plants) -> None:
    plant.around(split_by_level, lambda original, *given: ~original(*given))


@fault("validation is of one category only", "H29", "F118")
def _(plant: Plants) -> None:
    def changed(original, found, share, seed):
        chosen = original(found, share, seed)
        levels = sorted({(one.category, one.level.fingerprint) for one in found})
        wanted = {name for _, name in levels[: len({d.level for d, c in zip(found, chosen, strict=True) if c})]}
        return np.array([one.level.fingerprint in wanted for one in found])

    plant.around(split_by_level, changed)


@fault("mirror images are asked for and not made", "F51", "F57", flags=("--mirror-demonstrations",))
def _(plant: Plants) -> None:
    plant.around(load_replays, lambda original, *given, **named: original(*given, **named | {"mirror": False}))


@fault("more demonstrations are taken than were asked for", "F51", flags=("--max-demonstrations-per-category", "4"))
def _(plant: Plants) -> None:
    plant.around(load_replays, lambda original, *given, **named: original(*given, **named | {"max_per_category": None}))


@fault("the cache's key forgets the split", "F159", "H28")
def _(plant: Plants) -> None:
    """What was cached for another seed is found."""
    plant.around(content_key, lambda original, files, config, *rest: original(files, replace(config, seed=0), *rest))

    def changed(original, folder, cache, config, **named):
        original(folder, cache, replace(config, seed=config.seed + 5), **named)
        return original(folder, cache, config, **named)

    plant.around(demonstrations.load_or_build, changed)


@fault("demonstrations count for the category of their neighbours", "F113")
def _(plant: Plants) -> None:
    def changed(original, *given, **named):
        dataset = original(*given, **named)
        object.__setattr__(dataset, "category", np.roll(dataset.category, 1))
        return dataset

    plant.around(demonstrations.load_or_build, changed)


def _shown(plant: Plants, change: Callable[[Any, np.ndarray], None]) -> None:
    """Change observations of every simulator.  change: gets a simulator and the environments that show the present state."""

    def changed(original, sim, *given, **named):
        found = original(sim, *given, **named)
        change(sim, sim.state.ninja["switch_taken"][: sim.num_envs].astype(bool))
        return found

    plant.wrap(BatchSimulator, "_run", changed)


@fault("once a switch is taken, its place and its door's are swapped in what is seen", "H25", "F106", stage="twins")
def _(plant: Plants) -> None:
    def change(sim, taken):
        if "entity_positions" in sim.obs:
            seen = sim.latest["entity_positions"]
            seen[taken] = seen[taken][:, [0, 1, 4, 5, 2, 3]]

    _shown(plant, change)


@fault("once a switch is taken, the way that is seen still leads to it", "H25", "H26", stage="twins")
def _(plant: Plants) -> None:
    def change(sim, taken):
        if "reachability_features" in sim.obs:
            sim.latest["reachability_features"][taken, 0] += 24

    _shown(plant, change)


# ---------------------------------------------------------------------------------------------------------------------
# Imitation


@fault("observations of a batch are in the order of the file, its labels are not", "H6", "F118")
def _(plant: Plants) -> None:
    def changed(original, batches, rows):
        return original(batches, np.sort(rows))[0], original(batches, rows)[1]

    plant.wrap(Batches, "observe", changed)


@fault("one observation of a batch is that of the batch before", "H5", "F118")
def _(plant: Plants) -> None:
    held: dict[int, torch.Tensor] = {}

    def changed(original, batches, rows):
        seen, actions = original(batches, rows)
        if len(rows) == 64:
            now = seen["game_state"]
            seen["game_state"] = held.get(0, now)
            held[0] = now
        return seen, actions

    plant.wrap(Batches, "observe", changed)


@fault("accuracy is counted among changes only", "F118", "F61")
def _(plant: Plants) -> None:
    def changed(original, predictions, actions, previous, loss=None):
        found = original(predictions, actions, previous, loss)
        return replace(found, accuracy=found.change_accuracy or 0.0, change_accuracy=found.accuracy)

    plant.around(baselines.score, changed)


@fault("recall is told of other actions", "F118", "F61")
def _(plant: Plants) -> None:
    def changed(original, *given):
        found = original(*given)
        return replace(found, recall=found.recall[1:] + found.recall[:1])

    plant.around(baselines.score, changed)


@fault("the trivial predictors are asked about the training part", "F118", "H29")
def _(plant: Plants) -> None:
    plant.around(
        imitation.trivial_baselines,
        lambda original, dataset, rows: original(dataset, dataset.rows(validation=False)),
    )


@fault("the clones of all seeds are the same", "H20", stage="report", flags=TWO)
def _(plant: Plants) -> None:
    plant.around(main_job.imitate, lambda original, job, plan: original(replace(job, seed=0), plan))


@fault("components that vary little are divided by 1", "F72")
def _(plant: Plants) -> None:
    original = ObservationStatistics.std.fget  # type: ignore[attr-defined]
    plant.set(
        ObservationStatistics,
        "divisor",
        property(lambda s: {key: np.where(std < 0.5, 1.0, std) for key, std in original(s).items()}),
    )


@fault("all components of an observation are divided by one spread", "F72")
def _(plant: Plants) -> None:
    original = ObservationStatistics.std.fget  # type: ignore[attr-defined]
    plant.set(
        ObservationStatistics,
        "divisor",
        property(lambda s: {key: np.full_like(std, max(std.mean(), 1e-3)) for key, std in original(s).items()}),
    )


@fault("statistics of random play are of its first moment only", "F72", "H19", flags=("--no-pretraining",))
def _(plant: Plants) -> None:
    held: dict[int, Any] = {}

    def changed(original, statistics, batch):
        original(statistics, held.setdefault(id(statistics), {key: values.copy() for key, values in batch.items()}))

    plant.wrap(ObservationStatistics, "update", changed)


@fault("statistics of random play are of one level", "F72", "H19", flags=("--no-pretraining",))
def _(plant: Plants) -> None:
    def changed(original, env, seed):
        env.sim.next_level[:] = 0
        draw = env.sampler.draw
        env.sampler.draw = lambda n: np.zeros(n, np.int32)
        env.sim.reset(np.zeros(env.sim.num_envs, np.int32))
        env.reset = lambda: None
        found = original(env, seed)
        env.sampler.draw = draw
        del env.reset
        return found

    plant.around(main_job.statistics_of_random_play, changed)


# ---------------------------------------------------------------------------------------------------------------------
# Levels


@fault("dev and test levels change places as they are read", "H21", "F94")
def _(plant: Plants) -> None:
    def changed(original, config, log):
        data = original(config, log)
        return replace(data, dev=data.test, test=data.dev)

    plant.around(experiment_data.load_data, changed)


@fault("levels have the categories of their neighbours", "F94", "H2")
def _(plant: Plants) -> None:
    def changed(original, levels):
        pairs = original(levels)
        return [(pair[0], other[1]) for pair, other in zip(pairs, [*pairs[1:], pairs[0]], strict=True)]

    plant.wrap(experiment_data, "_pairs", changed)


@fault("the last level of each folder is not read", "F7", "F155")
def _(plant: Plants) -> None:
    plant.wrap(experiment_data, "_pairs", lambda original, levels: original(levels)[:-1])


@fault("a test level is there twice", "F94")
def _(plant: Plants) -> None:
    def changed(original, config, log):
        data = original(config, log)
        return replace(data, test=[*data.test, data.test[0]])

    plant.around(experiment_data.load_data, changed)


@fault("lessons are given on the dev levels", "H21", flags=TEACHER)
def _(plant: Plants) -> None:
    def changed(original, config, data, *rest, **named):
        return original(
            config, replace(data, train=data.dev, bank=LevelBank([level for level, _ in data.dev])), *rest, **named
        )

    plant.wrap(distill, "make_env", changed)


@fault("lessons end at half of what was asked for", "F34", "F57", flags=TEACHER)
def _(plant: Plants) -> None:
    original = Distiller.progress.fget  # type: ignore[attr-defined]
    plant.set(Distiller, "progress", property(lambda distiller: min(1.0, 2 * original(distiller))))


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation


def _suites(plant: Plants, change: Callable[[Any], Any]) -> None:
    """Change the simulator of every evaluation."""

    def changed(original, suite, *given, **named):
        original(suite, *given, **named)
        suite.simulator._static = change(suite.simulator._static)

    plant.wrap(EvaluationSuite, "__init__", changed)


@fault("evaluations are cut off at half of the time", "H22", "F44")
def _(plant: Plants) -> None:
    _suites(plant, lambda static: static._replace(time_limit=static.time_limit // 2))


@fault("evaluations have twice the time", "H22", "F44")
def _(plant: Plants) -> None:
    _suites(plant, lambda static: static._replace(time_limit=static.time_limit * 2))


@fault("random play never jumps", "F122", "F94")
def _(plant: Plants) -> None:
    plant.set(
        RandomPolicy,
        "act",
        lambda self, obs, *, deterministic, rng: torch.randint(
            3, (len(next(iter(obs.values()))),), generator=rng
        ).numpy(),
    )


@fault("the clone learns along with PPO after its first update", "F122", "H15")
def _(plant: Plants) -> None:
    """So that what is told of imitation alone is of PPO."""

    def changed(original, job, clone, ppo):
        if clone is not None:
            clone.policy.load_state_dict(ppo.policy.state_dict())
        return original(job, clone, ppo)

    plant.around(main_job.judge, changed)


def _recorded(plant: Plants, change: Callable[[Any], Any]) -> None:
    """Change each episode as it is recorded."""
    plant.wrap(EvaluationSuite, "_record", lambda original, suite, *given: change(original(suite, *given)))


@fault("returns of episodes are those of their last decision", "F61")
def _(plant: Plants) -> None:
    _recorded(plant, lambda one: replace(one, ret=one.ret - 0.5))


@fault("gold of judged episodes is doubled", "F61")
def _(plant: Plants) -> None:
    _recorded(plant, lambda one: replace(one, gold=one.gold + 1))


@fault("judged episodes count for the category of the environment's first", "F94", "F66")
def _(plant: Plants) -> None:
    """Whose levels are played one after another."""

    def changed(original, suite, number, *given):
        return replace(original(suite, number, *given), category=suite._category[number % 4])

    plant.wrap(EvaluationSuite, "_record", changed)


@fault("the history of dev levels is that of the evaluation before", "F94", "F61", flags=OFTEN)
def _(plant: Plants) -> None:
    held: list[LevelWins] = []

    def changed(original, history, decisions, wins):
        held.append(wins)
        other = held[-2] if len(held) > 1 else replace(wins, wins=np.maximum(wins.wins - 1, 0))
        original(history, decisions, other)

    plant.wrap(DevHistory, "add", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Statistics and what is told


@fault("intervals hold the truth in 80 %", "F94", "F156", stage="report")
def _(plant: Plants) -> None:
    plant.set(intervals, "_INTERVAL", (10.0, 90.0))


@fault("intervals are over episodes, not over levels", "F94", stage="report")
def _(plant: Plants) -> None:
    def changed(original, wins):
        return intervals.wilson(int(wins.wins.sum()), int(wins.episodes.sum() * len(wins.wins)))

    plant.wrap(LevelWins, "interval", changed)


@fault("intervals leave out the chance of seeds", "F94", stage="report", flags=TWO)
def _(plant: Plants) -> None:
    plant.wrap(intervals, "_seed_effects", lambda original, table, weight: 0 * original(table, weight))


@fault("frames to the exit are those of all episodes", "F61", "F94", stage="report")
def _(plant: Plants) -> None:
    def changed(original, episodes, wins):
        return original(episodes, wins) | {"median_frames": float(np.median([one.frames for one in episodes]))}

    plant.wrap(results, "_count", changed)


@fault("the return of all is that of the episodes won", "F61", stage="report")
def _(plant: Plants) -> None:
    def changed(original, episodes, wins):
        won = [one.ret for one in episodes if one.won]
        return original(episodes, wins) | {"mean_return": float(np.mean(won)) if won else None}

    plant.wrap(results, "_count", changed)


@fault("differences have the wrong sign", "F94", stage="report")
def _(plant: Plants) -> None:
    def changed(original, a, b):
        found = original(a, b)
        bounds = found.ci95 and [-found.ci95[1], -found.ci95[0]]
        return replace(found, difference=-found.difference, ci95=bounds)

    plant.wrap(comparison, "_difference", changed)


@fault("PPO is compared with itself", "F94", "F122", stage="report")
def _(plant: Plants) -> None:
    plant.wrap(records, "_over", lambda original, runs, method: original(runs, "ppo"))


@fault("columns of the wins on each level change places", "F94", "F61", stage="report")
def _(plant: Plants) -> None:
    def changed(original, path, methods):
        original(path, dict(zip(methods, reversed(list(methods.values())), strict=True)))

    plant.around(comparison.write_levels, changed)


@fault("imitation and random play change places in the results file", "F94", "F61", stage="report")
def _(plant: Plants) -> None:
    def changed(original, found):
        return original(found | {"random": found["bc"], "bc": found["random"]})

    plant.wrap(records, "_suites", changed)


@fault("results over all seeds are those of the first seed", "F94", stage="report", flags=TWO)
def _(plant: Plants) -> None:
    plant.set(
        records,
        "aggregate",
        lambda *seeds: aggregate(*[seeds[0]] * len(seeds)),
    )


@fault("the results of the first seed are told of all seeds' runs", "F94", stage="report", flags=TWO)
def _(plant: Plants) -> None:
    first: list[Any] = []

    def changed(original, run):
        first.append(run)
        return original(first[0])

    plant.wrap(records, "_report_entry", changed)


@fault("columns of the report are of other methods", "F94", "F61", stage="report")
def _(plant: Plants) -> None:
    from rl.experiment import report

    plant.set(report, "METHODS", {"ppo": "after PPO", "bc": "random play", "random": "before PPO"})


@fault("the checklist is met by success below its mark", "F125", stage="report")
def _(plant: Plants) -> None:
    from rl.doctor import checklist

    def changed(original, *given):
        item = original(*given)
        return item if item.met is None else replace(item, met=not item.met)

    plant.wrap(checklist, "_success_at", changed)


@fault("time limits are the same for all levels", "F5", "H22")
def _(plant: Plants) -> None:
    from nppsim import bank

    def changed(original, *given):
        paths = original(*given)
        return paths._replace(time_limit=np.full_like(paths.time_limit, 300))

    plant.around(bank._search_paths, changed)


@fault("eval_results.json keeps what an earlier run has left", "F94", stage="report")
def _(plant: Plants) -> None:
    def changed(original, path, data):
        if path.name == "eval_results.json":
            data = dict.fromkeys(data, data["random"])
        original(path, data)

    plant.wrap(records, "write_json", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Films


FILMED = ("--record-eval-videos", "--max-videos-per-category", "1")


@fault("the replay beside a film is of another episode", "F94", stage="report", flags=FILMED)
def _(plant: Plants) -> None:
    held: list[Any] = []

    class Other(video.Replay):
        def save(self, path: str | Path, format: str = "compact") -> None:
            held.append(self)
            super(type(held[0]), held[0]).save(path, format)

    plant.set(video, "Replay", Other)


@fault("a film is named after another episode", "F94", stage="report", flags=FILMED)
def _(plant: Plants) -> None:
    held: list[Any] = []

    def changed(original, out_dir, frame_skip, fps, ghost, episode, *given):
        held.append(episode)
        film = original(out_dir, frame_skip, fps, ghost, episode, *given)
        return replace(film, level_name=held[0].level_name, frames=held[0].frames)

    plant.wrap(video, "_film", changed)


@fault("films show another episode than they are named after", "F94", stage="report", flags=FILMED)
def _(plant: Plants) -> None:
    held: list[Any] = []

    def changed(original, path, level, inputs, look, *, run):
        held.append((level, inputs, run))
        first = held[0]
        return original(path, first[0], first[1], look, run=first[2])

    plant.wrap(video, "record", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation by itself, and export


@fault("evaluate.py judges rounded weights", "F94", "H20", stage="evaluate")
def _(plant: Plants) -> None:
    def changed(original, how, progress, unit):
        policy = how.agent.unpack()
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.copy_((4 * parameter).round() / 4)
        changed_how = replace(how, agent=type("Held", (), {"unpack": lambda self: policy})())
        return original(changed_how, progress, unit)

    plant.wrap(units, "_play_unit", changed)


@fault("evaluate.py counts time-outs as wins", "F94", "H22", stage="evaluate")
def _(plant: Plants) -> None:
    def changed(original, suite, policy, **named):
        found = original(suite, policy, **named)
        return [replace(one, outcome="won" if one.outcome == "timeout" else one.outcome) for one in found]

    plant.wrap(EvaluationSuite, "run", changed)


@fault("evaluate.py plays with another frame skip", "F44", "H35", stage="evaluate")
def _(plant: Plants) -> None:
    def changed(original, path, device):
        policy, skip = original(path, device)
        return policy, skip // 2

    plant.around(evaluate.policy_of, changed)


@fault("units of an evaluation draw the same random numbers", "H22", stage="evaluate")
def _(plant: Plants) -> None:
    plant.set(units, "UNIT", 2)
    plant.set(units, "own_seed", lambda seed, part: seed)


@fault("evaluate.py tells random play of doing nothing", "F122", stage="evaluate")
def _(plant: Plants) -> None:
    plant.wrap(
        units,
        "_play_unit",
        lambda original, *given: replace(found := original(*given), random=found.nothing, nothing=found.random),
    )


@fault("evaluate.py keeps replays in another order than results", "F94", stage="evaluate")
def _(plant: Plants) -> None:
    plant.around(
        evaluate.write_replays, lambda original, path, episodes, skip: original(path, list(reversed(episodes)), skip)
    )


@fault("an exported network takes what may not be done", "F44", stage="export")
def _(plant: Plants) -> None:
    def changed(self, *tensors):
        *observed, mask = tensors
        logits, values = self.policy.logits_and_values(dict(zip(self.policy.observations, observed, strict=True)))
        return logits, values, logits.masked_fill(mask & ~mask, -torch.inf).argmax(dim=1)

    plant.set(export._Exported, "forward", changed)


@fault("an exported network names another frame skip", "H35", "F44", stage="export")
def _(plant: Plants) -> None:
    plant.around(export.facts_of, lambda original, policy, skip: original(policy, skip // 2))


@fault("an exported network names its actions in another order", "F28", stage="export")
def _(plant: Plants) -> None:
    plant.around(
        export.facts_of,
        lambda original, *given: replace(found := original(*given), actions=tuple(reversed(found.actions))),
    )


@fault("the folder for a hub holds other weights than were exported", "F42", "H20", stage="export")
def _(plant: Plants) -> None:
    from rl.experiment import export as exporting

    def changed(original, path, policy, **named):
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(0.9)
        original(path, policy, **named)

    plant.wrap(exporting.checkpoint, "save", changed)
