"""Agent for the studio: plays a checkpoint or an exported network and reports the network outputs of each decision."""

import copy
from collections.abc import Generator, Iterator, Sequence
from itertools import repeat, tee
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.actions import ACTION_INPUT
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level import Level
from nppsim.physics import outcomes
from nppsim.planner.search import PlanStart
from nppsim.replays.ending import ending_of
from nppsim.reward import TERMS
from nppsim.studio.agents import AgentError, Decision, EpisodeEnd
from rl.evaluation.suite import EvaluationSuite, RecordedPolicy
from rl.policy.backtracking import with_backtracking
from rl.policy.checkpoint import load_policy
from rl.policy.constants import HORIZON, PATIENCE
from rl.policy.inference import CompiledPolicy, compiled
from rl.policy.onnx import OnnxPolicy, is_onnx
from rl.policy.player import Player, player_of
from rl.policy.policy import NppPolicy
from rl.policy.subtasks import SUBTASKS
from rl.search.guided_search import GuidePolicy
from rl.search.live import MEASURED, LiveDecision, LivePlayer, load_kernels
from rl.studio.policy_file import facts, rewards_of

AgentPolicy = NppPolicy | CompiledPolicy | OnnxPolicy
BATCH_EPISODES = 64  # episodes per batch of ``evaluate``; closing the iterator takes effect at the end of a batch


