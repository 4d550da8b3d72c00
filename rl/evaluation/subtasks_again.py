"""Proof that subtasks of judged episodes were chosen by the policy's high level, and ended by the rules.

again = SubtasksAgain(policy, episodes)
again.look(obs, active, t)          # of each decision, in turn
again.check(deterministic=False)
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rl.evaluation.likelihood import MOST_SIGMAS, sigmas_off
from rl.evaluation.results import EpisodeRecord, ResultsError
from rl.policy.commands import done, facts
from rl.policy.policy import NppPolicy

FEW, ENOUGH_GREEDY = 2, 0.95  # greedy choices that may be others, and share that must be the same, if they are many
_REPORT = "please report this"


class SubtasksAgain:
    """Follows the subtasks of episodes that are played again.

    policy: with a high level.
    episodes: whose ``commands`` are followed.
    """

    def __init__(self, policy: NppPolicy, episodes: Sequence[EpisodeRecord]):
        assert policy.commander is not None
        self.policy, self.episodes, self.longest = policy, episodes, policy.commander.longest
        self._begun: list[np.ndarray | None] = [None] * len(episodes)  # facts when the subtask in force was given
        self._log_probs: list[np.ndarray] = []
        self._chosen: list[int] = []

    @torch.no_grad()
    def look(self, obs: Mapping[str, np.ndarray], active: Sequence[int], t: int) -> None:
        """ResultsError unless subtasks of decision t are as old as they can be, and new where those before were over.

        obs: raw observations of all episodes, [N, ...].
        active: the episodes that go on.
        """
        now, new = facts(obs), []
        for i in active:
            commands, begun = self.episodes[i].commands, self._begun[i]
            if commands is None:
                raise ResultsError(f"an episode on {self.episodes[i].level_name} has no subtasks: {_REPORT}")
            subtask, age = commands[t].tolist()
            over = begun is None
            if begun is not None:
                before, old = commands[t - 1].tolist()
                over = bool(done(np.array([before]), begun, now[i : i + 1])[0]) or old + 1 >= self.longest
            if (age == 0) != over or (not over and (subtask, age) != (before, old + 1)):
                raise ResultsError(
                    f"an episode on {self.episodes[i].level_name} has subtask {subtask}, {age} decisions old, before "
                    f"decision {t}, where by the rules {'a new one begins' if over else f'{before} goes on'}: subtasks "
                    f"outlive their episodes, or end too late or too soon; {_REPORT}"
                )
            if over:
                self._begun[i] = now[i : i + 1].copy()
                new.append(i)
        if new:
            shown = self.policy.to_tensors({key: values[new] for key, values in obs.items()})
            logits = self.policy.choose_subtasks(shown)[0].double()
            self._log_probs.append(torch.log_softmax(logits, dim=1).cpu().numpy())
            self._chosen += [int(commands[t, 0]) for i in new if (commands := self.episodes[i].commands) is not None]

    def check(self, deterministic: bool) -> None:
        """ResultsError unless the high level would choose so, by what it finds likely."""
        log_probs, chosen = np.concatenate(self._log_probs), np.array(self._chosen)
        if deterministic:
            others = int((log_probs.argmax(axis=1) != chosen).sum())
            sound = others <= max(FEW, (1 - ENOUGH_GREEDY) * len(chosen))
        else:
            sound = sigmas_off(log_probs, chosen) <= MOST_SIGMAS
        if not sound:
            raise ResultsError(
                f"the {len(chosen)} subtasks of judged episodes are not those that the policy's high level would choose: "
                f"somebody else chose them; {_REPORT}"
            )
