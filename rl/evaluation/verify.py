"""Proof that judged episodes are what they say: they are played again, and were decided by the policy they are credited to.

    seen = {"frame_skip": 4, "observations": policy.observations, "stacking": policy.stacking}
    verify(episodes, policy, planned=250, deterministic=False, **seen)

A record of an episode holds its level and its inputs, so that both questions have exact answers.
"""

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, Protocol

import numpy as np
import torch

import nppsim
from bc.agreement import closeness
from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.batch import BatchSimulator
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.outcomes import DIED, NAMES, TIMEOUT, WON
from nppsim.reward import GAMMA, RewardConfig
from rl.evaluation.likelihood import MOST_SIGMAS, sigmas_off
from rl.evaluation.results import ALL, EpisodeRecord, ResultsError
from rl.evaluation.subtasks_again import SubtasksAgain
from rl.policy.commander import COMMAND
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import MEMORY, blank

EPISODES = 8  # that are looked at, spread over all
ALIKE = 24  # first decisions that two episodes of random play have never in common: one pair of 5 * 10^18
BEGINNING = 16  # decisions of the first episodes that are made a second time
FEW, MOST_ROUNDED = 2, 0.002  # of these, that may be others: so many, and this share
_COUNTED = {"wins": WON, "deaths": DIED, "timeouts": TIMEOUT}
MOST_FORGOTTEN = 0.05  # by which numbers that are remembered may differ, each from -1 to 1; rounding adds up
_REPORT = "please report this"
ENOUGH_GREEDY = 0.99  # share of greedy actions that must be the same; threads may round another way


