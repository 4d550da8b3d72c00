"""Between updates: checks, evaluations, checkpoints, uploads, and the end of training."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl.config import EvaluationConfig, ExperimentConfig, PPOConfig, UploadConfig
from rl.events import read_scalars
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.policy.policy import build_policy
from rl.training import training_state
from rl.training.digests import DigestTrail, state_digests
from rl.training.model_selection import EarlyStopping, Evaluation
from rl.training.monitor import TrainingMonitor
from rl.upload import UploadError

from learners import AT_ONCE, CATEGORIES, make_ppo, roll_out, statistics

ROLLOUT = 128  # decisions of an update


class Store:
    """Substitute for an uploader; the first upload fails."""

    def __init__(self):
        self.folders = []

    def sync(self, folder):
        self.folders.append(folder)
        if len(self.folders) == 1:
            raise UploadError("the network is down")


def half_won(policy, decisions):
    """Substitute for an evaluation, with constant results."""
    return found(0.5)


def found(success):
    """An evaluation of 40 dev levels, of which the first ones are won."""
    rows = {**dict.fromkeys(CATEGORIES, success), "all": success}
    return Evaluation(success, rows, (np.arange(40) < 40 * success).astype(float))


class EvaluatorSubstitute:
    """Substitute for the evaluation process: stores the submitted weights, and evaluates them when the result is
    requested."""

    def __init__(self, evaluate):
        self.evaluate = evaluate
        self.orders = []  # decisions

    def submit(self, policy, decisions):
        self.orders.append(decisions)
        self.waiting = copy.deepcopy(policy), decisions

    def check(self):
        pass

    def result(self):
        return self.evaluate(*self.waiting), 0.0


def train(root, updates=3, evaluate=half_won, bc_policy=None, settings=AT_ONCE, remote=None, **evaluation):
    """(monitor, PPO, log lines, store) after some updates."""
    ppo, _ = make_ppo(total_timesteps=updates * ROLLOUT, **settings)
    if bc_policy is not None:
        ppo.policy.load_state_dict(bc_policy.state_dict())
        ppo.set_reference(bc_policy)
    folder = root / "vision_free"
    config = ExperimentConfig(
        experiment_name="x",
        architectures=("vision_free",),
        save_freq=2 * ROLLOUT,
        ppo=PPOConfig(total_timesteps=updates * ROLLOUT),
        evaluation=EvaluationConfig(**{"eval_freq": ROLLOUT, "remote": remote is not None} | evaluation),
        upload=UploadConfig(bucket="somewhere", sync_freq=ROLLOUT),
    )
    lines, store = [], Store()
    monitor = TrainingMonitor(config, root, folder, evaluate, store, lines.append, remote=remote)
    assert not monitor.begin(ppo)
    ppo.learn(updates * ROLLOUT, callback=monitor)
    return monitor, ppo, lines, store


def test_evaluates_saves_and_uploads_between_updates(tmp_path):
    monitor, ppo, lines, store = train(tmp_path)
    assert ppo.updates == 3
    assert [event["at"] for event in monitor.events if "evaluation" in event] == [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT]
    assert set(monitor.events[0]["evaluation"]) == {*CATEGORIES, "all"}
    saved = {path.name for path in (tmp_path / "vision_free" / "checkpoints").iterdir()}
    made = {f"checkpoint_{n * ROLLOUT}.safetensors" for n in (1, 2, 3)}  # before each evaluation, the last one included
    assert saved == {*made, "best.safetensors", "written.txt"}
    assert store.folders == [tmp_path, tmp_path], "the experiment's folder, not the run's"
    assert any("first update:" in line for line in lines)
    assert any("upload failed and will be tried again: the network is down" in line for line in lines)


def test_checkpoint_with_other_digest_is_set_aside(tmp_path, monkeypatch):
    monitor, ppo, *_ = train(tmp_path)
    trail = DigestTrail(monitor.folder)
    trail.model = ppo
    trail._append(state_digests(ppo), {})
    write, messages = monitor._write, {"bytes": "the file is damaged", "memory": r"\(optimiser\)"}

    def checkpoint_with(fault):
        def writing(path, policy, training):
            if fault == "memory":
                training["optimizer"]["state"][0]["exp_avg"].view(-1)[0] += 1
            write(path, policy, training)
            if fault == "bytes":
                data = bytearray(path.read_bytes())
                data[-100] ^= 4
                path.write_bytes(data)

        monitor.num_timesteps += 1  # name of the file
        monkeypatch.setattr(monitor, "_write", writing)
        monitor._checkpoint()

    checkpoint_with(None)
    before = monitor.checkpoints.existing()
    assert len(before) == 3
    for count, (fault, message) in enumerate(messages.items(), start=1):
        with pytest.raises(CheckpointError, match=message):
            checkpoint_with(fault)
        assert monitor.checkpoints.existing() == before
        assert len(list(monitor.checkpoints.folder.glob("*.set_aside"))) == count


def test_evaluations_by_time(tmp_path):
    often, *_ = train(tmp_path / "often", eval_freq=None, eval_every_minutes=1e-9)
    assert [event["at"] for event in often.events if "evaluation" in event] == [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT]
    seldom, _, lines, _ = train(tmp_path / "seldom", eval_freq=None, eval_every_minutes=1e9)
    assert [event["at"] for event in seldom.events if "evaluation" in event] == [3 * ROLLOUT], "the one at the end"
    assert any("there is one every 1e+09 minutes (--eval-every-minutes)" in line for line in lines)
    state = often.state()
    seldom.load(state | {"evaluated_at": 7.0})
    assert seldom.state()["evaluated_at"] == 7.0 and state["evaluated_at"] > 0


def test_finished_run_is_not_restarted(tmp_path):
    monitor, ppo, lines, _ = train(tmp_path)
    monitor.save(monitor.checkpoints.final)
    fresh, _ = make_ppo(seed=1)
    again = TrainingMonitor(monitor.config, tmp_path, monitor.folder, half_won, None, lines.append)
    assert again.begin(fresh)
    assert (fresh.updates, fresh.num_timesteps) == (3, 3 * ROLLOUT)
    assert lines[-1] == f"resuming from {monitor.checkpoints.final} at {3 * ROLLOUT} decisions"
    assert again.events == monitor.events
    assert same_weights(fresh.policy, ppo.policy.state_dict())


def test_checkpoint_of_other_version_or_frame_skip_raises(tmp_path):
    """A checkpoint of an older version lacks fields."""
    monitor, ppo, *_ = train(tmp_path)
    fresh, _ = make_ppo()

    def begin(config):
        again = TrainingMonitor(config, tmp_path, monitor.folder, half_won, None, lambda line: None)
        again.begin(fresh)

    with pytest.raises(CheckpointError, match="checkpoint_.*: .*4 frames per decision, this run has 2"):
        begin(replace(monitor.config, frame_skip=2))
    path = monitor.checkpoints.existing()[-1]
    training = checkpoint.load(path)["training"]
    training["monitor"] |= {"retention": {}}
    checkpoint.save(path, ppo.policy, frame_skip=4, config=monitor.config.to_dict(), training=training)
    message = "has no 'bc_success', so training cannot resume from it: use the version .*, or train again"
    with pytest.raises(CheckpointError, match=message):
        begin(monitor.config)


def test_resume_accepts_changed_periods_and_early_stopping(tmp_path):
    """Periods and the best evaluation follow the current settings."""
    success = {3: 0.5, 6: 0.52, 7: 0.52, 8: 0.56}

    def evaluate(policy, decisions):
        return found(success[decisions // ROLLOUT])

    whole, *_ = train(tmp_path, updates=7, evaluate=evaluate, eval_freq=3 * ROLLOUT, early_stopping=True)
    settings = {"eval_freq": ROLLOUT, "early_stopping_improvement": 0.1, "early_stopping_patience": 2}
    evaluation = replace(whole.config.evaluation, early_stopping_min_evaluations=1, **settings)
    again = TrainingMonitor(
        replace(whole.config, evaluation=evaluation), tmp_path, whole.folder, evaluate, Store(), lambda line: None
    )
    ppo, _ = make_ppo(total_timesteps=9 * ROLLOUT, **AT_ONCE)
    again.begin(ppo)
    assert ppo.updates == 7
    ppo.learn(2 * ROLLOUT, callback=again, reset_num_timesteps=False)
    assert ppo.updates == 8, "0.56 is less than 10 % above 0.5"
    assert [at for at, _ in events_of(again, "evaluation")][-2:] == [6 * ROLLOUT, 8 * ROLLOUT]


def test_early_stopping_ends_training(tmp_path):
    monitor, ppo, _, _ = train(
        tmp_path, updates=9, early_stopping=True, early_stopping_patience=1, early_stopping_min_evaluations=1,
        early_stopping_improvement=0.9,
    )  # fmt: skip
    assert ppo.updates == 2, "the first evaluation is the best so far, the second is no better"
    assert {"at": 2 * ROLLOUT, "stopped": "no improvement"} in monitor.events


def test_evaluations_during_critic_warm_up_do_not_end_training(tmp_path):
    _, ppo, _, _ = train(
        tmp_path, updates=4, bc_policy=make_bc_policy(), settings={"critic_warmup_min_updates": 5}, early_stopping=True,
        early_stopping_patience=1, early_stopping_min_evaluations=1, early_stopping_improvement=0.9,
    )  # fmt: skip
    assert (ppo.updates, ppo.actor_updates) == (4, 0)


def make_bc_policy():
    torch.manual_seed(3)
    return build_policy("vision_free", statistics())


def events_of(monitor, what):
    """(decisions, text) of the events of this kind."""
    return [(event["at"], event[what]) for event in monitor.events if what in event]


def same_weights(policy, state):
    return all(torch.equal(tensor, state[name]) for name, tensor in policy.state_dict().items())


def test_collapsed_policy_rolls_back_and_increases_kl_penalty(tmp_path, monkeypatch):
    """The BC policy finishes 50 % of the levels, PPO 60 % after an update; then its actor is overwritten with noise."""
    plays, seen = iter([0.5, 0.6, 0.1, 0.55, 0.65]), []

    def evaluate(policy, decisions):
        success = next(plays)
        seen.append({name: tensor.clone() for name, tensor in policy.state_dict().items()})
        return found(success)

    def play(monitor, original=TrainingMonitor._evaluate_now):
        result = original(monitor)
        if result.overall == 0.1:
            with torch.no_grad():
                monitor.model.policy.action_net.weight.normal_(0, 10)
        return result

    monkeypatch.setattr(TrainingMonitor, "_evaluate_now", play)
    monitor, ppo, lines, _ = train(tmp_path, updates=4, evaluate=evaluate, bc_policy=make_bc_policy())
    ((at, text),) = events_of(monitor, "rolled_back")
    assert at == 2 * ROLLOUT
    assert text.startswith(
        "10.0 % of the dev levels, -40.0 points [-55.0, -25.0] against the policy before PPO: back to the policy after 128"
    )
    assert any("rolled back" in line for line in lines)
    assert (ppo.kl_penalty_scale, ppo.kl_penalty_start) == (2, 0.5)
    assert same_weights(ppo.reference, seen[1])
    distance = (seen[3]["action_net.weight"] - seen[1]["action_net.weight"]).abs().max()
    assert 0 < distance < 0.01
    assert events_of(monitor, "delivered")[0][1].startswith("the policy after 512 decisions, which finishes 65.0 %")
    assert same_weights(ppo.policy, seen[4])


def test_roll_back_restores_weights_and_optimiser_only(tmp_path):
    ppo, _ = make_ppo()
    roll_out(ppo)
    ppo.update()
    before = copy.deepcopy((ppo.policy.state_dict(), ppo.policy.optimizer.state_dict()))
    ppo.update()
    ppo.restore(*before, 1)
    assert same_weights(ppo.policy, before[0])
    moments, restored = before[1]["state"], ppo.policy.optimizer.state_dict()["state"]
    assert all(torch.equal(restored[i]["exp_avg"], moments[i]["exp_avg"]) for i in moments)
    assert (ppo.updates, ppo.actor_updates) == (2, 1)
    stored = copy.deepcopy(moments)
    ppo.update()
    assert all(torch.equal(moments[i]["exp_avg"], stored[i]["exp_avg"]) for i in moments), "for the next roll-back"


def test_learning_rate_warms_up_again_after_roll_back_to_bc_policy(tmp_path):
    """The optimiser has no moments of the BC policy's actor, so the first step at the full rate would be too long."""
    plays = iter([0.5, 0.1, 0.5, 0.5, 0.5])
    settings = AT_ONCE | {"learning_rate_warmup_updates": 2}
    monitor, *_ = train(
        tmp_path, updates=4, evaluate=lambda *_: found(next(plays)), bc_policy=make_bc_policy(), settings=settings
    )
    assert [at for at, _ in events_of(monitor, "rolled_back")] == [ROLLOUT]
    rates = read_scalars(tmp_path / "vision_free" / "tensorboard")["train/learning_rate"].values
    full = [make_ppo(total_timesteps=4 * ROLLOUT, **settings)[0].config.learning_rate_at(n / 4) for n in (1, 2, 3, 4)]
    assert [rate / all_of_it for rate, all_of_it in zip(rates, full, strict=True)] == pytest.approx(
        [1 / 3, 1 / 3, 2 / 3, 1]
    )


