"""Callback that checks the first update, or all updates, and watches metrics of training for known problems.

    ppo.learn(..., callback=[Audit("first", folder, warn), ...])

Each problem has a name and is reported once.  Numbers that are not finite stop training in PPO itself.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nppsim.actions import NUM_ACTIONS
from nppsim.physics.outcomes import WON
from rl.events import EventsError, require_tags
from rl.policy.policy import NppPolicy
from rl.ppo.base import EPISODE_WINDOW
from rl.ppo.logs import BOARD
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.training.callbacks import PPOCallback, memory_mib

REQUIRED_TAGS = (
    *(f"train/{name}" for name in ("loss", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl")),
    *(f"train/{name}" for name in ("clip_fraction", "clip_range", "explained_variance", "learning_rate", "n_updates")),
    "time/fps",
    "sim/decisions_per_s",
)
ENOUGH_ENVS = 4  # with fewer environments, means of inputs are not checked: one unusual level dominates
MAX_INPUT_MEAN = 4.0  # largest absolute mean of a normalised input
COINCIDENCE = 1e-9  # a repeated draw is reported if its probability by chance is below this
WINDOW = 20  # number of latest updates that alarms examine
ENOUGH_EPISODES = 32  # a smaller mean number of episodes per update is reported
FALL = 0.85  # a fall to less than this share of the first values in the window is reported
TAU = 0.55  # absolute rank correlation with time above which a trend is steady
MAX_GROWTH_MIB = 256.0  # memory growth in WINDOW updates that is reported, if each of them adds memory

Problem = tuple[str, str]  # name for --silence, and text


@dataclass(frozen=True)
class Figures:
    """Metrics of one update.

    episodes, wins: number of episodes that ended in the rollout, and number of these that were won.
    rewarded: number of decisions with a reward above 0.
    kl, clip_fraction, entropy, explained_variance: as logged; NaN if the update trained the critic alone.
    top_action: share of the decisions with the most frequent action.
    """

    episodes: int
    wins: int
    rewarded: int
    kl: float
    clip_fraction: float
    entropy: float
    explained_variance: float
    top_action: float
    decisions_per_s: float
    memory_mib: float


class Audit(PPOCallback):
    """Callback that checks one training run.

    level: updates after which ``first_update_problems`` runs: "first" or "all".  ``ALARMS`` run after every update.
    folder: folder of the run, whose TensorBoard files must contain the required scalars.
    warn: function that is called with name and text of each problem, once per name.
    silence: names of problems that are not reported.
    history: metrics of the latest updates.
    """

    def __init__(self, level: str, folder: Path, warn: Callable[[str, str], None], silence: Collection[str] = ()):
        super().__init__()
        self.level, self.folder, self.warn = level, folder, warn
        self.reported = set(silence)
        self.history: deque[Figures] = deque(maxlen=WINDOW)
        self.updates = 0  # number of updates that this callback has counted
        self._seen = 0  # ``PPO.updates`` after the latest update that this callback has counted
        self.start_success = float("nan")  # success in the first WINDOW updates of the run; NaN after a resume
        self._draws: deque[bytes] = deque(maxlen=400)  # digests of draws and of generator states in earlier rollouts
        self._curriculum_episodes: float | None = None
        self._wins: deque[bool] = deque(maxlen=EPISODE_WINDOW)
        self._rollout_seconds = 0.0

    def _on_training_start(self) -> None:
        self._seen = self.model.updates
        self._wins.extend(self.model.episode_wins)

    def _on_rollout_start(self) -> None:
        if self.model.updates > self._seen:
            self._after_update()
        self._rollout_seconds = self.model.seconds
        self._report(self._repeated_levels())

    def _on_rollout_end(self) -> None:
        self._report(self._rollout_problems())

    def _on_training_end(self) -> None:
        if self.model.updates > self._seen:
            self._after_update()

    def _report(self, problems: Iterable[Problem]) -> None:
        for name, text in problems:
            if name not in self.reported:
                self.reported.add(name)
                self.warn(name, text)

    def _rollout_problems(self) -> Iterator[Problem]:
        """Compare logged counts and curves with the episodes of the latest rollout; find repeated random draws."""
        ppo = self.model
        episodes = ppo.counted_episodes
        total = ppo.logger.name_to_value.get("curriculum/episodes")
        if total is not None and self._curriculum_episodes is not None:
            counted = total - self._curriculum_episodes
            if counted != len(episodes):
                yield "curriculum", f"the curriculum counted {counted:g} episodes, {len(episodes)} ended in the rollout"
        self._curriculum_episodes = total
        self._wins.extend((episodes["outcome"] == WON).tolist())
        if self._wins and abs(np.mean(self._wins) - np.mean(ppo.episode_wins)) > 1e-9:
            logged, won = np.mean(ppo.episode_wins), np.mean(self._wins)
            yield "curves", f"a success rate of {logged:.1%} is logged, but {won:.1%} of the episodes were won"
        states = {
            "actions": ppo.action_rng.get_state().numpy().tobytes(),
            "minibatches": str(ppo.rng.bit_generator.state).encode(),
        }
        for of, state in states.items():
            if self._is_repeated(of, state):
                yield "random", f"the generator of {of} is in the state of an earlier rollout: draws repeat"

    def _repeated_levels(self) -> Iterator[Problem]:
        """Find levels or start states that were drawn as in an earlier rollout."""
        sampler, drawn = self.model.sampler, self.model.sim.next_level
        chances = sampler.probabilities()
        unlikely = float(chances @ chances) ** len(drawn) < COINCIDENCE
        generator = str(sampler.strategy.rng.bit_generator.state).encode()
        repeated = [self._is_repeated("generator of the curriculum", generator)]
        repeated.append(self._is_repeated("levels", drawn.tobytes()) and unlikely)
        if any(repeated):
            yield (
                "levels",
                "the levels or start states drawn after an update are those of an earlier update: draws repeat",
            )

    def _is_repeated(self, of: str, state: bytes) -> bool:
        """Store the digest of a state; return True if it was stored before."""
        digest = hashlib.sha256(of.encode() + state).digest()
        seen = digest in self._draws
        self._draws.append(digest)
        return seen

    def _after_update(self) -> None:
        ppo = self.model
        first = ppo.updates == 1
        self._seen = ppo.updates
        self.updates += 1
        actors_first = ppo.actor_updates == 1 and not ppo.critic_only
        if first or actors_first or self.level == "all":
            self._report(first_update_problems(ppo, self.folder, scalars=first))
        self.history.append(self._figures())
        if self.updates == ppo.updates == WINDOW:
            self.start_success = success(self.history)
        for alarm in ALARMS:
            self._report(alarm(self))

    def _figures(self) -> Figures:
        """Return the metrics of the latest update."""
        ppo, logged = self.model, self.model.logger.name_to_value
        actor_learned = not ppo.critic_only and "train/loss" in logged

        def value(tag: str) -> float:
            return float(logged.get(f"train/{tag}", np.nan)) if actor_learned else float("nan")

        counts = torch.bincount(ppo.rollout_buffer.flat("actions"), minlength=NUM_ACTIONS).float()
        seconds = max(ppo.seconds - self._rollout_seconds, 1e-9)
        return Figures(
            episodes=len(ppo.counted_episodes),
            wins=int((ppo.counted_episodes["outcome"] == WON).sum()),
            rewarded=int((ppo.rollout_buffer.rewards > 0).sum()),
            kl=value("last_kl") if len(ppo.losses) > 1 else float("nan"),  # 0 before the only step of an update
            clip_fraction=value("clip_fraction"),
            entropy=-value("entropy_loss"),
            explained_variance=value("explained_variance"),
            top_action=float(counts.max() / counts.sum()),
            decisions_per_s=len(ppo.rollout_buffer) / seconds,
            memory_mib=memory_mib(),
        )


def success(history: Collection[Figures]) -> float:
    """Return the share of episodes won; NaN without episodes."""
    episodes = sum(figures.episodes for figures in history)
    return sum(figures.wins for figures in history) / episodes if episodes else float("nan")


def first_update_problems(ppo: PPO, folder: Path, scalars: bool) -> Iterator[Problem]:
    """Find problems of the latest update.  scalars: also write the logged values and check that the tags are on disk."""
    if scalars:
        ppo.logger.dump(step=ppo.num_timesteps)
        try:
            require_tags(folder / BOARD, REQUIRED_TAGS)
        except EventsError as error:
            yield "scalars", str(error)
    if ppo.actor_updates:
        yield from missing_gradients(ppo.policy)
    yield from unusual_inputs(ppo.policy, ppo.rollout_buffer)


def missing_gradients(policy: NppPolicy) -> Iterator[Problem]:
    """Yield a problem if a trainable tensor has no gradient, or only zeros."""
    silent = [
        name
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad
        and not policy.may_lack_gradient(name)
        and (parameter.grad is None or not bool(parameter.grad.any()))
    ]
    if silent:
        yield "gradients", f"no gradient reaches {', '.join(silent)}: these parts of the network do not learn"


@torch.no_grad()
def unusual_inputs(policy: NppPolicy, buffer: RolloutBuffer) -> Iterator[Problem]:
    """Yield a problem if the mean of a normalised input over a rollout is far from 0."""
    normalize = policy.features_extractor.normalize
    everything = torch.arange(len(buffer), device=buffer.device)
    inputs = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest]
    mean = inputs.mean(dim=0).abs().max().item()
    if mean > MAX_INPUT_MEAN and buffer.shape[1] >= ENOUGH_ENVS:
        yield (
            "inputs",
            f"a normalised input has the mean {mean:.1f} instead of about 0: the demonstrations differ from the training "
            "levels; use demonstrations of such levels, or --no-pretraining",
        )


def recent(audit: "Audit", name: str, count: int = WINDOW) -> np.ndarray:
    """Return the latest values of a metric without NaN, float64[n], n <= count."""
    values = np.array([getattr(figures, name) for figures in audit.history], float)
    return values[~np.isnan(values)][-count:]


def falling(values: np.ndarray) -> bool:
    """Return True if the values fall steadily, over the whole window and in both halves."""
    half = len(values) // 2
    parts = (values, values[:half], values[half:])
    return bool(values[-5:].mean() < FALL * values[:5].mean() and all(rank_correlation(part) < -TAU for part in parts))


def rank_correlation(values: np.ndarray) -> float:
    """Return Kendall's rank correlation of the values with time, -1 to 1."""
    n = len(values)
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(signs.mean()) if n > 1 else 0.0


