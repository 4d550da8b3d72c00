"""Alarms: what is said, or stops the run, when the numbers of training show that something is broken or in vain.

    alarms = Alarms()
    alarms.after_rollout(ppo)     # between rollout and update: Faults that are found there
    alarms.after_update(ppo)      # between updates

A fault that stops is certain: an identity that does not hold (``rl.ppo.audit``).  The others are bands and trends over
several updates, each told once.  What needs memory of earlier updates is in ``state_dict``, for a run that goes on.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

import numpy as np
import torch

from nppsim import reward
from nppsim.actions import NUM_ACTIONS
from nppsim.outcomes import WON
from rl.distributed.ranks import checksum
from rl.ppo.audit import Fault, Kept, Start, asked, divergence, error_of, faults_of_rollout
from rl.ppo.audit_update import faults_of_update
from rl.ppo.curriculum_audit import LearnedAgain
from rl.ppo.draws import Draws, not_drawn_anew
from rl.ppo.growth import falling, growing, memory_mib, sizes
from rl.ppo.hierarchy.audit import faults_of_commands
from rl.ppo.one_step import OneStep
from rl.ppo.ppo import BatchPPO, DivergedError
from rl.ppo.recurrent_audit import faults_of_burn_in, faults_of_memory
from rl.ppo.replayed import Replay

WINDOW = 20  # updates that bands and trends look back on
BLOCKS = 5  # of WINDOW updates each, in which success must have risen, if there is much left to gain
LEAST_RISE = 0.01  # of success, from the first two of these to the last two
ALL_AUDITED = 20  # first updates that are all audited; later every AUDIT_EVERY-th is
AUDIT_EVERY = 5
CLOCK_SHARE, CLOCK_S = 0.01, 0.2  # by which two clocks may differ
SURE = 4.0  # standard errors; the direction of an update is wrong beyond that
IN_A_ROW = 3  # updates that it takes to be sure of a direction
ENOUGH_DECISIONS = 256  # in a rollout; of fewer the critic can learn by heart, and be far off in the next
ENOUGH_EPISODES = 32  # per update; fewer are much alike
MOST_MEMORY_MIB = 256.0  # that a run may take on in WINDOW updates, each of them adding some


class AlarmError(DivergedError):
    """Training that stops because an identity does not hold; the message names the alarm, the figures and what to do."""


@dataclass
class Figures:
    """One update in numbers.

    episodes, wins: that ended in the rollout.
    positive: decisions with a reward above 0.
    kl, clip_fraction, entropy, explained_variance: NaN in updates of the critic alone.
    reference_kl, away, error_ratio: NaN in updates that were not looked at more closely.
    reference_kl: nats from the BC policy; NaN without one, too.
    away: mean of advantage times change of log-probability in standard errors; below 0 the update went the wrong way.
    error_ratio: of the values, after to before.
    top_share: of the most frequent action.
    rate: decisions per second.
    memory_mib: of the process.
    """

    episodes: int
    wins: int
    positive: int
    kl: float
    clip_fraction: float
    entropy: float
    explained_variance: float
    reference_kl: float
    away: float
    error_ratio: float
    top_share: float
    rate: float
    memory_mib: float


class Alarms:
    """Looks at each rollout and each update; gives the faults found, each name that does not stop only once.

    owner: whatever holds the training together; containers below it are watched for growth.
    history: Figures of the latest WINDOW updates.
    """

    def __init__(self, owner: object = None):
        self.owner = owner
        self.history: deque[Figures] = deque(maxlen=WINDOW)
        self.told: set[str] = set()
        self.fired = np.zeros(reward.NUM_TERMS, np.int64)  # episodes in which each reward term was not 0
        self.draws: Draws | None = None
        self.reference: list | None = (
            None  # how hard the actor is pulled, and the checksum of what it is pulled towards
        )
        self.blocks: deque[float] = deque(maxlen=WINDOW)  # median decisions per second of WINDOW updates each
        self.won: deque[list[int]] = deque(maxlen=BLOCKS)  # episodes won, and ended, in WINDOW updates each
        self.looked = 0  # updates
        self.episodes = 0
        self.start_success = math.nan  # of the first WINDOW updates
        self._sizes: deque[dict[str, int]] = deque(maxlen=WINDOW)
        self._kept: Kept | None = None
        self._start: Start | None = None
        self._replay: Replay | None = None
        self._step: OneStep | None = None
        self._learned: LearnedAgain | None = None
        self._first: int | None = None  # checksum of the decisions with which an update began
        self._waiting: np.ndarray | None = None  # levels that waited to be played before the update
        self._drawn_again = ""  # what is wrong with what waits now
        self._alone = False  # whether the critic learned alone before the rollout
        self._steps: int | None = None
        self._seconds = self._rollout_s = 0.0
        self._clock: tuple[float, float] | None = None  # time.monotonic(), and training's own clock, at the first look
        self._noted: float | None = None  # when the rollout ended, if its update was not looked at yet
        self._same = 0
        self._losses: tuple = ()

    # -----------------------------------------------------------------------------------------------------------------
    # Called by the monitor

    def before_rollout(self, ppo: BatchPPO) -> None:
        """What the rollout is held against."""
        self._start = Start(ppo) if self._due else None
        self._replay = Replay(ppo, self.looked) if self._due else None
        self._alone = ppo.critic_only
        self._clock = self._clock or (monotonic(), ppo.spent)
        self._drawn_again = (
            "" if self._waiting is None else not_drawn_anew(ppo.sampler, self._waiting, ppo.sim.next_level)
        )
        self._steps, self._seconds = ppo.num_timesteps, ppo.seconds

    def after_rollout(self, ppo: BatchPPO) -> list[Fault]:
        """Faults of the rollout that has just ended."""
        self._kept = Kept.of(ppo, self.looked) if self._due else None
        self._rollout_s, self._noted = ppo.seconds - self._seconds, perf_counter()
        self._take_note(ppo)
        faults = [*self._levels_are_drawn(ppo), *self._roles_are_kept(ppo), *self._clock_is_right(ppo)]
        if self._kept:
            faults += faults_of_rollout(ppo, self._kept, self._start)
            faults += [*faults_of_commands(ppo), *faults_of_memory(ppo, self._start)]
        if self._replay:
            faults += self._replay.faults(ppo)
        played = len(ppo.rollout_buffer) * ppo.ranks.size
        if self._steps is not None and ppo.num_timesteps - self._steps != played:
            faults.append(Fault("decisions", f"{ppo.num_timesteps - self._steps} decisions counted, {played} played"))
        self._step = OneStep(ppo, self._kept, self.looked) if self._kept else None
        self._learned = None
        if self._start:
            whole = len(ppo.ended) == int(ppo.rollout_buffer.episode_ends.sum())
            if ppo.ranks.all_gather_rows(np.array([whole])).all():  # in all processes: they exchange what follows
                self._learned = LearnedAgain(ppo, self._start)
        return self.new(faults)

    def after_update(self, ppo: BatchPPO) -> list[Fault]:
        """Faults of the update that has just ended, and of the latest ones together; none if it was looked at before."""
        if self._noted is None:
            return []
        seconds = self._rollout_s + perf_counter() - self._noted
        self._noted = None
        if self._step:
            self._step.end(ppo)
        self.history.append(self._figures(ppo, seconds))
        self.looked += 1
        faults = [*faults_of_update(ppo, self._kept), *faults_of_burn_in(ppo)] if self._kept else []
        if self._step:
            faults += self._step.faults(ppo, self._first)
            self._first = self._step.first
        if self._learned:
            faults += self._learned.faults(ppo)
        faults += self._frozen(ppo)
        if self._kept:
            self._sizes.append(sizes(self.owner if self.owner is not None else ppo))
        for look in TRENDS:
            faults += look(self, ppo)
        if self.looked % WINDOW == 0:
            self.blocks.append(float(np.median([f.rate for f in self.history])))
            self.won.append([sum(f.wins for f in self.history), sum(f.episodes for f in self.history)])
        if self.looked == WINDOW:
            self.start_success = success_of(self.history)
        return self.new(faults)

    def state_dict(self) -> dict[str, Any]:
        """What later updates are held against, as plain values and arrays."""
        return {
            "history": [dict(vars(figures)) for figures in self.history],
            "told": sorted(self.told),
            "fired": self.fired.tolist(),
            "draws": self.draws and self.draws.state_dict(),
            "reference": self.reference,
            "blocks": list(self.blocks),
            "won": [list(block) for block in self.won],
            "looked": self.looked,
            "episodes": self.episodes,
            "start_success": self.start_success,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state_dict`` was taken."""
        self.history = deque((Figures(**figures) for figures in state["history"]), maxlen=WINDOW)
        self.told, self.reference = set(state["told"]), state["reference"]
        self.draws = state["draws"] and Draws.of(state["draws"])
        self.fired = np.array(state["fired"], np.int64)
        self.blocks, self.won = deque(state["blocks"], maxlen=WINDOW), deque(state["won"], maxlen=BLOCKS)
        for name in ("looked", "episodes", "start_success"):
            setattr(self, name, state[name])

    # -----------------------------------------------------------------------------------------------------------------

    @property
    def audits(self) -> bool:
        """Whether the present rollout, or the update after it, is looked at."""
        return self._kept is not None

    @property
    def _due(self) -> bool:
        return self.looked < ALL_AUDITED or self.looked % AUDIT_EVERY == 0

    def new(self, faults: list[Fault]) -> list[Fault]:
        """Those that stop, and of the others those that were not told before."""
        fresh = [fault for fault in faults if fault.stop or fault.name not in self.told]
        self.told.update(fault.name for fault in fresh)
        return fresh

    def _take_note(self, ppo: BatchPPO) -> None:
        """Rewards of the rollout."""
        self.fired += (ppo.counted["terms"] != 0).sum(axis=0)
        self.episodes += len(ppo.counted)

    def _levels_are_drawn(self, ppo: BatchPPO) -> Iterator[Fault]:
        """Levels come as often as the curriculum says."""
        self.draws = self.draws or Draws(ppo.sampler)
        if self._drawn_again:
            yield Fault("levels drawn", self._drawn_again)
        self.draws.take(ppo.sampler, ppo.sim.next_level)
        self._waiting = ppo.sim.next_level.copy()
        if told := self.draws.fault(ppo.sampler):
            yield Fault("levels drawn", told)

    def _clock_is_right(self, ppo: BatchPPO) -> Iterator[Fault]:
        """Training's clock, by which time budgets end, runs as fast as this process's."""
        if self._clock is None:
            return
        passed, counted = monotonic() - self._clock[0], ppo.spent - self._clock[1]
        if not abs(counted - passed) <= CLOCK_SHARE * passed + CLOCK_S:
            yield Fault(
                "time",
                f"training's clock has counted {counted:.1f} s of {passed:.1f} s: time budget and speed are not those of the "
                "clock on the wall",
            )

    def _roles_are_kept(self, ppo: BatchPPO) -> Iterator[Fault]:
        """The critic learns alone until it can judge or has had its time; what the actor is pulled towards stays the same."""
        config = ppo.config
        enough = ppo.explained_variance >= config.critic_warmup_explained_variance
        ends = (enough and ppo.updates >= config.critic_warmup_min_updates) or (
            ppo.updates >= config.critic_warmup_max_updates
        )
        if ppo.critic_only != (self._alone and not ends):
            told = "goes on although it has had its time" if ppo.critic_only else "has ended too early"
            yield Fault(
                "critic",
                f"its warm-up {told}: {ppo.updates} updates, {ppo.explained_variance:.2g} of returns explained; configured: "
                f"{config.critic_warmup_explained_variance:g}, {config.critic_warmup_min_updates} to "
                f"{config.critic_warmup_max_updates} updates",
            )
        if ppo.reference is None or not self._due:
            return
        before, self.reference = self.reference, [ppo.hold, checksum(ppo.reference.state_dict())]
        if before is not None and before[0] == ppo.hold and before != self.reference:
            yield Fault(
                "reference",
                "what the actor is pulled towards has changed since the last look, which only a roll-back may do",
            )

    def _figures(self, ppo: BatchPPO, seconds: float) -> Figures:
        logged, buffer, kept = ppo.logger.name_to_value, ppo.rollout_buffer, self._kept
        learned = not ppo.critic_only
        away = ratio = reference = math.nan
        if kept is not None:
            log_probs, values = asked(ppo.policy, ppo, kept.rows)
            if kept.config.returns_from == "collected":  # else it is not these returns that are learned last
                ratio = error_of(values, ppo, kept.rows) / max(kept.error, 1e-12)
            if ppo.reference is not None:
                reference = divergence(asked(ppo.reference, ppo, kept.rows)[0], log_probs)
            if learned and "train/loss" in logged:
                away = direction(ppo, kept, log_probs)
        counts = torch.bincount(buffer.flat("actions"), minlength=NUM_ACTIONS).float()

        def value(tag: str) -> float:
            return float(logged.get(f"train/{tag}", math.nan)) if learned else math.nan

        return Figures(
            episodes=len(ppo.counted),
            wins=int((ppo.counted["outcome"] == WON).sum()),
            positive=int((buffer.rewards > 0).sum()),
            kl=value("last_kl"),
            clip_fraction=value("clip_fraction"),
            entropy=-value("entropy_loss"),
            explained_variance=value("explained_variance"),
            reference_kl=reference,
            away=away,
            error_ratio=ratio,
            top_share=float(counts.max() / counts.sum()),
            rate=len(buffer) / max(seconds, 1e-9),
            memory_mib=memory_mib(),
        )

    def _frozen(self, ppo: BatchPPO) -> Iterator[Fault]:
        """Losses that are the same to the last bit are not those of different updates."""
        logged = ppo.logger.name_to_value
        losses = tuple(logged.get(f"train/{name}") for name in ("loss", "value_loss", "entropy_loss"))
        self._same = self._same + 1 if losses == self._losses and None not in losses else 0
        self._losses = losses
        if self._same >= IN_A_ROW:
            yield Fault("losses", f"the losses of {self._same + 1} updates are equal to the last bit: {losses}")

    def _recent(self, name: str) -> np.ndarray:
        """float64[n <= WINDOW]: a figure of the latest updates, without NaN."""
        values = np.array([getattr(figures, name) for figures in self.history], float)
        return values[~np.isnan(values)]


