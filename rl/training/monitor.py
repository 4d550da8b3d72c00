"""Callback of the main job: progress, evaluations, early stopping, roll-back, checkpoints and uploads."""

import copy
import time
from pathlib import Path

import numpy as np
from stable_baselines3.common.logger import Logger
from tqdm import tqdm

from nppsim.errors import UserError
from nppsim.io.progress import progress_bar
from nppsim.io.signals import StopRequest
from rl.config import ExperimentConfig
from rl.log import Log, warn
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.ppo.logs import ScalarLog
from rl.ppo.ppo import PPO
from rl.training.callbacks import PPOCallback
from rl.training.digests import check_written
from rl.training.model_selection import (
    EarlyStopping,
    Evaluate,
    Evaluation,
    PolicySnapshot,
    RemoteEvaluator,
    Retention,
    in_points,
)
from rl.training.training_state import CheckpointFolder
from rl.upload import Uploader, UploadError

PRINT_SECONDS = 20.0  # time between progress messages
SAVING_SHARE = 0.05  # share of the time up to which checkpoints are written more often than --save-freq demands
EVALUATING_SHARE = 0.25  # largest share of a time budget for evaluations


class TrainingMonitor(PPOCallback):
    """Callback that evaluates, saves, uploads and reports one training run between its updates.

    All processes of a training run it: rank 0 decides, evaluates and writes files, and broadcasts its decisions.

    config: settings of the experiment.
    root: folder of the experiment, which is uploaded.
    folder: folder of this run.
    evaluate: function that evaluates a policy on the dev levels.  It is called before training (for the BC policy),
        periodically, and after training.
    remote: process for the periodic evaluations, or None.  A result is used when the next evaluation is due, or at the end of
        training, so the run does not depend on the speed of the process.
    uploader: uploader to S3, or None.
    log: function that prints a message.
    stop: request to end the program; training then ends after the current update with a checkpoint.
    events: evaluations, warnings and other events, for the results.
    retention: best policy so far and its success on the dev levels.  Training returns to the weights of the best
        policy after a significant loss of success.  At the end of training, the policy has these weights.
    """

    _bar: tqdm
    scalars: ScalarLog

    def __init__(
        self,
        config: ExperimentConfig,
        root: Path,
        folder: Path,
        evaluate: Evaluate,
        uploader: Uploader | None,
        log: Log,
        stop: StopRequest | None = None,
        remote: RemoteEvaluator | None = None,
    ):
        super().__init__()
        self.config = config
        self.root = root
        self.folder = folder
        self.evaluate = evaluate
        self.remote = remote
        self.uploader = uploader
        self.log = log
        self.stop = stop or StopRequest()
        self.checkpoints = CheckpointFolder(folder / "checkpoints", config.keep_checkpoints)
        self.events: list[dict] = []
        self.early = EarlyStopping(config.evaluation)
        self.retention = Retention()
        self._tracks_best = config.evaluation.retention_guard and config.evaluation.in_training  # and rolls back
        self._best: dict | None = None  # ``PolicySnapshot.weights`` of the best policy on the dev levels
        self._last: tuple[int, np.ndarray] | None = None  # updates and success of the latest evaluated policy
        self._pending: PolicySnapshot | None = None  # policy that another process evaluates
        period, self._evaluation_interval_s = config.evaluation.periods(
            config.ppo.total_timesteps, config.ppo.time_budget_minutes
        )
        self._periods = {"evaluation": period, "checkpoint": config.save_freq, "upload": config.upload.sync_freq}
        self._next = dict(self._periods)
        self._overall: list[float] = []  # success in the evaluations for early stopping
        self._evaluation_wait_s = 0.0  # seconds that training has waited for evaluations
        self._evaluated_at = 0.0  # seconds of training before the latest evaluation
        self._warming_up = False  # True while the critic is trained alone
        self._printed = 0.0  # time.monotonic() of the latest progress message
        self._measured = (0, 0.0)  # number of decisions, and seconds of training, at the latest progress message
        self._saved_after = 0  # number of updates at the latest checkpoint
        self._saved_at = 0.0  # time.monotonic() of the latest checkpoint
        self._saving_s = 0.0  # duration of the latest checkpoint in seconds

    def _on_training_start(self) -> None:
        ppo = self.model
        self._saved_at = time.monotonic()
        self._measured = ppo.decisions_played, ppo.seconds
        self._warming_up = ppo.critic_only
        if self._tracks_best and ppo.reference is not None and self.retention.bc_success is None:
            self.retention.bc_success = self._evaluate_now().levels
        if self._pending and self.remote:
            self.remote.submit(self._pending.policy, self._pending.decisions)
        total = self.config.ppo.total_timesteps
        self._bar = progress_bar(title="PPO", total=total, unit="decision") if self._is_main else tqdm(disable=True)

    @property
    def _is_main(self) -> bool:
        """True in rank 0, which evaluates and writes files."""
        return not self.model.ranks.rank

    def _on_rollout_start(self) -> None:
        """Save, evaluate, upload and report, if due.  The checkpoint comes first, so a resumed run repeats the rest."""
        if not self.model.updates:
            return
        if self.remote:
            self.remote.check()
        affordable = (time.monotonic() - self._saved_at) * SAVING_SHARE >= self._saving_s
        checkpoint_is_due = affordable or self._is_due("checkpoint")
        ranks = self.model.ranks
        ranks.share_stop(self.stop)
        # Rank 0 decides, as the clocks of the processes differ.
        evaluation, checkpoint_is_due = ranks.broadcast((self._evaluation_is_due(), checkpoint_is_due))
        if evaluation or self.stop.by or checkpoint_is_due:
            self._checkpoint()
        if self.stop.by:
            self.model.stop_training = True
            return
        if evaluation:
            self._evaluate()
        if self._is_due("upload"):
            self._upload()
        self._show_progress()
        self.model.stop_training |= self.model.progress >= 1.0

    def _is_due(self, what: str) -> bool:
        """Return True if ``what``, a key of ``_periods``, is due by the number of decisions."""
        return bool(self._periods[what]) and self.num_timesteps >= self._next[what]

    def _reschedule(self, what: str) -> None:
        period = self._periods[what]
        if period:
            self._next[what] = (self.num_timesteps // period + 1) * period

    def _evaluation_is_due(self) -> bool:
        """Return True if an evaluation is due and, with a time budget, evaluations took at most their share so far."""
        elapsed = self.model.elapsed_s
        by_time = 0 < self._evaluation_interval_s <= elapsed - self._evaluated_at
        affordable = not self.config.ppo.time_budget_minutes or self._evaluation_wait_s <= EVALUATING_SHARE * elapsed
        return (self._is_due("evaluation") or by_time) and affordable

    def _on_rollout_end(self) -> None:
        """Before the first update of the actor, consider the BC policy with its trained critic as the best policy."""
        ppo = self.model
        if self._warming_up and not ppo.critic_only:
            self._warming_up = False
            text = f"trained alone for {ppo.updates} updates; explained variance {ppo.explained_variance:.0%}"
            self._record_event("critic", text)
            if self.retention.bc_success is not None:
                self._update_best(self.retention.bc_success, PolicySnapshot.of(ppo))

    def _on_training_end(self) -> None:
        self._bar.close()
        self.model.ranks.share_stop(self.stop)
        if self.stop.by:
            if self._saved_after != self.model.updates:
                self._checkpoint()
            return
        evaluates = self.config.evaluation.in_training
        if (evaluates or self._pending) and self._saved_after != self.model.updates:
            self._checkpoint()
        if not self.model.actor_updates and "actor" not in self.config.silence:
            self.warn("actor", "was not trained: raise --total-timesteps or lower --critic-warmup-max-updates")
        if self._pending:
            self._apply_evaluation(*self._await_pending())
        if evaluates and (self._last is None or self._last[0] != self.model.updates):
            evaluation = self._evaluate_now()
            if self._tracks_best:
                self._update_best(evaluation.levels, PolicySnapshot.of(self.model))
        if self._tracks_best:
            self._deliver()
        self.model.logger.dump(self.num_timesteps)
        if self._evaluation_wait_s:
            share = self._evaluation_wait_s / max(self.model.elapsed_s, 1e-9)
            self.log(f"evaluations took {self._evaluation_wait_s:.0f} s, {share:.0%} of the time of PPO")

    def _show_progress(self) -> None:
        ppo = self.model
        if ppo.updates == 1:
            rate, total = ppo.decisions_played / max(ppo.seconds, 1e-9), self.config.ppo.total_timesteps
            self.log(
                f"first update: {rate:,.0f} decisions/s; {total:,} decisions would take {total / rate / 60:.0f} min"
            )
        self._bar.update(self.num_timesteps - self._bar.n)
        success = np.mean(ppo.episode_wins) if ppo.episode_wins else 0.0
        stage = getattr(ppo.sampler, "stage", "")
        text = f"success {success:.0%}" + (f", stage {stage}" if stage else "")
        self._bar.set_postfix_str(text)
        if time.monotonic() - self._printed > PRINT_SECONDS:
            self._printed = time.monotonic()
            played, seconds = self._measured
            self._measured = ppo.decisions_played, ppo.seconds
            speed = (ppo.decisions_played - played) / max(ppo.seconds - seconds, 1e-9)
            average = ppo.decisions_played / max(ppo.seconds, 1e-9)
            self._bar.clear()
            self.log(
                f"PPO {ppo.progress:4.0%}: {self.num_timesteps:,} decisions, {speed:,.0f}/s now, "
                f"{average:,.0f}/s on average, update {ppo.updates}, {text}"
            )

    def warn(self, name: str, text: str) -> None:
        """Log a warning and add it to the events."""
        self.events.append({"at": self.num_timesteps, "warning": f"{name}: {text}"})
        warn(self.log, f"{self.num_timesteps:,} decisions: {name}: {text}")

    def _record_event(self, what: str, text: str) -> None:
        self.events.append({"at": self.num_timesteps, what: text})
        self.log(f"{self.num_timesteps:,} decisions: {what.replace('_', ' ')}: {text}")

    def _evaluate_now(self) -> Evaluation:
        """Evaluate the current policy on the dev levels."""
        ppo = self.model
        began = time.monotonic()
        evaluation = ppo.ranks.broadcast(self.evaluate(ppo.policy, self.num_timesteps) if self._is_main else None)
        seconds = time.monotonic() - began
        self._log_evaluation(evaluation, PolicySnapshot.of(ppo), seconds, seconds)
        return evaluation

    def _await_pending(self) -> tuple[Evaluation, PolicySnapshot]:
        """Wait for the evaluation in the other process; return it and the evaluated snapshot."""
        snapshot = self._pending
        assert snapshot is not None
        began, result = time.monotonic(), None
        if self.remote:
            result = self.remote.result()
        elif self._is_main:  # a resumed run without a process for evaluations
            result = self.evaluate(snapshot.policy, snapshot.decisions), time.monotonic() - began
        evaluation, seconds = self.model.ranks.broadcast(result)
        self._pending = None
        self._log_evaluation(evaluation, snapshot, seconds, time.monotonic() - began)
        return evaluation, snapshot

    def _log_evaluation(self, evaluation: Evaluation, snapshot: PolicySnapshot, seconds: float, waited: float) -> None:
        """Log an evaluation.  seconds: its duration.  waited: seconds for which training waited."""
        ppo = self.model
        values = {f"eval/{category}_success": share for category, share in evaluation.rows.items()} | {
            "eval/seconds": seconds
        }
        if self._is_main:  # the table gets these values in its next row
            self.scalars.events.write(values, dict.fromkeys(values, ("",)), snapshot.decisions)
        for tag, value in values.items():
            ppo.logger.record(tag, value, exclude="tensorboard")
        self.events.append({"at": snapshot.decisions, "evaluation": evaluation.rows})
        shares = ", ".join(f"{category} {share:.0%}" for category, share in evaluation.rows.items())
        self.log(f"evaluation at {snapshot.decisions:,}: {shares}")
        if self._last is None:
            self.log(f"an evaluation takes {seconds:.1f} s; there is one {self._evaluation_periods()}")
        self._evaluation_wait_s += waited
        self._evaluated_at = ppo.elapsed_s
        ppo.reserved_s = seconds * (1 + self.config.evaluation.remote)  # for the last evaluation and a pending one
        self._last = snapshot.updates, evaluation.levels

    def _evaluation_periods(self) -> str:
        period, minutes = self._periods["evaluation"], self._evaluation_interval_s / 60
        texts = [f"every {period:,} decisions (--eval-freq)"] if period else []
        texts += [f"every {minutes:g} minutes (--eval-every-minutes)"] if minutes else []
        return " and ".join(texts)

    def _evaluate(self) -> None:
        """Evaluate the current policy, or start its evaluation in the other process and use the previous result."""
        self._reschedule("evaluation")
        rolled_back = self._pending is not None and self._apply_evaluation(*self._await_pending())
        if rolled_back or self.model.stop_training:
            return  # the current policy has been evaluated, or will be at the end
        if not self.config.evaluation.remote:
            self._apply_evaluation(self._evaluate_now(), PolicySnapshot.of(self.model))
        else:
            self._pending = PolicySnapshot.copy_of(self.model)
            if self.remote:
                self.remote.submit(self._pending.policy, self._pending.decisions)
            self._evaluated_at = self.model.elapsed_s

    def _apply_evaluation(self, evaluation: Evaluation, snapshot: PolicySnapshot) -> bool:
        """Store a policy, roll back, or end training, depending on its evaluation; return True after a roll-back."""
        rolled_back = self._tracks_best and self._update_best(evaluation.levels, snapshot)
        if not snapshot.actor_updates:
            return rolled_back  # the policy acts like the BC policy, so early stopping ignores it
        stop = self.early.update(evaluation.overall)
        self._overall.append(evaluation.overall)
        if stop:
            self.events.append({"at": self.num_timesteps, "stopped": "no improvement"})
            self.model.stop_training = True
        return rolled_back

    def _update_best(self, success: np.ndarray, snapshot: PolicySnapshot) -> bool:
        """Store the weights if they are the best so far; roll back to the best after a significant loss of success.

        Returns True after a roll-back.
        """
        ppo, retention = self.model, self.retention
        if snapshot.updates != ppo.updates and not snapshot.actor_updates and retention.best is not None:
            return False  # ``_on_rollout_end`` has stored the BC policy with a better critic
        is_best = retention.consider(success, snapshot.decisions if snapshot.actor_updates else 0)
        if is_best:
            self._best = copy.deepcopy(snapshot.weights)
            self._write(self.checkpoints.best, snapshot.policy)
            return False
        loss, has_ended = retention.significant_loss(success), ppo.ranks.broadcast(ppo.progress >= 1.0)
        if loss is None or (has_ended and snapshot.updates != ppo.updates):
            return False  # no loss, or training has ended and will load the best policy anyway
        self._restore_best()
        ppo.increase_kl_penalty()
        at = "" if snapshot.updates == ppo.updates else f" at {snapshot.decisions:,} decisions"
        self._record_event(
            "rolled_back",
            f"{100 * success.mean():.1f} % of the dev levels{at}, {in_points(loss)} against the policy before PPO: back to "
            f"{retention.best_name}, KL penalty {ppo.kl_penalty_scale:g} times --bc-kl-coef",
        )
        return True

    def _restore_best(self) -> None:
        assert self._best is not None
        ppo = self.model
        ppo.restore(self._best["policy"], self._best["optimizer"], self._best["actor_updates"])

    def _deliver(self) -> None:
        """Load the weights of the best policy, which may be the last policy or the BC policy."""
        assert self._last is not None
        self._restore_best()
        self._record_event("delivered", self.retention.delivery_message(self._last[1]))

    def _upload(self) -> None:
        if self.uploader:
            try:
                self.uploader.sync(self.root)
            except UploadError as error:  # training goes on; the upload at its end raises errors
                self.log(f"upload failed and will be tried again: {error}")
        self._reschedule("upload")

    def _checkpoint(self) -> None:
        """Write a checkpoint to resume from, and delete old checkpoints."""
        began = time.monotonic()
        self._reschedule("checkpoint")
        path = self.checkpoints.path(self.num_timesteps)
        if self._is_main:
            self.checkpoints.add(self.num_timesteps)
        self.save(path)
        if self._is_main:
            check_written(path, self.folder)
            self.checkpoints.prune()
        self._saved_after, self._saved_at = self.model.updates, time.monotonic()
        self._saving_s = self._saved_at - began

    def save(self, path: Path) -> None:
        """Write a checkpoint with the state of training."""
        training = self.model.training_state()
        if self._is_main:
            self.scalars.sync()
            self._write(path, self.model.policy, training | {"monitor": self.state()})

    def _write(self, path: Path, policy: NppPolicy, training: dict | None = None) -> None:
        if not self._is_main:
            return
        config = self.config.to_dict()
        checkpoint.save(path, policy, frame_skip=self.config.frame_skip, config=config, training=training)

    def state(self) -> dict:
        """Return the state for a checkpoint."""
        logger = self.model.logger
        return {
            "retention": self.retention.state(),
            "best": self._best,
            "overall": self._overall,
            "last": self._last,
            "in_flight": self._pending and self._pending.state(),
            "events": self.events,
            "next": self._next,
            "evaluating": self._evaluation_wait_s,
            "evaluated_at": self._evaluated_at,
            "reserved": self.model.reserved_s,
            "logged": [dict(logger.name_to_value), dict(logger.name_to_excluded)],  # metrics not yet written
            "written": self.scalars.written,
        }

    def load(self, state: dict) -> None:
        """Restore a ``state``."""
        self.retention.load(state["retention"])
        self._best, self._last = state["best"], state["last"]
        self._overall = list(state["overall"])
        self._pending = state["in_flight"] and PolicySnapshot.from_state(self.model, state["in_flight"])
        self.events, self._next = state["events"], state["next"]
        self._evaluation_wait_s, self.model.reserved_s = state["evaluating"], state["reserved"]
        self._evaluated_at = state["evaluated_at"]
        values, excluded = state["logged"]
        self.model.logger.name_to_value.update(values)
        self.model.logger.name_to_excluded.update(excluded)

    def begin(self, ppo: PPO, previous_checkpoint: bool = False) -> bool:
        """Start a run, or resume it from its newest checkpoint; return True if training is already finished.

        previous_checkpoint: True to use the checkpoint before the newest.
        Raises CheckpointError for a checkpoint that is damaged, or of another version or frame skip.
        """
        self.model = ppo
        newest = ppo.ranks.broadcast(self.checkpoints.newest(previous_checkpoint, self.log) if self._is_main else None)
        ppo.logger = Logger(str(self.folder), [])
        if newest is None:
            self._open_scalars(purge_step=ppo.n_steps * ppo.sim.num_envs * ppo.ranks.size)  # step of the first row
            return False
        path, data = newest
        checkpoint.check_frame_skip(path, data, self.config.frame_skip)
        is_over = path == self.checkpoints.final
        self._resume(path, data["policy"], data["training"] or {}, is_over)
        for what, period in self._periods.items():  # the settings may have shorter periods than before
            if period:
                self._next[what] = min(self._next[what], (ppo.num_timesteps // period + 1) * period)
        self.early = EarlyStopping(self.config.evaluation)  # with the current settings
        for success in self._overall:
            self.early.update(success)
        self._saved_after = ppo.updates
        self.log(f"resuming from {path} at {ppo.num_timesteps:,} decisions")
        return is_over

    def _resume(self, path: Path, policy_state: dict, training: dict, is_over: bool) -> None:
        """Load the state of training.  Raises CheckpointError if it is incomplete or damaged."""
        ppo = self.model
        try:
            if not is_over:
                self._open_scalars(training["monitor"]["written"]["rows"], training["num_timesteps"] + 1)
            ppo.load_training_state(policy_state, training)
            self.load(training["monitor"])
        except KeyError as error:
            raise checkpoint.CheckpointError(
                f"{path}: has no {error}, so training cannot resume from it: use the version of the project that wrote it, "
                "or train again"
            ) from error
        except UserError as error:
            raise checkpoint.CheckpointError(f"{path}: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, OverflowError) as error:
            reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            raise checkpoint.CheckpointError(
                f"{path}: training cannot resume from it ({reason}): another version of the project wrote it, or it was "
                "changed; use that version, or another checkpoint (--previous-checkpoint)"
            ) from error

    def _open_scalars(self, rows: int = 0, purge_step: int | None = None) -> None:
        if not self._is_main:
            return
        self.scalars = ScalarLog(self.folder, rows, purge_step)
        self.model.logger.output_formats = self.scalars.outputs