def size_of_updates(audit: "Audit") -> Iterator[Problem]:
    """Check that KL divergence and clip fraction are in their usual range."""
    kl, clipped = recent(audit, "kl", 5), recent(audit, "clip_fraction", 5)
    if len(kl) == 5 and (kl > 0.2).all():
        yield "kl", f"updates have a KL divergence of {kl.min():.2g} nats or more: lower --initial-lr or --n-epochs"
    if len(kl) == 5 and (kl < 1e-7).all():
        yield "kl", f"updates hardly change the policy (KL divergence {kl.max():.1g} nats): raise --initial-lr"
    if len(clipped) == 5 and (clipped > 0.5).all():
        yield "clipping", f"{clipped.min():.0%} or more of the decisions are clipped: lower --initial-lr or --n-epochs"


def entropy(audit: "Audit") -> Iterator[Problem]:
    """Check that the entropy has neither collapsed nor stayed at its maximum."""
    values = recent(audit, "entropy")
    if len(values) >= 10 and (values[-10:] < 0.02).all():
        yield "entropy", f"the policy is deterministic (entropy {values[-1]:.3g} nats): raise --ent-coef"
    late = audit.model.progress > 0.1
    if late and len(values) == WINDOW and (values > 0.999 * math.log(NUM_ACTIONS)).all():
        yield "entropy", "the policy is still uniformly random: no rewards arrive, or --initial-lr is too low"
    top = recent(audit, "top_action", 5)
    if len(top) == 5 and (top > 0.97).all():
        yield "actions", f"one action makes up {top.min():.0%} of the decisions of 5 updates"


