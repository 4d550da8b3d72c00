"""What must hold of every rollout, worked out a second time by other means than training's own.

    kept = Kept.of(ppo)                       # after the rollout, before the update
    faults_of_rollout(ppo, kept, start)

Updates are looked at by ``rl.ppo.audit_update``.  Nothing here is random, and nothing in training depends on it.
``rl.ppo.alarms`` calls it and adds what takes memory of earlier updates: bands and trends.
"""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from bc.agreement import CLOSE, closeness
from nppsim.actions import ACTION_INPUT, ACTION_TAGS, NUM_ACTIONS
from nppsim.observe import layout
from nppsim.outcomes import TIMEOUT, WON
from nppsim.reward import TERMS
from rl.config.ppo import PPOConfig
from rl.policy.commander import COMMAND
from rl.policy.policy import NppPolicy
from rl.ppo.ppo import BatchPPO

ROWS = 256  # decisions of a rollout on which networks are asked again
NO_VALUE = 1e-5  # what time-outs add to the rewards, if nothing
NO_DISCOUNT = 1e-3  # below, time-outs add next to nothing
ENOUGH_ROWS = 16  # in which something moves
MOST_SIGMAS = 6.0  # that the actions taken may be away from their probabilities
MANY_BEGINNINGS = 16  # of episodes at random times, which cannot all be the same by chance
SOME_DECISIONS = 20_000  # whose independence is looked at
CERTAIN = math.log(2e9)  # minus the logarithm of the chance of a false alarm
MOST_ENTROPY = math.log(NUM_ACTIONS)
JUMPS = (ACTION_INPUT & 1).astype(bool)  # whether an action presses jump
JUMP_HELD = layout.SPECS["game_state"].components.index("jump_held")
MAY_REST = (
    "switch_states",
    "hazards",
    "global_view",
    "command",
)  # keys that are constant without doors, mines, subtasks
OF_STAGES = {  # settings of the curriculum -> those of PPO that they change while a stage is learned
    "stage_gamma": ("gamma", "pbrs_gamma"),
    "stage_learning_rate": ("learning_rate",),
    "stage_ent_coef": ("ent_coef_start", "ent_coef_end"),
}
TARGETS = ("actions", "log_probs", "values", "rewards", "advantages", "returns", "episode_ends", "wins")


class Fault(NamedTuple):
    """Something that is wrong.  name: of the alarm.  text: what, with figures, and what to do.  stop: whether to go on."""

    name: str
    text: str
    stop: bool = True


@dataclass(frozen=True, eq=False)
class Kept:
    """What an update is held against; taken after the rollout, just before it.

    config: settings in force, those of the curriculum's stage included.
    progress, hold, actor_updates, critic_only, steered_rate: of training.
    rows: int64[R], decisions on which networks are asked again.
    log_probs: float32[R, 6], by the policy before the update.
    values: float32[R], likewise.
    error: mean squared error of those values against the returns.
    sums: field of the rollout -> checksum.
    weights: name -> copy of the parameter.
    steps: that the optimiser has made.
    """

    config: PPOConfig
    progress: float
    hold: float
    actor_updates: int
    critic_only: bool
    steered_rate: float
    rows: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    error: float
    sums: dict[str, int]
    weights: dict[str, torch.Tensor]
    steps: int

    @classmethod
    def of(cls, ppo: BatchPPO, turn: int = 0) -> "Kept":
        """Of the rollout that has just ended.  turn: which decisions are asked about again; others each time."""
        rows = some_rows(len(ppo.rollout_buffer), turn).to(ppo.device)
        log_probs, values = asked(ppo.policy, ppo, rows)
        return cls(
            config=settings_of_stage(ppo),
            progress=ppo.progress,
            hold=ppo.hold,
            actor_updates=ppo.actor_updates,
            critic_only=ppo.critic_only,
            steered_rate=ppo.steered_rate,
            rows=rows,
            log_probs=log_probs,
            values=values,
            error=error_of(values, ppo, rows),
            sums=checksums(ppo),
            weights={name: parameter.detach().clone() for name, parameter in ppo.policy.named_parameters()},
            steps=steps_of(ppo),
        )


