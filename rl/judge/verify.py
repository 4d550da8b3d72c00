"""Proof that judged episodes are what they say: they are played again, and were decided by the policy they are credited to.

    seen = {"frame_skip": 4, "observations": policy.observations, "stacking": policy.stacking}
    verify(episodes, policy, planned=250, deterministic=False, **seen)

A record of an episode holds its level and its inputs, so that both questions have exact answers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

import nppsim
from nppsim.actions import ACTION_INPUT
from nppsim.batch import BatchSimulator
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.outcomes import DIED, NAMES, TIMEOUT, WON
from rl.judge.results import ALL, EpisodeRecord, ResultsError
from rl.policy.commander import COMMAND
from rl.policy.recurrent import MEMORY, blank

EPISODES = 8  # that are looked at, spread over all
MOST_SIGMAS = 6.0  # that sampled actions may be away from their probabilities
BEGINNING = 16  # decisions of the first episodes that are made a second time
FEW, MOST_ROUNDED = 2, 0.002  # of these, that may be others: so many, and this share
_COUNTED = {"wins": WON, "deaths": DIED, "timeouts": TIMEOUT}
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
) -> None:
    """Play some of the episodes again.

    policy: that they are credited to; None: nothing is asked of the decisions.
    planned: episodes that were to be played.
    deterministic: whether the likeliest actions were chosen.
    frame_skip, observations, stacking: as in the evaluation.
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
    if policy is not None:
        seen = {"frame_skip": frame_skip, "observations": observations, "stacking": stacking}
        _verify_decisions(deterministic, *_asked_again(chosen, policy, **seen))


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


def check_counts(episodes: Sequence[EpisodeRecord], stats: Mapping[str, Mapping[str, Any]]) -> None:
    """ResultsError unless these statistics are of these episodes, counted one by one.  stats: of ``aggregate``."""
    for category, told in stats.items():
        outcomes = [episode.outcome for episode in episodes if category in (episode.category, ALL)]
        counts: dict[str, float] = {key: outcomes.count(NAMES[number]) for key, number in _COUNTED.items()}
        counts |= {"episodes": len(outcomes), "success": counts["wins"] / max(len(outcomes), 1)}
        wrong = [key for key, count in counts.items() if abs(told[key] - count) > 1e-9]
        if wrong:
            raise ResultsError(
                f"{category}: {wrong[0]} is told as {told[wrong[0]]:g}, counted one by one it is {counts[wrong[0]]:g}: "
                "figures are of other episodes, or counted in another way; please report this"
            )


def _verify_decisions(deterministic: bool, log_probs: np.ndarray, actions: np.ndarray) -> None:
    if deterministic:
        same = float((log_probs.argmax(axis=1) == actions).mean())
        if same < ENOUGH_GREEDY:
            raise ResultsError(f"only {same:.0%} of the judged decisions are this policy's: another one was judged")
        return
    probs = np.exp(log_probs)
    taken = log_probs[np.arange(len(actions)), actions]
    expected = (probs * log_probs).sum(axis=1)
    spread = np.sqrt(np.maximum((probs * log_probs**2).sum(axis=1) - expected**2, 1e-12).sum())
    sigmas = abs(float((taken - expected).sum())) / spread
    if sigmas > MOST_SIGMAS:
        raise ResultsError(
            f"the judged decisions are {sigmas:.0f} standard deviations from what this policy would decide: another policy, "
            "other observations or another frame skip were judged; please report this"
        )


def _asked_again(episodes: Sequence[EpisodeRecord], policy: Network, **seen: Any) -> tuple[np.ndarray, np.ndarray]:
    """(log-probabilities float64[D, 6] of the policy, actions int64[D]) of all decisions of the episodes.

    seen: settings of the simulator.
    """
    played = [_actions_of(one, seen["frame_skip"]) for one in episodes]
    sim = BatchSimulator([one.level for one in episodes], len(episodes), **seen)
    obs = sim.reset(np.arange(len(episodes)))
    remembered = blank(policy, len(episodes))
    log_probs, actions = [], []
    for t in range(max(map(len, played))):
        active = [i for i, decisions in enumerate(played) if t < len(decisions)]
        with torch.no_grad():
            shown = {key: values[active] for key, values in obs.items()} | _commands(episodes, active, t)
            if remembered is None:
                logits = policy.logits_and_values(policy.to_tensors(shown))[0]
            else:
                logits, _, states = policy.step(policy.to_tensors({**shown, MEMORY: remembered[active]}))
                assert states is not None
                remembered[active] = states.cpu().numpy()
        log_probs.append(torch.log_softmax(logits.double(), dim=1).cpu().numpy())
        actions += [int(played[i][t]) for i in active]
        step = np.array([int(decisions[t]) if t < len(decisions) else 0 for decisions in played])
        obs = sim.step(step)
    return np.concatenate(log_probs), np.array(actions)


def _commands(episodes: Sequence[EpisodeRecord], active: list[int], t: int) -> dict[str, np.ndarray]:
    """The subtasks under which decision t was made in these episodes, as the policy observes them, if there were any."""
    recorded = [episodes[i].commands for i in active]
    told = [commands[t] for commands in recorded if commands is not None]
    return {COMMAND: np.stack(told)} if told else {}