class LoadedAgent:
    """An agent loaded from a file; see ``nppsim.studio.agents.StudioAgent``.

    Raises CheckpointError for an invalid checkpoint, ExportError for an invalid exported network.
    """

    def __init__(self, path: Path):
        self.name = path.stem
        self._policy: AgentPolicy
        config: dict = {}  # exported networks do not contain the training config
        if is_onnx(path):
            self._policy = OnnxPolicy.load(path)
            self.frame_skip: int = self._policy.metadata.frame_skip
            architecture = {"architecture": self._policy.metadata.architecture, "computed by": "onnxruntime"}
        else:
            policy, fields = load_policy(path)
            self.frame_skip, config = fields["frame_skip"], fields["config"]
            size = sum(parameter.numel() for parameter in policy.parameters())
            architecture = {"architecture": policy.architecture, "parameters": f"{size:,}"}
            self._policy = compiled(policy)
        self.observations = self._policy.observations
        self._reward, self._gamma, rewards = rewards_of(config)
        self.facts = facts(path, architecture, self.observations, self.frame_skip, rewards)

    def play(
        self,
        level: Level,
        *,
        seed: int = 0,
        deterministic: bool = False,
        start: PlanStart | None = None,
        live: str = "",
    ) -> Generator[Decision, None, None]:
        """Play one episode; see ``StudioAgent``."""
        policy, latest = _recorded(self._policy)
        sim = self._simulator(level, policy)
        horizon = HORIZON
        timeline: Iterator[tuple[int | None, bool | None, int | None]] = repeat((None, None, None))
        if live:
            actions, timeline = tee(self._play_live(level, seed, live))
            player, horizon = Player(RecordedPolicy((recorded.action for recorded in actions), policy)), 0
        else:
            player = with_backtracking(player_of(policy, 1, PATIENCE), sim, horizon)
        rng = torch.Generator().manual_seed(seed)
        first_env, before, frames_before = np.zeros(1, np.int64), np.zeros(len(TERMS)), 0
        pending: list[Decision] = []  # decisions that may be taken back
        obs = sim.reset()
        if start is not None:
            start.put(sim, 0)
            obs, frames_before = sim.observe(first_env), int(start.ninja["frame"])
            sim.forget_frames(first_env)
        over, backtracks = False, 0
        while not over:
            seen = {key: sim.latest[key][0].copy() for key in policy.observations}
            action = player.act(obs, first_env, deterministic=deterministic, rng=rng)
            note, (_, thinks, ahead) = _note(player), next(timeline)
            logged = torch.log_softmax(latest["logits"], dim=0)
            obs = sim.step(action)
            backtracked = player.backtrack(rng)
            backtracks += len(backtracked)
            over = bool(sim.finished.size) and not backtracked
            terms = (sim.episode["terms"] if over else sim.state.terms)[0].copy()
            frames = int((sim.episode["frames"] if over else sim.state.ninja["frame"])[0])
            decision = Decision(
                seen=seen,
                probabilities=logged.exp().float().numpy(),
                value=float(latest["value"]),
                entropy=float(-(logged.exp() * logged).sum()),
                action=int(action[0]),
                inputs=np.full(max(frames - frames_before, 0), ACTION_INPUT[action[0]], np.uint8),
                terms=dict(zip(TERMS, (terms - before).tolist(), strict=True)),
                outcome=outcomes.NAMES[sim.episode["outcome"][0]] if over else None,
                note=note,
                backtracks=backtracks,
                thinks=thinks,
                ahead=ahead,
            )
            pending = [*pending, decision][: len(pending) + 1 - backtracked.get(0, 0)]  # maybe without this one, too
            before, frames_before = terms, frames
            while pending and (over or len(pending) > horizon):
                yield pending.pop(0)

    def _simulator(self, level: Level, policy: AgentPolicy) -> BatchSimulator:
        """Return an environment on a level for a copy of the policy."""
        return BatchSimulator(
            LevelBank([level], least_time=GAME_TIME),
            1,
            frame_skip=self.frame_skip,
            observations=policy.observations,
            reward=self._reward.weights,
            gamma=self._gamma,
            threads=1,
            profile=False,
            shadow=False,
            stacking=policy.stacking,
            foresight=policy.foresight,
        )

    def _play_live(self, level: Level, seed: int, clock: str) -> Iterator[LiveDecision]:
        """Play an episode live.  Raises AgentError for exported networks and recurrent policies."""
        policy = copy.deepcopy(self._policy)
        if isinstance(policy, OnnxPolicy) or (isinstance(policy, NppPolicy) and policy.memory is not None):
            raise AgentError(f"{self.name} cannot play live; give a checkpoint without GRU")
        guide = GuidePolicy(policy, self.frame_skip)
        if clock == MEASURED:
            load_kernels(guide)
        player = LivePlayer(level, guide, seed, clock)
        return player.decisions_in_time() if clock == MEASURED else player.decisions()

    def evaluate(
        self, levels: Sequence[Level], episodes: int, *, seed: int = 0, deterministic: bool = False
    ) -> Generator[EpisodeEnd, None, None]:
        """Play episodes on each level; see ``StudioAgent``.  Equal arguments give equal results."""
        policy = copy.deepcopy(self._policy)
        width, number = max(BATCH_EPISODES // episodes, 1), 0
        for first in range(0, len(levels), width):
            group = levels[first : first + width]
            for begun in range(0, episodes, BATCH_EPISODES):
                suite = EvaluationSuite(
                    [(level, "") for level in group],
                    episodes_per_category=None,
                    episodes_per_level=min(episodes - begun, BATCH_EPISODES),
                    seed=seed + number,
                    frame_skip=self.frame_skip,
                    num_envs=BATCH_EPISODES,
                    threads=1,
                    horizon=0,
                )
                number += 1
                for episode in suite.run(policy, deterministic=deterministic):
                    ending = ending_of(episode.level, episode.inputs)
                    yield EpisodeEnd(
                        first + episode.level_index, episode.outcome, episode.frames, *ending.place, share=ending.share
                    )


def _recorded(policy: AgentPolicy) -> tuple[AgentPolicy, dict[str, torch.Tensor]]:
    """Return an independent copy of a policy, and the outputs of its network for the latest decision.

    The outputs are "logits" float64[6] and "value" float64[].
    """
    own = copy.deepcopy(policy)
    latest: dict[str, torch.Tensor] = {}
    name = "step" if isinstance(own, NppPolicy) else "compute"
    compute = getattr(own, name)

    def recorded(*inputs: Any) -> tuple[Any, ...]:
        outputs: tuple[Any, ...] = compute(*inputs)
        for key, rows in zip(("logits", "value"), outputs, strict=False):
            latest[key] = torch.as_tensor(rows[0]).double()
        return outputs

    vars(own)[name] = recorded
    return own, latest


def _note(player: Player) -> str:
    """Return the name of the active subtask, or "" for a policy without subtasks."""
    return "" if player.subtasks is None else SUBTASKS[player.subtasks[0, 0]].replace("_", " ")