def some_rows(size: int, turn: int) -> torch.Tensor:
    """int64[R], rising: R = min(size, ROWS) of the numbers below ``size``, spread over all and others in each turn.

    Not every n-th: where n and the number of environments have a factor in common, that would be the same few of these.
    """
    step = max(1, round(0.6180339887 * size)) if size > ROWS else 1
    while math.gcd(step, size) > 1:
        step += 1
    count = min(size, ROWS)
    return ((torch.arange(count) + turn * count) * step % size).sort().values


@torch.no_grad()
def asked(policy: NppPolicy, ppo: BatchPPO, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities float32[R, 6], values float32[R]) that a policy gives for decisions of the rollout."""
    logits, values = policy.logits_and_values(ppo.rollout_buffer.observations(rows))
    return torch.log_softmax(logits.float(), dim=1), values.float()


def steps_of(ppo: BatchPPO) -> int:
    """Steps that the optimiser has made with the parameter that has had most."""
    return max((int(state["step"]) for state in ppo.policy.optimizer.state.values()), default=0)


def error_of(values: torch.Tensor, ppo: BatchPPO, rows: torch.Tensor) -> float:
    """Mean squared error of values against the returns of those decisions."""
    return float((values - ppo.rollout_buffer.flat("returns")[rows]).square().mean())


def checksums(ppo: BatchPPO) -> dict[str, int]:
    """Field of the rollout -> checksum."""
    buffer = ppo.rollout_buffer
    return {name: zlib.crc32(getattr(buffer, name).cpu().numpy().tobytes()) for name in TARGETS}


def deviations(probs: np.ndarray, actions: np.ndarray) -> tuple[float, np.ndarray]:
    """(by how many standard deviations actions int64[n] are taken more or less often than probabilities float[n, 6] say,
    of the action that is farthest off; how often each is taken, int64[6])

    Bernstein's bound, in which a large deviation adds a third of itself to the variance: counts of what is rare have a
    long tail.
    """
    counts = np.bincount(actions, minlength=NUM_ACTIONS)
    off = np.abs(counts - probs.sum(axis=0))
    spread = np.sqrt(np.maximum((probs * (1 - probs)).sum(axis=0), 1.0) + off / 3)
    return float((off / spread).max()), counts


def value_scale(ppo: BatchPPO, config: PPOConfig) -> float:
    """What the value loss is divided by: the variance of all returns, or 1 where it is not scaled."""
    returns = all_gather(ppo, "returns")
    return float(returns.var()) if config.scale_value_loss and float(returns.std()) > 0 else 1.0


def all_gather(ppo: BatchPPO, name: str) -> torch.Tensor:
    """A field of the rollouts of all processes that train together, one after the other; float64[n]."""
    return ppo.ranks.all_gather(ppo.rollout_buffer.flat(name)).double()


def numbers(ppo: BatchPPO, name: str) -> np.ndarray:
    """A field of the rollout as float64[T, N, ...] (bool and int as they are)."""
    values = getattr(ppo.rollout_buffer, name).cpu().numpy()
    return values.astype(np.float64) if values.dtype == np.float32 else values


# ---------------------------------------------------------------------------------------------------------------------
# The rollout


def faults_of_rollout(ppo: BatchPPO, kept: Kept, start: "Start | None") -> Iterator[Fault]:
    """What is wrong with the rollout that has just ended.  start: how things stood before it; None: not known."""
    yield from settings_agree(ppo)
    yield from inputs_are_alive(ppo, kept)
    yield from decisions_are_the_policys(ppo, kept)
    yield from decisions_are_independent(ppo)
    yield from processes_differ(ppo)
    yield from keys_follow_decisions(ppo)
    yield from episodes_add_up(ppo, start)
    yield from advantages_are_right(ppo)
    yield from clone_is_the_reference(ppo, kept)
    yield from metrics_are_right(ppo)
    if start is not None:
        yield from start.faults(ppo)


def settings_of_stage(ppo: BatchPPO) -> PPOConfig:
    """The configuration with what the stage that is learned now changes, read from what was asked for."""
    changed: dict[str, float | None] = {}
    for name, fields in OF_STAGES.items():
        for text in getattr(ppo.sampler.config, name):
            stage, _, value = text.partition("=")
            if stage == ppo.sampler.stage:
                changed |= {field: None if field == "pbrs_gamma" else float(value) for field in fields}
    return replace(ppo.config, **changed)  # type: ignore[arg-type]


def settings_agree(ppo: BatchPPO) -> Iterator[Fault]:
    """One number, one value, wherever it is used."""
    config, buffer, plan = settings_of_stage(ppo), ppo.rollout_buffer, ppo.n_steps
    wanted = {
        "discount of PPO": (ppo.gamma, config.gamma),
        "discount of the rollouts": (buffer.gamma, config.gamma),
        "discount of the shaping": (ppo.sim.gamma, config.gamma),
        "lambda of PPO": (ppo.gae_lambda, config.gae_lambda),
        "lambda of the rollouts": (buffer.gae_lambda, config.gae_lambda),
        "passes over a rollout": (ppo.n_epochs, config.n_epochs),
        "longest gradient": (ppo.max_grad_norm, config.max_grad_norm),
        "decisions of a rollout": (buffer.shape, (plan, ppo.sim.num_envs)),
        **{name.replace("_", " "): (getattr(ppo.in_force, name), getattr(config, name)) for name in vars(config)},
    }
    for name, (found, asked_for) in wanted.items():
        if found != asked_for:
            yield Fault(
                "settings", f"{name}: {found} in force, {asked_for} configured; something overwrites the setting"
            )
    before, found, after = progress_of(ppo), ppo.progress, progress_of(ppo)  # time goes on meanwhile
    if not before - 1e-9 <= found <= after + 1e-9:
        yield Fault(
            "settings",
            f"progress is {found:.4f} after {ppo.num_timesteps:,} of {config.total_timesteps:,} decisions and "
            f"{ppo.spent:.1f} s, it was to be {after:.4f}: what is annealed runs at another speed",
        )
    if len(buffer) % ppo.batch_size:
        yield Fault(
            "settings", f"minibatches of {ppo.batch_size} do not divide {len(buffer)} decisions: some are never used"
        )
    if ppo.decisions_played > 10_000 and not 0.2 * ppo.seconds < sum(ppo.speed.values()) < 1.05 * ppo.seconds:
        yield Fault(
            "time",
            f"phases took {sum(ppo.speed.values()):.1f} s in all, training {ppo.seconds:.1f} s: one is not timed",
        )
    held = {id(p) for group in ppo.policy.optimizer.param_groups for p in group["params"]}
    lost = [name for name, p in ppo.policy.named_parameters() if p.requires_grad and id(p) not in held]
    if lost:
        yield Fault(
            "optimiser", f"the optimiser does not hold {', '.join(lost)}: made before these layers, or replaced"
        )


def progress_of(ppo: BatchPPO) -> float:
    """Progress of training, 0 to 1: the larger share of its decisions and of its time budget that is used up."""
    shares = [ppo.num_timesteps / ppo.config.total_timesteps]
    if ppo.config.time_budget_minutes:
        seconds = ppo.config.time_budget_minutes * 60.0 - ppo.reserved
        shares.append(ppo.spent / seconds if seconds > 0 else 1.0)
    return min(max(shares), 1.0)


def inputs_are_alive(ppo: BatchPPO, kept: Kept) -> Iterator[Fault]:
    """Observations are finite, and those that always change do."""
    for key, values in ppo.rollout_buffer.observations(kept.rows).items():
        rows = values.flatten(1)
        if values.is_floating_point() and not torch.isfinite(rows).all():
            yield Fault(
                "observations", f"{key} holds values that are not finite; play these levels alone (nppsim.shadow)"
            )
        elif key not in MAY_REST and len(rows) >= ENOUGH_ROWS and bool((rows == rows[0]).all()):
            yield Fault("observations", f"{key} is the same in all of {len(rows)} decisions: nobody writes it any more")


def decisions_are_the_policys(ppo: BatchPPO, kept: Kept) -> Iterator[Fault]:
    """What the rollout says of decisions is what the policy says, asked again; actions were drawn from it."""
    buffer = ppo.rollout_buffer
    stored = buffer.flat("log_probs")[kept.rows], buffer.flat("values")[kept.rows]
    limit = closeness(ppo.policy)
    for name, have, again in zip(("log-probabilities", "values"), stored, (kept.log_probs, kept.values), strict=True):
        off = float((have - again).abs().max()) / max(1.0, float(again.abs().max()))
        if not off <= limit:
            yield Fault(
                "rollout",
                f"{name} of the rollout differ from the policy's on the observations beside them, by {off:.2g} of their "
                "size: observations, decisions or weights were mixed up, or the network is not the same function twice",
            )
    probs = np.exp(numbers(ppo, "log_probs")).reshape(-1, NUM_ACTIONS)
    sigmas, counts = deviations(probs, numbers(ppo, "actions").ravel())
    if not sigmas < MOST_SIGMAS:
        yield Fault(
            "actions",
            f"actions are {sigmas:.0f} standard deviations from the probabilities they were drawn with (taken "
            f"{counts.tolist()}, expected {probs.sum(axis=0).round().astype(int).tolist()}): the drawing is wrong, or "
            "actions are renumbered on the way",
        )


def decisions_are_independent(ppo: BatchPPO) -> Iterator[Fault]:
    """What chance decided says nothing of what it decides next, in the same environment or in the next one.

    e = (1 where an action was taken, else 0) - its probability; given what came before, the product of two such vectors has
    mean 0.  Bound: Freedman 1975, "On tail probabilities for martingales".
    """
    buffer = ppo.rollout_buffer
    envs = max(2, SOME_DECISIONS // buffer.shape[0])
    probs = buffer.log_probs[:, :envs].double().exp().cpu().numpy()
    surplus = np.eye(NUM_ACTIONS)[buffer.actions[:, :envs].cpu().numpy()] - probs
    pairs = {
        "the next decision": (surplus[:-1], surplus[1:], probs[1:]),
        "the next environment's": (surplus[:, :-1], surplus[:, 1:], probs[:, 1:]),
    }
    for name, (first, second, p) in pairs.items():
        total = abs(float((first * second).sum()))
        variance = float((p * first**2).sum() - ((p * first).sum(axis=2) ** 2).sum())
        if total**2 > 2 * CERTAIN * (variance + 2 * total / 3):
            yield Fault(
                "actions",
                f"what was decided tells {name}, {total / math.sqrt(max(variance, 1e-9)):.0f} standard deviations beyond "
                "chance: the same random numbers are used again",
            )


def processes_differ(ppo: BatchPPO) -> Iterator[Fault]:
    """No two processes that train together play the same: that would be one rollout, learned from twice."""
    mine = zlib.crc32(ppo.rollout_buffer.actions.cpu().numpy().tobytes())
    sums = ppo.ranks.all_gather_rows(np.array([mine])).tolist()
    if len(set(sums)) < len(sums):
        yield Fault(
            "actions", f"of {len(sums)} processes only {len(set(sums))} decide differently: seeds are used again"
        )


def keys_follow_decisions(ppo: BatchPPO) -> Iterator[Fault]:
    """Where jump was decided, the next observation of that environment shows it held, and nowhere else."""
    buffer = ppo.rollout_buffer
    if "game_state" not in buffer.obs:
        return
    held = buffer.obs["game_state"][1:, :, JUMP_HELD].cpu().numpy() > 0
    decided = JUMPS[numbers(ppo, "actions")[:-1]]
    wrong = (held != decided) & ~numbers(ppo, "episode_ends")[:-1]
    if wrong.any():
        yield Fault(
            "keys",
            f"after {wrong.sum()} of {wrong.size} decisions the environment does not hold the keys that were decided: "
            "actions reach other environments, or observations are shifted",
        )


def complete(ppo: BatchPPO, start: "Start | None") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes that ended in the rollout: (their place in ``ppo.ended``, decisions, sum of rewards).

    start: how things stood before it; None: only episodes that began in the rollout, too.
    """
    place = np.argwhere(numbers(ppo, "episode_ends"))  # by decision, then by environment, as they were recorded
    order = np.lexsort((place[:, 0], place[:, 1]))
    t, env = place[order].T
    decisions, sums = t + 1, numbers(ppo, "rewards").cumsum(axis=0)[t, env]
    first = np.ones(len(env), bool)
    first[1:] = env[1:] != env[:-1]
    before, earned = start.so_far if start else np.zeros((2, ppo.sim.num_envs))
    decisions = decisions - np.where(first, -before[env], np.roll(decisions, 1))
    sums = sums - np.where(first, -earned[env], np.roll(sums, 1))
    known = np.flatnonzero(~first if start is None else np.ones_like(first))
    return order[known], decisions[known], sums[known]


