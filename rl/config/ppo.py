"""Settings of PPO and their schedules over the progress of training."""

from dataclasses import dataclass, replace
from typing import ClassVar

from hardware import Plan
from hardware.profiles import BASE_LEARNING_RATE
from nppsim.errors import ConfigError
from nppsim.reward import GAMMA
from nppsim.settings import check_settings, setting

MEMORY_SEGMENT = 32  # largest default segment in decisions; two seconds with the usual frame skip
_AFTER_IMITATION = "replay-data-dir or init-from"
KL_TOLERANCE = 1.5  # times target_kl: an update that has moved the policy further ends there, as in Stable-Baselines3


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation.  Schedules run over the progress of training, 0 to 1."""

    flag_prefix: ClassVar[str] = ""
    total_timesteps: int = setting(10_000_000, "decisions for each architecture, condition and seed", low=1)
    time_budget_minutes: float | None = setting(
        None, "end PPO after this wall time, evaluations and all else included", above=0
    )
    gamma: float = setting(GAMMA, "discount per decision; reward shaping uses the same", above=0, high=1)
    pbrs_gamma: float | None = setting(None, "discount of the reward shaping: PPO's own; another value is refused")
    gae_lambda: float = setting(0.95, "lambda: decay of the advantages' sum over later decisions", low=0, high=1)
    clip_range: float = setting(0.2, "change of an action's probability that an update may make", above=0, high=100)
    clip_range_end: float | None = setting(
        None, "the same at the end of training; default: as at the start", above=0, high=100
    )
    clip_range_vf: float | None = setting(
        None, "change of a value that an update may make, in units of the rewards; default: any", above=0
    )
    clip_range_vf_end: float | None = setting(
        None, "the same at the end of training; default: as at the start", needs="clip-range-vf", above=0
    )
    ent_coef_start: float = setting(
        0.01, "weight of the entropy bonus at the start", aliases=("ent-coef",), low=0, high=1000
    )
    ent_coef_end: float = setting(0.001, "weight of the entropy bonus at the end", low=0, high=1000)
    learning_rate: float | None = setting(
        None,
        f"learning rate at the start; default: the hardware profile's, or {BASE_LEARNING_RATE:g}",
        flag="initial-lr",
        above=0,
        high=1,
    )
    learning_rate_end_share: float = setting(
        0.1, "final learning rate as a share of the initial one, if annealed", flag="lr-end-share", low=0, high=1
    )
    anneal_learning_rate: bool = setting(
        True, "lower the learning rate linearly", flag="enable-lr-annealing", switch=True
    )
    schedules: bool = setting(
        True,
        "learning rate, clip ranges and entropy bonus change in the course of training; off: they stay as at the start",
        switch=True,
    )
    desired_kl: float | None = setting(
        None,
        "steer the learning rate so that each update moves the policy about this far, nats (annealed if the rate is); "
        "without it the rate is only annealed",
        above=0,
    )
    n_epochs: int | None = setting(None, "passes over a rollout; default: the hardware plan's", low=1, high=1000)
    gradient_accumulation: int = setting(
        1,
        "minibatches whose gradients are accumulated for one step of the optimiser, exactly as if they were one",
        low=1,
    )
    returns_from: str = setting(
        "collected",
        "compute advantages and returns from the values of the rollout, or before each further pass from "
        "the current ones",
        choices=("collected", "current"),
    )
    vtrace_rho_clip: float | None = setting(
        None,
        "V-trace: upper limit of the probability ratio that weights an error; default: no V-trace; only with "
        "--returns-from current",
        above=0,
    )
    vtrace_c_clip: float = setting(
        1.0, "upper limit of the ratios that weight later errors", needs="vtrace-rho-clip", above=0
    )
    prioritised_alpha: float = setting(
        0.0,
        "minibatches are drawn in proportion to the size of the advantages to this power; 0: every decision once",
        low=0,
        high=10,
    )
    prioritised_beta: float = setting(
        1.0, "power of the weights that undo this in the losses", needs="prioritised-alpha", low=0, high=1
    )
    gradient_statistics_freq: int = setting(
        0, "updates between logs of the gradients' mean, variance and norm, in total and per layer; 0: never", low=0
    )
    self_imitation_coef: float = setting(0.0, "weight of imitating own wins that the critic did not expect", low=0)
    memory_segment: int | None = setting(
        None,
        "for networks with a memory (NAME+gru): decisions through which gradients flow; default: the largest number up to "
        f"{MEMORY_SEGMENT} that divides rollouts and minibatches",
        low=1,
    )
    memory_burn_in: int = setting(
        0,
        "likewise: decisions before a segment that are repeated, so that it begins with the state that the current network "
        "computes, not with the stored one",
        low=0,
    )
    vf_coef: float = setting(0.5, "weight of the value loss", above=0, high=1000)
    scale_value_loss: bool = setting(
        True, "that loss counts in units of the returns' variance, whatever the rewards' size", switch=True
    )
    max_grad_norm: float = setting(0.5, "gradients are clipped to this norm", above=0)
    clip_apart: bool = setting(False, "clip the gradients of actor, critic and shared layers separately")
    target_kl: float | None = setting(
        0.03, "an update ends once the policy has moved 1.5 times this far, nats; none: never", above=0
    )
    critic_warmup_explained_variance: float = setting(
        0.5,
        "after imitation, or from --init-from, only the critic is trained until its explained variance reaches this",
        needs=_AFTER_IMITATION,
        high=1,
    )
    critic_warmup_min_updates: int = setting(
        2, "minimum number of updates that train only the critic", needs=_AFTER_IMITATION, low=0
    )
    critic_warmup_max_updates: int = setting(
        20,
        "updates in which the critic learns alone, at most: fewer if it explains enough of the returns before",
        needs=_AFTER_IMITATION,
        low=0,
    )
    learning_rate_warmup_updates: int = setting(
        5,
        "updates after that in which the learning rate rises: Adam's first steps know no gradient but their own",
        needs=_AFTER_IMITATION,
        low=0,
    )
    bc_kl_coef_start: float = setting(
        0.2,
        "weight of the KL divergence from the BC policy, or the agent of --init-from, at the start",
        flag="bc-kl-coef",
        needs=_AFTER_IMITATION,
        low=0,
    )
    bc_kl_share: float = setting(
        0.3, "share of training after which that penalty is zero", needs=_AFTER_IMITATION, low=0, high=1
    )
    desync_episodes: bool = setting(
        False, "cut the first episode of each environment to a random length, so that episodes do not end all together"
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.pbrs_gamma is not None and self.pbrs_gamma != self.gamma:
            raise ConfigError(
                f"differs from PPO's discount {self.gamma}, so shaping would change which policy is best; leave it out, "
                "or set both with --gamma",
                "pbrs_gamma",
                self.pbrs_gamma,
            )
        if self.desired_kl and self.target_kl and 2 * self.desired_kl > KL_TOLERANCE * self.target_kl:
            raise ConfigError(
                f"updates end at {KL_TOLERANCE * self.target_kl:g}, before the learning rate would be lowered; give at "
                f"most {KL_TOLERANCE * self.target_kl / 2:g}",
                "desired_kl",
                self.desired_kl,
            )

        if self.returns_from not in ("collected", "current"):
            raise ConfigError("give collected or current", "returns_from", self.returns_from)
        if self.vtrace_rho_clip is not None and self.returns_from != "current":
            raise ConfigError(
                "corrects targets for what the policy has learned since the rollout; add --returns-from current",
                "vtrace_rho_clip",
                self.vtrace_rho_clip,
            )

    def settled(self, plan: Plan) -> "PPOConfig":
        """The same with the numbers that were left to the hardware plan."""
        rate = self.learning_rate or plan.learning_rate or BASE_LEARNING_RATE
        return replace(self, learning_rate=rate, n_epochs=self.n_epochs or plan.epochs)

    def learning_rate_at(self, progress: float) -> float:
        """Learning rate at this progress of training (0 to 1) where nothing steers it; only for a settled configuration."""
        assert self.learning_rate is not None
        return self.learning_rate * self._annealed(progress)

    def desired_kl_at(self, progress: float) -> float | None:
        """How far an update should move the policy at this progress (0 to 1): small steps move it by their square."""
        return self.desired_kl and self.desired_kl * self._annealed(progress) ** 2

    def _annealed(self, progress: float) -> float:
        annealed = self.anneal_learning_rate and self.schedules
        return _line(1, self.learning_rate_end_share, progress) if annealed else 1.0

    def clip_range_at(self, progress: float) -> float:
        """Change of an action's probability that an update may make, at this progress of training (0 to 1)."""
        return self._scheduled(self.clip_range, self.clip_range_end, progress)

    def clip_range_vf_at(self, progress: float) -> float | None:
        """Change of a value that an update may make, at this progress of training (0 to 1); None: any."""
        return self.clip_range_vf and self._scheduled(self.clip_range_vf, self.clip_range_vf_end, progress)

    def ent_coef_at(self, progress: float) -> float:
        """Weight of the entropy bonus at this progress of training (0 to 1)."""
        return self._scheduled(self.ent_coef_start, self.ent_coef_end, progress)

    def _scheduled(self, start: float, end: float | None, progress: float) -> float:
        return start if end is None or not self.schedules else _line(start, end, progress)

    def bc_kl_coef_at(self, progress: float) -> float:
        """Weight of the divergence from the BC policy at this progress (0 to 1); 0 from bc_kl_share on."""
        return _line(self.bc_kl_coef_start, 0, progress / self.bc_kl_share) if progress < self.bc_kl_share else 0.0


def _line(start: float, end: float, progress: float) -> float:
    return start + (end - start) * min(max(progress, 0.0), 1.0)
