"""Lessons: a policy plays, and learns to act as a teacher would have acted in every state that it comes to.

    lessons = Lessons(pupil, teacher, env, settings, rollout_length=64, team=Team(2), seed=0)
    while lessons.progress < 1:
        figures = lessons.give()

The pupil chooses the actions, so the states are those that its own mistakes lead to (DAgger, Ross et al. 2011); it moves
towards the teacher's whole distribution, not only its likeliest action (policy distillation, Rusu et al. 2016).  The teacher
may see more than the pupil ever will, e.g. what the simulator says of each action (learning by cheating, Chen et al. 2019).
Nothing here touches the values: PPO's critic learns them afterwards, before the actor moves.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces

from hardware.team import Team, summed_gradients
from nppsim.actions import NUM_ACTIONS
from nppsim.outcomes import WON
from nppsim.spaces import observation_space
from rl.curriculum.statistics import as_json
from rl.policy.policy import MOST_STEPS, NppPolicy, sample_actions
from rl.ppo.lessons_audit import LearningAgain, TeacherError, check_decisions
from rl.ppo.losses import divergence
from rl.ppo.rollout import TensorRolloutBuffer
from rl.ppo.vec_env import BatchVecEnv
from rl.teacher_config import MAX_GRAD_NORM, TeacherConfig

LOWEST_RATE = 0.1  # of the learning rate, at the end
AUDIT_EVERY = 32  # lessons, of which a few decisions are worked out anew
AUDITED = 4  # environments
_REMEDY = "look at both with scripts/doctor.py --checkpoint, or lower --teacher-learning-rate"
SAME = 0.01  # nats; rounding parts two answers of a teacher by less


@dataclass(frozen=True)
class Figures:
    """One lesson in numbers.

    divergence: of the pupil from the teacher, nats, while it played.
    agreement: share of decisions on which the likeliest actions of both are the same.
    episodes, wins: of the pupil, that ended.
    decisions_per_s: learning included.
    """

    divergence: float
    agreement: float
    episodes: int
    wins: int
    decisions_per_s: float


class Lessons:
    """Lessons for one pupil; between two of them ``state`` is all that is needed to go on, bit for bit on a CPU.

    pupil: learns.
    teacher: is asked; of stacks of frames it is shown the newest.
    env: shows what both read; its levels are drawn by its sampler.
    rollout_length: decisions of each environment in a lesson.
    decisions, lessons: given so far.
    """

    def __init__(
        self,
        pupil: NppPolicy,
        teacher: NppPolicy,
        env: BatchVecEnv,
        settings: TeacherConfig,
        *,
        rollout_length: int,
        team: Team,
        seed: int,
    ):
        self.pupil, self.teacher, self.env, self.settings, self.team = pupil, teacher, env, settings, team
        self.decisions = self.lessons = 0
        self.rng, self.sampling = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self._before, self._began = 0.0, time.monotonic()
        self._moving = [parameter for parameter in pupil.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.Adam(self._moving, lr=settings.learning_rate, fused=True)
        self._buffer = TensorRolloutBuffer(
            rollout_length,
            observation_space(pupil.observations, pupil.stacking),
            spaces.Discrete(NUM_ACTIONS),
            device=pupil.device,
            n_envs=env.num_envs,
            stacking=pupil.stacking,
        )
        env.reset()

    @property
    def seconds(self) -> float:
        """Spent so far, interruptions left out."""
        return self._before + time.monotonic() - self._began

    @property
    def progress(self) -> float:
        """0 at the start, 1 at the end: by decisions or by the clock, whichever is further on."""
        done = self.decisions / self.settings.decisions
        if self.settings.minutes is not None:
            done = max(done, self.seconds / (60 * self.settings.minutes))
        return min(done, 1.0)

    @property
    def _steps(self) -> int:
        """Steps of gradient descent so far."""
        return max((int(state["step"]) for state in self._optimizer.state.values()), default=0)

    def give(self) -> Figures:
        """Play a lesson and learn from it; TeacherError where nothing that is finite can be learned."""
        begin, rate = time.perf_counter(), self.settings.learning_rate * max(LOWEST_RATE, 1 - self.progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        episodes, away, agreement = self._play()
        before = self._steps
        self._learn()
        size = min(self.settings.minibatch_size, len(self._buffer))
        meant = self.settings.epochs * (len(self._buffer) // size)
        if before + meant < MOST_STEPS and self._steps - before != meant:
            raise TeacherError(
                f"lesson {self.lessons + 1}: {self._steps - before} steps were made, {meant} were meant; please report this"
            )
        self.decisions += len(self._buffer)
        self.lessons += 1
        wins = int((episodes["outcome"] == WON).sum())
        return Figures(away, agreement, len(episodes), wins, len(self._buffer) / (time.perf_counter() - begin))

    def state(self) -> dict[str, Any]:
        """For ``load``, beside the pupil's weights."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "decisions": self.decisions,
            "lessons": self.lessons,
            "environments": self.env.state(),
            "curriculum": as_json(self.env.sampler.state_dict()),
            "shuffling": json.dumps(self.rng.bit_generator.state),
            "sampling": self.sampling.get_state(),
            "seconds": self.seconds,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken; the pupil has its weights of then."""
        self._optimizer.load_state_dict(state["optimizer"])
        self.decisions, self.lessons = state["decisions"], state["lessons"]
        self.env.load(state["environments"])
        self.env.sampler.load_state_dict(json.loads(state["curriculum"]))
        self.rng.bit_generator.state = json.loads(state["shuffling"])
        self.sampling.set_state(state["sampling"])
        self._before, self._began = state["seconds"], time.monotonic()

    def _play(self) -> tuple[np.ndarray, float, float]:
        """Records of the episodes that ended, divergence and agreement; the buffer has what was seen, and what was told."""
        sim, sampler, buffer = self.env.sim, self.env.sampler, self._buffer
        self.pupil.set_training_mode(False)
        self.pupil.forget()
        episodes, away, agreed = [np.empty(0, sim.episode.dtype)], 0.0, 0.0
        audited = buffer.shape[0] // 2 if self.lessons % AUDIT_EVERY == 0 else -1
        buffer.begin(sim.obs)
        for t in range(buffer.shape[0]):
            if t:
                buffer.note_ages(t)
            if t == audited:
                states = sim.snapshot(slice(0, AUDITED))
            logits = self._decide(t)
            told = buffer.log_probs[t].cpu()
            away += float(divergence(told, F.log_softmax(logits, dim=1)).mean())
            agreed += float((logits.argmax(dim=1) == told.argmax(dim=1)).float().mean())
            actions = sample_actions(logits, self.sampling).numpy()
            buffer.actions[t] = torch.from_numpy(actions).to(buffer.device)
            sampler.watch(sim, actions)
            sim.step(actions)
            buffer.episode_ends[t].copy_(torch.from_numpy(sim.terminated | sim.truncated))
            if sim.finished.size:
                episodes.append(sampler.next_episodes(sim))
        sampler.update(sim)
        if not math.isfinite(away):
            raise TeacherError(f"lesson {self.lessons + 1}: the divergence from the teacher is {away}; {_REMEDY}")
        if audited >= 0:
            self._audit(audited, states)
            check_decisions(self.pupil, buffer, away / buffer.shape[0], f"lesson {self.lessons + 1}")
        return np.concatenate(episodes), away / buffer.shape[0], agreed / buffer.shape[0]

    def _decide(self, t: int) -> torch.Tensor:
        """The pupil's logits float32[N, 6] for what it sees now; row t of the buffer keeps that and the teacher's answer."""
        buffer, seen = self._buffer, self.env.sim.obs
        shown = newest(seen, self.pupil, self.teacher)
        self.pupil.remember(self.pupil.to_tensors({key: seen[key] for key in self.pupil.observations}))

        @torch.no_grad()
        def part(rows: slice) -> torch.Tensor:
            logits = self.pupil.logits_and_values(buffer.observe(t, rows, seen))[0]
            asked = self.teacher.to_tensors({key: values[rows] for key, values in shown.items()})
            buffer.log_probs[t, rows] = F.log_softmax(self.teacher.logits_and_values(asked)[0].float(), dim=1)
            return logits.float().cpu()

        return torch.cat(self.team.share(self.env.num_envs, part))

    @torch.no_grad()
    def _audit(self, t: int, states: np.ndarray) -> None:
        """TeacherError unless row t of the buffer is what these states show, and what the teacher says of that.

        states: uint8[k, B], snapshots of the first environments before decision t.
        """
        sim = self.env.sim.sibling(len(states), tuple(self.env.sim.keys))
        sim.restore(slice(None), states)
        seen = sim.observe()
        kept = self._buffer.observations(t * self.env.num_envs + torch.arange(len(states), device=self._buffer.device))
        answers = self.teacher.logits_and_values(self.teacher.to_tensors(newest(seen, self.pupil, self.teacher)))[0]
        off = divergence(F.log_softmax(answers.float(), dim=1), self._buffer.log_probs[t, : len(states)]).abs().max()
        other = [key for key, values in kept.items() if not np.array_equal(values.cpu().numpy(), seen[key])]
        if other or not off < SAME:
            raise TeacherError(
                f"lesson {self.lessons + 1}: decision {t}, worked out anew: {', '.join(other) or 'no observation'} differs, "
                f"and the teacher's answers by {float(off):.3f} nats: the pupil is told about other states than it is in; "
                "please report this"
            )

    def _learn(self) -> None:
        """Move towards what the teacher said."""
        buffer, told = self._buffer, self._buffer.flat("log_probs")
        self.pupil.set_training_mode(True)
        size = min(self.settings.minibatch_size, len(buffer))
        again = LearningAgain(self) if self.lessons % AUDIT_EVERY == 0 else None
        for _ in range(self.settings.epochs):
            for index in buffer.minibatches(size, self.rng):
                if again:
                    again.before_step(index)

                def loss(rows: slice, of: torch.Tensor = index) -> tuple[torch.Tensor, torch.Tensor]:
                    mine = of[rows]
                    logits = self.pupil.logits_and_values(buffer.observations(mine))[0].float()
                    away = divergence(told[mine], F.log_softmax(logits, dim=1)).mean()
                    return away, away.detach()

                away, gradients = summed_gradients(self.team, len(index), loss, self._moving)
                self._step(float(away), gradients)
                if again:
                    again.after_step()
        if again:
            again.end(size)

    def _step(self, away: float, gradients: list[torch.Tensor | None]) -> None:
        known = [gradient for gradient in gradients if gradient is not None]
        if not known or not math.isfinite(away):
            raise TeacherError(
                f"lesson {self.lessons + 1}: the divergence from the teacher is {away}, {len(known)} tensors have gradients; "
                f"{_REMEDY}"
            )
        for parameter, gradient in zip(self._moving, gradients, strict=True):
            parameter.grad = gradient
        norm = float(torch.nn.utils.clip_grad_norm_(self._moving, MAX_GRAD_NORM))
        if not math.isfinite(norm):
            raise TeacherError(f"lesson {self.lessons + 1}: the gradients are not finite; {_REMEDY}")
        self._optimizer.step()


def newest(seen: Mapping[str, np.ndarray], pupil: NppPolicy, teacher: NppPolicy) -> dict[str, np.ndarray]:
    """What a teacher without stacks reads of what is seen, [N, *shape]: of the pupil's stacks, the newest frame."""
    return {key: seen[key][:, -1] if pupil.stacking.frames(key) > 1 else seen[key] for key in teacher.observations}


def as_tags(figures: Figures) -> dict[str, float]:
    """For TensorBoard; success is left out of a lesson in which no episode ended."""
    found = asdict(figures)
    episodes, wins = found.pop("episodes"), found.pop("wins")
    return found | ({"success": wins / episodes} if episodes else {})