@pytest.mark.parametrize(
    ("plays", "delivered", "text"),
    [  # success of the BC policy and after each update; which of these policies is delivered
        (
            [0.5, 0.6, 0.8, 0.7],
            2,
            "the policy after 256 decisions, which finishes 80.0 % of the dev levels (the last one: 70",
        ),
        (
            [0.5, 0.6, 0.8, 0.8],
            3,
            "the policy after 384 decisions, which finishes 80.0 % of the dev levels, +30.0 points",
        ),
        (
            [0.8, 0.7, 0.75, 0.75],
            0,
            "PPO HAS NOT IMPROVED THE INITIAL POLICY: the policy before PPO is delivered, which finishes 80.0 % of",
        ),
    ],
)
def test_best_dev_policy_is_delivered(tmp_path, plays, delivered, text):
    results, seen = iter(plays), []

    def evaluate(policy, decisions):
        seen.append({name: tensor.clone() for name, tensor in policy.state_dict().items()})
        return found(next(results))

    monitor, ppo, lines, _ = train(tmp_path, evaluate=evaluate, bc_policy=make_bc_policy())
    assert same_weights(ppo.policy, seen[delivered])
    assert events_of(monitor, "delivered")[0][1].startswith(text)
    assert any(text in line for line in lines)
    assert len(seen) == 4