class Network(Protocol):
    """A policy that can be asked for its probabilities."""

    def to_tensors(self, obs: Mapping[str, np.ndarray], /) -> dict[str, torch.Tensor]: ...
    def logits_and_values(self, observations: Mapping[str, torch.Tensor], /) -> tuple[torch.Tensor, torch.Tensor]: ...
    def step(
        self, observations: Mapping[str, torch.Tensor], /
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """The same and what is remembered afterwards; asked of a policy with a memory."""


def verify(
    episodes: Sequence[EpisodeRecord],
    policy: Network | None,
    *,
    planned: int,
    deterministic: bool,
    frame_skip: int,
    observations: Sequence[str],
    stacking: Stacking = NO_STACKS,
    reward: str | RewardConfig = "default",
    gamma: float = GAMMA,
) -> None:
    """Play some of the episodes again, frame by frame, and in a new simulator of the batch.

    policy: that they are credited to; None: nothing is asked of the decisions.
    planned: episodes that were to be played.
    deterministic: whether the deterministic actions were chosen.
    frame_skip, observations, stacking, reward, gamma: as in the evaluation.
    Raises ResultsError for one that ends otherwise than recorded, or decisions that this policy does not make.
    """
    if len(episodes) != planned:
        raise ResultsError(f"{len(episodes)} episodes are counted, {planned} were to be played: some were left out")
    chosen = [episodes[i] for i in np.unique(np.linspace(0, len(episodes) - 1, EPISODES).astype(int))]
    for episode in chosen:
        run = nppsim.simulate(episode.level, episode.inputs)
        ended = run.outcome if run.outcome != "running" else "timeout"
        if (ended, run.frames) != (episode.outcome, episode.frames):
            raise ResultsError(
                f"an episode on {episode.level_name} is recorded as {episode.outcome} after {episode.frames} frames; played "
                f"again it is {ended} after {run.frames}: its figures cannot be trusted, please report this"
            )
    seen: dict[str, Any] = {"frame_skip": frame_skip, "observations": ("state",)}
    if policy is not None:
        seen |= {"observations": observations, "stacking": stacking}
    found = _asked_again(chosen, policy, deterministic, **seen, reward=reward, gamma=gamma)
    if policy is not None:
        _verify_decisions(deterministic, *found)


def check_random(episodes: Sequence[EpisodeRecord], frame_skip: int) -> None:
    """ResultsError unless every action was about as frequent in episodes of random play, and each of them another one."""
    played = [_actions_of(episode, frame_skip) for episode in episodes]
    begun: dict[bytes, EpisodeRecord] = {}
    for episode, taken in zip(episodes, played, strict=True):
        if len(taken) >= ALIKE and (other := begun.setdefault(taken[:ALIKE].tobytes(), episode)) is not episode:
            raise ResultsError(
                f"random play on {episode.level_name} begins with the same {ALIKE} actions as on {other.level_name}: both "
                "were drawn from the same random numbers, and count as one; please report this"
            )
    actions = np.concatenate(played)
    counts = np.bincount(actions, minlength=NUM_ACTIONS)
    share = 1 / NUM_ACTIONS
    off = np.abs(counts - share * len(actions)) / np.sqrt(share * (1 - share) * len(actions))
    if off.max() > MOST_SIGMAS:
        odd = int(off.argmax())
        raise ResultsError(
            f"random play has chosen action {odd} in {counts[odd] / len(actions):.1%} of {len(actions)} decisions, a sixth "
            "is meant: what agents are held against is something else; please report this"
        )


def check_beginning(episodes: Sequence[EpisodeRecord], actions: np.ndarray, frame_skip: int) -> None:
    """ResultsError unless the first episodes begin with these actions, a few aside, which rounding may turn.

    actions: int64[D, N], of ``EvaluationSuite.beginning`` with the policy that the episodes are credited to.
    """
    taken = np.full_like(actions, -1)  # where an episode has ended already
    for number, episode in enumerate(episodes[: actions.shape[1]]):
        begins = _actions_of(episode, frame_skip)[: len(actions)]
        taken[: len(begins), number] = begins
    other = int((taken != actions).sum())
    if other > FEW + MOST_ROUNDED * actions.size:
        raise ResultsError(
            f"{other} of the first {actions.size} decisions that were judged are not this policy's, asked again with the "
            "same random numbers: another policy, other observations or another normalisation were judged; please report this"
        )


def _actions_of(episode: EpisodeRecord, frame_skip: int) -> np.ndarray:
    """int64[decisions]"""
    input_of = {int(byte): action for action, byte in enumerate(ACTION_INPUT)}
    return np.array([input_of[int(byte)] for byte in episode.inputs[::frame_skip]])


def check_levels(episodes: Sequence[EpisodeRecord], levels: Mapping[str, str]) -> None:
    """ResultsError unless all episodes were played on these levels.  levels: fingerprint -> category."""
    strange = [episode for episode in episodes if levels.get(episode.level.fingerprint) != episode.category]
    if strange:
        raise ResultsError(
            f"{len(strange)} of {len(episodes)} episodes were not played on the levels that are judged on, or count for "
            f"another category, e.g. {strange[0].level_name} ({strange[0].category}): please report this"
        )


def check_counts(episodes: Sequence[EpisodeRecord], stats: Mapping[str, Mapping[str, Any]], where: str = "") -> None:
    """ResultsError unless these statistics are of these episodes, counted one by one.

    stats: of ``aggregate``, or of a file that holds it.
    where: the file, for the message.
    """
    names = {*(episode.category for episode in episodes), ALL} if episodes else set()
    if stats.keys() != names:
        raise ResultsError(
            f"{where}figures are of {', '.join(stats)}, played were {', '.join(sorted(names))}: {_REPORT}"
        )
    for category, told in stats.items():
        mine = [episode for episode in episodes if category in (episode.category, ALL)]
        counts = _counted(mine)
        wrong = [key for key, count in counts.items() if not _close(told[key], count)]
        low, high = told["ci95"]
        if not -1e-9 <= low <= counts["success"] + 1e-9 or not counts["success"] - 1e-9 <= high <= 1 + 1e-9:
            wrong.append("success")
        if wrong:
            key = wrong[0]
            interval = f" (interval {low:g} to {high:g})" if key == "success" else ""
            raise ResultsError(
                f"{where}{category}: {key} is told as {_told(told[key])}, counted one by one it is {_told(counts[key])}"
                f"{interval}: figures are of other episodes, or counted in another way; {_REPORT}"
            )


def _counted(episodes: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """What is told of episodes, at least one, but for the interval."""
    outcomes = [episode.outcome for episode in episodes]
    counts: dict[str, Any] = {key: outcomes.count(NAMES[number]) for key, number in _COUNTED.items()}
    won = [episode.frames for episode in episodes if episode.outcome == NAMES[WON]]
    return counts | {
        "episodes": len(episodes),
        "success": len(won) / len(episodes),
        "median_frames": median(won) if won else None,
        "mean_return": mean(episode.ret for episode in episodes),
        "mean_decisions": mean(episode.decisions for episode in episodes),
        "mean_gold": mean(episode.gold for episode in episodes),
    }


def _close(told: float | None, count: float | None) -> bool:
    if told is None or count is None:
        return told is count
    return abs(told - count) <= 1e-9 * max(1.0, abs(count))


def _told(figure: float | None) -> str:
    return "nothing" if figure is None else f"{figure:g}"


def _verify_decisions(deterministic: bool, log_probs: np.ndarray, actions: np.ndarray) -> None:
    if deterministic:
        same = float((log_probs.argmax(axis=1) == actions).mean())
        if same < ENOUGH_GREEDY:
            raise ResultsError(f"only {same:.0%} of the judged decisions are this policy's: another one was judged")
        return
    sigmas = sigmas_off(log_probs, actions)
    if sigmas > MOST_SIGMAS:
        raise ResultsError(
            f"the judged decisions are over {sigmas:.0f} standard deviations from what this policy would decide: another "
            "policy, other observations or another frame skip were judged; please report this"
        )


def _asked_again(
    episodes: Sequence[EpisodeRecord], policy: Network | None, deterministic: bool, **seen: Any
) -> tuple[np.ndarray, np.ndarray]:
    """(log-probabilities float64[D, 6] of the policy, actions int64[D]) of all decisions of the episodes; empty without one.

    seen: settings of the simulator.
    ResultsError unless each episode ends there, too, with its last decision and as it is recorded.
    """
    played = [_actions_of(one, seen["frame_skip"]) for one in episodes]
    sim = BatchSimulator([one.level for one in episodes], len(episodes), **seen)
    obs = sim.reset(np.arange(len(episodes)))
    subtasks = SubtasksAgain(policy, episodes) if isinstance(policy, NppPolicy) and policy.commander else None
    remembered = None if policy is None else blank(policy, len(episodes))
    log_probs, actions = [np.empty((0, NUM_ACTIONS))], []
    for t in range(max(map(len, played))):
        active = [i for i, decisions in enumerate(played) if t < len(decisions)]
        if subtasks is not None:
            subtasks.look(obs, active, t)
        if policy is not None:
            log_probs.append(_log_probs(policy, remembered, obs, episodes, active, t))
            actions += [int(played[i][t]) for i in active]
        over = np.array([t >= len(decisions) for decisions in played])
        obs = sim.step(np.array([0 if t >= len(decisions) else int(decisions[t]) for decisions in played]), asleep=over)
        for i in active:
            _check_end(episodes[i], sim, i, t + 1 == len(played[i]))
    if subtasks is not None:
        subtasks.check(deterministic)
    if remembered is not None:
        _check_memory(episodes, remembered, max(MOST_FORGOTTEN, closeness(policy)))
    return np.concatenate(log_probs), np.array(actions)


def _check_memory(episodes: Sequence[EpisodeRecord], remembered: np.ndarray, limit: float) -> None:
    """ResultsError unless this is what was remembered at the end of each episode.  remembered: float32[N, size]."""
    for episode, after in zip(episodes, remembered, strict=True):
        off = np.inf if episode.memory is None else float(np.abs(episode.memory - after).max())
        if not off <= limit:
            raise ResultsError(
                f"what was remembered at the end of an episode on {episode.level_name} is {off:.2g} away from what the "
                f"policy remembers when it is asked again: memories were lost, kept or mixed up as it was judged; {_REPORT}"
            )


def _check_end(episode: EpisodeRecord, sim: BatchSimulator, i: int, last: bool) -> None:
    """ResultsError unless environment i ends its episode with the last decision, as it is recorded."""
    ended = i in sim.finished
    now = sim.episode[i]
    found = (NAMES[now["outcome"]], int(now["frames"]), int(now["gold"]), round(float(now["ret"]), 6)) if ended else ()
    wanted = (episode.outcome, episode.frames, episode.gold, round(episode.ret, 6))
    if ended != last or (last and (found[:3] != wanted[:3] or abs(float(now["ret"]) - episode.ret) > 1e-6)):
        told = "{} after {} frames with {} gold and a return of {}"
        raise ResultsError(
            f"an episode on {episode.level_name} is recorded as {told.format(*wanted)}; played again by training's rules "
            f"it {'is ' + told.format(*found) if ended else 'goes on'}: it was judged by other rules, or its figures are "
            f"another's; {_REPORT}"
        )


@torch.no_grad()
def _log_probs(
    policy: Network,
    remembered: np.ndarray | None,
    obs: Mapping[str, np.ndarray],
    episodes: Sequence[EpisodeRecord],
    active: list[int],
    t: int,
) -> np.ndarray:
    """float64[len(active), 6] of decision t; what the policy remembers afterwards is written into ``remembered``."""
    shown = {key: values[active] for key, values in obs.items()} | _commands(episodes, active, t)
    if remembered is None:
        logits = policy.logits_and_values(policy.to_tensors(shown))[0]
    else:
        logits, _, states = policy.step(policy.to_tensors({**shown, MEMORY: remembered[active]}))
        assert states is not None
        remembered[active] = states.cpu().numpy()
    return torch.log_softmax(logits.double(), dim=1).cpu().numpy()


def _commands(episodes: Sequence[EpisodeRecord], active: list[int], t: int) -> dict[str, np.ndarray]:
    """The subtasks under which decision t was made in these episodes, as the policy observes them, if there were any."""
    recorded = [episodes[i].commands for i in active]
    told = [commands[t] for commands in recorded if commands is not None]
    return {COMMAND: np.stack(told)} if told else {}
