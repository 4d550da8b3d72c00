"""Whether the curriculum learns from what was played: each update of a strategy is made a second time, by a copy of it.

    again = LearnedAgain(ppo, start)    # after the rollout, before the update
    again.faults(ppo)                   # after it

The copy is told which episodes ended, which go on and what each decision was worth, as the rollout itself says; then it draws
with the run's own random numbers.  Weights and levels drawn must be those of training.
"""

import copy
from collections.abc import Iterator

import numpy as np

from nppsim.outcomes import WON
from rl.curriculum.strategy import Outcomes
from rl.ppo.audit import Fault, Start, numbers
from rl.ppo.ppo import BatchPPO
from rl.ppo.written import differences


class LearnedAgain:
    """The strategy as it was before an update, and what it has to learn from.

    start: how things stood before the rollout.
    """

    def __init__(self, ppo: BatchPPO, start: Start):
        sampler, all_gather = ppo.sampler, ppo.ranks.all_gather_rows
        strategy = sampler.strategy
        self.strategy = copy.deepcopy(strategy, {id(one): one for one in (strategy.levels, strategy.config)})
        ends = numbers(ppo, "episode_ends")
        env = np.argwhere(ends)[:, 1]
        first = np.zeros(len(env), bool)
        first[np.unique(env, return_index=True)[1]] = True
        began = np.where(first, start.began[env], sampler.updates)
        running_began = np.where(ends.any(axis=0), sampler.updates, start.began)
        true, goes_on = np.ones(len(env), bool), np.ones(ends.shape[1], bool)
        if sampler.starts:
            true, goes_on = ppo.counts, sampler.starts.began == 0
        decided = advantages = np.empty(0)
        if sampler.wants_advantages:
            decided = all_gather(ppo._decided if sampler.starts else levels_of(ppo)).ravel().astype(np.int64)
            advantages = all_gather(numbers(ppo, "advantages").astype(np.float32)).ravel()
            decided, advantages = decided[decided >= 0], advantages[decided >= 0]
        self.outcomes = Outcomes(
            ppo.counted["level"].astype(np.int64),
            ppo.counted["outcome"] == WON,
            ppo.counted["ret"].astype(np.float64),
            all_gather(began[true]),
            all_gather(ppo.sim.level[goes_on].astype(np.int64)),
            all_gather(running_began[goes_on]),
            decided,
            advantages,
        )

    def faults(self, ppo: BatchPPO) -> Iterator[Fault]:
        """Where training has come to other weights, or to other draws."""
        self.strategy.update(self.outcomes)
        wanted, found = self.strategy.probabilities(), ppo.sampler.probabilities()
        off = np.abs(wanted - found)
        if not off.max() <= 1e-9:
            worst = int(off.argmax())
            yield Fault(
                "curriculum",
                f"level {worst} is drawn with {found[worst]:.4%} after the update; by the episodes that were played it is "
                f"{wanted[worst]:.4%}: the curriculum learns from others, twice or not at all",
            )
        elif others := list(differences(ppo.sampler.strategy.state_dict(), self.strategy.state_dict())):
            yield Fault(
                "curriculum",
                f"after the update, {others[0]} of the curriculum is not what follows from the episodes that were played and "
                "from those that go on: it learns from others, twice or not at all",
            )
        elif not np.array_equal(self.strategy.draw(ppo.sim.num_envs), ppo.sim.next_level):
            yield Fault(
                "levels drawn",
                "the levels that wait are not those that the run's own random numbers draw: seed and checkpoint do not "
                "decide what is played",
            )


def levels_of(ppo: BatchPPO) -> np.ndarray:
    """int32[T, N]: the level of each decision, from the records of the episodes that ended and from what is played now."""
    ends = numbers(ppo, "episode_ends")
    found, now = np.empty(ends.shape, np.int32), ppo.sim.level.astype(np.int32)
    records = len(ppo.ended)
    for t in range(len(ends) - 1, -1, -1):
        count = int(ends[t].sum())
        now[ends[t]] = ppo.ended["level"][records - count : records]
        records -= count
        found[t] = now
    return found
