"""Alarms of a running training (``--audit off|first|all``): warnings about unusual metrics, which do not change the run.

    ppo.learn(..., callback=[Audit("first", folder, warn), ...])

Each alarm has a name and is logged once.  Values that are not finite stop training in PPO itself.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from nppsim.actions import NUM_ACTIONS
from nppsim.physics.outcomes import WON
from rl.events import EventsError, require_tags
from rl.policy.policy import NppPolicy
from rl.ppo.base import EPISODE_WINDOW
from rl.ppo.logs import TENSORBOARD_FOLDER
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.training.callbacks import PPOCallback, memory_mib

REQUIRED_TAGS = (
    *(f"train/{name}" for name in ("loss", "policy_gradient_loss", "value_loss", "entropy_loss", "approx_kl")),
    *(f"train/{name}" for name in ("clip_fraction", "clip_range", "explained_variance", "learning_rate", "n_updates")),
    "time/fps",
    "sim/decisions_per_s",
)
MIN_ENVS = 4  # with fewer environments, means of inputs are not checked: one unusual level dominates
MAX_INPUT_MEAN = 4.0  # largest absolute mean of a normalised input
COINCIDENCE = 1e-9  # a repeated draw is an alarm if the probability of the repetition by chance is below this
WINDOW = 20  # number of updates in ``Audit.history``
MIN_EPISODES = 32  # smallest mean number of episodes per update
FALL = 0.85  # alarm if the speed falls below this share of the speed at the start of the window
MIN_CORRELATION = 0.55  # smallest absolute rank correlation with time of a steady trend
MAX_GROWTH_MIB = 256.0  # largest memory growth in WINDOW updates, if each of them adds memory

Alarm = tuple[str, str]  # name for --silence, and message


@dataclass(frozen=True)
class UpdateMetrics:
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


class Limit(NamedTuple):
    """Alarm if a metric is below ``low`` or above ``high`` in each of the latest updates.

    message: may contain {least} and {most}, the range of the metric in these updates.
    """

    name: str
    metric: str
    updates: int
    low: float
    high: float
    message: str


LIMITS = (
    Limit("kl", "kl", 5, -math.inf, 0.2, "KL divergence {least:.2g} nats, limit 0.2: lower --initial-lr or --n-epochs"),
    Limit(
        "kl", "kl", 5, 1e-7, math.inf, "KL divergence {most:.1g} nats: the policy hardly changes; raise --initial-lr"
    ),
    Limit(
        *("clipping", "clip_fraction", 5, -math.inf, 0.5),
        "{least:.0%} of the decisions are clipped, limit 50 %: lower --initial-lr or --n-epochs",
    ),
    Limit(
        *("entropy", "entropy", 10, 0.02, math.inf),
        "entropy {most:.3g} nats, limit 0.02: the policy is deterministic; raise --ent-coef",
    ),
    Limit("actions", "top_action", 5, -math.inf, 0.97, "one action makes up {least:.0%} of the decisions, limit 97 %"),
    Limit(
        *("critic", "explained_variance", WINDOW, -0.5, math.inf),
        "explained variance {most:.2g}, limit -0.5: the values are worse than a constant; lower --initial-lr",
    ),
    Limit(
        *("unrewarded", "rewarded", 5, 1, math.inf),
        "no decision had a positive reward: check --reward-preset and the levels",
    ),
)


def alarms(history: Sequence[UpdateMetrics], progress: float, first_success: float) -> Iterator[Alarm]:
    """Yield alarms about the latest updates.

    history: metrics of at most WINDOW updates.
    progress: share of training that is done, 0 to 1.
    first_success: success in the first WINDOW updates, if it should have risen since; else NaN.
    """
    recent = {
        name: np.array([getattr(update, name) for update in history], float) for name in UpdateMetrics.__annotations__
    }
    recent = {name: values[~np.isnan(values)] for name, values in recent.items()}
    for name, metric, updates, low, high, message in LIMITS:
        values = recent[metric][-updates:]
        if len(values) == updates and ((values < low).all() or (values > high).all()):
            yield name, f"{updates} updates: {message.format(least=values.min(), most=values.max())}"
    if progress > 0.1 and len(recent["entropy"]) == WINDOW and recent["entropy"].min() > 0.999 * math.log(NUM_ACTIONS):
        yield "entropy", "the policy is still uniformly random: no rewards arrive, or --initial-lr is too low"
    if len(history) < WINDOW:
        return
    episodes, wins = recent["episodes"], recent["wins"]
    success = wins.sum() / max(episodes.sum(), 1)
    if episodes.sum() >= 200 and not wins.any():
        yield "wins", f"no win in {WINDOW} updates: start with easier levels (--curriculum stages) or imitation"
    if episodes.mean() < MIN_EPISODES:
        remedy = "raise --num-envs or --rollout-length"
        yield "episodes", f"{episodes.mean():.0f} episodes end in an update, fewer than {MIN_EPISODES}: {remedy}"
    if episodes.any() and success < 0.5 and success <= first_success + 0.01:
        yield (
            "progress",
            f"success {success:.1%} in the latest {WINDOW} updates, {first_success:.1%} in the first {WINDOW}: check "
            "rewards and learning rate, or start with easier levels",
        )
    speed, memory = recent["decisions_per_s"], recent["memory_mib"]
    if is_falling(speed):
        yield (
            "speed",
            f"speed fell from {speed[:5].mean():,.0f} to {speed[-5:].mean():,.0f} decisions/s in {WINDOW} updates; profile "
            "with scripts/profile_multi_config.py",
        )
    if len(memory) == WINDOW and (np.diff(memory) > 0).all() and memory[-1] - memory[0] > MAX_GROWTH_MIB:
        yield "memory", f"the process grew in each of {WINDOW} updates, by {memory[-1] - memory[0]:.0f} MiB"


def is_falling(values: np.ndarray) -> bool:
    """Return True if the values fall steadily, over the whole window and in both halves."""
    half = len(values) // 2
    parts = (values, values[:half], values[half:])
    steady = all(rank_correlation(part) < -MIN_CORRELATION for part in parts)
    return bool(steady and values[-5:].mean() < FALL * values[:5].mean())


def rank_correlation(values: np.ndarray) -> float:
    """Return Kendall's rank correlation of the values with time, -1 to 1."""
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(len(values), 1)]
    return float(signs.mean()) if len(values) > 1 else 0.0