def success_of(history: deque[Figures]) -> float:
    """Share of episodes won; NaN without episodes."""
    episodes = sum(figures.episodes for figures in history)
    return sum(figures.wins for figures in history) / episodes if episodes else math.nan


def direction(ppo: BatchPPO, kept: Kept, log_probs: torch.Tensor) -> float:
    """Whether actions with advantage became likelier: the mean of advantage times change, in standard errors."""
    buffer = ppo.rollout_buffer
    actions = buffer.flat("actions")[kept.rows, None]
    change = (log_probs - kept.log_probs).gather(1, actions)[:, 0].double()
    advantages = buffer.flat("advantages").double()
    gain = (advantages[kept.rows] - advantages.mean()) * change
    error = float(gain.std()) / math.sqrt(len(gain))
    spread = [-(some.exp() * some).sum(dim=1).double().mean() for some in (kept.log_probs, log_probs)]
    paid = float(ppo.logger.name_to_value.get("train/ent_coef", 0.0)) * float(spread[1] - spread[0])
    if float(gain.mean()) / max(float(advantages.std()), 1e-8) + paid >= 0:
        return max(0.0, float(gain.mean()) / error if error > 0 else 0.0)  # what it lost, it has got for its entropy
    return float(gain.mean()) / error if error > 0 else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Bands and trends: each yields what it finds, once its figures are there


