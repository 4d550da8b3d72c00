"""Behavioural cloning: training, its checks, and the script from replays to a checkpoint."""

import json
import math

import numpy as np
import pytest
import torch

from bc.dataset import BCDataset
from bc.thread_pool import ThreadPool
from bc.train import BCConfig, Hooks, TrainingError, evaluate, pretrain
from nppsim.errors import ConfigError
from nppsim.levels.level import mirror
from rl.policy import checkpoint

from programs import load_script
from recordings import level, replay_folder

pytestmark = pytest.mark.usefixtures("one_thread")


def toy_dataset(samples=2400, demonstrations=40, separable=True):
    """The action is the index of the largest of six inputs (or random); it often equals the previous action."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 6, samples)
    for i in range(1, samples):
        if rng.random() < 0.8:
            actions[i] = actions[i - 1]
    state = rng.normal(size=(samples, 26)).astype(np.float32)
    if separable:
        state[np.arange(samples), actions] += 5
    each = samples // demonstrations
    previous = np.concatenate([[0], actions[:-1]])
    previous[::each] = 0
    return BCDataset(
        path="toy",
        key="toy",
        frame_skip=4,
        observations={"game_state": state},
        actions=actions.astype(np.int8),
        previous_actions=previous.astype(np.int8),
        demonstration=np.repeat(np.arange(demonstrations, dtype=np.int32), each),
        categories=("toy",),
        names=tuple(f"{i}" for i in range(demonstrations)),
        level_fingerprints=tuple(f"{i}" for i in range(demonstrations)),
        category=np.zeros(demonstrations, np.int16),
        validation=np.arange(demonstrations) % 5 == 0,
        selection="toy",
    )


class ToyPolicy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(26, 32), torch.nn.ReLU())
        self.actor, self.critic = torch.nn.Linear(32, 6), torch.nn.Linear(32, 1)

    def logits_and_values(self, observations):
        features = self.body(observations["game_state"])
        return self.actor(features), self.critic(features).flatten()


class Writer:
    def __init__(self):
        self.tags = {}

    def add_scalar(self, tag, value, step):
        assert np.isfinite(value)
        self.tags.setdefault(tag, []).append((step, value))

    def flush(self):
        self.flushed = {tag: len(rows) for tag, rows in self.tags.items()}


def test_train_small_dataset_beats_trivial_predictors():
    dataset, policy, writer, improved = toy_dataset(), ToyPolicy(), Writer(), []
    critic = policy.critic.weight.detach().clone()
    result = pretrain(
        policy,
        dataset,
        BCConfig(epochs=15, learning_rate=3e-3),
        writer,
        hooks=Hooks(
            on_improvement=lambda trained, epoch: improved.append(epoch),
            closed_loop=lambda trained: {"success": float(trained is policy)},
        ),
        log=lambda line: None,
    )
    assert result.validation.accuracy > 0.97
    assert result.validation.change_accuracy > 0.95
    assert result.baselines["repeat_previous"].accuracy == pytest.approx(0.83, abs=0.05)
    assert result.baselines["repeat_previous"].change_accuracy == 0
    assert result.baselines["majority"].accuracy < 0.4
    assert all(recall > 0.9 for recall in result.validation.recall)
    assert result.closed_loop == {"success": 1.0}
    assert improved[-1] == result.best_epoch
    assert torch.equal(critic, policy.critic.weight)  # imitation teaches nothing about values
    assert [step for step, _ in writer.tags["bc/validation_loss"]] == list(range(1, result.epochs_run + 1))
    assert {"bc/train_loss", "bc/train_accuracy", "bc/validation_change_accuracy", "bc/recall/jump"} < set(writer.tags)
    assert writer.tags["bc/closed_loop/success"] == [(result.best_epoch, 1.0)]
    rates = [scalars["learning_rate"] for scalars in result.history]  # at the start of each epoch: half a cosine
    expected = [3e-3 * (1 + math.cos(math.pi * epoch / 15)) / 2 for epoch in range(result.epochs_run)]
    assert rates == pytest.approx(expected) and len(rates) > 10
    assert "repeat_previous" in result.table()
    json.dumps(result.as_dict(), allow_nan=False)


def test_train_without_improvement_stops_and_returns_best_weights():
    dataset, policy = toy_dataset(separable=False), ToyPolicy()
    config = BCConfig(epochs=60, patience=3, learning_rate=1e-2)
    result = pretrain(policy, dataset, config, log=lambda line: None)
    losses = [scalars["validation_loss"] for scalars in result.history]
    assert result.stopped_early
    assert result.epochs_run == result.best_epoch + 3 < 60
    assert losses[result.best_epoch - 1] == min(losses) == result.validation.loss
    assert evaluate(policy, dataset, dataset.rows(validation=True)).loss == result.validation.loss


def test_train_same_seed_gives_same_weights():
    def weights(seed):
        policy = ToyPolicy()
        pretrain(policy, toy_dataset(), BCConfig(epochs=2, seed=seed), log=lambda line: None)
        return policy.actor.weight.detach().numpy().tobytes()

    assert weights(0) == weights(0) != weights(1)


def test_train_two_threads_repeatable_and_equal_to_one():
    def learned(threads):
        policy = ToyPolicy()
        result = pretrain(policy, toy_dataset(), BCConfig(epochs=2), pool=ThreadPool(threads), log=lambda line: None)
        return result.history[-1]["train_loss"], policy.actor.weight.detach()

    (loss, alone), (_, shared), (_, repeated) = learned(1), learned(2), learned(2)
    assert torch.equal(shared, repeated) and not torch.equal(shared, alone)
    torch.testing.assert_close(shared, alone, rtol=1e-4, atol=1e-5)
    assert learned(2)[0] == pytest.approx(loss, rel=1e-5)


def test_class_weights_balance_training_part():
    dataset = toy_dataset()
    rows = dataset.rows(validation=False)
    histogram = dataset.action_histogram(rows)
    assert histogram.sum() == len(rows) < len(dataset)
    assert dataset.class_weights(0).tolist() == [1] * 6
    weighted = dataset.class_weights(1) * histogram
    np.testing.assert_allclose(weighted, weighted.mean(), rtol=1e-5)
    assert weighted.sum() == pytest.approx(len(rows), rel=1e-5)


def test_statistics_computed_from_training_part():
    dataset = toy_dataset()
    statistics = dataset.statistics(batch=100)
    part = dataset.observations["game_state"][dataset.rows(validation=False)].astype(float)
    assert statistics.count == len(part)
    np.testing.assert_allclose(statistics.mean["game_state"], part.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.std["game_state"], part.std(axis=0), rtol=1e-6)


def test_train_nan_or_frozen_policy_raises_error():
    dataset = toy_dataset()
    dataset.observations["game_state"][7] = np.nan
    with pytest.raises(TrainingError, match=r"loss is nan (in|after) epoch 1.*learning rate"):
        pretrain(ToyPolicy(), dataset, BCConfig(epochs=2), log=lambda line: None)

    class Constant(ToyPolicy):
        def logits_and_values(self, observations):
            logits, values = super().logits_and_values(observations)
            return 0 * logits, values

    with pytest.raises(TrainingError, match="gradient has norm 0"):
        pretrain(Constant(), toy_dataset(), BCConfig(epochs=2), log=lambda line: None)


@pytest.mark.parametrize(
    "setting",
    [{"epochs": 0}, {"batch_size": 0}, {"patience": 2.5}, {"learning_rate": 0.0}, {"weight_decay": float("nan")}],
)
def test_bc_config_invalid_value_raises_error(setting):
    (name,) = setting
    with pytest.raises(ConfigError, match=f"^{name} .*: give a "):
        BCConfig(**setting)
    with pytest.raises(ConfigError, match=r"^weight_decay 100.0: .*; give less than 100"):
        BCConfig(learning_rate=0.01, weight_decay=100.0)


# --- the script -----------------------------------------------------------------------------------------------------


def test_pretrain_script_replays_to_checkpoint_and_evaluation(tmp_path, capsys):
    folder, levels = replay_folder(tmp_path / "replays"), tmp_path / "levels" / "simple"
    levels.mkdir(parents=True)
    level(50).save(levels / "a.map")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--output-dir", str(tmp_path)]
    command += ["--mirror-demonstrations", "--max-demonstrations-per-category", "2"]
    command += ["--epochs", "2", "--test-dataset", str(levels.parent), "--num-eval-episodes", "2"]
    assert load_script("pretrain_bc").main(command) == 0
    (made,) = tmp_path.glob("pretrain_vision_free_*")
    assert (made / "bc_best.safetensors").is_file()
    results = json.loads((made / "results.json").read_text())
    assert results["suites"]["test"]["BC alone"]["simple"]["episodes"] == 2
    assert set(results["imitation"]["closed_loop"]) == {"simple"}
    assert list((made / "tensorboard").glob("events.*"))
    settings = results["config"]["dataset"]
    assert (settings["mirror"], settings["max_per_category"]) == (True, 2)
    printed = capsys.readouterr().out
    assert "excluded, not drawn: 1\n" in printed and "mirror images that win: 2 of 2" in printed
    assert "repeat_previous" in printed and "random play" in printed and "bc_best.safetensors" in printed


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--batch-size", "0"], "--bc-batch-size 0: give a whole number"),
        (["--frame-skip", "0"], "--frame-skip 0: give a whole number from 1 to 60"),
        (["--max-demonstrations-per-category", "0"], "--max-demonstrations-per-category 0: give a"),
        (["--architecture", "nope"], "unknown architecture 'nope'"),
        (["--replay-data-dir", "missing"], "missing: neither a folder"),
        (["--test-dataset", "missing"], "missing does not exist"),
        (["--output-dir", f"{__file__}/out"], f"out: cannot be written ({__file__} is a file)"),
    ],
)
def test_pretrain_script_bad_input_prints_one_error(tmp_path, capsys, extra, message):
    folder = replay_folder(tmp_path / "replays")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--output-dir", str(tmp_path / "out")]
    assert load_script("pretrain_bc").main([*command, *extra]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1
    assert not list(tmp_path.glob("out/pretrain_*"))


@pytest.mark.parametrize("mirrored", [False, True])
def test_pretrain_script_test_levels_in_demonstrations_raises_error(tmp_path, capsys, mirrored):
    folder, levels = replay_folder(tmp_path / "replays"), tmp_path / "levels"
    levels.mkdir()
    (mirror(level(40)) if mirrored else level(40)).save(levels / "a.map")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--test-dataset", str(levels)]
    assert load_script("pretrain_bc").main([*command, "--output-dir", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert (
        "error: 1 of 3 demonstrations are of evaluation levels" in printed
        and "2025_train_simple_1.replay of " in printed
    )
    assert not list(tmp_path.glob("out/pretrain_*"))


def test_train_interrupted_reports_saved_best_weights(tmp_path, capsys, monkeypatch):
    save = checkpoint.save

    def save_then_interrupt(path, policy, **fields):
        save(path, policy, **fields)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save_then_interrupt)
    folder = replay_folder(tmp_path / "replays")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--output-dir", str(tmp_path)]
    assert load_script("pretrain_bc").main(command) == 130
    (best,) = tmp_path.glob("pretrain_*/bc_best.safetensors")
    assert str(best) in capsys.readouterr().err
    policy, _ = checkpoint.load_policy(best)
    assert policy.statistics.count > 0


def test_train_clips_gradients_to_configured_norm():
    policy = ToyPolicy()
    pretrain(policy, toy_dataset(), BCConfig(epochs=1, max_grad_norm=1e-3), log=lambda line: None)
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    assert torch.stack([gradient.norm() for gradient in gradients]).norm().item() == pytest.approx(1e-3, rel=1e-3)