class Audit(PPOCallback):
    """Callback that logs the alarms of one training run.

    level: updates after which ``update_alarms`` are evaluated: "first" or "all".  Others are evaluated after each update.
    folder: folder of the run, whose TensorBoard files must contain the required scalars.
    warn: function that is called with name and message of each alarm, once per name.
    silence: names of alarms that are not reported.
    history: metrics of the latest updates.
    """

    def __init__(self, level: str, folder: Path, warn: Callable[[str, str], None], silence: Collection[str] = ()):
        super().__init__()
        self.level, self.folder, self.warn = level, folder, warn
        self.reported = set(silence)
        self.history: deque[UpdateMetrics] = deque(maxlen=WINDOW)
        self.updates = 0  # number of updates in this process
        self._seen = 0  # ``PPO.updates`` at the latest evaluation of the alarms
        self._first_success = math.nan  # success in the first WINDOW updates of the run; NaN after a resume
        self._draws: deque[bytes] = deque(maxlen=400)  # digests of draws and of generator states in earlier rollouts
        self._curriculum_episodes: float | None = None
        self._wins: deque[bool] = deque(maxlen=EPISODE_WINDOW)
        self._rollout_seconds = 0.0

    def _on_training_start(self) -> None:
        self._seen = self.model.updates
        self._wins.extend(self.model.episode_wins)

    def _on_rollout_start(self) -> None:
        self._on_training_end()
        self._rollout_seconds = self.model.seconds
        self._report(self._repeated_levels())

    def _on_rollout_end(self) -> None:
        self._report(self._rollout_alarms())

    def _on_training_end(self) -> None:
        if self.model.updates > self._seen:
            self._after_update()

    def _report(self, found: Iterable[Alarm]) -> None:
        for name, message in found:
            if name not in self.reported:
                self.reported.add(name)
                self.warn(name, message)

    def _rollout_alarms(self) -> Iterator[Alarm]:
        """Yield alarms if logged metrics differ from the episodes of the latest rollout, or random draws repeat."""
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
        for purpose, state in states.items():
            if self._is_repeated(purpose, state):
                yield "random", f"the generator of {purpose} is in the state of an earlier rollout: draws repeat"

    def _repeated_levels(self) -> Iterator[Alarm]:
        """Yield an alarm if the next levels or start states are those of an earlier rollout."""
        sampler, drawn = self.model.sampler, self.model.sim.next_level
        chances = sampler.probabilities()
        unlikely = float(chances @ chances) ** len(drawn) < COINCIDENCE
        generator = str(sampler.strategy.rng.bit_generator.state).encode()
        repeated = [self._is_repeated("generator of the curriculum", generator)]
        repeated.append(self._is_repeated("levels", drawn.tobytes()) and unlikely)
        if any(repeated):
            yield "levels", "levels or start states were drawn as after an earlier update: draws repeat"

    def _is_repeated(self, purpose: str, state: bytes) -> bool:
        """Store the digest of a state; return True if it was stored before."""
        digest = hashlib.sha256(purpose.encode() + state).digest()
        repeated = digest in self._draws
        self._draws.append(digest)
        return repeated

    def _after_update(self) -> None:
        ppo = self.model
        first = ppo.updates == 1
        self._seen = ppo.updates
        self.updates += 1
        if first or self.level == "all" or (ppo.actor_updates == 1 and not ppo.critic_only):
            self._report(update_alarms(ppo, self.folder, scalars=first))
        self.history.append(self._metrics())
        if self.updates == ppo.updates == WINDOW and (episodes := sum(update.episodes for update in self.history)):
            self._first_success = sum(update.wins for update in self.history) / episodes
        # a curriculum makes the levels harder, so success need not rise
        may_rise = ppo.sampler.config.chosen == "uniform" and ppo.progress > 0.3 and self.updates >= 5 * WINDOW
        self._report(alarms(self.history, ppo.progress, self._first_success if may_rise else math.nan))

    def _metrics(self) -> UpdateMetrics:
        """Return the metrics of the latest update."""
        ppo, logged = self.model, self.model.logger.name_to_value
        actor_learned = not ppo.critic_only and "train/loss" in logged

        def value(tag: str) -> float:
            return float(logged.get(f"train/{tag}", math.nan)) if actor_learned else math.nan

        counts = torch.bincount(ppo.rollout_buffer.flat("actions"), minlength=NUM_ACTIONS).float()
        return UpdateMetrics(
            episodes=len(ppo.counted_episodes),
            wins=int((ppo.counted_episodes["outcome"] == WON).sum()),
            rewarded=int((ppo.rollout_buffer.rewards > 0).sum()),
            kl=value("last_kl") if len(ppo.losses) > 1 else math.nan,  # 0 before the only step of an update
            clip_fraction=value("clip_fraction"),
            entropy=-value("entropy_loss"),
            explained_variance=value("explained_variance"),
            top_action=float(counts.max() / counts.sum()),
            decisions_per_s=len(ppo.rollout_buffer) / max(ppo.seconds - self._rollout_seconds, 1e-9),
            memory_mib=memory_mib(),
        )