def episodes_add_up(ppo: BatchPPO, start: "Start | None") -> Iterator[Fault]:
    """Rewards and lengths in the rollout are those of the episodes' records; time-outs go on with the critic's value."""
    ended, ends = ppo.ended, int(numbers(ppo, "episode_ends").sum())
    if len(ended) != ends:
        yield Fault("episodes", f"{ends} episodes ended in the rollout, {len(ended)} were recorded")
        return
    wins = ended["outcome"] == WON
    if not np.array_equal(numbers(ppo, "wins")[numbers(ppo, "episode_ends")], wins):
        yield Fault("episodes", "wins in the rollout are not those of the episodes' records")
    if len(ended) and not np.allclose(ended["terms"].sum(axis=1), ended["ret"], rtol=CLOSE, atol=CLOSE):
        yield Fault("episodes", "the reward terms of an episode do not sum to its return")
    late = ended["frames"] - ppo.sim.bank.time_limit[ended["level"]]
    early = (ended["outcome"] == TIMEOUT) & (late < 0)
    if (late >= ppo.sim.frame_skip).any():
        yield Fault(
            "episodes", f"{(late >= ppo.sim.frame_skip).sum()} episodes went on beyond their level's time limit"
        )
    if early.any():
        yield Fault("episodes", f"{early.sum()} episodes were cut off before their level's time limit")
    played = ended["decisions"] * ppo.sim.frame_skip
    if ppo.sampler.starts and not ppo.config.desync_episodes:
        true = int(ppo.ranks.all_gather_rows(np.array([(ended["frames"] <= played).sum()])).sum())  # of all processes
        if true != len(ppo.counted):
            yield Fault(
                "start states",
                f"{len(ppo.counted)} episodes count as begun where their levels begin, by their clocks {true} did: success "
                "would be that of easier starts",
            )
    which, decisions, sums = complete(ppo, start)
    if not np.array_equal(ended["decisions"][which], decisions):
        yield Fault("episodes", "episodes in the rollout are not as long as their records say")
        return
    excess, timeout = sums - ended["ret"][which], ended["outcome"][which] == TIMEOUT
    off = np.abs(excess[~timeout]) / (1 + np.abs(ended["ret"][which][~timeout]))
    if not (off < CLOSE).all():
        yield Fault(
            "rewards",
            f"the rewards of an episode sum to {off.max():.2g} more or less than its recorded return: rewards are changed or "
            "lost between simulator and rollout",
        )
    if timeout.sum() >= 2 and (np.abs(excess[timeout]) < NO_VALUE).all() and settings_of_stage(ppo).gamma > NO_DISCOUNT:
        yield Fault(
            "time-outs", "time-outs are learned as ends: the value of what was cut off is missing from the rewards"
        )


