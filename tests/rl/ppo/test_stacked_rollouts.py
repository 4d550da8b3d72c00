"""Rollouts of stacked frames: observations of decisions and of updates equal a queue of frames for each environment."""

from collections import deque

import numpy as np
import pytest
import torch

import hardware
from bc.thread_pool import ThreadPool
from hardware.memory import observation_bytes
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from rl.policy.architectures import get_architecture
from rl.ppo.ppo import PPO
from rl.ppo.update_benchmark import UpdateBenchmark

from learners import make_env, make_plan, make_ppo, roll_out, statistics

pytestmark = pytest.mark.usefixtures("one_thread")

STATES = "vision_free+state4"
REPEATED = "vision_free+state3-repeat"
IMAGES = "mlp_baseline+visual3-state2"
SIZES = {"num_envs": 4, "rollout_length": 24, "minibatch_size": 32, "n_epochs": 1}


def soon_over(ppo):
    """Time-outs end the first episodes after 20, 33, 47 and 60 decisions at the latest."""
    sim = ppo.sim
    left = np.array([20, 33, 47, 60]) * sim.frame_skip
    sim.state.ninja["frame"][:4] = sim.bank.time_limit[sim.level[:4]] - left


class Queues:
    """A queue of frames for each environment and stacked key, with the frames that the kernel writes."""

    def __init__(self, ppo):
        self.sim, self.frames = ppo.sim, ppo.sim.stacking.stacked(ppo.sim.keys)
        self.repeats = ppo.sim.stacking.padding == "repeat"
        self.queues = [{} for _ in range(self.sim.num_envs)]
        for env in range(self.sim.num_envs):
            self.begin(env)

    def begin(self, env):
        for key, frames in self.frames.items():
            frame = self.sim.latest[key][env].copy()
            self.queues[env][key] = deque([frame if self.repeats else 0 * frame] * (frames - 1), maxlen=frames)
            self.queues[env][key].append(frame)

    def after_step(self):
        for env in range(self.sim.num_envs):
            if env in self.sim.finished:
                self.begin(env)
            else:
                for key in self.frames:
                    self.queues[env][key].append(self.sim.latest[key][env].copy())

    def stacks(self):
        return {key: np.stack([np.stack(queues[key]) for queues in self.queues]) for key in self.frames}


def watched_rollouts(ppo, count):
    """(stacks by the queues before each decision of a rollout, the buffer's observations), for so many rollouts."""
    queues, step, network = Queues(ppo), ppo.sim.step, ppo.policy.logits_and_values
    for _ in range(count):
        wanted, decided = [queues.stacks()], []

        def stepping(actions, wanted=wanted):
            obs = step(actions)
            queues.after_step()
            wanted.append(queues.stacks())
            return obs

        def asked(observations, decided=decided):
            decided.append({key: observations[key].clone().numpy() for key in queues.frames})
            return network(observations)

        ppo.sim.step, ppo.policy.logits_and_values = stepping, asked
        roll_out(ppo)
        ppo.sim.step, ppo.policy.logits_and_values = step, network
        yield wanted, decided, ppo.rollout_buffer.observations(torch.arange(len(ppo.rollout_buffer)))


@pytest.mark.parametrize("architecture", [STATES, REPEATED, IMAGES])
def test_rollout_and_update_use_the_same_stacks(architecture):
    ppo, _ = make_ppo(architecture=architecture, **SIZES)
    ppo.pool = ThreadPool(1)  # so that all environments are asked about together
    soon_over(ppo)
    ends = 0
    for wanted, decided, found in watched_rollouts(ppo, 3):
        ends += int(ppo.rollout_buffer.episode_ends.sum())
        for t in range(SIZES["rollout_length"]):
            for key, values in wanted[t].items():
                learned = found[key].unflatten(0, ppo.rollout_buffer.shape)[t].numpy()
                np.testing.assert_array_equal(learned, values, err_msg=f"{key} before decision {t}")
                np.testing.assert_array_equal(decided[t][key], values, err_msg=f"{key} asked about in decision {t}")
        for key, values in wanted[-1].items():
            np.testing.assert_array_equal(ppo.sim.obs[key], values, err_msg=f"{key} after the last decision")
    assert ends > 3, "hardly an episode ended"


def test_stacks_cost_bytes_not_copies():
    plain, stacked = (make_ppo(architecture=name, **SIZES)[0].rollout_buffer for name in ("mlp_baseline", IMAGES))

    def stored(buffer):
        return sum(tensor.numel() * tensor.element_size() for tensor in (*buffer._stored.values(), buffer.ages))

    before = (
        2 * (84 * 84 + 176 * 100) + layout.SPECS["game_state"].bytes
    )  # frames before the rollout, of each environment
    assert stored(stacked) - stored(plain) == SIZES["num_envs"] * before
    keys = get_architecture(IMAGES).observations
    shown = observation_bytes(keys, Stacking(3, 2))
    assert shown - observation_bytes(keys) == before
    made = hardware.plan(
        keys, hardware.PlanRequest(num_envs=64, rollout_length=32, minibatch_size=64), stacking=Stacking(3, 2)
    )
    usual = hardware.plan(keys, hardware.PlanRequest(num_envs=64, rollout_length=32, minibatch_size=64))
    rows, usual_rows = ({row.name: row.bytes for row in one.memory} for one in (made, usual))
    assert 0 < rows["rollout buffer"] - usual_rows["rollout buffer"] < 0.2 * usual_rows["rollout buffer"]
    assert UpdateBenchmark(IMAGES, "cpu", "float32").peak_bytes(8) > UpdateBenchmark(
        "mlp_baseline", "cpu", "float32"
    ).peak_bytes(8)


def test_simulator_with_other_stacking_raises():
    ppo, _ = make_ppo(architecture=STATES, **SIZES)
    env = make_env(architecture="vision_free+state4-repeat")  # as long, but padded otherwise
    with pytest.raises(ValueError, match="the simulator shows .*repeat.*reads .*zero"):
        PPO(env, STATES, ppo.config, make_plan(), statistics=statistics())
