"""Callback of the main job: progress, periodic evaluation with early stopping and retention, checkpoints, upload."""

import copy
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from stable_baselines3.common.logger import Logger
from tqdm import tqdm

from nppsim.errors import UserError
from nppsim.progress import progress_bar
from nppsim.signals import StopRequest
from rl.config import ExperimentConfig
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.ppo import training_state
from rl.ppo.callbacks import PPOCallback
from rl.ppo.logs import ScalarLog
from rl.ppo.model_selection import Candidate, EarlyStopping, Evaluate, Evaluation, Remote, Retention, in_points
from rl.ppo.ppo import PPO
from rl.ppo.training_state import Checkpoints
from rl.upload import Uploader, UploadError

PRINT_SECONDS = 20.0  # between lines of progress where there is no terminal
SAVING_SHARE = 0.05  # of the time, which checkpoints between those of --save-freq may take
EVALUATING_SHARE = 0.25  # of the time, which evaluations may take under a time budget


class TrainingMonitor(PPOCallback):
    """Watches one training run.

    config: of the experiment.
    root: the experiment's folder, which is uploaded.
    folder: of this run.
    evaluate: plays the dev levels, every so many decisions or minutes, before training (the BC policy) and after it.
    remote: plays those during training, if not None.  What it finds is concluded from when the next evaluation is due, or
        at the end, so that a run does not depend on how fast it is.
    uploader: None where nothing is uploaded.
    log: receives lines for people.
    stop: request to end the program; training then ends after the update, with a checkpoint.
    events: what happened, in words and numbers.
    retention: what the policy has been able to do on the dev levels.  The best weights are kept; training goes back to
        them where too much is lost, and at its end the policy has them.
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
        log: Callable[[str], None],
        stop: StopRequest | None = None,
        remote: Remote | None = None,
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
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep_checkpoints)
        self.events: list[dict] = []
        self.early = EarlyStopping(config.evaluation)
        self.retention = Retention()
        self._guarded = config.evaluation.retention_guard and config.evaluation.in_training
        self._best: dict | None = None  # ``Candidate.weights`` of what did best on the dev levels
        self._last: tuple[int, np.ndarray] | None = None  # updates of the policy that was judged last, and its success
        self._in_flight: Candidate | None = None  # who is being played elsewhere
        period, self._evaluation_seconds = config.evaluation.periods(
            config.ppo.total_timesteps, config.ppo.time_budget_minutes
        )
        self._periods = {
            "evaluation": period,
            "checkpoint": config.save_freq,
            "upload": config.upload.sync_freq,
        }
        self._next = dict(self._periods)
        self._overall: list[float] = []  # success in all evaluations that were concluded from
        self._evaluating = 0.0  # seconds so far
        self._evaluated_at = 0.0  # seconds of training spent before the latest one
        self._warming_up = False
        self._printed = 0.0
        self._saved_after = 0  # updates
        self._saved_at = 0.0  # time.monotonic()
        self._saving = 0.0  # seconds that the latest checkpoint took

    def _on_training_start(self) -> None:
        ppo = self.model
        self._saved_at = time.monotonic()
        self._warming_up = ppo.critic_only
        if self._guarded and ppo.reference is not None and self.retention.cloned is None:
            self.retention.cloned = self._play().levels
        if self._in_flight and self.remote:
            self.remote.order(self._in_flight.policy, self._in_flight.decisions)
        total = self.config.ppo.total_timesteps
        self._bar = progress_bar(title="PPO", total=total, unit="decision")

    def _on_rollout_start(self) -> None:
        """Between updates (and before the first rollout).

        A checkpoint comes before what else is due, so that a run that goes on from it does the rest as if it had never
        stopped.
        """
        if not self.model.updates:
            return
        if self.remote:
            self.remote.check()
        evaluation = (self._is_due("evaluation") or self._is_time_to_evaluate()) and self._is_affordable()
        if evaluation or self.stop.by or self._is_due("checkpoint") or self._saving_is_cheap():
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
        return bool(self._periods[what]) and self.num_timesteps >= self._next[what]

    def _is_done(self, what: str) -> None:
        period = self._periods[what]
        if period:
            self._next[what] = (self.num_timesteps // period + 1) * period

    def _is_time_to_evaluate(self) -> bool:
        return 0 < self._evaluation_seconds <= self.model.elapsed_s - self._evaluated_at

    def _is_affordable(self) -> bool:
        """Under a time budget, an evaluation waits while evaluations have had more than their share of the time."""
        return not self.config.ppo.time_budget_minutes or self._evaluating <= EVALUATING_SHARE * self.model.elapsed_s

    def _saving_is_cheap(self) -> bool:
        return (time.monotonic() - self._saved_at) * SAVING_SHARE >= self._saving

    def _on_rollout_end(self) -> None:
        """Just before an update; if it is the actor's first, the BC policy is kept, with a critic that knows it."""
        ppo = self.model
        if self._warming_up and not ppo.critic_only:
            self._warming_up = False
            self._happened(
                "critic",
                f"learned alone for {ppo.updates} updates and explains {ppo.explained_variance:.0%} of the returns",
            )
            if self.retention.cloned is not None:
                self._retain(self.retention.cloned, Candidate.of(ppo))

    def _on_training_end(self) -> None:
        self._bar.close()
        if self.stop.by:
            if self._saved_after != self.model.updates:
                self._checkpoint()
            return
        judged = self.config.evaluation.in_training
        if (judged or self._in_flight) and self._saved_after != self.model.updates:
            self._checkpoint()
        if not self.model.actor_updates and "actor" not in self.config.silence:
            self.warn(
                "actor",
                "it did not learn in this run: raise --total-timesteps or lower --critic-warmup-max-updates",
            )
        if self._in_flight:
            self._conclude(*self._arrived())
        if judged and (self._last is None or self._last[0] != self.model.updates):
            found = self._play()
            if self._guarded:
                self._retain(found.levels, Candidate.of(self.model))
        if self._guarded:
            self._deliver()
        self.model.logger.dump(self.num_timesteps)
        if self._evaluating:
            share = self._evaluating / max(self.model.elapsed_s, 1e-9)
            self.log(f"evaluations took {self._evaluating:.0f} s, {share:.0%} of the time of PPO")

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
        if self._bar.disable and time.monotonic() - self._printed > PRINT_SECONDS:
            self._printed = time.monotonic()
            speed = ppo.decisions_played / max(ppo.seconds, 1e-9)
            self.log(
                f"PPO {ppo.progress:4.0%}: {self.num_timesteps:,} decisions, {speed:,.0f}/s, update {ppo.updates}, {text}"
            )

    def warn(self, name: str, text: str) -> None:
        """Log a warning and store it as an event."""
        self._happened("warning", f"{name}: {text}")

    def _happened(self, what: str, text: str) -> None:
        self.events.append({"at": self.num_timesteps, what: text})
        self.log(f"{self.num_timesteps:,} decisions: {what.replace('_', ' ')}: {text}")

    def _play(self) -> Evaluation:
        """Play the dev levels with the present policy, and tell what it achieves."""
        ppo = self.model
        began = time.monotonic()
        found = self.evaluate(ppo.policy, self.num_timesteps)
        seconds = time.monotonic() - began
        self._note(found, Candidate.of(ppo), seconds, seconds)
        return found

    def _arrived(self) -> tuple[Evaluation, Candidate]:
        """What is known of the policy that was played elsewhere; waits for it."""
        candidate = self._in_flight
        assert candidate is not None
        began = time.monotonic()
        if self.remote:
            found, seconds = self.remote.result()
        else:  # whoever goes on with the run has switched it off
            found = self.evaluate(candidate.policy, candidate.decisions)
            seconds = time.monotonic() - began
        self._in_flight = None
        self._note(found, candidate, seconds, time.monotonic() - began)
        return found, candidate

    def _note(self, found: Evaluation, of: Candidate, seconds: float, waited: float) -> None:
        """Tell what a policy achieves.  seconds: that it was played; waited: that training stood still meanwhile."""
        ppo = self.model
        values = {f"eval/{category}_success": share for category, share in found.rows.items()} | {
            "eval/seconds": seconds
        }
        self.scalars.events.write(values, {}, of.decisions)  # where it belongs; the table has it in its next row
        for tag, value in values.items():
            ppo.logger.record(tag, value, exclude="tensorboard")
        self.events.append({"at": of.decisions, "evaluation": found.rows})
        shares = ", ".join(f"{category} {share:.0%}" for category, share in found.rows.items())
        self.log(f"evaluation at {of.decisions:,}: {shares}")
        if self._last is None:
            self.log(f"an evaluation takes {seconds:.1f} s; there is one {self._evaluations_in_words()}")
        self._evaluating += waited
        self._evaluated_at = ppo.elapsed_s
        ppo.reserved_s = seconds * (1 + bool(self.remote))  # for the one at the end, and the one before it
        self._last = of.updates, found.levels

    def _evaluations_in_words(self) -> str:
        period, minutes = self._periods["evaluation"], self._evaluation_seconds / 60
        ways = [f"every {period:,} decisions (--eval-freq)"] if period else []
        return " and ".join([*ways, *([f"every {minutes:g} minutes (--eval-every-minutes)"] if minutes else [])])

    def _evaluate(self) -> None:
        """Evaluate the present policy, here or elsewhere; conclude from what was ordered elsewhere the last time."""
        self._is_done("evaluation")
        went_back = self._in_flight is not None and self._conclude(*self._arrived())
        if went_back or self.model.stop_training:
            return  # what the present policy can do is known, or is about to be asked
        if self.remote is None:
            self._conclude(self._play(), Candidate.of(self.model))
        else:
            self._in_flight = Candidate.kept(self.model)
            self.remote.order(self._in_flight.policy, self._in_flight.decisions)
            self._evaluated_at = self.model.elapsed_s

    def _conclude(self, found: Evaluation, of: Candidate) -> bool:
        """Keep it, go back, or end training; True if training went back to the best policy."""
        went_back = self._guarded and self._retain(found.levels, of)
        if not of.learned:
            return went_back  # it acts like the BC policy, and says nothing of whether training improves
        stop = self.early.update(found.overall)
        self._overall.append(found.overall)
        if stop:
            self.events.append({"at": self.num_timesteps, "stopped": "no improvement"})
            self.model.stop_training = True
        return went_back

    def _retain(self, success: np.ndarray, of: Candidate) -> bool:
        """Keep a policy if it is the best so far; go back to the best if it has lost too much: True if that was done."""
        ppo, retention = self.model, self.retention
        if of.updates != ppo.updates and not of.learned and retention.best is not None:
            return False  # the BC policy is kept already, with a critic that has learned since
        is_best = retention.consider(success, of.decisions if of.learned else 0)
        if is_best:
            self._best = copy.deepcopy(of.weights)
            self._write(self.checkpoints.best, of.policy)
            return False
        loss = retention.lost(success)
        if loss is None or (self.model.progress >= 1.0 and of.updates != ppo.updates):
            return False  # the last policy is played, too, and the best is delivered
        self._restore_best()
        ppo.increase_kl_penalty()
        self._happened(
            "rolled_back",
            f"{100 * success.mean():.1f} % of the dev levels{self._since(of)}, {in_points(loss)} against the policy before "
            f"PPO: back to {retention.best_in_words}, KL penalty {ppo.kl_penalty_scale:g} times --bc-kl-coef",
        )
        return True

    def _since(self, of: Candidate) -> str:
        return "" if of.updates == self.model.updates else f" at {of.decisions:,} decisions"

    def _restore_best(self) -> None:
        assert self._best is not None
        ppo = self.model
        ppo.restore(self._best["policy"], self._best["optimizer"], self._best["actor_updates"])

    def _deliver(self) -> None:
        """Give the policy the best weights of the run, those of its end and the BC policy's included."""
        assert self._last is not None
        self._restore_best()
        self._happened("delivered", self.retention.delivery(self._last[1]))

    def _upload(self) -> None:
        if self.uploader:
            try:
                self.uploader.sync(self.root)
            except UploadError as error:  # training is worth more than a copy; the last upload of the run does raise
                self.log(f"upload failed and will be tried again: {error}")
        self._is_done("upload")

    def _checkpoint(self) -> None:
        """Write one from which training goes on right here, and remove the oldest."""
        began = time.monotonic()
        self._is_done("checkpoint")
        self.save(self.checkpoints.path(self.num_timesteps))
        self.checkpoints.prune()
        self._saved_after, self._saved_at = self.model.updates, time.monotonic()
        self._saving = self._saved_at - began

    def save(self, path: Path) -> Path:
        """Write a checkpoint with everything that training needs to go on."""
        self.scalars.sync()
        return self._write(
            path, self.model.policy, training_state.training_state(self.model) | {"monitor": self.state()}
        )

    def save_final(self) -> None:
        """Write the checkpoint of a training that is over."""
        self.save(self.checkpoints.final)

    def _write(self, path: Path, policy: NppPolicy, training: dict | None = None) -> Path:
        config = self.config.to_dict()
        checkpoint.save(path, policy, frame_skip=self.config.frame_skip, config=config, training=training)
        return path

    def state(self) -> dict:
        """Everything that the future depends on, for a checkpoint."""
        logger = self.model.logger
        return {
            "retention": self.retention.state(),
            "best": self._best,
            "overall": self._overall,
            "last": self._last,
            "in_flight": self._in_flight and self._in_flight.state(),
            "events": self.events,
            "next": self._next,
            "evaluating": self._evaluating,
            "evaluated_at": self._evaluated_at,
            "reserved": self.model.reserved_s,
            "logged": [dict(logger.name_to_value), dict(logger.name_to_excluded)],  # but not written yet
            "written": self.scalars.written,
        }

    def load(self, state: dict) -> None:
        """Continue where ``state`` was taken."""
        self.retention.load(state["retention"])
        self._best, self._last = state["best"], state["last"]
        self._overall = list(state["overall"])
        self._in_flight = state["in_flight"] and Candidate.restored(self.model, state["in_flight"])
        self.events, self._next = state["events"], state["next"]
        self._evaluating, self.model.reserved_s = state["evaluating"], state["reserved"]
        self._evaluated_at = state["evaluated_at"]
        values, excluded = state["logged"]
        self.model.logger.name_to_value.update(values)
        self.model.logger.name_to_excluded.update(excluded)

    def begin(self, ppo: PPO, previous_checkpoint: bool = False) -> bool:
        """Attach to a run: at its beginning, or where its newest checkpoint was written; True if training is over already.

        previous_checkpoint: use the one before the newest.
        Raises CheckpointError for a checkpoint that is damaged, of another version or of another frame skip.
        """
        self.model = ppo
        found = self.checkpoints.newest(previous_checkpoint, self.log)
        ppo.logger = Logger(str(self.folder), [])
        if found is None:
            self._open_scalars({})
            return False
        path, data = found
        checkpoint.check_frame_skip(path, data, self.config.frame_skip)
        is_over = path == self.checkpoints.final
        try:
            training = data["training"] or {}
            if not is_over:
                self._open_scalars(training["monitor"]["written"])
            training_state.load_training_state(ppo, data["policy"], training)
            self.load(training["monitor"])
            now = {} if is_over else training_state.training_state(ppo) | {"monitor": self.state()}
            absent = sorted(now.keys() - training.keys())
        except KeyError as error:
            absent = [str(error)]
        except UserError as error:
            raise checkpoint.CheckpointError(f"{path}: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, OverflowError) as error:
            raise checkpoint.CheckpointError(
                f"{path}: training cannot go on from it ({type(error).__name__}: {str(error).splitlines()[0]}): the file was "
                "changed; go on from another one (--previous-checkpoint)"
            ) from error
        if absent:
            raise checkpoint.CheckpointError(
                f"{path}: lacks {', '.join(absent)}, so that training cannot go on from it: use the version of the project "
                "that wrote it, or train again"
            )
        for what, period in self._periods.items():  # shorter ones than before, if that was asked for
            if period:
                self._next[what] = min(self._next[what], (ppo.num_timesteps // period + 1) * period)
        self.early = EarlyStopping(self.config.evaluation)  # with the settings as they are now
        for success in self._overall:
            self.early.update(success)
        self._saved_after = ppo.updates
        self.log(f"resuming from {path} at {ppo.num_timesteps:,} decisions")
        return is_over

    def _open_scalars(self, written: dict[str, int]) -> None:
        self.scalars = ScalarLog(self.folder, **written)
        self.model.logger.output_formats = self.scalars.outputs