def advantages_are_right(ppo: BatchPPO) -> Iterator[Fault]:
    """Advantages and returns, from the definition: A = sum over k of (gamma lambda)^k delta, within the episode."""
    rewards, values = numbers(ppo, "rewards"), numbers(ppo, "values")
    with torch.no_grad():
        last = ppo.policy.logits_and_values(ppo.policy.to_tensors(ppo.seen))[1].cpu().numpy().astype(np.float64)
    goes_on = ~numbers(ppo, "episode_ends")
    gamma, decay = settings_of_stage(ppo).gamma, ppo.config.gae_lambda
    deltas = rewards + gamma * np.vstack([values[1:], last[None]]) * goes_on - values
    advantages, sum_so_far = np.empty_like(deltas), np.zeros_like(last)
    for t in range(len(deltas) - 1, -1, -1):
        sum_so_far = deltas[t] + gamma * decay * goes_on[t] * sum_so_far
        advantages[t] = sum_so_far
    for name, wanted in {"advantages": advantages, "returns": advantages + values}.items():
        limit = closeness(ppo.policy) * (1 + np.abs(wanted).max())
        off = np.abs(numbers(ppo, name) - wanted).max()
        if not off <= limit:
            yield Fault(
                name,
                f"{name} differ by {off:.3g} from their definition (gamma {gamma:g}, lambda "
                f"{decay:g}): sign, bootstrap, ends of episodes or discount are wrong",
            )