def test_bc_policy_stored_with_trained_critic(tmp_path):
    """Two updates of the critic, then one that damages the actor; the stored best policy is the BC policy with the
    trained critic."""
    plays, bc_policy = iter([0.5, 0.5, 0.5, 0.4]), make_bc_policy()
    monitor, ppo, _, _ = train(
        tmp_path, evaluate=lambda policy, decisions: found(next(plays)), bc_policy=bc_policy,
        settings={"critic_warmup_min_updates": 2, "critic_warmup_max_updates": 2},
    )  # fmt: skip
    ((at, text),) = events_of(monitor, "critic")
    assert at == 3 * ROLLOUT and text.startswith("trained alone for 2 updates")
    assert "the policy before PPO is delivered" in events_of(monitor, "delivered")[0][1]
    before = bc_policy.state_dict()
    moved = {name for name, tensor in ppo.policy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in before if "value_net" in name}


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_and_both_speeds_are_logged_with_and_without_a_bar(tmp_path, monkeypatch, terminal):
    monkeypatch.setattr("rl.training.monitor.PRINT_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    _, _, lines, _ = train(tmp_path)
    speeds = [re.findall(r"([\d,]+)/s", line) for line in lines if line.startswith("PPO ")]
    assert [len(both) for both in speeds] == [2, 2]  # between three updates
    assert speeds[0][0] == speeds[0][1]


def test_untrained_actor_warns(tmp_path):
    monitor, _, _, _ = train(tmp_path, updates=2, bc_policy=make_bc_policy(), settings={"critic_warmup_min_updates": 5})
    ((at, text),) = [one for one in events_of(monitor, "warning") if one[1].startswith("actor: ")]
    assert at == 2 * ROLLOUT and "lower --critic-warmup-max-updates" in text
    before = monitor.checkpoints.existing()[-1]
    assert warnings_in(before) == []


def warnings_in(path):
    """Warnings in a checkpoint."""
    events = checkpoint.load(path)["training"]["monitor"]["events"]
    return [event for event in events if "warning" in event]


def test_remote_evaluations_do_not_change_results(tmp_path):
    def evaluate(policy, decisions):
        return found(0.5 + 0.1 * (decisions == 2 * ROLLOUT))

    here, one, _, _ = train(tmp_path / "here", updates=4, evaluate=evaluate)
    beside = EvaluatorSubstitute(evaluate)
    there, other, _, _ = train(tmp_path / "there", updates=4, evaluate=evaluate, remote=beside)
    assert beside.orders == [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT], "the last one is played here"
    assert events_of(there, "evaluation") == events_of(here, "evaluation")
    assert events_of(there, "delivered") == events_of(here, "delivered") and there.retention.best_at == 2 * ROLLOUT
    assert same_weights(other.policy, one.policy.state_dict())
    for where in ("here", "there"):
        curves = read_scalars(tmp_path / where / "vision_free" / "tensorboard")["eval/all_success"]
        assert curves.steps.tolist() == [n * ROLLOUT for n in (1, 2, 3, 4)], (
            "decisions of the evaluated policies, not of the time of the results"
        )
        assert curves.values == pytest.approx([0.5, 0.6, 0.5, 0.5])


def collapsed_at(seen):
    """Substitute for an evaluation that finds a collapsed policy; ``seen``: decisions -> weights."""

    def evaluate(policy, decisions):
        seen[decisions] = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        return found({0: 0.5, ROLLOUT: 0.6, 2 * ROLLOUT: 0.1}.get(decisions, 0.55))

    return evaluate


def test_remote_results_are_used_when_the_next_evaluation_is_due(tmp_path):
    """The policy after two updates has collapsed: after the third, training goes back to the one after the first."""
    seen = {}
    beside = EvaluatorSubstitute(collapsed_at(seen))
    monitor, ppo, _, _ = train(tmp_path, updates=5, evaluate=beside.evaluate, bc_policy=make_bc_policy(), remote=beside)
    ((at, text),) = events_of(monitor, "rolled_back")
    assert at == 3 * ROLLOUT
    assert text.startswith("10.0 % of the dev levels at 256 decisions, -40.0 points") and "after 128 dec" in text
    assert beside.orders == [ROLLOUT, 2 * ROLLOUT, 4 * ROLLOUT], "the roll-back target has a result"
    assert same_weights(ppo.reference, seen[ROLLOUT])
    best = checkpoint.load(monitor.checkpoints.best)["policy"]
    assert same_weights(ppo.policy, seen[ROLLOUT]) and same_weights(ppo.policy, best), "delivered"


def test_resume_repeats_pending_evaluation(tmp_path):
    """From the checkpoint after the third update, before the roll-back; without the retention guard, no roll-back
    follows."""
    remote = EvaluatorSubstitute(collapsed_at({}))
    whole, ppo, _, _ = train(tmp_path, updates=5, evaluate=remote.evaluate, bc_policy=make_bc_policy(), remote=remote)
    for again in (EvaluatorSubstitute(collapsed_at({})), None):
        for later in (4, 5):
            whole.checkpoints.path(later * ROLLOUT).unlink()
        seen = {}
        fresh, _ = make_ppo(total_timesteps=5 * ROLLOUT, **AT_ONCE)
        fresh.set_reference(make_bc_policy())
        evaluation = replace(whole.config.evaluation, remote=again is not None)
        config = replace(whole.config, evaluation=evaluation)
        monitor = TrainingMonitor(
            config, tmp_path, whole.folder, collapsed_at(seen), Store(), lambda line: None, remote=again
        )
        monitor.begin(fresh)
        fresh.learn(2 * ROLLOUT, callback=monitor, reset_num_timesteps=False)
        assert again.orders == [2 * ROLLOUT, 4 * ROLLOUT] if again else min(seen) == 2 * ROLLOUT
        assert events_of(monitor, "rolled_back") == events_of(whole, "rolled_back")
        assert events_of(monitor, "evaluation") == events_of(whole, "evaluation")
        assert same_weights(fresh.policy, ppo.policy.state_dict())


def test_without_evaluations_there_is_no_roll_back(tmp_path):
    for settings in ({"eval_freq": 0}, {"retention_guard": False}):
        monitor, ppo, _, _ = train(tmp_path / next(iter(settings)), bc_policy=make_bc_policy(), **settings)
        assert not events_of(monitor, "delivered")
        assert (ppo.updates, monitor.retention.best) == (3, None)
        at = [event["at"] for event in monitor.events if "evaluation" in event]
        assert at == ([] if "eval_freq" in settings else [ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT])


def test_extended_training_restarts_kl_penalty_at_current_progress():
    ppo, _ = make_ppo(total_timesteps=4 * ROLLOUT, **AT_ONCE)
    ppo.learn(2 * ROLLOUT)
    ppo.kl_penalty_start, stored = 0.5, ppo.training_state()
    longer, _ = make_ppo(total_timesteps=40 * ROLLOUT, **AT_ONCE)
    longer.load_training_state(ppo.policy.state_dict(), stored | {"kl_penalty_start": 0.5})
    assert longer.kl_penalty_start == longer.progress == 0.05


def test_early_stopping_waits_for_patience_and_for_enough_evaluations():
    config = EvaluationConfig(early_stopping=True, early_stopping_patience=3)
    stopping = EarlyStopping(config)
    assert [stopping.update(success) for success in (0.5, 0.505, 0.5, 0.5, 0.5)] == [False] * 4 + [True]
    improving = EarlyStopping(config)
    assert not any(improving.update(n / 20) for n in range(20))
    off = EarlyStopping(EvaluationConfig())
    assert not any(off.update(0.0) for _ in range(50))


def test_only_checkpoints_with_the_runs_own_names_are_deleted(tmp_path):
    own = [f"checkpoint_{decisions}.safetensors" for decisions in (512, 1024, 2048)]
    copies = ["checkpoint_copy_256.safetensors", "checkpoint_0512.safetensors", "my_checkpoint_1.safetensors"]
    for name in (*own, *copies):
        (tmp_path / name).touch()
    checkpoints = training_state.CheckpointFolder(tmp_path, keep=1)
    assert [path.name for path in checkpoints.existing()] == own
    checkpoints.prune()
    assert {path.name for path in tmp_path.iterdir()} == {own[-1], *copies}


def test_checkpoints_of_other_runs_are_neither_used_nor_deleted(tmp_path):
    checkpoints = training_state.CheckpointFolder(tmp_path, keep=2)
    for decisions in (512, 1024):
        checkpoints.add(decisions).touch()
    foreign = [checkpoints.path(decisions) for decisions in (64, 9999)]
    for path in foreign:
        path.touch()
    checkpoints.add(2048).touch()
    checkpoints.prune()
    again = training_state.CheckpointFolder(tmp_path, keep=2)
    assert again.existing() == [checkpoints.path(1024), checkpoints.path(2048)]
    assert all(path.exists() for path in foreign) and not checkpoints.path(512).exists()
