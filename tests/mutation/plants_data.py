"""Faults of demonstrations, imitation, the way from the clone to PPO, and what agents are judged on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

import bc.train as imitation
from bc import dataset as demonstrations
from bc.dataset import BCDataset, content_key, record, split_by_level
from bc.demonstrations import find_replays
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import check_disjoint
from nppsim.observe.statistics import ObservationStatistics
from rl.config import PPOConfig
from rl.evaluation.suite import EvaluationSuite
from rl.experiment import data as experiment_data
from rl.experiment.data import Suites
from rl.experiment.job import clone_behaviour, hand_over
from rl.policy import weight_map
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import check_same_policy, transfer
from rl.ppo.ppo import BatchPPO
from tests.mutation.mutations import Plants, fault

# ---------------------------------------------------------------------------------------------------------------------
# Labels and observations


def _labels(plant: Plants, change: Callable[[BCDataset], np.ndarray]) -> None:
    """Change the actions of a dataset as it is read."""

    def changed(original, *arguments, **named):
        dataset = original(*arguments, **named)
        object.__setattr__(dataset, "actions", change(dataset).astype(np.int8))
        return dataset

    plant.around(demonstrations.load_or_build, changed)


@fault("labels are those of the decision before", "H6", "F118")
def _(plant: Plants) -> None:
    _labels(plant, lambda dataset: dataset.previous_actions.copy())


@fault("labels are those of the decision after", "H6")
def _(plant: Plants) -> None:
    _labels(plant, lambda dataset: np.roll(dataset.actions, -1))


@fault("labels are shuffled", "H6", "F118")
def _(plant: Plants) -> None:
    _labels(plant, lambda dataset: np.random.default_rng(0).permutation(dataset.actions))


@fault("left and right change places in the labels", "F114")
def _(plant: Plants) -> None:
    _labels(plant, lambda dataset: np.array([0, 2, 1, 3, 5, 4])[dataset.actions])


@fault("observations are recorded after the step that the action drives", "H5", "H6")
def _(plant: Plants) -> None:
    def changed(original, bank, levels, wave, config):
        recorded = original(bank, levels, wave, config)
        return {name: np.roll(values, -1, axis=0) for name, values in recorded.items()}

    plant.around(record, changed)


@fault("mirrored demonstrations keep their actions", "H24", flags=("--mirror-demonstrations",))
def _(plant: Plants) -> None:
    mirrored = np.array([0, 2, 1, 3, 5, 4])

    def changed(original, bank, levels, wave, config):
        for one in wave:
            if one.mirrored:
                one.actions[:] = mirrored[one.actions]
        return original(bank, levels, wave, config)

    plant.around(record, changed)


@fault("the recorded observations have another scale", "H5", "F113", "F72")
def _(plant: Plants) -> None:
    def changed(original, bank, levels, wave, config):
        recorded = original(bank, levels, wave, config)
        recorded["game_state"] *= 2
        return recorded

    plant.around(record, changed)


@fault("a demonstration that dies counts as won", "H42")
def _(plant: Plants) -> None:
    def changed(original, bank, levels, wave, config):
        for one in wave:
            one.actions[len(one.actions) // 2 :] = 0
        return original(bank, levels, wave, config)

    plant.around(record, changed)


# ---------------------------------------------------------------------------------------------------------------------
# Cache and splits


@fault("the cache's key forgets the settings", "F159", "H28")
def _(plant: Plants) -> None:
    """A dataset of another frame skip is found under the same name."""
    plant.around(content_key, lambda original, files, config, held_back=(): "0123456789abcdef")
    original_open = BCDataset.open.__func__  # type: ignore[attr-defined]

    def changed(cls, path, *arguments, **named):
        dataset = original_open(cls, path, *arguments, **named)
        object.__setattr__(dataset, "frame_skip", 2)
        return dataset

    plant.set(BCDataset, "open", classmethod(changed))


@fault("a stale dataset lies under the new one's name", "H28", "F135", "F159")
def _(plant: Plants) -> None:
    def changed(original, path, found, config, key, **named):
        return original(path, found, config, "of an older version", **named)

    plant.around(demonstrations.write_dataset, changed)
    plant.around(demonstrations.load_or_build, lambda original, *a, **k: (original(*a, **k), original(*a, **k))[1])


@fault("validation is split by frame", "H29")
def _(plant: Plants) -> None:
    def changed(original, dataset, validation):
        rows = np.arange(len(dataset))
        return rows[(rows % 10 == 0) == validation]

    plant.wrap(BCDataset, "rows", changed)


@fault("a level and its mirror image on the two sides of the split", "H29", flags=("--mirror-demonstrations",))
def _(plant: Plants) -> None:
    def changed(original, found, share, seed):
        return np.random.default_rng(seed).random(len(found)) < 0.5

    plant.around(split_by_level, changed)


@fault("statistics of the normaliser are those of other data", "F72", "H19")
def _(plant: Plants) -> None:
    def changed(original, dataset, batch=4096):
        statistics = original(dataset, batch)
        for key in statistics.float_keys:
            statistics._squares[key] *= 100
            statistics._mean[key] += 50
        return statistics

    plant.wrap(BCDataset, "statistics", changed)


@fault("spreads of the normaliser are variances", "F72")
def _(plant: Plants) -> None:
    original = ObservationStatistics.std.fget  # type: ignore[attr-defined]
    plant.set(ObservationStatistics, "std", property(lambda s: {key: value**2 for key, value in original(s).items()}))


# ---------------------------------------------------------------------------------------------------------------------
# Imitation


@fault("imitation learns nothing: its learning rate is 0", "F120", "H30")
def _(plant: Plants) -> None:
    plant.wrap(imitation, "_step", lambda original, setup, epoch: None)


@fault("imitation fails and training goes on without", "F120", "H30", "H47")
def _(plant: Plants) -> None:
    def changed(original, policy, *arguments, **named):
        with torch.no_grad():
            weights = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
            result = original(policy, *arguments, **named)
            policy.load_state_dict(weights)
        return result

    plant.wrap(
        imitation, "pretrain", lambda original, policy, *a, **k: changed(torch.enable_grad()(original), policy, *a, **k)
    )


@fault("imitation descends along wrong labels' gradient", "F65")
def _(plant: Plants) -> None:
    def changed(original, setup, batch):
        found = original(setup, batch)
        for parameter in setup.policy.parameters():
            if parameter.grad is not None:
                parameter.grad.neg_()
        return found

    plant.wrap(imitation, "_differentiate", changed)


@fault("NaN in the imitation loss", "F116")
def _(plant: Plants) -> None:
    def changed(original, setup, batch):
        original(setup, batch)
        return [float("nan"), 0.0]

    plant.wrap(imitation, "_differentiate", changed)


# ---------------------------------------------------------------------------------------------------------------------
# From the clone to PPO


@fault("half of the weights are transferred, success is reported", "F73", "F74", "H4")
def _(plant: Plants) -> None:
    def changed(original, source, target, mapping):
        names = sorted(mapping)
        original(source, target, {name: mapping[name] for name in names[: len(names) // 2]})

    plant.around(weight_map._copy, changed)


@fault("tensors of the clone carry a prefix", "F75")
def _(plant: Plants) -> None:
    def changed(original, source, target, **named):
        return original({f"module.{name}": tensor for name, tensor in source.items()}, target, **named)

    plant.around(transfer, changed)


@fault("another architecture's weights are handed over", "F87")
def _(plant: Plants) -> None:
    plant.around(
        transfer, lambda original, source, target, **k: original(build_policy("mlp_baseline").state_dict(), target, **k)
    )


@fault("the actor's output layer is made anew after the transfer", "F84")
def _(plant: Plants) -> None:
    def changed(original, source, target, **named):
        report = original(source, target, **named)
        target.action_net.reset_parameters()
        return report

    plant.around(transfer, changed)


@fault("nothing is transferred, nobody compares", "F73", "F120")
def _(plant: Plants) -> None:
    def changed(original, job, clone, ppo):
        fresh = build_policy(ppo.policy.architecture, clone.statistics).state_dict()
        moved = original(job, clone, ppo)
        ppo.policy.load_state_dict(fresh)
        return moved

    plant.around(check_same_policy, lambda original, *arguments: 1.0)
    plant.around(hand_over, changed)


@fault("PPO is not tied to its clone", "F96")
def _(plant: Plants) -> None:
    plant.set(BatchPPO, "anchor_to", lambda ppo, cloned: None)


@fault("imitation is left out silently", "F122", "H30")
def _(plant: Plants) -> None:
    plant.around(hand_over, lambda original, job, clone, ppo: transfer(ppo.policy.state_dict(), ppo.policy))


@fault("the best weights of imitation are not kept", "F118")
def _(plant: Plants) -> None:
    def changed(original, job, policy, *arguments):
        result = original(job, policy, *arguments)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
        return result

    plant.around(clone_behaviour, changed)


@fault("demonstrations of one category only", "F113", "F115")
def _(plant: Plants) -> None:
    def changed(original, folder, *arguments, **named):
        files = original(folder, *arguments, **named)
        return [file for file in files if file.category == files[0].category][:4]

    plant.around(find_replays, changed)


# ---------------------------------------------------------------------------------------------------------------------
# Levels that are judged on


def _thinned(plant: Plants, keep: Callable[[Level], Level]) -> None:
    """Change every level as it is read."""

    def changed(original, levels):
        return [(keep(level), category) for level, category in original(levels)]

    plant.wrap(experiment_data, "_pairs", changed)


@fault("levels have lost half of their walls", "F8", stage="compare")
def _(plant: Plants) -> None:
    def keep(level: Level) -> Level:
        tiles = level.tiles.copy()
        tiles[1:-1:2, 1:-1] = 0
        return replace(level, tiles=tiles)

    _thinned(plant, keep)


@fault("levels have entities that they should not have", "F7", "F9", stage="compare")
def _(plant: Plants) -> None:
    def keep(level: Level) -> Level:
        gold = np.array([[2, 40, 40, 0, 0]], np.uint8)
        return replace(level, records=np.concatenate([level.records[:1], gold, level.records[1:]]))

    _thinned(plant, keep)


@fault("a default of the losses differs between two versions", "F156", "F71", stage="compare")
def _(plant: Plants) -> None:
    plant.wrap(PPOConfig, "settled", lambda original, config, plan: replace(original(config, plan), gae_lambda=0.9))


@fault("evaluation plays training levels", "H21")
def _(plant: Plants) -> None:
    def changed(original, suites, levels, observations, episodes):
        object.__setattr__(suites.data, "dev", suites.data.train)
        object.__setattr__(suites.data, "test", suites.data.train)
        return original(suites, levels, observations, episodes)

    plant.wrap(Suites, "_get", changed)


@fault("dev levels are among the training levels", "H36", "H21")
def _(plant: Plants) -> None:
    train: list[tuple[Level, str]] = []

    def changed(original, sets, log):
        pairs = original(sets, log)
        if train:  # those of training are joined first
            return [*pairs, train[0]]
        train.extend(pairs)
        return pairs

    plant.around(check_disjoint, lambda original, *sets: None)
    plant.wrap(experiment_data, "joined", changed)


@fault("demonstrations of dev levels are learned from", "H36")
def _(plant: Plants) -> None:
    plant.wrap(BCDataset, "check_held_out", lambda original, dataset, levels: None)

    def changed(original, config, log):
        data = original(config, log)
        names = {mirror(level).fingerprint for level, _ in data.train[:2]} | {
            level.fingerprint for level, _ in data.train[:2]
        }
        moved = [pair for pair in data.train if pair[0].fingerprint in names]
        object.__setattr__(data, "dev", [*data.dev, *moved])
        return data

    plant.around(experiment_data.load_data, changed)


@fault("levels without a way to the exit", "H36")
def _(plant: Plants) -> None:
    def changed(original, levels):
        (level, category), *others = original(levels)
        return [(replace(level, tiles=np.ones_like(level.tiles)), category), *others]

    plant.wrap(experiment_data, "_pairs", changed)


@fault("the final evaluation plays only won episodes again", "F94")
def _(plant: Plants) -> None:
    def changed(original, suite, policy, **named):
        episodes = original(suite, policy, **named)
        return [one for one in episodes if one.outcome == "won"] or episodes

    plant.wrap(EvaluationSuite, "run", changed)


@fault("evaluation counts time-outs as wins", "F94", "H22")
def _(plant: Plants) -> None:
    def changed(original, suite, policy, **named):
        return [replace(one, outcome="won") for one in original(suite, policy, **named)]

    plant.wrap(EvaluationSuite, "run", changed)


@fault("evaluated is a policy that was never trained", "H20", "F94")
def _(plant: Plants) -> None:
    def changed(original, suite, policy, **named):
        if isinstance(policy, NppPolicy):
            policy = build_policy(policy.architecture, policy.statistics)
        return original(suite, policy, **named)

    plant.wrap(EvaluationSuite, "run", changed)
