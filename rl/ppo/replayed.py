"""The rollout of some environments, played a second time: all that it holds must be what the simulator gives.

    replay = Replay(ppo, turn)      # before the rollout
    replay.faults(ppo)              # after it

Nothing an environment does depends on the others of its batch, and a row of bytes is its whole state: so this is exact, and
what a rollout has added to the rewards can only be the value of what was cut off.  With start states, an environment is
compared up to its first end.
"""

from collections.abc import Iterator

import numpy as np
import torch

from bc.agreement import CLOSE, closeness
from nppsim.batch import BatchSimulator
from nppsim.outcomes import WON
from rl.policy.commander import COMMAND, NO_SUBTASK
from rl.policy.recurrent import FOLLOWS, MEMORY
from rl.ppo.audit import Fault, settings_of_stage
from rl.ppo.ppo import BatchPPO
from rl.ppo.recurrent_audit import by_formula

ENVS = 16  # that are played again, others each time


class Replay:
    """Some environments as they stood before a rollout.

    turn: which ones; as it counts up, all have their turn.
    """

    def __init__(self, ppo: BatchPPO, turn: int):
        count = ppo.sim.num_envs
        chosen = min(ENVS, count)
        self.envs = np.sort((turn + np.arange(chosen) * (count // chosen)) % count)
        self.states = ppo.sim.snapshot(self.envs)

    def faults(self, ppo: BatchPPO) -> Iterator[Fault]:
        """Where the rollout is not what these environments do with its actions; the first such decision is named."""
        sim, buffer = ppo.sim.sibling(len(self.envs), ppo.sim.keys), ppo.rollout_buffer
        following = np.maximum(np.vstack([ppo._decided[1:], ppo.sim.level[None]])[:, self.envs], 0)
        compared = np.ones(len(self.envs), bool)
        actions = buffer.actions.cpu().numpy()[:, self.envs]
        cut_off: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        sim.restore(slice(0, len(self.envs)), self.states)
        sim.observe()
        for t in range(buffer.shape[0]):
            shown = buffer.observations(torch.from_numpy(t * ppo.sim.num_envs + self.envs).to(ppo.device))
            other = [
                key
                for key, values in shown.items()
                if key in sim.obs and values.cpu().numpy()[compared].tobytes() != sim.obs[key][compared].tobytes()
            ]
            if other:
                yield self._fault("observations", f"{', '.join(other)} before decision {t} are others")
                return
            sim.next_level[:] = following[t]
            sim.step(actions[t])
            yield from self._outcome(ppo, sim, t, compared)
            timeout = sim.truncated & compared
            if timeout.any():
                added = buffer.rewards[t].cpu().numpy()[self.envs] - sim.rewards
                seen = sim.final_obs | self._carried(ppo, t)
                cut_off.append((added[timeout], {key: seen[key][timeout] for key in buffer.obs}))
            if ppo.sampler.starts:  # what begins now may begin elsewhere than its level
                compared[sim.finished] = False
        mine, theirs = sim.snapshot(slice(0, len(self.envs))), ppo.sim.snapshot(self.envs)
        if not np.array_equal(mine[compared], theirs[compared]):
            yield self._fault("environment", "after the last decision the environments are in other states")
        if cut_off:
            yield from self._values(ppo, cut_off)

    @torch.no_grad()
    def _carried(self, ppo: BatchPPO, t: int) -> dict[str, np.ndarray]:
        """What goes on beyond the end of an episode beside what is seen: the subtask, and what is remembered."""
        buffer, found = ppo.rollout_buffer, {}
        if COMMAND in buffer.obs:
            command = buffer.obs[COMMAND][t].cpu().numpy()[self.envs].copy()
            command[:, 1] += command[:, 0] != NO_SUBTASK
            found[COMMAND] = command
        if MEMORY in buffer.obs:
            assert ppo.policy.memory is not None
            rows = torch.from_numpy(t * ppo.sim.num_envs + self.envs).to(ppo.device)
            shown = {key: values for key, values in buffer.observations(rows).items() if key != FOLLOWS}
            before = buffer.obs[MEMORY][t].double().cpu().numpy()[self.envs]
            after = by_formula(ppo.policy.memory, ppo.policy.features(shown).double(), before)
            found[MEMORY] = after.astype(np.float32)
        return found

    def _outcome(self, ppo: BatchPPO, sim: BatchSimulator, t: int, compared: np.ndarray) -> Iterator[Fault]:
        """Reward and end of decision t; what time cut off is left to ``_values``."""
        buffer = ppo.rollout_buffer
        paid, ends, wins = (
            getattr(buffer, name)[t].cpu().numpy()[self.envs] for name in ("rewards", "episode_ends", "wins")
        )
        wrong = np.flatnonzero((paid != sim.rewards) & ~sim.truncated & compared)
        if len(wrong):
            told = f"the reward of decision {t} in environment {self.envs[wrong[0]]} is {paid[wrong[0]]:.6g}, the "
            yield self._fault("rewards", f"{told}simulator gives {sim.rewards[wrong[0]]:.6g}")
        won = sim.terminated & (sim.episode["outcome"] == WON)
        other = (ends != (sim.terminated | sim.truncated)) | (wins != won)
        if (other & compared).any():
            yield self._fault("episodes", f"ends or wins of decision {t} are others")

    def _values(self, ppo: BatchPPO, cut_off: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> Iterator[Fault]:
        """Where time ran out, gamma times the value of the last observation was added, and nothing else."""
        added = np.concatenate([some for some, _ in cut_off])
        obs = {key: np.concatenate([seen[key] for _, seen in cut_off]) for key in cut_off[0][1]}
        with torch.no_grad():
            values = ppo.policy.logits_and_values(ppo.policy.to_tensors(obs))[1].cpu().numpy()
        wanted = settings_of_stage(ppo).gamma * values
        limit = closeness(ppo.policy, 0.1 * CLOSE)
        off = np.abs(added - wanted)
        if not (off <= limit * (1 + np.abs(wanted))).all():
            worst = int(off.argmax())
            yield self._fault(
                "time-outs",
                f"at a time-out {added[worst]:.4g} was added to the reward, the value of the last observation times gamma is "
                f"{wanted[worst]:.4g}",
            )

    def _fault(self, name: str, text: str) -> Fault:
        return Fault(name, f"{len(self.envs)} environments were played again with the rollout's actions: {text}")