def clone_is_the_reference(ppo: BatchPPO, kept: Kept) -> Iterator[Fault]:
    """Before the actor's first update, the policy is the BC policy that it will be pulled towards."""
    if ppo.reference is None or kept.actor_updates or ppo.hold != 1.0:
        return
    off = divergence(asked(ppo.reference, ppo, kept.rows)[0], kept.log_probs)
    if not off <= closeness(ppo.policy):
        yield Fault(
            "reference",
            f"before its first update the actor is {off:.3g} nats away from the BC policy that it is pulled towards: that is "
            "another policy, or the actor moved while only the critic was to learn",
        )


def divergence(of: torch.Tensor, to: torch.Tensor) -> float:
    """Mean Kullback-Leibler divergence, nats, of log-probabilities float32[R, 6]."""
    of, to = of.double(), to.double()
    return float((of.exp() * (of - to)).sum(dim=1).mean())


class Start:
    """How things stood before a rollout, to be held against it.

    episodes: counted by the sampler, by stage.
    level: int32[N], that each environment plays.
    began: int64[N], updates there had been when its episode began.
    so_far: float64[2, N], decisions and sum of rewards of the episodes that go on.
    obs: what each environment observes, and remembers; the subtask in force may be chosen anew.
    arrays: where the former lies in memory.
    seconds: that training had taken.
    frames: int[N], frames since each episode began.
    """

    def __init__(self, ppo: BatchPPO):
        self.episodes = ppo.sampler.episodes.tolist()
        self.level = ppo.sim.level.copy()
        self.began = ppo.sampler._began.copy()
        going, count = ppo.sim.state, ppo.sim.num_envs
        self.so_far = np.stack([going.progress["decisions"][:count], going.terms[:count].sum(axis=1)])
        self.obs = {key: values.copy() for key, values in ppo.seen.items() if key != COMMAND}
        self.seconds = ppo.seconds
        self.frames = going.ninja["frame"][:count].copy()
        self.arrays = {key: values.ctypes.data for key, values in ppo.sim.obs.items()}

    def faults(self, ppo: BatchPPO) -> Iterator[Fault]:
        """The rollout begins where the environments stood; every episode is counted once, with its level and outcome."""
        if {key: values.ctypes.data for key, values in ppo.sim.obs.items()} != self.arrays:
            yield Fault("environment", "the simulator's arrays are not those of the start: it was made anew")
        shown = ppo.rollout_buffer.observations(torch.arange(ppo.sim.num_envs, device=ppo.device))
        for key, values in self.obs.items():
            if not np.array_equal(shown[key].cpu().numpy(), values):
                yield Fault(
                    "rollout",
                    f"the first {key} of the rollout is not what the environments showed: rows or steps were mixed up",
                )
        begins = ppo.num_timesteps == len(ppo.rollout_buffer) * ppo.ranks.size
        if ppo.config.desync_episodes and begins and len(self.frames) >= MANY_BEGINNINGS and not np.ptp(self.frames):
            yield Fault("settings", "--desync-episodes is given, and all first episodes began together")
        ends = np.argwhere(numbers(ppo, "episode_ends"))
        env, first = np.unique(ends[:, 1], return_index=True)
        if len(ends) == len(ppo.ended) and not np.array_equal(ppo.ended["level"][first], self.level[env]):
            yield Fault("levels", "episodes are credited to other levels than those that were being played")
        rate = len(ppo.rollout_buffer) * ppo.ranks.size / max(ppo.seconds - self.seconds, 1e-9)
        told = float(ppo.logger.name_to_value.get("sim/decisions_per_s", math.nan))
        if told == told and not math.isclose(told, rate, rel_tol=0.01):
            yield Fault("metrics", f"sim/decisions_per_s is logged as {told:,.0f}, the rollout made {rate:,.0f}")
        yield from self._sampler_faults(ppo)

    def _sampler_faults(self, ppo: BatchPPO) -> Iterator[Fault]:
        state, ended = ppo.sampler.state_dict(), ppo.counted
        stage, won = ppo.sampler.stage_of[ended["level"]], ended["outcome"] == WON
        for number, name in enumerate(ppo.sampler.stages):
            outcomes = won[stage == number].astype(int).tolist()
            counted = state["episodes"][number] - self.episodes[number]
            kept = state["windows"][number]
            tail = min(len(kept), len(outcomes))
            if counted != len(outcomes):
                yield Fault("curriculum", f"{counted} episodes of {name} were counted, {len(outcomes)} were played")
            elif list(kept[len(kept) - tail :]) != outcomes[len(outcomes) - tail :]:
                yield Fault("curriculum", f"outcomes of {name} in the curriculum are not those of the episodes played")


