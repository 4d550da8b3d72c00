"""Program of each of two processes in tests/rl/distributed: torchrun starts ``together.py FOLDER``.

The scenarios in which a process ends run in forks, which need no imports of their own; PyTorch must not be forked later.
"""

import copy
import faulthandler
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rl.distributed.ranks import RanksError, TorchrunEnvironment, process_group

SIZES = {"num_envs": 4, "rollout_length": 32, "minibatch_size": 32, "total_timesteps": 4096, "n_epochs": 2}
ORDER = 5  # seed of the first update's order of decisions, plus the process's number
FIELDS = ("actions", "log_probs", "values", "rewards", "advantages", "returns", "episode_ends", "wins")


def order(rank):
    """Return the random generator that shuffles a process's decisions."""
    return np.random.default_rng(ORDER + rank)


def update(ppo):
    """Run one rollout and update with all checks."""
    from learners import roll_out

    roll_out(ppo)
    ppo.update()
    ppo.dump_logs()


def train(ranks, folder):
    """Run three updates, then repeat the third from its restored start."""
    import pytest

    from learners import make_ppo, roll_out, weights

    ppo, _ = make_ppo(ranks=ranks, **SIZES)
    ppo.policy.load_state_dict(ranks.broadcast(ppo.policy.state_dict()))
    roll_out(ppo)
    buffer = ppo.rollout_buffer
    np.savez(
        folder / f"rollout_{ranks.rank}.npz",
        **{f"obs_{key}": values.numpy() for key, values in buffer.obs.items()},
        **{name: getattr(buffer, name).numpy() for name in FIELDS},
    )
    before = weights(ppo.policy)
    ppo.rng = order(ranks.rank)
    ppo.update()
    torch.save((before, weights(ppo.policy), ppo.sampler.episodes), folder / f"update_{ranks.rank}.pt")
    ppo.logger.dump(ppo.num_timesteps)
    update(ppo)
    state, there = copy.deepcopy(ppo.training_state()), weights(ppo.policy)
    update(ppo)
    first = weights(ppo.policy)
    ppo.load_training_state(there, state)
    roll_out(ppo)
    ppo.update()
    assert all(torch.equal(tensor, first[name]) for name, tensor in weights(ppo.policy).items())
    assert not torch.equal(first["action_net.weight"], there["action_net.weight"])
    with pytest.raises(RanksError, match="colour of process 1"):
        ranks.check_equal({"colour": "red" if ranks.rank else "blue"})


def die(ranks, folder):
    """The second process is killed while the first waits for it."""
    if ranks.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    left_alone(lambda: ranks.all_reduce_mean([torch.ones(3)]), folder)


def fail_first(ranks, folder):
    """The first process fails while the second waits for its broadcast."""
    if not ranks.rank:
        raise ValueError("broken on purpose")
    left_alone(lambda: ranks.broadcast(None), folder)


def fail_second(ranks, folder):
    """The second process fails while the first waits for a mean."""
    if ranks.rank:
        raise ValueError("broken on purpose")
    left_alone(lambda: ranks.all_reduce_mean([torch.ones(3)]), folder)


ENDINGS = (die, fail_first, fail_second)


def left_alone(wait, folder):
    """Wait for a process that has ended until RanksError reports it."""
    try:
        wait()
    except RanksError as error:
        (folder / "message").write_text(str(error))


def forked(scenario, started, folder):
    """Run a scenario in a fork of this process and wait for its end."""
    folder.mkdir(exist_ok=True)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    faulthandler.dump_traceback_later(60, exit=True)  # nothing here may hang
    try:
        with process_group(started, "gloo", "cpu") as ranks:
            ranks.all_reduce_mean([torch.ones(3)])
            scenario(ranks, folder)
    finally:
        os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    started, folder = TorchrunEnvironment.from_environment(), Path(sys.argv[1])
    for number, scenario in enumerate(ENDINGS, start=1):  # groups of different restarts do not meet
        forked(scenario, replace(started, restarts=number), folder / scenario.__name__)
    faulthandler.dump_traceback_later(240, exit=True)
    with process_group(started, "gloo", "cpu") as together:
        train(together, folder)
    left = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    assert left.count("gloo_tcp_loop") <= 1, f"groups other than the default one, which never works, are left: {left}"