def wrong_direction(alarms: Alarms, ppo: BatchPPO) -> Iterator[Fault]:
    """The update makes good actions rarer, or values worse."""
    away = alarms._recent("away")
    together = float(away.sum()) / math.sqrt(max(len(away), 1))
    if len(away) >= IN_A_ROW and together < -SURE:
        yield Fault(
            "direction",
            f"in {len(away)} updates actions with advantage became rarer, by {-together:.0f} standard errors together: the "
            "sign of advantages or of the policy's loss is wrong",
        )
    ratio = alarms._recent("error_ratio")[-IN_A_ROW:]
    if len(ratio) == IN_A_ROW and (ratio > 1.5).all():
        yield Fault(
            "values",
            f"in {IN_A_ROW} updates that were looked at, one after the other, the critic's squared error grew, "
            f"{ratio.min():.1f}-fold or more: the sign of the value loss is wrong, or the learning rate far too high "
            "(--initial-lr)",
            stop=bool((ratio > 3).all()) and len(ppo.rollout_buffer) >= ENOUGH_DECISIONS,
        )


def bands(alarms: Alarms, ppo: BatchPPO) -> Iterator[Fault]:
    """Size of updates, entropy and what the critic explains."""
    kl, clipped = alarms._recent("kl")[-5:], alarms._recent("clip_fraction")[-5:]
    if len(kl) == 5 and (kl > 0.2).all():
        yield Fault(
            "KL",
            f"each update moves the policy by {kl.min():.2g} nats or more: lower --initial-lr or --n-epochs",
            False,
        )
    if len(kl) == 5 and (kl < 1e-7).all():
        yield Fault("KL", f"updates hardly move the policy ({kl.max():.1g} nats): raise --initial-lr", False)
    if len(clipped) == 5 and (clipped > 0.5).all():
        yield Fault(
            "clipping",
            f"{clipped.min():.0%} of the decisions are outside the clip range, or more: lower --initial-lr or --n-epochs",
            False,
        )
    entropy = alarms._recent("entropy")
    if len(entropy) >= 10 and (entropy[-10:] < 0.02).all():
        yield Fault("entropy", f"the policy no longer tries anything (entropy {entropy[-1]:.3g} nats)", False)
    if len(entropy) == WINDOW and (entropy > 0.999 * math.log(NUM_ACTIONS)).all() and ppo.progress > 0.1:
        yield Fault(
            "entropy",
            "the policy is still uniformly random: rewards do not reach it, or --initial-lr is too low",
            False,
        )
    explained = alarms._recent("explained_variance")
    if len(explained) == WINDOW and (explained < -0.5).all():
        yield Fault(
            "critic",
            f"values are worse than their mean in {WINDOW} updates running ({explained[-1]:.2g} explained)",
            False,
        )
    away = alarms._recent("reference_kl")[-IN_A_ROW:]
    if len(away) == IN_A_ROW and (away > 3).all() and ppo.config.bc_kl_coef_at(ppo.progress - ppo.held_since) > 0:
        yield Fault(
            "clone",
            f"the policy is {away[-1]:.2g} nats from its BC policy while it is still pulled back: lower --initial-lr",
            False,
        )