def metrics_are_right(ppo: BatchPPO) -> Iterator[Fault]:
    """What is logged about the rollout, worked out again from its episodes and decisions."""
    logged, ended = ppo.logger.name_to_value, ppo.counted
    counts = np.bincount(numbers(ppo, "actions").ravel(), minlength=NUM_ACTIONS)
    wanted = {f"actions/frequency/{name}": n / counts.sum() for name, n in zip(ACTION_TAGS, counts, strict=True)}
    wanted |= {"sim/episodes": len(ended), "sim/distinct_levels": len(set(ended["level"].tolist()))}
    wanted |= dict.fromkeys(ppo.sampler.metrics(), math.nan) | {"sim/decisions_per_s": math.nan}
    if len(ended):
        wanted |= {"sim/wins": int((ended["outcome"] == WON).sum()), "reward/return": ended["ret"].mean()}
        wanted |= {f"reward/{name}": ended["terms"][:, i].mean() for i, name in enumerate(TERMS)}
    wanted |= _of_categories(ppo)
    absent = [tag for tag in wanted if tag not in logged]
    if absent:
        yield Fault(
            "metrics", f"not logged any more: {', '.join(absent)}; was the logger replaced, or a record dropped?"
        )
    yield from _windows_are_right(ppo)
    for tag, value in wanted.items():
        if tag in logged and value == value and not math.isclose(logged[tag], value, rel_tol=CLOSE, abs_tol=1e-6):
            yield Fault("metrics", f"{tag} is logged as {logged[tag]:.6g}; from the rollout itself it is {value:.6g}")


