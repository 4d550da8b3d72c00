"""Play with a learner that nobody needs any more: what follows from ends, time-outs and draws of levels."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from nppsim.outcomes import WON
from rl.doctor.checks_environment import twin
from rl.doctor.doctor import REHEARSAL, CheckSkipped, check, require
from rl.ppo.ppo import BatchPPO

_PROGRAM = "this is a mistake in the program, not in your settings: please report it"
LONGEST = 2000  # decisions that are waited for a time-out


class Patient(BaseCallback):
    """Wants nothing."""

    def _on_step(self) -> bool:
        return True


def roll_out(ppo: BatchPPO, decisions: int) -> None:
    """Play so many decisions into the first rows of the buffer."""
    callback = Patient()
    callback.init_callback(ppo)
    length, ppo.n_steps = ppo.n_steps, decisions
    try:
        assert ppo.env is not None
        ppo.collect_rollouts(ppo.env, callback, ppo.rollout_buffer, decisions)  # type: ignore[arg-type]  # as SB3 calls it
    finally:
        ppo.n_steps = length


@contextlib.contextmanager
def instead(owner: object, name: str, method: Callable) -> Iterator[None]:
    """Calls of a method of one object reach another one meanwhile."""
    setattr(owner, name, method)
    try:
        yield
    finally:
        delattr(owner, name)


@check(REHEARSAL)
def a_level_that_is_drawn_is_played_and_credited(ppo: BatchPPO) -> str:
    """Every episode is played on the level that the curriculum drew, from that level's start, and counted once, for it."""
    sim, sampler = ppo.sim, ppo.sampler
    playing = sim.level.copy()
    drawn: list[np.ndarray] = []
    credited: list[tuple[int, bool]] = []
    draw, record = sampler.draw, sampler.record

    def watched_draw(n: int) -> np.ndarray:
        drawn.append(draw(n))
        return drawn[-1]

    def watched_record(levels: np.ndarray, wins: np.ndarray, *rest: np.ndarray) -> None:
        ended, counted = np.asarray(levels).tolist(), sim.finished[sampler.true_starts]
        require(ended == playing[counted].tolist(), f"levels {ended} get credit that were not played", _PROGRAM)
        wanted = (sim.episode["outcome"][counted] == WON).tolist()
        require(np.asarray(wins).tolist() == wanted, "wins are credited to others", _PROGRAM)
        credited.extend(zip(ended, wanted, strict=True))
        playing[sim.finished] = sim.next_level[sim.finished]
        record(levels, wins, *rest)

    step = sim.step

    def watched_step(actions: np.ndarray) -> Mapping[str, np.ndarray]:
        obs = step(actions)
        now = sim.level[sim.finished]
        require(now.tolist() == sim.next_level[sim.finished].tolist(), "another level begins than was drawn", _PROGRAM)
        return obs

    before = sampler.episodes.sum()
    with (
        instead(sampler, "draw", watched_draw),
        instead(sampler, "record", watched_record),
        instead(sim, "step", watched_step),
    ):
        for _ in range(8):
            roll_out(ppo, ppo.rollout_buffer.shape[0])
    counted = sampler.episodes.sum() - before
    require(counted == len(credited), f"{len(credited)} episodes ended, {counted} were counted", _PROGRAM)
    require(bool((sim.level == playing).all()), "environments play other levels than were drawn", _PROGRAM)
    if not credited:
        raise CheckSkipped("no episode ended in 8 rollouts")
    return f"{len(credited)} episodes on {len({level for level, _ in credited})} levels"


@check(REHEARSAL)
def a_time_out_is_worth_what_comes_after(ppo: BatchPPO) -> str:
    """Where time runs out, the reward includes gamma times the value of the last state; where the game ends, nothing."""
    sim = ppo.sim
    waiting = twin(sim, sim.bank, sim.num_envs)
    everybody, still = np.arange(sim.num_envs), np.zeros(sim.num_envs, np.int64)
    shortest = np.argsort(sim.bank.time_limit, kind="stable")[: sim.num_envs]
    waiting.reset(np.resize(shortest, sim.num_envs))
    states = waiting.snapshot(everybody)
    for _ in range(LONGEST):
        states = waiting.snapshot(everybody)
        waiting.step(still)
        if waiting.truncated.any():
            break
    else:
        raise CheckSkipped(f"doing nothing ends none of {len(shortest)} levels by time within {LONGEST} decisions")
    state = states[int(np.argmax(waiting.truncated))]
    for each in (sim, waiting):
        each.restore(everybody, np.repeat(state[None], sim.num_envs, axis=0))
        each.observe()
    ppo.sampler.adopt(sim)
    roll_out(ppo, 1)
    buffer = ppo.rollout_buffer
    waiting.step(buffer.actions[0].cpu().numpy())
    cut_off = waiting.truncated.copy()
    require(bool(cut_off.any()), "no episode was cut off at its time limit", _PROGRAM)
    with torch.no_grad():
        last = ppo.last_seen(waiting.final_obs, 0)
        values = ppo.policy.logits_and_values(ppo.policy.to_tensors(last))[1].cpu().numpy()
    wanted = waiting.rewards + np.where(cut_off, ppo.gamma * values, 0)
    gap = float(np.abs(buffer.rewards[0].cpu().numpy() - wanted).max())
    require(
        gap < 1e-2 * max(1, float(np.abs(values).max())), f"rewards at time-outs are off by up to {gap:.3g}", _PROGRAM
    )
    ends = buffer.episode_ends[0].cpu().numpy()
    require(
        bool((ends == (cut_off | waiting.terminated)).all()), "ends of episodes are not those of the game", _PROGRAM
    )
    return f"{int(cut_off.sum())} time-outs, values {values[cut_off].mean():+.2f}, off by {gap:.0e}"


@check(REHEARSAL)
def the_same_seed_plays_the_same(ppo: BatchPPO) -> str:
    """From the same states, with the same random numbers, the learner's rollout is the same, bit for bit."""
    sim, buffer = ppo.sim, ppo.rollout_buffer
    everybody = np.arange(sim.num_envs)
    states, drawn = (
        sim.snapshot(everybody),
        (ppo.sampling.get_state(), ppo.sampler.state_dict(), sim.next_level.copy()),
    )
    found, own = [], ppo.own_state()
    for _ in range(2):
        sim.restore(everybody, states)
        sim.observe()
        ppo.load_own_state(own)
        ppo.sampling.set_state(drawn[0])
        ppo.sampler.load_state_dict(drawn[1])
        sim.next_level[:] = drawn[2]
        roll_out(ppo, buffer.shape[0])
        found.append({name: buffer.flat(name).clone() for name in ("actions", "rewards", "values", "advantages")})
    different = [name for name in found[0] if not torch.equal(found[0][name], found[1][name])]
    require(not different, f"{', '.join(different)} differ between two plays", "look for random numbers without a seed")
    return f"{len(buffer)} decisions twice"