def rewards_arrive(alarms: Alarms, ppo: BatchPPO) -> Iterator[Fault]:
    """Something is rewarded, and every term of the preset can be earned."""
    positive = alarms._recent("positive")[-5:]
    if len(positive) == 5 and not positive.any():
        yield Fault(
            "rewards", "no decision of 5 updates was rewarded: look at --reward-preset and at the levels", False
        )
    if len(alarms.history) == WINDOW and alarms.episodes >= 200:
        if not sum(figures.wins for figures in alarms.history):
            yield Fault(
                "wins",
                f"no episode of {WINDOW} updates was won: begin with easier levels (--curriculum stages) or with imitation",
                False,
            )
        weights = np.array([getattr(ppo.sim.reward_config, name) for name in reward.TERMS])
        silent = [
            name
            for name, weight, fired in zip(reward.TERMS, weights, alarms.fired, strict=True)
            if weight and not fired
        ]
        if silent:
            yield Fault("reward terms", f"never other than 0 in {alarms.episodes} episodes: {', '.join(silent)}", False)


def data_is_varied(alarms: Alarms, ppo: BatchPPO) -> Iterator[Fault]:
    """Enough episodes and actions."""
    if len(alarms.history) == WINDOW:
        mean = float(np.mean([figures.episodes for figures in alarms.history]))
        if mean < ENOUGH_EPISODES:
            yield Fault(
                "few episodes",
                f"{mean:.0f} episodes end in an update, fewer than {ENOUGH_EPISODES}: raise --num-envs or --rollout-length",
                False,
            )
    top = alarms._recent("top_share")[-5:]
    if len(top) == 5 and (top > 0.97).all():
        yield Fault("actions", f"one action makes up {top.min():.0%} of the decisions in 5 updates running", False)