def _of_categories(ppo: BatchPPO) -> dict[str, float]:
    """What is logged of each category, from the outcomes that the curriculum keeps."""
    state, found = ppo.sampler.state_dict(), {}
    for number, name in enumerate(ppo.sampler.stages):
        found[f"curriculum_stages/{name}_episodes"] = state["episodes"][number]
        if len(state["windows"][number]):
            found[f"curriculum_stages/{name}_success_rate"] = float(np.mean(state["windows"][number]))
            found[f"env_task_reward/{name}"] = float(np.mean(state["returns"][number]))
    return found


def _windows_are_right(ppo: BatchPPO) -> Iterator[Fault]:
    """What ``rollout/`` curves are means of: the latest episodes, one after the other."""
    assert ppo.ep_info_buffer is not None and ppo.ep_success_buffer is not None
    latest = ppo.counted[-ppo._stats_window_size :]
    lengths = [(float(one["ret"]), int(one["decisions"])) for one in latest]
    outcomes = [bool(one["outcome"] == WON) for one in latest]
    infos = list(ppo.ep_info_buffer)[len(ppo.ep_info_buffer) - len(latest) :]
    wins = list(ppo.ep_success_buffer)[len(ppo.ep_success_buffer) - len(latest) :]
    if [(info["r"], info["l"]) for info in infos] != lengths or wins != outcomes:
        yield Fault(
            "metrics", "returns, lengths or wins behind the rollout/ curves are not those of the latest episodes"
        )
