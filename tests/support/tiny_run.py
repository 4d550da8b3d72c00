"""A training of a few seconds in corridors, with the files of a real one, to compare with a stored reference.

``python tests/support/tiny_run.py`` trains five seeds and writes the reference to tests/data/reference_tiny.json, after
intended changes of learning.
"""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from stable_baselines3.common.logger import Logger

from nppsim.io.files import write_json
from rl.config.resume import RUN_FILE
from rl.ppo.logs import CSV_FILE, CSVOutput, TensorBoardOutput
from rl.tools.reference import make_reference
from rl.training.digests import DigestTrail
from rl.training.runs import StoredRun, find_runs

from learners import make_ppo
from places import DATA

REFERENCE = DATA / "reference_tiny.json"
SEEDS = (1, 2, 3, 4, 5)  # of the reference; other seeds are compared with it
UPDATES = 8
SETTINGS = {"num_envs": 32, "rollout_length": 32, "minibatch_size": 256, "n_epochs": 3, "learning_rate": 2e-3}


def train(folder, seed, updates=UPDATES, **changes) -> StoredRun:
    """Train for some updates and load the run from its folder."""
    sizes = SETTINGS | changes
    decisions = updates * sizes["num_envs"] * sizes["rollout_length"]
    ppo, _ = make_ppo(seed=seed, total_timesteps=decisions, **sizes)
    place = folder / f"seed_{seed}"
    write_json(folder / "config.json", {"experiment_name": "tiny"})
    settings = {f"ppo.{name}": {"value": value, "source": "default"} for name, value in asdict(ppo.config).items()}
    write_json(place / RUN_FILE, {"seed": seed, "settings": settings})
    ppo.logger = Logger(str(place), [TensorBoardOutput(place / "tensorboard"), CSVOutput(place / CSV_FILE)])
    ppo.learn(decisions, callback=DigestTrail(place))
    ppo.logger.dump(ppo.num_timesteps)
    ppo.logger.close()
    (run,) = find_runs(place)
    return run


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        reference = make_reference([train(Path(folder), seed) for seed in SEEDS])
    reference["seconds_per_million_decisions"] = {}  # tests measure no time
    write_json(REFERENCE, reference)
    print(f"written: {REFERENCE}")