def update_alarms(ppo: PPO, folder: Path, scalars: bool) -> Iterator[Alarm]:
    """Yield alarms about gradients and inputs of the latest update.

    scalars: True to also write the logged values, and yield an alarm if required tags are not on disk.
    """
    if scalars:
        ppo.logger.dump(step=ppo.num_timesteps)
        try:
            require_tags(folder / TENSORBOARD_FOLDER, REQUIRED_TAGS)
        except EventsError as error:
            yield "scalars", str(error)
    if ppo.actor_updates:
        yield from missing_gradients(ppo.policy)
    yield from unusual_inputs(ppo.policy, ppo.rollout_buffer)


def missing_gradients(policy: NppPolicy) -> Iterator[Alarm]:
    """Yield an alarm if a trainable tensor has no gradient, or only zeros."""
    missing = [
        name
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad
        and not policy.gradient_is_optional(name)
        and (parameter.grad is None or not bool(parameter.grad.any()))
    ]
    if missing:
        yield "gradients", f"no gradient reaches {', '.join(missing)}: these parts of the network do not learn"


@torch.no_grad()
def unusual_inputs(policy: NppPolicy, buffer: RolloutBuffer) -> Iterator[Alarm]:
    """Yield an alarm if the mean of a normalised input over a rollout is far from 0."""
    normalize = policy.features_extractor.normalize
    if not normalize.float_keys:
        return
    everything = torch.arange(len(buffer), device=buffer.device)
    inputs = normalize(buffer.observations(everything, normalize.float_keys))[:, normalize.newest]
    mean = inputs.mean(dim=0).abs().max().item()
    if mean > MAX_INPUT_MEAN and buffer.shape[1] >= MIN_ENVS:
        yield (
            "inputs",
            f"mean {mean:.1f} of a normalised input, limit {MAX_INPUT_MEAN:g}: the demonstrations differ from the training "
            "levels; use demonstrations of such levels, or --no-pretraining",
        )