def progress_is_made(alarms: Alarms, ppo: BatchPPO) -> Iterator[Fault]:
    """Success has risen since the start; the curriculum moves."""
    now, late = success_of(alarms.history), ppo.progress > 0.3
    even = ppo.sampler.config.chosen == "uniform"  # else levels become harder as success rises
    if even and late and alarms.looked >= 5 * WINDOW and now < 0.5 and now <= alarms.start_success + 0.01:
        yield Fault(
            "no progress",
            f"{now:.1%} of the episodes are won after {alarms.looked} updates, {alarms.start_success:.1%} in the first "
            f"{WINDOW}: rewards, learning rate or levels do not fit; begin with easier levels",
            False,
        )
    if len(alarms.won) == BLOCKS and not alarms.looked % WINDOW and late and even:
        yield from _flat(np.array(alarms.won, float))
    stage = ppo.sampler.stage
    if any((event.get("event"), event.get("stage")) == ("stuck_at_floor", stage) for event in ppo.sampler.events):
        yield Fault(
            f"curriculum, {stage}",
            "this stage does not end although its threshold is at the floor: mix in easier levels, or lower "
            "--curriculum-min-threshold",
            False,
        )


def _flat(won: np.ndarray) -> Iterator[Fault]:
    """Success that no longer rises, for sure, though most episodes are lost.  won: float64[BLOCKS, 2], won and ended."""
    (before, first), (after, last) = won[:2].sum(axis=0), won[-2:].sum(axis=0)
    if not first or not last or won[:, 0].sum() >= 0.5 * won[:, 1].sum():
        return
    p, q = before / first, after / last
    error = math.sqrt(p * (1 - p) / first + q * (1 - q) / last)
    if q - p + 1.96 * error < LEAST_RISE:
        yield Fault(
            "flat",
            f"success was {p:.1%}, and is {q:.1%} {(BLOCKS - 2) * WINDOW} updates later: it rises no longer; look at entropy "
            "and KL (docs/bad_run.md), or end the run",
            False,
        )


