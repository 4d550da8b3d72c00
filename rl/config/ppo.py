"""Settings of PPO and their schedules."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from hardware import Plan
from hardware.request import BASE_LEARNING_RATE
from nppsim.reward import GAMMA
from nppsim.settings import check_settings, require, setting

MEMORY_SEGMENT = 32  # decisions, largest default length of a recurrent network's segment: 2 s with frame skip 4
MIN_CRITIC_UPDATES = 2  # default of --critic-warmup-min-updates; a smaller --critic-warmup-max-updates overrides it
KL_TOLERANCE = 1.5  # an update ends early at a KL divergence above KL_TOLERANCE * target_kl, as in Stable-Baselines3
_AFTER_IMITATION = "replay_data_dir or init_from and pretraining or init_from"
_ANNEALED = "ppo.schedules and ppo.anneal_learning_rate"
_SCHEDULED_BONUS = " and not ppo.ent_coef"


def _end(help: str, condition: str = "", **limits: Any) -> Any:
    """Return a setting of the end of a schedule.  condition: continues ``needs``."""
    return setting(None, help, needs=f"ppo.schedules{condition}", **limits)


def _imitated(default: Any, help: str, condition: str = "", **details: Any) -> Any:
    """Return a setting of PPO that starts from a BC policy or another agent.  condition: continues ``needs``."""
    return setting(default, help, needs=f"{_AFTER_IMITATION}{condition}", **details)


_warmup = partial(_imitated, condition=" and ppo.critic_warmup_max_updates")


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO.  Methods of schedules take the progress of training, from 0 to 1."""

    flag_prefix: ClassVar[str] = ""
    group: ClassVar[str] = "PPO"
    total_timesteps: int = setting(10_000_000, "decisions of PPO for each architecture, condition and seed", low=1)
    time_budget_minutes: float | None = setting(
        None, "limit of PPO's wall time, evaluations included; default: none", above=0
    )
    gamma: float = setting(GAMMA, "discount factor per decision, also of reward shaping", above=0, high=1)
    pbrs_gamma: float | None = setting(None, "discount factor of reward shaping; must equal --gamma")
    gae_lambda: float = setting(0.95, "lambda of generalised advantage estimation", low=0, high=1)
    clip_range: float = setting(0.2, "clip range of the probability ratio at the start", above=0, high=100)
    clip_range_end: float | None = _end("clip range at the end; default: the start's", above=0, high=100)
    clip_range_vf: float | None = setting(None, "clip range of values at the start; default: no clipping", above=0)
    clip_range_vf_end: float | None = _end(
        "clip range of values at the end; default: the start's", " and ppo.clip_range_vf", above=0
    )
    ent_coef: float | None = setting(
        None, "constant weight of the entropy bonus; default: a schedule", low=0, high=1000
    )
    ent_coef_start: float = setting(0.01, "entropy bonus at the start", needs="not ppo.ent_coef", low=0, high=1000)
    ent_coef_end: float | None = _end(
        "entropy bonus at the end; default: a tenth of the start", _SCHEDULED_BONUS, low=0, high=1000
    )
    learning_rate: float | None = setting(
        None,
        f"learning rate at the start; default: from the hardware profile, else {BASE_LEARNING_RATE:g}",
        flag="initial-lr",
        aliases=("learning-rate", "lr"),
        above=0,
        high=1,
    )
    learning_rate_end_share: float = setting(
        0.1, "final learning rate / initial learning rate", flag="lr-end-share", needs=_ANNEALED, low=0, high=1
    )
    anneal_learning_rate: bool = setting(
        True, "decrease the learning rate linearly over training", flag="enable-lr-annealing", switch=True
    )
    schedules: bool = setting(True, "change learning rate, clip ranges and entropy bonus over training", switch=True)
    n_epochs: int | None = setting(None, "passes over each rollout; default: set by the plan", low=1, high=1000)
    gradient_accumulation: int = setting(1, "minibatches whose gradients are averaged in an optimiser step", low=1)
    returns_from: str = setting(
        "collected", "values for advantages: as in the rollout, or from each pass", choices=("collected", "current")
    )
    vtrace_rho_clip: float | None = setting(
        None, "limit of V-trace importance ratios, for --returns-from current; default: no V-trace", above=0
    )
    vtrace_c_clip: float = setting(1.0, "upper limit of V-trace coefficients", needs="ppo.vtrace_rho_clip", above=0)
    prioritised_alpha: float = setting(0.0, "exponent of sampling by absolute advantage; 0: uniform", low=0, high=10)
    prioritised_beta: float = setting(
        1.0, "exponent of importance weights", needs="ppo.prioritised_alpha", low=0, high=1
    )
    gradient_statistics_freq: int = setting(0, "updates between logs of gradient statistics; 0: never", low=0)
    memory_segment: int | None = setting(
        None,
        "decisions of truncated backpropagation through time (NAME+gru); default: the largest number up to "
        f"{MEMORY_SEGMENT} that divides rollouts and minibatches",
        low=1,
    )
    vf_coef: float = setting(0.5, "weight of the value loss", above=0, high=1000)
    scale_value_loss: bool = setting(True, "divide the value loss by the variance of the returns", switch=True)
    max_grad_norm: float = setting(0.5, "largest gradient norm; larger gradients are clipped", above=0)
    target_kl: float | None = setting(
        0.03, "KL divergence (nats); an update ends above 1.5 times this; none: never", above=0
    )
    critic_warmup_explained_variance: float = _warmup(0.5, "explained variance that ends the critic's warm-up", high=1)
    critic_warmup_min_updates: int = _warmup(MIN_CRITIC_UPDATES, "smallest number of critic-only updates", low=0)
    critic_warmup_max_updates: int = _imitated(20, "largest number of critic-only updates", low=0)
    learning_rate_warmup_updates: int = _imitated(
        5, "updates in which the learning rate rises after the critic's warm-up", low=0
    )
    bc_kl_coef_start: float = _imitated(
        0.2, "initial weight of the KL penalty to the BC policy", " and ppo.bc_kl_share", flag="bc-kl-coef", low=0
    )
    bc_kl_share: float = _imitated(
        0.3, "share of training with a KL penalty to the BC policy", " and ppo.bc_kl_coef_start", low=0, high=1
    )
    desync_episodes: bool = setting(False, "cut the first episode of each environment at a random length")

    def __post_init__(self) -> None:
        check_settings(self)
        advice = f"differs from --gamma {self.gamma}, so shaping would change the optimal policy; leave it out"
        require(self.pbrs_gamma in (None, self.gamma), advice, "pbrs_gamma", self.pbrs_gamma)
        advice = "corrects for policy changes since the rollout; add --returns-from current"
        corrected = self.vtrace_rho_clip is None or self.returns_from == "current"
        require(corrected, advice, "vtrace_rho_clip", self.vtrace_rho_clip)
        least, most = self.critic_warmup_min_updates, self.critic_warmup_max_updates
        advice = f"is above --critic-warmup-max-updates {most}; lower it"
        require(least <= max(most, MIN_CRITIC_UPDATES), advice, "critic_warmup_min_updates", least)

    def settled(self, plan: Plan) -> "PPOConfig":
        """Return the settings with learning rate and epochs from the hardware plan where they are None."""
        rate = self.learning_rate or plan.learning_rate or BASE_LEARNING_RATE
        return replace(self, learning_rate=rate, n_epochs=self.n_epochs or plan.epochs)

    def learning_rate_at(self, progress: float) -> float:
        """Return the scheduled learning rate; the configuration must be ``settled``."""
        assert self.learning_rate is not None
        annealed = self.anneal_learning_rate and self.schedules
        return self.learning_rate * (_interpolate(1, self.learning_rate_end_share, progress) if annealed else 1.0)

    def clip_range_at(self, progress: float) -> float:
        """Return the clip range of the probability ratio."""
        return self._scheduled(self.clip_range, self.clip_range_end, progress)

    def clip_range_vf_at(self, progress: float) -> float | None:
        """Return the clip range of values; None for no clipping."""
        return self.clip_range_vf and self._scheduled(self.clip_range_vf, self.clip_range_vf_end, progress)

    def ent_coef_at(self, progress: float) -> float:
        """Return the weight of the entropy bonus."""
        if self.ent_coef is not None:
            return self.ent_coef
        end = self.ent_coef_start / 10 if self.ent_coef_end is None else self.ent_coef_end
        return self._scheduled(self.ent_coef_start, end, progress)

    def _scheduled(self, start: float, end: float | None, progress: float) -> float:
        return start if end is None or not self.schedules else _interpolate(start, end, progress)

    def bc_kl_coef_at(self, progress: float) -> float:
        """Return the weight of the KL penalty to the BC policy; 0 from ``bc_kl_share`` on."""
        return (
            _interpolate(self.bc_kl_coef_start, 0, progress / self.bc_kl_share) if progress < self.bc_kl_share else 0.0
        )


def _interpolate(start: float, end: float, progress: float) -> float:
    return start + (end - start) * min(max(progress, 0.0), 1.0)