def critic(audit: "Audit") -> Iterator[Problem]:
    """Check that the values explain a part of the variance of the returns."""
    explained = recent(audit, "explained_variance")
    if len(explained) == WINDOW and (explained < -0.5).all():
        yield (
            "critic",
            f"the values are worse than a constant in {WINDOW} updates (explained variance {explained[-1]:.2g})",
        )


def rewards(audit: "Audit") -> Iterator[Problem]:
    """Check that there are rewards, wins and enough episodes."""
    rewarded = recent(audit, "rewarded", 5)
    if len(rewarded) == 5 and not rewarded.any():
        yield "unrewarded", "no decision of 5 updates had a positive reward: check --reward-preset and the levels"
    if len(audit.history) < WINDOW:
        return
    episodes, wins = recent(audit, "episodes"), recent(audit, "wins")
    if episodes.sum() >= 200 and not wins.any():
        yield (
            "wins",
            f"no episode of {WINDOW} updates was won: start with easier levels (--curriculum stages) or imitation",
        )
    if episodes.mean() < ENOUGH_EPISODES:
        yield (
            "episodes",
            f"{episodes.mean():.0f} episodes end in an update, fewer than {ENOUGH_EPISODES}: raise --num-envs or "
            "--rollout-length",
        )


def progress(audit: "Audit") -> Iterator[Problem]:
    """Check that success has risen.  Skipped with a curriculum, which makes the levels harder."""
    ppo = audit.model
    uniform, late = ppo.sampler.config.chosen == "uniform", ppo.progress > 0.3
    episodes, wins = recent(audit, "episodes").sum(), recent(audit, "wins").sum()
    if uniform and late and audit.updates >= 5 * WINDOW and episodes:
        now = wins / episodes
        if now < 0.5 and now <= audit.start_success + 0.01:
            yield (
                "progress",
                f"{now:.1%} of the episodes are won after {audit.updates} updates, {audit.start_success:.1%} in the first "
                f"{WINDOW}: check rewards and learning rate, or start with easier levels",
            )


def resources(audit: "Audit") -> Iterator[Problem]:
    """Check that speed does not fall and memory does not grow."""
    rate, memory = recent(audit, "decisions_per_s"), recent(audit, "memory_mib")
    if len(rate) == WINDOW and falling(rate):
        yield (
            "speed",
            f"speed fell steadily over {WINDOW} updates, from {rate[:5].mean():,.0f} to {rate[-5:].mean():,.0f} decisions/s; "
            "profile with scripts/profile_multi_config.py",
        )
    if len(memory) == WINDOW and (np.diff(memory) > 0).all() and memory[-1] - memory[0] > MAX_GROWTH_MIB:
        yield "memory", f"the process grew in each of {WINDOW} updates, by {memory[-1] - memory[0]:.0f} MiB"


ALARMS: tuple[Callable[["Audit"], Iterator[Problem]], ...] = (
    size_of_updates,
    entropy,
    critic,
    rewards,
    progress,
    resources,
)