def resources_stay(alarms: Alarms, ppo: BatchPPO) -> Iterator[Fault]:
    """Speed, containers and memory."""
    for values, span in ((alarms._recent("rate"), WINDOW), (np.array(alarms.blocks), WINDOW * WINDOW)):
        if len(values) == WINDOW and falling(values):
            parts = ", ".join(f"{name} {seconds / max(ppo.seconds, 1e-9):.0%}" for name, seconds in ppo.speed.items())
            yield Fault(
                "slower",
                f"speed has fallen steadily over {span} updates, from {values[:5].mean():,.0f} to {values[-5:].mean():,.0f} "
                f"decisions/s (time so far: {parts}): something grows; profile with scripts/profile_multi_config.py",
                False,
            )
    for name, size in growing(alarms._sizes):
        yield Fault("growth", f"{name} grows with every update, {size} entries now: bound it", False)
    memory = alarms._recent("memory_mib")
    if len(memory) == WINDOW and (np.diff(memory) > 0).all() and memory[-1] - memory[0] > MOST_MEMORY_MIB:
        yield Fault(
            "memory", f"the process grew in each of {WINDOW} updates, by {memory[-1] - memory[0]:.0f} MiB", False
        )


Trend = Callable[[Alarms, BatchPPO], Iterator[Fault]]
TRENDS: tuple[Trend, ...] = (wrong_direction, bands, rewards_arrive, data_is_varied, progress_is_made, resources_stay)
